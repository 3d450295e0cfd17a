"""The claims on language: verdicts from records made by hand, and the committed file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adaxlab import claims as shared
from adaxlab.language import claims, studies, tables

RECORDS = Path(__file__).parents[2] / "records"


def row(name, first, last, test, spread=0.001, n=3, diverged=0):
    """Curves of two evaluations; each seed lies a little elsewhere, by another amount for each row."""
    shifts = [spread * (seed - 1) * (1 + 0.3 * len(name) % 1) for seed in range(n)]
    curves = {str(i): [[10, first + s, 9.0], [20, last + s, test + s]] for i, s in enumerate(shifts)}
    curves |= {str(n + i): [] for i in range(diverged)}
    return {"optimizer": name, "curves": curves, "diverged": diverged}


def record(adam, adax, amsgrad=(5.0, 5.0, 5.0), **more):
    return {
        "rows": [
            row("adam", *adam),
            row("adax", *adax, **more),
            row("amsgrad", *amsgrad),
            row("adax@b2T=3", *adax),
        ]
    }


SLOW, FAST = (6.1, 4.0, 4.5), (6.0, 4.1, 4.6)


@pytest.mark.parametrize(
    ("which", "made", "verdict"),
    [
        ("adax-over-adam", record(adam=FAST, adax=SLOW), "held"),
        ("adax-over-adam", record(adam=SLOW, adax=FAST), "not held"),
        ("adax-over-adam", record(adam=SLOW, adax=SLOW, spread=0.05), "undecided"),
        ("adax-over-adam", record(adam=FAST, adax=SLOW, diverged=1), "not held"),
        ("adax-over-adam", record(adam=FAST, adax=SLOW, n=2), "undecided"),
        ("adax-over-adam", None, "undecided"),
        ("adax-over-adam.b2T3", record(adam=FAST, adax=SLOW), "held"),
        ("slow-start", record(adam=FAST, adax=SLOW), "held"),
        ("slow-start", record(adam=FAST, adax=(5.9, 4.0, 4.5)), "not held"),
        ("slow-start", record(adam=FAST, adax=(6.1, 4.0, 4.7)), "not held"),
        ("amsgrad-poor", record(adam=FAST, adax=SLOW, amsgrad=(6.0, 4.8, 4.9)), "held"),
        ("amsgrad-poor", record(adam=FAST, adax=SLOW, amsgrad=(6.0, 4.1, 4.65)), "not held"),
    ],
)
def test_verdicts(which, made, verdict):
    (claim,) = (c for c in claims.CLAIMS if c.id == which)
    judged = claims.judge(claim, "ptb", made)
    assert judged["verdict"] == verdict, judged
    assert judged["n"] == (0 if made is None else min(len(r["curves"]) - r["diverged"] for r in made["rows"]))
    assert judged["ours"].startswith("not run") == (made is None)


def test_perplexities_are_shown():
    (claim,) = (c for c in claims.CLAIMS if c.id == "adax-over-adam")
    assert "(perplexities 90.0 and 99.5)" in claims.judge(claim, "ptb", record(adam=FAST, adax=SLOW))["ours"]


def test_claims_speak_of_rows_that_exist():
    names = {row.optimizer for row in studies.ROWS}
    assert {name for claim in claims.CLAIMS for name in (claim.a, claim.b)} <= names


@pytest.mark.parametrize(
    ("rule", "margin", "interval", "want"),
    [
        ("above", 0.0, (0.1, 0.2), "held"),
        ("above", 0.0, (-0.2, -0.1), "not held"),
        ("above", 0.5, (0.1, 0.6), "undecided"),
        ("below", 1.0, (0.1, 0.6), "held"),
        ("below", 1.0, (1.1, 1.6), "not held"),
        ("no-loss", 0.5, (-0.4, 0.1), "held"),
        ("no-loss", 0.5, (-0.9, -0.6), "not held"),
        ("within", 0.3, (-0.2, 0.2), "held"),
        ("within", 0.3, (0.4, 0.5), "not held"),
        ("within", 0.3, (-0.5, 0.2), "undecided"),
        ("ratio", 0.05, (0.97, 1.02), "held"),
        ("ratio", 0.05, (1.06, 1.2), "not held"),
        ("ratio", 0.05, (1.01, 1.2), "undecided"),
    ],
)
def test_outcomes(rule, margin, interval, want):
    assert shared.outcome(rule, margin, *interval) == want


def test_the_committed_file_is_what_the_records_give(tmp_path, capsys):
    command = ("language", "adaxlab.language.claims", claims.all_claims)
    assert shared.command(*command, ["--records", str(RECORDS), "--check"]) == 0
    assert shared.command(*command, ["--records", str(tmp_path), "--check"]) == 1
    assert "run python -m adaxlab.language.claims" in capsys.readouterr().err
    assert shared.command(*command, ["--records", str(tmp_path)]) == 0
    assert len(json.loads((tmp_path / "claims" / "language.json").read_text())) == 2 * len(claims.CLAIMS)


# -- tables -----------------------------------------------------------------------------------------------------------


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
