"""StepCoefficients of the theory against values that were worked out by hand or by another road."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from adaxlab.paper.theory import lemmas, precision, rate, regret, theorems, variant, weights
from adaxlab.paper.theory.record import places, record
from adaxlab.paper.theory.simulate import Setting, path

# -- memories --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        ("adam", lambda i, t: (1 - 0.999) * 0.999 ** (t - i) / (1 - 0.999**t)),
        ("rmsprop", lambda i, t: (1 - 0.99) * 0.99 ** (t - i)),
        ("adagrad", lambda i, t: np.full(t, 1 / t)),
        ("nosadam", lambda i, t: i**-0.1 / (i**-0.1).sum()),
        ("adax", lambda i, t: 1e-4 * 1.0001 ** (t - i) / (1.0001**t - 1)),
    ],
)
def test_weights_of_the_memories(name, weight):
    t = 500
    np.testing.assert_allclose(
        weights.weights(Setting(name, name), t), weight(np.arange(1.0, t + 1), t), rtol=1e-10
    )


def test_weights_are_what_a_single_square_leaves_in_v():
    setting = Setting("adax", "adax", {"betas": (0.9, 1e-2)})
    for i in (1, 7, 30):
        states = path(setting, lambda t, x, i=i: float(t == i), 0.0, 30)
        assert [s.v for s in states][-1] == pytest.approx(weights.weights(setting, 30)[i - 1], rel=1e-12)


def test_adashift_leaves_out_the_newest():
    w = weights.weights(Setting("adashift", "adashift"), 50)
    assert (w[-10:] == 0).all()
    assert w.sum() == pytest.approx(1)


@pytest.mark.parametrize(("name", "half"), [("adam", 70_308), ("adagrad", 35_500), ("adax", 6_924)])
def test_where_half_of_the_memory_lies(name, half):
    """By hand: Adam's last ln 2/0.001 = 693 steps; AdaX's first ln 2/1e-4 = 6,931 less the run's end."""
    assert weights.summary(Setting(name, name), 71_000)["half_seen_at"] == half


def test_identities_and_table_1():
    assert max(weights.facts().values()) < 1e-12
    table = weights.table_1(steps=60)
    assert table.pop("nosadam_log10_factor") > 10
    assert max(table.values()) < 1e-12


# -- lemmas ----------------------------------------------------------------------------------------------------


def test_lemma_41_and_its_counterexample():
    assert lemmas.lemma_41("sqrt", steps=60, lanes=20)["violations"] == 0
    constant = lemmas.lemma_41("constant", steps=60, lanes=20)
    assert constant["smallest_ratio"] == pytest.approx((1 + 1e-4) / (2 + 1e-4), rel=1e-12)
    assert constant["at_step"] == 2
    example = lemmas.lemma_41_example(5)
    np.testing.assert_allclose(example["constant"], [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5], rtol=3e-4)
    np.testing.assert_allclose(example["sqrt"], np.ones(5), rtol=3e-4)


@pytest.mark.parametrize("b2", [1e-4, 1e-2, 0.5])
def test_v_never_falls_below_its_corrected_floor(b2):
    floor = lemmas.floor_of_v(b2, steps=100, lanes=20)
    assert floor["smallest_seen"] > floor["bound"] == pytest.approx(b2 / (1 + b2))
    assert floor["worst_at_step_1e6"] == pytest.approx(floor["bound"], rel=1e-9)
    assert floor["worst_at_step_2"] == pytest.approx(1 - 1 / (2 + b2))


def test_the_theorems_variant_is_the_papers_recursion():
    """v_t = (1+b2/t) v + (b2/t) g^2, divided by (1+b2/t)^t - 1, written out."""
    b2, g = 0.3, np.random.default_rng(0).normal(size=(40, 1))
    v, expected = 0.0, []
    for t, size in enumerate(g[:, 0], 1):
        v = (1 + b2 / t) * v + b2 / t * size**2
        expected.append(v / ((1 + b2 / t) ** t - 1))
    setting = Setting("variant", variant.FADING_GROWTH, {"betas": (0.0, b2)})
    np.testing.assert_allclose(lemmas.second_moments(setting, g)[:, 0], expected, rtol=1e-12)


def test_bias_of_the_variant():
    t = np.arange(1.0, 1001)
    harmonic = np.cumsum(1 / t)
    np.testing.assert_allclose(variant.bias(t, 1e-9), harmonic, rtol=1e-6)
    assert lemmas.unbiased(lanes=500, at=(1, 30))["bias_of_theorem"]["30"] == pytest.approx(
        harmonic[29], rel=1e-3
    )


# -- theorems --------------------------------------------------------------------------------------------------


def test_erratum_8():
    found = theorems.theorem_32_counterexample()
    assert round(found["x_end_corrected"], 2) == 0.88
    assert round(found["x_end_uncorrected"], 2) == 0.87
    assert found["x_end_closed_form"] == pytest.approx(found["x_end_uncorrected"], abs=1e-10)


def test_theorem_31_needs_eps_0():
    found = theorems.theorem_31_with_eps()
    assert found["x_end"] > 3.9
    assert found["x_end_eps_0"] < 0


# -- regret ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", regret.KINDS)
def test_best_point_in_hindsight(kind):
    z = regret.draw(50, 3, 2, seed=0)
    best = regret.best(kind, z)
    at_best = regret.loss(kind, best, z).sum(axis=0)
    for x in np.random.default_rng(1).uniform(-1, 1, (200, 3, 2)):
        assert (regret.loss(kind, x, z).sum(axis=0) >= at_best - 1e-12).all()


@pytest.mark.parametrize("kind", regret.KINDS)
def test_gradients_of_the_losses(kind):
    z = regret.draw(1, 4, 3, seed=0)[0]
    x, e = np.random.default_rng(1).uniform(-1, 1, (4, 3)), 1e-6
    for i in range(3):
        shift = e * np.eye(3)[i]
        slope = (regret.loss(kind, x + shift, z) - regret.loss(kind, x - shift, z)) / (2 * e)
        np.testing.assert_allclose(slope, regret.gradient(kind, x, z)[:, i], atol=1e-6)


def test_the_regret_bound_by_its_formula():
    """One coordinate of unit gradients, b1 = 0: every term by hand."""
    run = regret.play("absolute", "algorithm", 400, problems=1, d=1, b1=0.0, alpha=0.5)
    row = run["rows"][-1]
    T, b2 = row["T"], 1e-4
    assert row["first"] == pytest.approx(4 * math.sqrt(T) / (2 * 0.5), rel=1e-9)
    assert row["third"] == pytest.approx(0.5 * math.sqrt(math.expm1(b2) / b2) * T, rel=1e-9)
    assert row["second"] == 0
    assert run["third_exponent"] == pytest.approx(1, abs=1e-9)


# -- rate, arithmetic, records --------------------------------------------------------------------------------------


def test_gradient_of_the_noisy_function():
    x, e = np.linspace(-3, 3, 25), 1e-6

    def f(x):
        return x * x / (1 + x * x) + rate.RIPPLE * (1 - np.cos(3 * x)) / 3

    np.testing.assert_allclose(rate.slope_field(x), (f(x + e) - f(x - e)) / (2 * e), atol=1e-8)


def test_slopes_of_a_known_power():
    T = np.geomspace(10, 1000, 7)
    fit = rate.slopes(T, np.stack([3 * T**-0.5, 5 * T**-0.4], axis=1))
    assert fit["slope"] == pytest.approx(-0.45)
    assert fit["slope_low"] < -0.5 < -0.4 < fit["slope_high"]


def test_the_raw_recursion_breaks():
    assert precision.overflow_step(1e-2) == pytest.approx(precision.overflow_formula(1e-2), rel=0.01)
    assert precision.overflow_formula(1e-4) == pytest.approx(887_000, rel=1e-3)
    assert precision.raw_in(torch.float64, 200) == pytest.approx(1, rel=1e-9)
    assert precision.raw_in(torch.bfloat16, 10_000) == pytest.approx(1 / 7.4, rel=0.02)
    assert precision.normalised_in(torch.bfloat16, 2000) == pytest.approx(1, rel=1e-3)
    assert precision.raw_in(torch.float16, 1, size=1e-2) == 0
    assert round(precision.first_update_size(50_000)) == 121


def test_operations_are_counted():
    """By hand: m 3, v 5 (2 at the first step, where k = 1), the denominator 2, the quotient 1, x 4 (with its decay)."""
    assert precision.operations(1e-4, steps=1) == 12
    assert precision.operations(1e-3, steps=3) == 12 + 2 * 15


def test_records_refuse_what_is_not_plain():
    with pytest.raises(TypeError, match="ndarray in a record"):
        record("x", "y", {"z": np.ones(2)}, [])
    assert record("x", "y", {"z": 1 / 3}, [])["z"] == 0.3333333333
    assert places(1000, 5).tolist() == [1, 6, 32, 178, 1000]


def test_lemma_73_fails_by_a_factor_of_2_and_no_more():
    example = regret.lemma_73_example()
    assert example["alpha"] * (1 - example["b1"]) == pytest.approx(example["D"])
    assert example["left"] / example["right"] == pytest.approx(2, rel=1e-12)
    for kind in regret.KINDS:
        for row in regret.play(kind, "theorem", 40, problems=3, d=2)["rows"]:
            assert 0 < row["lemma_73"] <= 2
            assert 0 < row["lemma_72"] <= 1


def test_lemma_73_is_evaluated_at_the_worst_point_of_the_box():
    rng = np.random.default_rng(0)
    x, after, weight = rng.uniform(-1, 1, (3, 7, 1, 2))
    corners = [
        (weight * ((x - c) ** 2 - (after - c) ** 2)).sum(axis=(0, 1, 2))
        for c in (np.array([a, b]) for a in (-1.0, 0.3, 1.0) for b in (-1.0, -0.5, 1.0))
    ]
    assert regret.furthest(x, after, weight)[-1, 0] == pytest.approx(max(corners), rel=1e-12)
