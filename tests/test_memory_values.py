"""Memories as values: every gain against an independent recursion up to t = 1e6 and exact arithmetic at 1e9.

A new memory is a class in `memories.py` and a row here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath
import pytest
import torch

from adaxopt import Equal, Fading, Growing, LogTime, Polynomial, Power, memories
from adaxopt.memories import Memory, Unnormalised
from adaxopt.zoo import METHODS


class Row(NamedTuple):
    memory: Memory
    following: Callable[[float, int], float]
    """k_t of (k_{t-1}, t), as its source writes it; k_1 = 1."""
    exact: Callable[[Any], Any]
    """k_t of an mpmath t."""


def _hyperharmonic(c: float) -> Callable[[Any], Any]:
    return lambda t: t**-c / (mpmath.zeta(c) - mpmath.zeta(c, t + 1))


ROWS = [
    Row(Growing(1e-4), lambda k, t: k / (k + (1 + 1e-4)), lambda t: _over(mpmath.mpf(1e-4), t)),
    Row(Growing.over(10**6), lambda k, t: k / (k + (1 + 3e-6)), lambda t: _over(mpmath.mpf(3e-6), t)),
    Row(
        Fading(0.999),
        lambda k, t: k / (k + 0.999),
        lambda t: (1 - mpmath.mpf(0.999)) / (1 - mpmath.mpf(0.999) ** t),
    ),
    Row(Equal(), lambda k, t: k / (k + 1), lambda t: 1 / t),
    Row(Power(0.1), lambda k, t: k / (k + (t / (t - 1)) ** 0.1), _hyperharmonic(mpmath.mpf(0.1))),
    Row(Power(-7), lambda k, t: k / (k + (t / (t - 1)) ** -7), _hyperharmonic(-7)),
    Row(LogTime(8), lambda k, t: 1 / (1 / k + 1 / 8), lambda t: 8 / (8 + t - 1)),
    Row(Polynomial(0.8), lambda k, t: k * (1 - 1 / t) ** 0.8, lambda t: t ** -mpmath.mpf(0.8)),
]
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: repr(row.memory))


def _over(b2: Any, t: Any) -> Any:
    return b2 / ((1 + b2) ** t - 1)


def test_every_memory_has_a_row():
    assert {type(row.memory) for row in ROWS} == set(memories.KINDS.values()) - {Unnormalised}


@each_row
def test_the_recursion_up_to_a_million_steps(row):
    k, asked = 1.0, {round(10 ** (i / 20)) for i in range(121)}
    assert row.memory.k(1) == 1
    for t in range(2, 10**6 + 1):
        k = row.following(k, t)
        if t in asked:
            assert row.memory.k(t) == pytest.approx(k, rel=2e-9, abs=1e-300)


@each_row
@pytest.mark.parametrize("t", [1, 2, 74_000, 2**24, 10**9])
def test_exact_arithmetic_up_to_a_billion_steps(row, t):
    with mpmath.workdps(60):
        exact = row.exact(mpmath.mpf(t))
        # exp(-t*rate) carries the rounding of t*rate
        bound = max(1e-12, t * row.memory.number * 2.0**-51) if type(row.memory) is Growing else 1e-12
        for got in (row.memory.k(t), row.memory.k(torch.tensor(float(t), dtype=torch.float64), torch)):
            assert abs(mpmath.mpf(float(got)) - exact) <= bound * exact + mpmath.mpf(2) ** -1022


@each_row
def test_floor_and_freeze(row):
    """k_t is at least 1/horizon, and 0 after the last step; before both it is the memory's own."""
    bounded = row.memory.floor(1 / 50).freeze(200)
    for t in (1, 2, 10, 60, 199, 200):
        assert bounded.k(t) == max(row.memory.k(t), 1 / 50)
        assert bounded.k(torch.tensor(float(t)).double(), torch) == pytest.approx(bounded.k(t), rel=1e-12)
    assert bounded.k(201) == 0.0
    times = torch.tensor([199.0, 200.0, 201.0], dtype=torch.float64)
    assert bounded.k(times, torch).tolist()[2] == 0.0
    assert all(k > 0 for k in bounded.k(times, torch).tolist()[:2])


@each_row
def test_the_text_in_a_checkpoint_says_all_but_the_number(row):
    for one in (
        row.memory,
        row.memory.floor(1e-3),
        row.memory.freeze(1000),
        row.memory.floor(0.1).freeze(7.0),
    ):
        family, least, last = memories.read(one.text)
        assert family(one.number, least, last) == one
        assert eval(repr(one)) == one


def test_the_bounds_of_a_norm():
    """eps is scaled by the memory's norm where that has a closed form, and added plainly elsewhere."""
    row, eps = METHODS["adaxw"], METHODS["adaxw"].defaults["eps"]

    def at(memory, t=100):
        return row.numbers(t, {"betas": (0.9, memory.number), "memory": memory.text, "dtype": "float64"}).eps

    assert at(Growing(1e-4)) == row.numbers(100, {"dtype": "float64"}).eps != eps
    assert at(Fading(0.9)) == pytest.approx(eps / math.sqrt(1 - 0.9**100), rel=1e-12)
    assert at(Equal()) == pytest.approx(eps / 10, rel=1e-12)
    for memory in (Power(0.5), LogTime(8), Polynomial(0.8), Growing(1e-4).floor(1e-3), Equal().freeze(1000)):
        assert at(memory) == eps


def test_adamnx_has_adaxs_gain():
    """1 - (1-q^(t-1))/(1-q^t) = b2/((1+b2)^t - 1) with 1+b2 = 1/q, for q = 0.99^0.01."""
    b2 = METHODS["adamnx"].defaults["betas"][1]
    assert b2 == pytest.approx(1.00508e-4, rel=1e-5)
    with mpmath.workdps(60):
        q = mpmath.power(mpmath.mpf("0.99"), mpmath.mpf("0.01"))
        for t in (1, 2, 10, 1000, 10**5, 10**6):
            published = 1 - (1 - q ** (t - 1)) / (1 - q**t)
            assert abs(METHODS["adamnx"].numbers(t, {"dtype": "float64"}).k / published - 1) < 1e-9


def test_a_run_length():
    assert Growing.over(30_000) == Growing(1e-4)
    assert Growing.over(1) == Growing.over(4) == Growing(0.75)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Growing(1.0), r"Growing: b2=1.0: must be in \[0, 1\)"),
        (lambda: Fading(-0.1), r"Fading: b2=-0.1: must be in \[0, 1\)"),
        (lambda: Power(math.inf), "Power: c=inf: must be finite"),
        (lambda: LogTime(0), "LogTime: delta=0: must be > 0"),
        (lambda: Polynomial(-0.5), "Polynomial: c=-0.5: must be >= 0"),
        (lambda: Growing.over(0), "total_steps=0: must be > 0"),
        (lambda: Equal().floor(2), r"Equal.floor\(2\): must be in \[0, 1\]; for a horizon h give 1/h"),
        (lambda: Equal().freeze(0), r"Equal.freeze\(0\): must be a number of steps >= 1"),
        (lambda: memories.read("linear"), "memory='linear': must be one of adaxopt.Growing"),
        (lambda: memories.read("growing floor"), "memory='growing floor': must be one of adaxopt.Growing"),
        (lambda: memories.read("growing step 3"), "memory='growing step 3': must be one of"),
        (lambda: memories.read("growing floor 3"), "memory='growing floor 3': must be one of"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 1000])
def test_a_short_run_has_the_same_b2_however_its_length_is_given(steps):
    plain = Growing.over(steps).number
    assert plain == 3 / max(steps, 4)
    assert float(Growing.over(torch.tensor(float(steps))).number) == pytest.approx(plain, rel=1e-6)


def test_the_first_half_of_a_run_has_82_percent_of_the_final_v():
    """v of step T/2 is multiplied by 1 - k_t at every later step (docs/migrating.md)."""
    total = 10_000
    memory = Growing.over(total)
    left = math.prod(1 - memory.k(t) for t in range(total // 2 + 1, total + 1))
    assert f"{100 * left:.0f}%" == "82%"
