"""Convert record files of earlier formats to today's (`adaxlab.store.export`): `python tools/convert_records.py`.

    records/language/ptb.jsonl, ... (schema 1)   specifications without the data's digest, named language-ptb

Files that are in today's format are left alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from adaxlab import spec, store

PLAIN = {"language-ptb": "language/ptb", "language-enwik8": "language/enwik8", "gpt": "gpt"}
PLAIN |= {"voc-camvid": "voc/camvid", "voc-tuning": "voc/tuning"}


def exported(row: dict[str, Any]) -> store.RunRecord:
    """A run of schema 1."""
    old = row["spec"]
    new = {
        **old,
        "schema": spec.SCHEMA,
        "study": PLAIN.get(old["study"], old["study"]),
        "data": row["env"]["data"],
    }
    new["row"] = new["optimizer"] = new["optimizer"].replace("adaxopt.lab.", "adaxlab.")
    return store.RunRecord(json.loads(spec.canonical(new)), row["env"], row["metrics"], row["done"], Path())


def main() -> None:
    """Convert every file of records/."""
    for path in sorted(Path("records").rglob("*.jsonl")):
        header, *rows = [json.loads(line) for line in path.read_text().splitlines()]
        if header.get("kind") == store.EXPORT and header["schema"] == 1:
            for row in rows:
                row["done"]["schema"] = spec.SCHEMA
            store.export([exported(row) for row in rows], path)
            print(f"{path}: {len(rows)} runs")


if __name__ == "__main__":
    main()
