"""The paper's problems under the rule: the values of the paper's setting, the fast form against the plain
loop, and the appendix's closed forms as an independent oracle."""

from __future__ import annotations

import numpy as np
import pytest

from adaxlab.paper.theory import closed
from adaxlab.paper.theory.problems import Alternating, Fading, Rare
from adaxlab.paper.theory.simulate import Setting, path, updates, walk
from adaxopt.zoo import METHODS

PLAIN = [name for name in METHODS if not name.endswith("w")]


def settings(name: str, **options) -> Setting:
    return Setting(name, name, options)


FIGURE_3A = {
    "sgd": settings("sgdm", lr=0.1, betas=(0.0, 0.0)),
    "sgdm": settings("sgdm", lr=0.1, betas=(0.9, 0.0)),
    "adam": settings("adam", lr=1e-3, betas=(0.9, 0.999)),
    "amsgrad": settings("amsgrad", lr=1e-3, betas=(0.9, 0.999)),
    "adax": settings("adax", lr=5e-3, betas=(0.9, 1e-4)),
}


@pytest.mark.parametrize(("name", "crossing"), [("sgd", None), ("sgdm", 1063), ("adam", 1023), ("adax", 210)])
def test_crossings_of_problem_4(name, crossing):
    problem, steps = Fading(), 3000
    below = [s.t for s in path(FIGURE_3A[name], problem.gradient, 1.0, steps, problem.domain) if s.after < 0]
    assert (below[0] if below else None) == crossing


@pytest.mark.parametrize(
    ("name", "size"), [("sgdm", 6.7e-6), ("amsgrad", 8.2e-6), ("adax", 5.8e-5), ("adam", 9e-4)]
)
def test_update_sizes_of_problem_4_at_50k_steps(name, size):
    last = updates(FIGURE_3A[name], Fading().sizes(50_000)).update[-1]
    digits = 1 if name == "adam" else 2
    assert float(f"{last:.{digits - 1}e}") == size


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("schedule", ["constant", "sqrt"])
@pytest.mark.parametrize("steps", [1, 2, 7, 1000])
def test_blocks_of_time_equal_the_plain_loop(name, schedule, steps):
    g = np.random.default_rng(steps).normal(size=steps) + 0.3
    setting = Setting(name, name, {}, schedule)
    fast = updates(setting, g)
    plain = list(path(setting, lambda t, x: float(g[t - 1]), 0.2, steps, (-0.01, 0.25)))
    xs = walk(fast.update, 0.2, (-0.01, 0.25))
    np.testing.assert_allclose(fast.d, [s.d for s in plain], rtol=1e-11)
    np.testing.assert_allclose(xs[1:], [s.after for s in plain], rtol=0, atol=1e-12)
    assert xs[0] == 0.2


def test_lanes_equal_scalars():
    """An array of starting points takes the steps that each of them takes alone."""
    setting = Setting("adax", "adax", {"lr": 0.05}, "sqrt")
    starts = np.array([-1.0, 0.5, 2.0])
    together = [s.after for s in path(setting, lambda t, x: 2 * x + np.sin(3 * x), starts, 50)][-1]
    alone = [list(path(setting, lambda t, x: 2 * x + np.sin(3 * x), float(x), 50))[-1].after for x in starts]
    np.testing.assert_allclose(together, alone, rtol=1e-13)


@pytest.mark.parametrize(
    ("name", "b2", "end"),
    [
        ("sgdm", 0.0, -1),
        ("amsgrad", 0.999, -1),
        ("adax", 1e-4, -1),
        ("adam", 0.1, 1),
        ("adam", 0.9, -1),
        ("adam", 0.99, -1),
        ("adam", 0.999, -1),
    ],
)
def test_where_problem_3_ends(name, b2, end):
    problem = Alternating()
    g = problem.gradients(1_000_000)
    setting = Setting(name, name, {"lr": 0.1, "betas": (0.0, b2)}, "sqrt")
    assert walk(updates(setting, g).update, 0.0, problem.domain)[-1] == pytest.approx(end, abs=1e-3)


def test_rare_gradients_point_to_minus_one():
    problem = Rare()
    assert problem.mean == pytest.approx(0.2)
    assert problem.gradients(200_000, seed=0).mean() == pytest.approx(0.2, abs=1.0)
    assert not np.array_equal(problem.gradients(1000, 0), problem.gradients(1000, 1))


def test_zero_is_the_optimum_of_problem_4():
    x = np.linspace(-2, 2, 401)
    assert x[np.argmin(Fading().total_loss(x, 1000))] == 0


T = np.arange(1.0, 3001)
FADES = [(0.9999, 0.999, 1e-4), (0.99, 0.9, 1e-3), (0.9, 0.5, 1e-2)]


@pytest.mark.parametrize(("fade", "b2", "growth"), FADES)
def test_closed_forms_of_the_appendix(fade, b2, growth):
    problem = Fading(C=2.0, fade=fade)
    g = problem.sizes(len(T))
    t = T[g**2 > 1e-200]
    g = g[: len(t)]

    def direction(name, **options):
        return updates(Setting(name, name, {"lr": 1.0, "eps": 0.0, **options}), g)

    rms = direction("rmsprop", betas=(0.0, b2))
    np.testing.assert_allclose(rms.d**2, closed.adam_second_moment(t, 2.0, fade, b2), rtol=1e-10)
    np.testing.assert_allclose(rms.update, closed.adam_direction(t, fade, b2), rtol=1e-10)
    assert rms.update.min() >= closed.adam_floor(fade, b2) * (1 - 1e-12)

    b1 = 0.5 * np.sqrt(b2)
    plain = direction("adam", betas=(b1, b2)).update * (1 - b1**t) / np.sqrt(1 - b2**t)
    np.testing.assert_allclose(plain, closed.adam_direction(t, fade, b2, b1), rtol=1e-10)
    assert plain.min() >= closed.adam_floor(fade, b2, b1) * (1 - 1e-12)

    ams = direction("amsgrad", betas=(0.0, b2), correct=False)
    np.testing.assert_allclose(ams.update, closed.amsgrad_direction(t, fade, b2), rtol=1e-10)

    adax = direction("adax", betas=(0.0, growth))
    np.testing.assert_allclose(adax.update, closed.adax_direction(t, fade, growth), rtol=1e-10)
    assert (adax.update <= closed.adax_ceiling(t, fade, growth) * (1 + 1e-12)).all()


def test_amsgrad_follows_adam_up_to_the_peak():
    fade, b2 = 0.9999, 0.999
    peak = closed.amsgrad_peak(fade, b2)
    t = np.arange(1.0, 5000)
    adam, ams = closed.adam_direction(t, fade, b2), closed.amsgrad_direction(t, fade, b2)
    np.testing.assert_allclose(ams[t <= peak], adam[t <= peak], rtol=1e-12)
    assert (ams[t > peak + 1] < adam[t > peak + 1]).all()
    assert t[np.argmax(closed.adam_second_moment(t, 1.0, fade, b2))] in (np.floor(peak), np.ceil(peak))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Setting("a", "adam", {}, "cosine").numbers(np.ones(1)), "schedule='cosine': known are"),
        (
            lambda: updates(Setting("a", "adamw", {"weight_decay": 0.1}), np.ones(3)),
            "weight_decay=0.1: updates",
        ),
        (lambda: Setting("a", "adamm").rule, "unknown method; known are"),
    ],
)
def test_errors_say_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call()
