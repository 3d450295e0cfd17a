"""Gains against exact arithmetic, for every t that a run can reach and in every namespace."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest
import torch

import oracles
from adaxopt import memory
from adaxopt.memory import scalars

TIMES = (1, 2, 3, 10, 1_000, 74_000, 887_000, 1_900_000, 2**24, 10_000_000, 1_000_000_000)
GROWTH = (1e-5, 1e-4, 1e-3, 1e-2, 0.5)
FADES = (0.1, 0.9, 0.99, 0.999, 0.9999999)
POWERS = (0.0, 0.1, 0.5, 0.9, 1.0, 2.0)


def close(got, exact, bound):
    """Relative, in as many digits as `exact` has; an exact value below the smallest float may come out as 0."""
    got, exact = mpmath.mpf(float(got)), mpmath.mpf(exact)
    if exact < mpmath.mpf(2) ** -1022:
        return abs(got) <= mpmath.mpf(2) ** -1022
    return abs(got - exact) <= bound * exact


@pytest.fixture(autouse=True)
def many_digits():
    with mpmath.workdps(60):
        yield


def growing(t, b2):
    return oracles.adax_gain(t, b2)


def fading(t, b2):
    b = mpmath.mpf(b2)
    return (1 - b) / (1 - b**t)


def power(t, c):
    """t^-c over the partial zeta sum: zeta(c) - zeta(c, t+1), Euler's gamma + psi at c = 1."""
    c = mpmath.mpf(c)
    if c == 1:
        total = mpmath.harmonic(t)
    else:
        total = mpmath.zeta(c) - mpmath.zeta(c, t + 1)
    return mpmath.power(t, -c) / total


CASES = [
    *(("growing", memory.growing_gain, growing, b2, 1e-12) for b2 in GROWTH),
    *(("fading", memory.fading_gain, fading, b2, 1e-12) for b2 in FADES),
    *(("power", memory.power_gain, power, c, 1e-12) for c in POWERS),
]


@pytest.mark.parametrize("t", TIMES)
@pytest.mark.parametrize(("kind", "gain", "exact", "b2", "bound"), CASES)
def test_gain(kind, gain, exact, b2, bound, t):
    # exp(-t*rate) carries the rounding of t*rate: a relative error of t*rate*2^-53
    rounding = t * math.log1p(b2) * 2.0**-52 if kind == "growing" else 0.0
    got, wanted = gain(t, b2), exact(t, b2)
    assert close(got, wanted, max(bound, 2 * rounding))
    assert 0 <= got <= 1
    assert type(got) is float


@pytest.mark.parametrize("t", [1, 2, 3, 7, 30])
@pytest.mark.parametrize("b2", [Fraction(1, 10_000), Fraction(1, 8), Fraction(1, 2)])
def test_growing_gain_against_fractions(t, b2):
    exact = b2 / ((1 + b2) ** t - 1)
    assert abs(memory.growing_gain(t, float(b2)) / float(exact) - 1) < 1e-12


@pytest.mark.parametrize("t", [1, 2, 3, 7, 30])
@pytest.mark.parametrize("b2", [Fraction(1, 10), Fraction(9, 10), Fraction(999, 1000)])
def test_fading_gain_against_fractions(t, b2):
    exact = (1 - b2) / (1 - b2**t)
    assert abs(memory.fading_gain(t, float(b2)) / float(exact) - 1) < 1e-12


@pytest.mark.parametrize("t", TIMES)
@pytest.mark.parametrize("b2", GROWTH)
def test_growing_log_norm(t, b2):
    exact = mpmath.log((1 + mpmath.mpf(b2)) ** t - 1)
    assert abs(memory.growing_log_norm(t, b2) - exact) <= 1e-12 * max(1, abs(exact))


@pytest.mark.parametrize("t", TIMES)
@pytest.mark.parametrize("b2", FADES)
def test_fading_log_norm(t, b2):
    exact = mpmath.log1p(-(mpmath.mpf(b2) ** t))
    assert abs(memory.fading_log_norm(t, b2) - exact) <= 1e-12 * max(1, abs(exact))


@pytest.mark.parametrize("t", TIMES)
def test_equal_and_constant(t):
    assert memory.equal_gain(t, 0.0) == 1 / t
    assert memory.equal_log_norm(t, 0.0) == math.log(t)
    assert memory.constant_gain(t, 0.99) == 1 - 0.99


RATIOS = [
    ("growing", memory.growing_gain, 1e-4, lambda t: 1 + 1e-4),
    ("growing", memory.growing_gain, 0.5, lambda t: 1.5),
    ("fading", memory.fading_gain, 0.999, lambda t: 0.999),
    ("equal", memory.equal_gain, 0.0, lambda t: 1.0),
    ("power", memory.power_gain, 0.1, lambda t: (t / (t - 1)) ** 0.1),
    ("power", memory.power_gain, 1.0, lambda t: t / (t - 1)),
]


@pytest.mark.parametrize(("kind", "gain", "b2", "ratio"), RATIOS)
def test_ratio_recursion(kind, gain, b2, ratio):
    """k_t = k_{t-1} / (k_{t-1} + r_t), k_1 = 1, where r_t is how the past fades or grows."""
    k = 1.0
    assert gain(1, b2) == pytest.approx(1.0, rel=1e-14)
    for t in range(2, 3000):
        k = k / (k + ratio(t))
        assert gain(t, b2) == pytest.approx(k, rel=1e-11)


@pytest.mark.parametrize("b2", [1e-4, 1e-2, 0.5])
@pytest.mark.parametrize("t", [1, 2, 5, 100])
def test_adax_is_nosadam_with_weights_that_fall_geometrically(t, b2):
    """w_i = (1+b2)^-i: NosAdam's k_t = w_t / sum_{i<=t} w_i is AdaX's gain."""
    weights = [Fraction(b2 + 1) ** -i for i in range(1, t + 1)]
    exact = weights[-1] / sum(weights)
    assert memory.growing_gain(t, b2) == pytest.approx(float(exact), rel=1e-11)


@pytest.mark.parametrize("t", TIMES)
def test_growth_of_zero_is_the_plain_mean(t):
    assert memory.growing_gain(t, 0) == memory.growing_gain(t, 0.0) == 1 / t
    assert memory.growing_log_norm(t, 0.0) == math.log(t)
    near = memory.growing_gain(t, 1e-18)
    assert near == pytest.approx(1 / t, rel=1e-8)


@pytest.mark.parametrize("c", POWERS)
def test_power_sum_by_counting(c):
    """Euler-Maclaurin against the sum itself."""
    total = math.fsum(i**-c for i in range(1, 20_001))
    assert memory.power_gain(20_000, c) == pytest.approx(20_000**-c / total, rel=1e-13)


ANY_POWER = (
    *(-5000.0, -300.0, -60.5, -20.0, -14.5, -13.5, -7.0, -6.0, -5.9, -2.5, -1.0, -1e-9),
    *(0.3, 1 - 1e-12, 1 + 1e-12, 1 + 1e-6, 1.5, 3.0, 9.7, 28.0, 40.0, 300.0, 1e5),
)


@pytest.mark.parametrize("t", [1, 2, 3, 11, 12, 13, 17, 40, 48, 49, 50, 80, 130, 378, 800])
@pytest.mark.parametrize("c", ANY_POWER)
def test_every_real_power(c, t):
    """1/k_t is a sum of t ratios; as numbers, tensors, and with a tensor for c."""
    exact = 1 / mpmath.fsum(mpmath.power(mpmath.mpf(t) / i, mpmath.mpf(c)) for i in range(1, t + 1))
    time, power = (torch.tensor(float(x), dtype=torch.float64) for x in (t, c))
    for got in (
        memory.power_gain(t, c),
        memory.power_gain(float(t), c),
        memory.power_gain(time, c, torch),
        memory.power_gain(time, power, torch),
    ):
        assert close(got, exact, 1e-12)
        assert got <= 1
        assert got == 1 or t > 1


@pytest.mark.parametrize("t", TIMES)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 13])
def test_powers_below_0_by_faulhaber(n, t):
    """sum_{i<=t} i^n is a polynomial in t."""
    total = (mpmath.bernpoly(n + 1, t + 1) - mpmath.bernpoly(n + 1, 1)) / (n + 1)
    assert close(memory.power_gain(t, -n), mpmath.mpf(t) ** n / total, 1e-12)


@pytest.mark.parametrize("c", [-1000.0, -7.0, -1.0, 0.1, 1.0, 3.0, 300.0])
def test_float32_time_of_a_power(c):
    """A device that has no float64."""
    for t in (1, 2, 12, 13, 48, 49, 1_000, 100_000):
        got = float(memory.power_gain(torch.tensor(float(t)), c, torch))
        wanted = memory.power_gain(t, c)
        assert got == pytest.approx(wanted, rel=1e-4, abs=1e-37)


DERIVATIVES = [
    (memory.growing_gain, growing, (0.0, 1e-12, 1e-7, 1e-4, 9e-4, 1.1e-3, 0.1)),
    (memory.fading_gain, fading, (0.0, 1e-9, 0.1, 0.9, 0.999)),
]


@pytest.mark.parametrize("t", [1, 2, 3, 40, 499, 501, 10_000])
@pytest.mark.parametrize(("gain", "exact", "at"), DERIVATIVES, ids=["growing", "fading"])
def test_the_derivative_in_b2(gain, exact, at, t):
    """Also at b2 = 0, where the formulas are 0/0 and log 0."""
    for b2 in at:
        leaf = torch.tensor(b2, dtype=torch.float64, requires_grad=True)
        gain(torch.tensor(float(t), dtype=torch.float64), leaf, torch).backward()
        h = mpmath.mpf(10) ** -20
        low, high = (exact(t, mpmath.mpf(b2) + s * h) if b2 or s > 0 else None for s in (-1, 1))
        if low is None:
            low, high = exact(t, h), exact(t, 2 * h)
            h = h / 2
        wanted = float((high - low) / (2 * h))
        assert leaf.grad.item() == pytest.approx(wanted, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("function", [memory.growing_log_norm, memory.fading_log_norm])
@pytest.mark.parametrize("t", [1.0, 2.0, 100.0])
def test_log_norms_have_a_derivative_at_b2_of_0(function, t):
    leaf = torch.zeros((), dtype=torch.float64, requires_grad=True)
    function(torch.tensor(t, dtype=torch.float64), leaf, torch).backward()
    assert leaf.grad.isfinite()


# -- tensors -----------------------------------------------------------------------------------------------------

TENSOR_TIMES = torch.tensor(TIMES, dtype=torch.float64)
FUNCTIONS = [
    *((memory.growing_gain, b2) for b2 in (0.0, *GROWTH)),
    *((memory.growing_log_norm, b2) for b2 in (0.0, *GROWTH)),
    *((memory.fading_gain, b2) for b2 in (0.0, *FADES)),
    *((memory.fading_log_norm, b2) for b2 in (0.0, *FADES)),
    *((memory.power_gain, c) for c in POWERS),
    (memory.constant_gain, 0.99),
    (memory.equal_gain, 0.0),
    (memory.equal_log_norm, 0.0),
]


@pytest.mark.parametrize(("function", "b2"), FUNCTIONS, ids=lambda x: getattr(x, "__name__", str(x)))
def test_namespaces_agree(function, b2):
    got = function(TENSOR_TIMES, b2, torch)
    wanted = torch.tensor([function(t, b2, scalars) for t in TIMES], dtype=torch.float64)
    assert got.dtype == torch.float64
    assert got.shape == TENSOR_TIMES.shape
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize(
    "function",
    [
        memory.growing_gain,
        memory.growing_log_norm,
        memory.fading_gain,
        memory.fading_log_norm,
        memory.power_gain,
    ],
)
@pytest.mark.parametrize("b2", [0.0, *GROWTH])
def test_a_tensor_for_b2(b2, function):
    """Also at b2 = 0, where the growing memory's own formula is 0/0."""
    got = function(TENSOR_TIMES, torch.tensor(b2, dtype=torch.float64), torch)
    torch.testing.assert_close(got, function(TENSOR_TIMES, b2, torch), rtol=1e-10, atol=1e-300)


@pytest.mark.parametrize("t", [1, 2, 3, 10, 1_000, 74_000, 400_000, 800_000])
def test_float32_time(t):
    """A device that has no float64: right to 2e-6 at 800,000 steps."""
    got = memory.growing_gain(torch.tensor(float(t), dtype=torch.float32), 1e-4, torch)
    assert got.dtype == torch.float32
    # the rounding of t*rate in float32 alone is worth t*rate*2^-24; below the smallest normal number nothing is kept
    exact = growing(t, 1e-4)
    assert close(got, exact, max(2e-6, t * 1e-4 * 2.0**-23)) if exact > 2.0**-126 else float(got) < 2.0**-126
