"""README's example of `adax compare`: the answer that the recorded runs of the default command give."""

from __future__ import annotations

import textwrap
from pathlib import Path

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
