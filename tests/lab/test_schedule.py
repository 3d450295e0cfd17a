"""Schedules against torch's own schedulers and by hand."""

from __future__ import annotations

import warnings

import pytest
import torch

from adaxlab import schedule
from adaxlab.errors import LabError

T = 40
lr_scheduler = torch.optim.lr_scheduler


def torch_factors(make):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer)
    result = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(T):
            result.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
    return result


ORACLES = [
    ("constant", lambda o: lr_scheduler.LambdaLR(o, lambda step: 1.0)),
    ({"name": "cosine", "final": 0.1}, lambda o: lr_scheduler.CosineAnnealingLR(o, T, eta_min=0.1)),
    ({"name": "linear", "final": 0.2}, lambda o: lr_scheduler.LinearLR(o, 1.0, 0.2, T)),
    ({"name": "poly", "power": 2.0}, lambda o: lr_scheduler.PolynomialLR(o, T, 2.0)),
    (
        {"name": "step", "milestones": [10, 30], "gamma": 0.5},
        lambda o: lr_scheduler.MultiStepLR(o, [10, 30], 0.5),
    ),
    ({"name": "step", "milestones": [0.25, 0.75]}, lambda o: lr_scheduler.MultiStepLR(o, [10, 30], 0.1)),
]


@pytest.mark.parametrize(("given", "make"), ORACLES, ids=[str(row[0])[:45] for row in ORACLES])
def test_like_torch(given, make):
    factor = schedule.factor(given, T)
    assert [factor(step) for step in range(T)] == pytest.approx(torch_factors(make), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", schedule.NAMES)
@pytest.mark.parametrize("warmup", [4, 0.1])
def test_warmup_rises_to_one_then_the_schedule_starts(name, warmup):
    with_warmup = schedule.factor({"name": name, "warmup": warmup}, T)
    assert [with_warmup(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    if name != "step":  # its milestones count from the start of the run
        plain = schedule.factor(name, T - 4)
        assert [with_warmup(step) for step in range(4, T)] == pytest.approx(
            [plain(step) for step in range(T - 4)]
        )


def test_complete_writes_every_default_out():
    assert schedule.complete("cosine") == {"name": "cosine", "warmup": 0, "final": 0.0}
    assert schedule.complete(schedule.complete("step")) == schedule.complete("step")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("cosin", "known are constant, step, cosine, poly, linear"),
        ({"name": "cosine", "power": 2}, "known are warmup, final"),
        ({"name": "poly", "power": 0}, "power=0: must be > 0"),
        ({"name": "linear", "warmup": -1}, "warmup=-1: must be >= 0"),
        ({"name": "step", "milestones": [-0.5]}, "each >= 0"),
    ],
)
def test_refuses(given, words):
    with pytest.raises(LabError, match=words):
        schedule.complete(given)


def test_as_text():
    text = "step,milestones=10/30,gamma=0.5,warmup=0.1"
    full = {"name": "step", "warmup": 0.1, "milestones": [10, 30], "gamma": 0.5}
    assert schedule.complete(text) == full
    assert schedule.complete(schedule.words(full)) == full
    with pytest.raises(LabError, match="must be option=value"):
        schedule.complete("cosine,warmup")
    with pytest.raises(LabError, match="must be a number"):
        schedule.complete("cosine,warmup=lots")
    with pytest.raises(LabError, match="must be a name with its options"):
        schedule.complete(("cosine", {"warmup": 0.1}))
