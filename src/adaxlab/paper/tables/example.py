"""README's example of `adax compare`, and how often its verdicts are wrong: from records of the default command and of
`benchmarks/fairness.py`."""

from __future__ import annotations

import textwrap
from pathlib import Path
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
    """How many comparisons of a method with itself have a verdict, and how this depends on the tuned rates."""
    found = record["comparisons"]
    count = sum(any(_decided(each) for each in one) for one in found)
    copies = {2: "two", 3: "three"}[len(found[0]) - 1]
    pairs = [(one[0]["lr"] == each["lr"], _decided(each)) for one in found for each in one[1:]]
    shares = {}
    for same in (True, False):
        decided = [verdict for equal, verdict in pairs if equal is same]
        shares[same] = f"{sum(decided)} of {len(decided)}"
    return (
        f"In {len(found)} comparisons of AdamW with {copies} copies of itself on other seeds (a small net on "
        f"`{record['task']}`, eight learning rates and five seeds each), {count} had a verdict. By chance at most "
        f"{len(found) / 20:g} are to be expected where all have the same learning rate. But a few noisy tuning runs "
        f"choose different rates for two copies, and then there is a difference to find: copies with the same rate had "
        f"a verdict in {shares[True]} cases, copies with different rates in {shares[False]}. A verdict is therefore "
        "about an optimizer as it was tuned; repeat a study that matters with `--base-seed 1`."
    )


def _decided(row: dict[str, Any]) -> bool:
    return row["outcome"] in ("better", "worse")
