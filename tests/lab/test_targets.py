"""Steps to a target, several tasks together, and the tuning curve."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_results import ADAMW, BETTER, LIKE, WORSE, result

from adaxlab import cross_task, reach, table, tuning_curve
from adaxlab.study import Tuning

LINES = [{"step": 100 * i, "seconds": i, "metric": 0.8 + 0.02 * i} for i in range(1, 7)]


@pytest.mark.parametrize(
    ("target", "higher", "key", "expected"),
    [
        (0.83, True, "step", 150.0),
        (0.83, True, "seconds", 1.5),
        (0.5, True, "step", 100.0),
        (0.99, True, "step", None),
    ],
)
def test_when_a_target_is_reached(target, higher, key, expected):
    found = reach.reached(LINES, target, higher, key)
    assert found == (None if expected is None else pytest.approx(expected))


def test_the_target_is_the_baselines_median_and_a_run_below_it_is_censored():
    slow = [dict(line, metric=line["metric"] - 0.1) for line in LINES]
    made = result(adamw=ADAMW, adaxw=LIKE, sgdm=WORSE, curves={"adamw": LINES, "adaxw": LINES, "sgdm": slow})
    assert made.target == 0.90
    adamw, adaxw, sgdm = made.rows
    assert adaxw.steps_to == pytest.approx((500.0,) * 5)
    assert adaxw.seconds_to == pytest.approx((5.0,) * 5)
    assert sgdm.steps_to == (None,) * 5
    assert (adamw.scores, sgdm.scores) == ((0.4, 0.5), (None, 0.5))
    from rich.console import Console

    console = Console(width=100, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table.details(made))
    console.file.close()
    text = " ".join(console.export_text().split())
    for words in (
        "adaxw 500 5 0.4 0.5 none",
        "sgdm never (0 of 5)",
        "1 of 2 trials diverged",
        "median final result of",
    ):
        assert words in text


def test_tasks_together():
    fast, slow = LINES, [dict(line, step=2 * line["step"], seconds=2 * line["seconds"]) for line in LINES]
    one = result(adamw=ADAMW, adaxw=BETTER, curves={"adamw": LINES, "adaxw": slow})
    two = result(adamw=ADAMW, adaxw=LIKE, curves={"adamw": slow, "adaxw": fast})
    three = result(adamw=ADAMW, adaxw=WORSE, curves={"adamw": LINES, "adaxw": LINES[:1]})
    tasks = [
        replace(r, study=replace(r.study, task=name)) for r, name in ((one, "a"), (two, "b"), (three, "c"))
    ]
    seconds = cross_task.times(tasks)
    assert seconds == {
        "a": {"adamw": 5, "adaxw": 10},
        "b": {"adamw": 10, "adaxw": 5},
        "c": {"adamw": 5, "adaxw": None},
    }
    assert cross_task.profile(seconds, (1, 2)) == {"adamw": [2 / 3, 1.0], "adaxw": [1 / 3, 2 / 3]}
    means, over = cross_task.geometric(seconds, "adamw")
    assert over == ["a", "b"]  # where one did not reach the target, no mean is taken
    assert means == pytest.approx({"adamw": 1.0, "adaxw": 1.0})
    assert cross_task._verdicts(tasks[0]) == "better: adaxw"


def test_random_trials_have_a_band(monkeypatch):
    pytest.importorskip("opda", reason="an optional package")
    scores = [None, 0.5, 0.7, 0.6, 0.2, 0.9, 0.8, 0.4, 0.3, 0.65]
    found = tuning_curve.bands(scores, True)
    assert [band.trials for band in found] == list(range(1, 11))
    assert all(band.low <= band.median <= band.high for band in found)
    assert [band.median for band in found] == sorted(
        band.median for band in found
    )  # more trials find no less
    assert 0.5 <= found[0].median <= 0.6  # of one trial: the sample's median
    down = tuning_curve.bands([None if s is None else -s for s in scores], False)
    assert [(-b.median, -b.high, -b.low) for b in down] == [(b.median, b.low, b.high) for b in found]


def test_bands_are_for_random_trials_alone():
    made = result(adamw=ADAMW, adaxw=LIKE)
    assert table._expected(made) == []
    drawn = replace(made, study=replace(made.study, tuning=Tuning(2, sampler="random")))
    [said] = table._expected(drawn)
    assert "random trials" in said
