"""The language tables in words, from records made by hand."""

from __future__ import annotations

import pytest

from adaxlab.language import tables


def shown(name, verdict=None, by=None, diverged=0, trials=((5e-4, 4.0), (1e-3, 3.0)), lr=1e-3):
    more = {"verdict": verdict} if verdict else {}
    more |= {"better_by": by} if by else {}
    ends = {"mean": 3.0, "low": 2.9, "high": 3.1}
    options = {"lr": lr, "betas": [0.9, 0.5]}
    return {
        "optimizer": name, "trials": list(map(list, trials)), "options": options, "n": 3, "diverged": diverged,
        **ends, **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("row", "cell"),
    [
        (shown("adam"), "baseline"),
        (shown("x", "held", [0.1, 0.05, 0.15]), "better: +0.1000 (+0.0500 to +0.1500)"),
        (shown("x", "not held", [-0.1, -0.15, -0.05]), "worse: -0.1000 (-0.1500 to -0.0500)"),
        (shown("x", "undecided", [0.1, -0.15, 0.35]), "undecided: +0.1000 (-0.1500 to +0.3500)"),
        (shown("x", "not held", [0.1, 0.0, 0.2], diverged=1), "not better (1 diverged): +0.1000 (+0.0000 to +0.2000)"),
        (shown("x", "not held", diverged=3), "not better (3 diverged)"),
        (shown("x"), "undecided"),
    ],
)  # fmt: skip
def test_a_verdict_in_words(row, cell):
    grid = {"baseline": "adam", "note": "Note.", "rows": [{"options": {}}]}
    lines = tables.words({"rows": [row], "grid": grid, "title": "Title"}).splitlines()
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
    grid = {"baseline": "adam", "note": "Note.", "rows": [{"options": {"lr": 5e-4}}]}
    text = tables.words({"rows": [shown("x", trials=trials, lr=lr)], "grid": grid, "title": "Title"})
    head = " Validation perplexity at the paper's lr and at the best tried:" if said else ""
    assert text.endswith(f"Title. Note.{head}{said}")
