"""Statistics against tables, closed forms, exact distributions and simulation."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from adaxlab import stats

# Two-sided tables of Student's t, to the digits printed there.
TABLE = [
    (0.975, 1, 12.706204736),
    (0.975, 2, 4.302652730),
    (0.975, 3, 3.182446305),
    (0.975, 4, 2.776445105),
    (0.975, 9, 2.262157163),
    (0.95, 30, 1.697260887),
    (0.995, 10, 3.169272673),
    (0.9, 5, 1.475884049),
    (0.9995, 20, 3.849516274),
    (0.975, 120, 1.979930405),
    (0.025, 4, -2.776445105),
]


@pytest.mark.parametrize(("p", "df", "t"), TABLE)
def test_t_quantile_table(p, df, t):
    assert stats.t_quantile(p, df) == pytest.approx(t, rel=2e-9)


@pytest.mark.parametrize("p", [0.501, 0.6, 0.9, 0.99, 0.9999, 0.2, 0.01])
def test_t_quantile_closed_forms(p):
    assert stats.t_quantile(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-12)
    assert stats.t_quantile(p, 2) == pytest.approx((2 * p - 1) / math.sqrt(2 * p * (1 - p)), rel=1e-12)


def test_t_quantile_becomes_normal():
    assert stats.t_quantile(0.975, 1e8) == pytest.approx(1.959963984540, rel=1e-7)
    assert stats.t_quantile(0.5, 7) == 0.0


@pytest.mark.parametrize("df", [1, 3, 4.5, 30])
def test_t_cdf_is_the_integral_of_its_density(df):
    constant = math.gamma((df + 1) / 2) / math.sqrt(df * math.pi) / math.gamma(df / 2)
    n, end = 20_000, 2.3
    width = end / n
    area = width * math.fsum(
        constant * (1 + ((i + 0.5) * width) ** 2 / df) ** (-(df + 1) / 2) for i in range(n)
    )
    assert stats.t_cdf(end, df) == pytest.approx(0.5 + area, abs=1e-9)
    assert stats.t_cdf(-end, df) == pytest.approx(0.5 - area, abs=1e-9)


@pytest.mark.parametrize(("p", "df"), [(0.0, 3), (1.0, 3), (0.5, 0)])
def test_t_quantile_refuses(p, df):
    with pytest.raises(ValueError, match="must be"):
        stats.t_quantile(p, df)


def closed_testing(p_values):
    """Holm's values from their definition: the closed test of all intersections, each by Bonferroni."""
    every = range(len(p_values))
    subsets = [s for size in range(1, len(p_values) + 1) for s in itertools.combinations(every, size)]
    return [max(min(1.0, len(s) * min(p_values[j] for j in s)) for s in subsets if i in s) for i in every]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 7])
def test_holm_is_the_closed_bonferroni_test(count):
    source = random.Random(count)
    for _ in range(30):
        p_values = [
            round(source.random() ** 3, 2) for _ in range(count)
        ]  # with ties, zeros and ones among them
        assert stats.holm(p_values) == pytest.approx(closed_testing(p_values), abs=1e-15)


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_holm_refuses(bad):
    with pytest.raises(ValueError, match="must be"):
        stats.holm([0.5, bad])


@pytest.mark.parametrize("values", [[1.0, 2.0, 3.0], [0.3, -0.1, 0.4, 0.2], [-5.0, -4.0]])
def test_p_value_is_where_the_interval_ends_at_the_margin(values):
    p = stats.p_value(values)
    assert stats.t_interval(values, 1 - p * 0.999).low < 0 < stats.t_interval(values, 1 - p * 0.999).high
    narrower = stats.t_interval(values, 1 - p * 1.001)
    assert narrower.low > 0 or narrower.high < 0
    assert stats.p_value([v + 2 for v in values], 2.0) == pytest.approx(p, rel=1e-12)


def test_p_value_without_spread():
    assert stats.p_value([1.0]) == 1.0
    assert stats.p_value([1.0, 1.0, 1.0]) == 0.0
    assert stats.p_value([1.0, 1.0, 1.0], 1.0) == 1.0


def test_interval_by_hand():
    e = stats.t_interval([2.0, 4.0, 9.0])
    assert (e.n, e.mean) == (3, 5.0)
    assert e.sd == pytest.approx(math.sqrt(13.0))
    assert e.high - e.mean == pytest.approx(4.302652730 * math.sqrt(13.0 / 3))
    assert e.mean - e.low == pytest.approx(e.high - e.mean)


def test_one_value_has_no_interval():
    e = stats.t_interval([1.0])
    assert e.mean == 1.0
    assert math.isnan(e.low)
    assert math.isnan(e.high)
    with pytest.raises(ValueError, match="no values"):
        stats.mean([])


def test_t_interval_covers_as_often_as_it_says():
    source = random.Random(5)
    hits = 0
    for _ in range(4000):
        e = stats.t_interval([source.gauss(1.0, 2.0) for _ in range(4)], 0.9)
        hits += e.low < 1.0 < e.high
    assert hits / 4000 == pytest.approx(0.9, abs=0.015)  # three standard errors


def test_paired_by_seed_and_direction():
    a, b = {0: 0.9, 1: 0.7, 2: None, 3: 0.5}, {0: 0.8, 1: 0.9, 2: 0.5}
    assert stats.paired(a, b) == pytest.approx({0: 0.1, 1: -0.2})
    assert stats.paired(a, b, higher_is_better=False) == pytest.approx({0: -0.1, 1: 0.2})
