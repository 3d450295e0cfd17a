"""A comparison of two optimizers on a tiny task, for tests of what surrounds its runs."""

from __future__ import annotations

from pathlib import Path

from adaxlab import compare, study

TINY = str(Path(__file__).with_name("tiny.py"))


def small(**changes):
    given = dict(
        task=f"{TINY}:Tiny", optimizers=("sgdm", "adaxw"), seeds=3, tune=3, epochs=2, name="small", options={}
    )
    given |= changes
    rows = compare.rows(given.pop("optimizers"), given.pop("options"))
    tune = given.pop("tune")
    return study.Study(**given, rows=rows, tuning=study.Tuning(tune) if tune else None)


def final(given, name, seed):
    """The specification of a final run at the row's own lr."""
    row = given.row(name)
    return given.spec(row, row.lr(), seed=seed, purpose="final")
