"""The language tables in words, from records made by hand."""

from __future__ import annotations

import pytest

from adaxlab import stats, summary
from adaxlab.paper.tables import language as tables
from adaxlab.study import Row, Study


def shown(name, verdict=None, by=None, diverged=0, trials=((5e-4, 4.0), (1e-3, 3.0)), lr=1e-3):
    """A row's result: n = 3 runs that ended, beside those that diverged."""
    difference = stats.Estimate(3, by[0], 0.0, by[1], by[2]) if by else None
    judged = stats.Verdict(verdict, 3, difference, None, stats.Rule()) if verdict else None
    values = dict.fromkeys(range(3), 3.0) | dict.fromkeys(range(3, 3 + diverged))
    ends = stats.Estimate(3, 3.0, 0.0, 2.9, 3.1)
    options = {"lr": lr, "betas": [0.9, 0.5]}
    return summary.RowResult(name, options, lr, dict(trials), values, ends, judged, None, 0.0, 0.0)


def page(row, **options):
    study = Study(
        "language", (Row(row.name, options=options),), "s", title="Title", note="Note.", baseline=row.name
    )
    return tables.words(summary.Comparison(study, [], [row], "nats", False))


@pytest.mark.parametrize(
    ("row", "cell"),
    [
        (shown("adam"), "baseline"),
        (shown("x", "held", [0.1, 0.05, 0.15]), "better: +0.1000 (+0.0500 to +0.1500)"),
        (shown("x", "not held", [-0.1, -0.15, -0.05]), "worse: -0.1000 (-0.1500 to -0.0500)"),
        (shown("x", "undecided", [0.1, -0.15, 0.35]), "undecided: +0.1000 (-0.1500 to +0.3500)"),
        (shown("x", "not held", [0.1, 0.0, 0.2], diverged=1), "not better (1 diverged): +0.1000 (+0.0000 to +0.2000)"),
        (shown("x", "not held", diverged=3), "not better (3 diverged)"),
        (shown("x", "undecided"), "undecided"),
    ],
)  # fmt: skip
def test_a_verdict_in_words(row, cell):
    lines = page(row).splitlines()
    assert lines[2].endswith(f"| 20.1 (18.2 to 22.2) | {cell} |")
    assert lines[-1] == "Title. Note."


@pytest.mark.parametrize(
    ("trials", "lr", "said"),
    [
        (((5e-4, 4.0), (1e-3, 3.0)), 1e-3, " `x` 55 at 0.0005, 20 at 0.001."),
        (((5e-4, 53.5), (1e-3, 3.0)), 1e-3, " `x` e^54 at 0.0005, 20 at 0.001."),
        (((5e-4, None), (1e-3, 900.0)), 1e-3, " `x` diverged at 0.0005, e^900 at 0.001."),
        (((5e-4, None), (1e-3, None)), 1e-3, " `x` diverged at 0.0005, diverged at 0.001."),
        (((5e-4, 3.0), (1e-3, 4.0)), 5e-4, " `x` 20 at 0.0005, the best."),
        (((2e-3, 3.0), (1e-3, 4.0)), 2e-3, ""),
    ],
)  # fmt: skip
def test_what_the_papers_own_lr_came_to(trials, lr, said):
    text = page(shown("x", trials=trials, lr=lr), lr=5e-4)
    head = " Validation perplexity at the paper's lr and at the best lr tried:" if said else ""
    assert text.endswith(f"Title. Note.{head}{said}")
