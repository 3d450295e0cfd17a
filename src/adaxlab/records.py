"""The committed results: records/<study>.jsonl holds the runs of a study, one line each."""

from __future__ import annotations

from pathlib import Path

from adaxlab import store

FOLDER = Path("records")


def load(root: Path, study: str) -> list[store.RunRecord]:
    """The runs of a study in the folder of records `root`; none if it was not run."""
    path = root / f"{study}.jsonl"
    return store.read_export(path) if path.is_file() else []
