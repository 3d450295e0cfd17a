"""Plugin of `make test-robust`: random weights are moved by half an ulp, and tests that train are listed.

`pytest -p robust --nudge same` multiplies every value that torch.nn.init or torch.randn draws by 1 - eps/2 or
1 + eps/2, the same for the same draw: a test fails that depends on the last digit of its start. `--nudge apart` moves
equal draws differently, as two ways of computing would: a test fails that compares trajectories with too small a
tolerance. Tests that compare bits of repeated runs fail under it too, and should. Tests marked `other_process` compare
with a process in which nothing is moved, and are left alone.
"""

from __future__ import annotations

import functools
import itertools

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

MOST = 2
"""Steps up to which a test is not listed."""
DRAWS = ("uniform_", "normal_", "trunc_normal_", "orthogonal_", "xavier_uniform_", "xavier_normal_")
DRAWS += ("kaiming_uniform_", "kaiming_normal_")
counts = {"steps": 0, "nudged": 0}
MARK = "other_process"
alone = False
"""Whether the running test is marked so."""


def pytest_addoption(parser):
    parser.addoption("--nudge", choices=["same", "apart"], help="move random weights by half an ulp")


def pytest_configure(config):
    register_optimizer_step_post_hook(lambda *_: counted("steps"))
    if how := config.getoption("nudge"):
        seeds = itertools.count() if how == "apart" else itertools.repeat(0)
        for module, name in [*((torch.nn.init, name) for name in DRAWS), (torch, "randn")]:
            setattr(module, name, nudged(getattr(module, name), seeds))


def counted(what):
    counts[what] += 1


def nudged(draw, seeds):
    @functools.wraps(draw)
    def wrapped(*args, **kwargs):
        drawn = draw(*args, **kwargs)
        movable = drawn.is_floating_point() and drawn.device.type == "cpu"
        if movable and not alone and not torch.compiler.is_compiling():
            counted("nudged")
            generator = torch.Generator().manual_seed(next(seeds))
            up = torch.randint(0, 2, drawn.shape, generator=generator, device="cpu").to(drawn.dtype)
            with torch.no_grad():
                drawn.mul_(1 + (up - 0.5) * torch.finfo(drawn.dtype).eps)
        return drawn

    return wrapped


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    global alone
    counts.update(steps=0, nudged=0)
    alone = item.get_closest_marker(MARK) is not None
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    if call.when == "teardown" and counts["steps"] > MOST:
        item.user_properties.append(("trained", dict(counts)))
    return (yield)


def pytest_terminal_summary(terminalreporter):
    """The tests that took more than two steps, with how many, and how many draws were moved before."""
    reports = (r for some in terminalreporter.stats.values() for r in some if hasattr(r, "user_properties"))
    found = {r.nodeid: dict(r.user_properties)["trained"] for r in reports if r.user_properties}
    terminalreporter.section(f"{len(found)} tests train more than {MOST} steps: test, steps, draws moved")
    for name, count in sorted(found.items()):
        terminalreporter.line(f"{name} {count['steps']} {count['nudged']}")
