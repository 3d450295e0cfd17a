"""8-bit codes of the moments: exact where they must be, monotone, unbiased, and as coarse as `steps` says."""

from __future__ import annotations

import math

import pytest
import torch

from adaxopt.torch import codes
from adaxopt.torch.codes import FIRST, SECOND, decode, encode_

NAMES = {FIRST: "exp_avg", SECOND: "exp_avg_sq"}
KINDS = pytest.mark.parametrize("kind", [FIRST, SECOND], ids=["m", "v"])
F32 = torch.float32


def made(values, kind, bits=None, still=None):
    entry = codes.create(values, NAMES[kind])
    encode_(*entry.values(), values, bits, still)
    return tuple(entry.values())


def read(values, kind, bits=None, still=None):
    return decode(*made(values, kind, bits, still))


def random_bits(count, seed=0):
    return torch.randint(0, 2**32, (count,), generator=torch.Generator().manual_seed(seed))


def every_code(kind, exponent):
    """All codes of numbers as a column of groups, each with the group's largest beside it."""
    most = codes.MOST[kind]
    first = torch.arange(-128 if kind == FIRST else 0, most + 1)  # -128 is -0
    table = torch.zeros(len(first), codes.GROUP, dtype=kind)
    table[:, 0], table[:, 1] = first, most
    return table, torch.full((len(first),), exponent, dtype=torch.uint8)


@KINDS
@pytest.mark.parametrize("exponent", [64, 90, 127, 170])
def test_every_code_is_read_and_written_back_exactly_whatever_is_drawn(kind, exponent):
    table, scales = every_code(kind, exponent)
    values = decode(table, scales)
    for seed in range(3):
        again, same = made(values, kind, random_bits(values.numel(), seed))
        assert torch.equal(again, table)
        assert torch.equal(same, scales)


@KINDS
def test_the_kernel_can_read_the_largest_exponent_by_one_product(kind):
    """It reads x*2^-15 as a float16, and multiplies by 2^(E - 112), which must be a float32."""
    largest = torch.tensor(codes.HIGH).nextafter(torch.tensor(0.0))
    _, scales = made(largest.repeat(codes.GROUP), kind)
    assert 110 < int(scales) - 112 <= 127


@KINDS
def test_codes_of_zeros_are_zeros(kind):
    fresh = codes.create(torch.empty(3, 50), NAMES[kind])
    assert torch.equal(decode(*fresh.values()), torch.zeros(3, 50))
    written = made(torch.zeros(3, 50), kind, random_bits(150))
    assert not written[0].any()
    assert torch.equal(decode(*written), torch.zeros(3, 50))


@KINDS
def test_larger_numbers_have_no_smaller_code(kind):
    """With the same draw, in a group whose largest number is the same."""
    numbers = torch.logspace(-9, 0, 3001, dtype=torch.float64).float()
    values = torch.ones(len(numbers), codes.GROUP)
    values[:, 0] = numbers
    for u in (0, 2**31, 2**32 - 1):
        table, scales = made(values, kind, torch.full((values.numel(),), u))
        assert len(scales.unique()) == 1
        assert (table[:, 0].int().diff() >= 0).all()
        assert len(table[:, 0].unique()) > 90


@KINDS
@pytest.mark.parametrize("size", [1e-24, 1.0, 3e30])
def test_rounding_is_unbiased(kind, size):
    """The mean over evenly spaced draws is the number itself, for m and for v (not for its root)."""
    draws = 4096
    numbers = torch.tensor([0.9, 0.31, 0.05, 0.004, 2e-5], dtype=torch.float64) * size
    numbers = torch.cat([numbers, -numbers]) if kind == FIRST else numbers
    for number in numbers:
        values = torch.zeros(draws, codes.GROUP, dtype=torch.float64)
        values[:, 0], values[:, 1] = number, size
        shift = 20 if kind == FIRST else 12
        bits = torch.zeros(draws, codes.GROUP, dtype=torch.int64)
        bits[:, 0] = torch.arange(draws) << shift
        got = read(values.float(), kind, bits.view(-1))[:, 0].double()
        assert len(got.unique()) == 2
        step = got.max() - got.min()
        assert abs(got.mean() - values[0, 0].float().double()) < 1.5 * step / draws


@KINDS
@pytest.mark.parametrize("size", [1e-20, 1e-6, 1.0, 1e17])
def test_neighbours_are_as_far_apart_as_said(kind, size):
    """Every size of the largest number within an octave; v is compared by its root."""
    generator = torch.Generator().manual_seed(3)
    size = size if kind == FIRST else max(size, 1e-12)
    largest = size * 2 ** torch.rand(400, generator=generator)
    worst = 0.0
    for share in (1.0, 0.1, 0.01):
        values = torch.zeros(400, codes.GROUP)
        values[:, 0], values[:, 1] = largest, largest * share
        stored = values if kind == FIRST else values.square()
        for bits in (0, 2**32 - 1):
            got = read(stored, kind, torch.full((values.numel(),), bits))[:, 1]
            got = got if kind == FIRST else got.sqrt()
            error = (got / values[:, 1] - 1).abs().max().item()
            assert error <= codes.steps(share, kind) * 1.0001
            worst = max(worst, error / codes.steps(share, kind))
    assert worst > 0.7  # the bound is no larger than it must be


def test_a_v_above_zero_is_never_stored_as_zero_and_never_made_smaller_below_code_1():
    values = torch.ones(2, codes.GROUP)
    values[:, 0] = torch.tensor([1e-45, 1e-12])
    table, scales = made(values, SECOND, torch.zeros(values.numel(), dtype=torch.int64))
    assert table[:, 0].tolist() == [1, 1]
    assert (decode(table, scales)[:, 0] > values[:, 0]).all()
    alone = torch.tensor([1e-45, 0.0])
    table, scales = made(alone, SECOND)
    assert table.tolist() == [1, 0]
    assert decode(table, scales)[0] > 0


@pytest.mark.parametrize(("first", "change"), [(2, 1e-5), (17, 1e-6)])
def test_small_changes_of_v_are_drawn_too(first, change):
    """Small decreases that were always rounded up again would make v grow: the gain of a long run is 1e-6 and less."""
    table, scales = every_code(SECOND, 127)
    table, scales = table[first:-1], scales[first:-1]
    values = decode(table, scales)
    for factor, bits, step in (
        (1 - change, 0, -1),
        (1 + change, 2**32 - 1, 1),
        (1 - change, 2**32 - 1, 0),
        (1 + change, 0, 0),
    ):
        moved = values.clone()
        moved[:, 0] *= factor
        again, _ = made(moved, SECOND, torch.full((values.numel(),), bits))
        assert torch.equal(again[:, 0].int(), table[:, 0].int() + step), factor


def test_m_is_zero_where_v_is_zero():
    """Beside a v of 0 the denominator is eps alone: an m that was rounded up could make a step of any size."""
    m = torch.full((codes.GROUP,), 1e-19)
    m[0] = 1e-12
    bits = torch.full((codes.GROUP,), 2**32 - 1)
    assert (read(m, FIRST, bits)[1:] > 1e-17).all()
    entry = {**codes.create(m, "exp_avg"), **codes.create(m, "exp_avg_sq")}
    v = torch.zeros(codes.GROUP)
    v[0] = 1e-24
    for step in range(50):
        codes.store_(entry, {"exp_avg": m, "exp_avg_sq": v}, seed=0, index=0, step=step)
        assert not entry["exp_avg"][1:].any()
        assert entry["exp_avg"][0] > 0


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("name", ["exp_avg", "exp_avg_sq"])
def test_a_coordinate_that_is_not_finite_is_lost_alone(name, bad):
    """Its v reads infinite and its m 0, whichever of them it was; no other number notices."""
    generator = torch.Generator().manual_seed(5)
    m, v = torch.randn(100, generator=generator), torch.randn(100, generator=generator).square()
    m[10] = v[10] = 0.0
    results = []
    for value in (0.0, bad):
        entry = {**codes.create(m, "exp_avg"), **codes.create(v, "exp_avg_sq")}
        values = {"exp_avg": m.clone(), "exp_avg_sq": v.clone()}
        values[name][10] = value
        codes.store_(entry, values, seed=1, index=0, step=1)
        results.append([codes.expanded(entry, key) for key in ("exp_avg", "exp_avg_sq")])
    (m_clean, v_clean), (m_bad, v_bad) = results
    assert m_bad[10] == 0
    assert v_bad[10] == math.inf
    others = torch.arange(100) != 10
    assert torch.equal(m_bad[others], m_clean[others])
    assert torch.equal(v_bad[others], v_clean[others])
    assert made(v_bad, SECOND)[0][10] == codes.LOST


@KINDS
@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_tiny_and_huge_groups_are_as_accurate_as_others(kind, size):
    """Within a fifth of the largest; sqrt(v) of 1e-15 is near the smallest exponent, and one bit coarser."""
    values = torch.linspace(0.2, 1, codes.GROUP) * size
    got = read(values, kind)
    error = (got.double() / values.double() - 1).abs().max().item()
    assert 1e-4 < error <= codes.steps(0.2, kind) * (2 if kind == SECOND else 1)


@KINDS
def test_groups_follow_memory_and_the_last_may_be_short(kind):
    """A channels_last or transposed tensor has the codes of its memory; 33 elements have two exponents."""
    x = torch.randn(2, 5, 3, 7, generator=torch.Generator().manual_seed(7)).square()
    last = x.to(memory_format=torch.channels_last)
    bits = random_bits(x.numel())
    table, scales = made(last, kind, bits)
    straight = last.permute(0, 2, 3, 1).reshape(-1)
    line, same = made(straight, kind, bits)
    assert table.stride() == last.stride()
    assert torch.equal(table.permute(0, 2, 3, 1).reshape(-1), line)
    assert torch.equal(scales, same)
    assert len(scales) == codes.groups(210) == 7
    assert decode(table, scales).stride() == last.stride()
    assert torch.equal(decode(table, scales).permute(0, 2, 3, 1).reshape(-1), decode(line, same))
    assert [codes.groups(n) for n in (0, 1, 32, 33)] == [0, 1, 1, 2]
    assert read(torch.ones(()), kind).item() == pytest.approx(1.0, rel=codes.steps(1.0, kind))
    assert read(torch.ones(0, 3), kind).shape == (0, 3)


def test_bytes_of_a_parameter():
    p = torch.zeros(1 << 12)
    entry = {**codes.create(p, "exp_avg"), **codes.create(p, "exp_avg_sq")}
    assert sum(t.numel() * t.itemsize for t in entry.values()) / p.numel() == 2.0625


def test_m_and_v_draw_different_bits_that_depend_on_everything():
    def drawn(**changed):
        given = {"seed": 1, "index": 2, "step": 3, "first": 4, **changed}
        return codes.draws(64, torch.device("cpu"), **given)

    base = drawn()
    assert torch.equal(base[1:], drawn(first=5)[:-1])
    for other in (drawn(seed=2), drawn(index=3), drawn(step=4)):
        assert (other != base).sum() > 60
    assert torch.equal(drawn(step=torch.tensor(3.0)), base)
