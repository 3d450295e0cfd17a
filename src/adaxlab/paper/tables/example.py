"""README's example of `adax compare`, and how often its verdicts are wrong: from records of the default command and of
`benchmarks/fairness.py`."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from statistics import NormalDist
from typing import Any

from adaxlab import compare, store
from adaxlab.answer import answer
from adaxlab.study import Study, Tuning
from adaxlab.summary import summarise

RECORD = "compare_digits.jsonl"
STUDY = Study(
    task="digits",
    rows=compare.rows(("sgdm", "adamw", "amsgradw", "adaxw")),
    tuning=Tuning(8),
    epochs=20,
    baseline="adamw",
)


def section(root: Path) -> str:
    path = root / "records" / RECORD
    if not path.is_file():
        return "*Not run yet (`adax compare digits`).*"
    text = answer(summarise(STUDY, store.read_export(path))).text
    return f"```text\n$ adax compare digits\n{textwrap.fill(text, 124)}\n```"


def wrong(record: dict[str, Any]) -> str:
    """How many comparisons of a method with itself have a verdict, with Wilson's 95% interval."""
    found = record["comparisons"]
    n, count = len(found), sum(any(_decided(each) for each in one) for one in found)
    copies = {2: "two", 3: "three"}[len(found[0]) - 1]
    z = NormalDist().inv_cdf(0.975)
    middle, half = count + z * z / 2, z * math.sqrt(count * (n - count) / n + z * z / 4)
    low, high = (100 * each / (n + z * z) for each in (middle - half, middle + half))
    return (
        f"In {n} comparisons of AdamW with {copies} copies of itself on other seeds, {count} "
        f"({100 * count / n:.0f}%, 95% interval {low:.0f}% to {high:.0f}%) called at least one copy better or worse. "
        f"The test is designed for at most 5%. Each was of a small net on `{record['task']}`, with eight learning "
        "rates and five seeds for every copy, so chance in the choice of the learning rate is included. This says "
        "nothing about true differences that are missed "
        "(`python benchmarks/fairness.py`, [record](../records/fairness.json))."
    )


def _decided(row: dict[str, Any]) -> bool:
    return row["outcome"] in ("better", "worse")
