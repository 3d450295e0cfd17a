"""The guard of late-activated coordinates, to the bit: what looks at few places against what looks at all of them.

The oracle is the sentence itself, with a mask and no memory: v <- g^2 where v is 0, in every tensor at every step but
the first one of a normalised memory.
"""

from __future__ import annotations

import copy
import functools
import pickle
import weakref

import pytest
import torch

from adaxopt import create
from adaxopt.rule import step
from adaxopt.torch import private, wake_guard
from adaxopt.zoo import METHODS

SHAPES = ((24, 40), (8, 6, 3, 3), (17,))
STEPS = 40
ONE = 3
"""The inactive coordinate, where there is one."""


def plainly(v, g, *, x=None, l2=0.0, read=True):
    if l2:
        g = g.add(x, alpha=l2)
    v.copy_(torch.where(v == 0, g * g, v))


class Always:
    awake = False

    def settle(self, v, k):
        pass


def everywhere(kept, params, vs, times, rule):
    normalised = rule.memory.kind != "unnormalised"
    return [None if time <= 1 and normalised else Always() for time in times]


def begins(pattern, n):
    """At which step each of n coordinates has its first gradient; beyond the end: never."""
    i = torch.arange(n)
    few = torch.where(i % 41 == ONE, 3 + i % 29, 1)  # one wakes between and at the powers of two
    return {
        "none": torch.ones(n),
        "one": torch.where(i == ONE, 99, 1),
        "few": few,
        "few, long": torch.where(i % 41 == ONE, 99, 1),
        "half": torch.where(i < n // 2, 99, 1),
        "half, waking": torch.where(i % 2 == 0, 2 + i % 37, 1),
        "all": torch.full((n,), 99),
        "all, waking": 2 + i % 37,
    }[pattern]


PATTERNS = ("one", "few", "few, long", "half, waking", "all", "all, waking")


@functools.lru_cache(maxsize=400)  # both runs see the same; nobody writes to it
def gradient(shape, pattern, t, dtype, special):
    n = torch.Size(shape).numel()
    g = torch.randn(n, generator=torch.Generator().manual_seed(1000 * t + n), dtype=torch.float64)
    g = torch.where(begins(pattern, n) <= t, g, 0.0)
    if special and t >= 6:
        inactive = int(begins(pattern, n).argmax())
        for place, value in ((0, special), (inactive, special if t == 20 else g[inactive])):
            g[place] = value
    if dtype.is_complex:
        g = torch.complex(g, 0.5 * g)
    return g.to(dtype).reshape(shape)


def laid_out(t, layout):
    if layout == "transposed":
        return t.transpose(0, -1).contiguous().transpose(0, -1) if t.dim() > 1 else t
    if layout == "gaps":
        return torch.stack([t, t], dim=-1)[..., 0]
    if layout == "channels_last" and t.dim() == 4:
        return t.contiguous(memory_format=torch.channels_last)
    return t.clone()


def trained(
    pattern, name="adaxw", dtype=torch.float32, layout="", special=0.0, between=None, steps=STEPS, **options
):
    """Parameters and state after `steps`; `between(t, optimizer, params)` may change something, or the optimizer."""
    # with L2 only an x of 0 is inactive
    origin = 0.0 if options.get("decay") == "l2" or name == "adax" else 1.0
    params = []
    for shape in SHAPES:
        start = torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape) * origin
        params.append(torch.nn.Parameter(laid_out(start.to(dtype), layout)))
    optimizer = create(name, params, **{"lr": 0.01, "wake": True, **options})
    for t in range(1, steps + 1):
        for p, shape in zip(params, SHAPES, strict=False):  # a late parameter keeps its gradient
            p.grad = laid_out(
                gradient(shape, pattern, t, dtype, special), "" if layout == "mixed" else layout
            )
        if between is not None:
            optimizer, params = between(t, optimizer, params) or (optimizer, params)
        optimizer.step()
    return optimizer, params


def contents(optimizer, params):
    found = []
    for p in params:
        entry = optimizer.state[p]
        found += [p.detach(), *(entry[k] for k in sorted(entry) if k != "step")]
    return found


def bits(t):
    t = torch.view_as_real(t) if t.is_complex() else t
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()]
    return torch.where(t.isnan(), -1, t.contiguous().view(whole))  # whichever NaN


def same_bits(monkeypatch, *arguments, **options):
    """Run it twice, the second time by the oracle; return the first."""
    ours = trained(*arguments, **options)
    with monkeypatch.context() as patched:
        patched.setattr(wake_guard, "wake", plainly)
        patched.setattr(wake_guard, "look", everywhere)
        theirs = trained(*arguments, **options)
    for a, b in zip(contents(*ours), contents(*theirs), strict=True):
        assert torch.equal(bits(a), bits(b))
    return ours


ROWS = {
    "fused": {},
    "foreach": dict(foreach=True),
    "for-loop": dict(foreach=False),
    "capturable": dict(capturable=True),
    "float64": dict(dtype=torch.float64),
    "maximize": dict(maximize=True, weight_decay=0.1),
    "l2": dict(name="adax", weight_decay=0.1),
    "l2, maximize": dict(name="adax", weight_decay=0.1, maximize=True),
    "l2, foreach": dict(name="adax", weight_decay=0.1, foreach=True, maximize=True),
    "transposed": dict(layout="transposed"),
    "channels_last": dict(layout="channels_last"),
    "gaps": dict(layout="gaps"),
    "gradient laid out otherwise": dict(layout="mixed"),
    "bf16": dict(dtype=torch.bfloat16, rounding="kahan"),
    "bf16, stochastic": dict(dtype=torch.bfloat16, rounding="stochastic"),
    "bf16 state": dict(state_dtype=torch.bfloat16),
    "complex": dict(dtype=torch.complex64),
    "clipped": dict(clip_update=1.0),
    "padax": dict(name="padax"),
    "amsgrad": dict(name="amsgrad"),
    "amsgrad, foreach": dict(name="amsgrad", foreach=True),
    "a memory that fades to 0": dict(name="adam", betas=(0.9, 0.01)),
    "stored in fewer bits": dict(dtype=torch.float64, state_dtype=torch.float32),
}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("row", ROWS)
def test_the_bits_are_those_of_a_mask(row, pattern, monkeypatch):
    monkeypatch.setattr(wake_guard, "PIECE", 100)
    same_bits(monkeypatch, pattern, **ROWS[row])


@pytest.mark.parametrize("special", [float("nan"), float("inf"), -float("inf"), 1e-23, 1e-30, 1e30])
@pytest.mark.parametrize("pattern", ["one", "few", "half"])
@pytest.mark.parametrize("row", ["fused", "foreach", "l2", "amsgrad", "stored in fewer bits"])
def test_gradients_that_are_no_ordinary_numbers(row, pattern, special, monkeypatch):
    """An active coordinate has them at every step, an inactive one once; 1e-23 underflows in 32 bits when squared."""
    same_bits(monkeypatch, pattern, special=special, **ROWS[row])


@pytest.mark.parametrize("row", ["fused", "foreach"])
def test_deterministic_algorithms(row, monkeypatch):
    torch.use_deterministic_algorithms(True)
    try:
        same_bits(monkeypatch, "few", **ROWS[row])
    finally:
        torch.use_deterministic_algorithms(False)


def test_inactive_coordinates_keep_a_tensor_guarded_until_the_next_check():
    for pattern, steps, expected in (
        ("half", 6, False),
        ("few", 32, False),
        ("few", 33, True),
    ):  # the last at 31
        optimizer, _ = trained(pattern, steps=steps)
        assert next(iter(optimizer._inactive.values())).awake == expected, steps


def test_those_that_are_awake_are_looked_at_once(monkeypatch):
    looked = []
    kept = wake_guard.Inactive.__init__
    monkeypatch.setattr(
        wake_guard.Inactive, "__init__", lambda self, *given: (looked.append(1), kept(self, *given))[1]
    )
    trained("none")
    assert len(looked) == len(SHAPES)


def test_a_parameter_that_left_its_group_is_let_go():
    optimizer, params = trained("one", steps=5)
    group = optimizer.param_groups[0]
    gone = []
    for _ in range(3):
        old = group["params"][0]
        gone.append(weakref.ref(old))
        group["params"][0] = new = torch.nn.Parameter(old.detach().clone())
        optimizer.state[new] = optimizer.state.pop(old)
        new.grad = torch.ones_like(new)
        params.clear()
        del old, new
        optimizer.step()
    assert [one() for one in gone] == [None] * 3


@pytest.mark.parametrize("row", ["fused", "foreach", "transposed", "complex", "clipped"])
def test_only_pieces_with_an_inactive_coordinate_are_written(row, monkeypatch):
    written = []
    real = private.where_zero
    monkeypatch.setattr(private, "where_zero", lambda g, v: (written.append(v.numel()), real(g, v))[1])
    monkeypatch.setattr(wake_guard, "PIECE", 100)
    _, params = trained("one", steps=5, **ROWS[row])
    halves = 2 if params[0].is_complex() else 1
    sizes = [p.numel() * halves for p in params]
    assert written == [min(100, n) for n in sizes] * 4  # every step but the first


def zeros_in_place(t, optimizer, params):
    if t in (6, 23):
        optimizer.state[params[0]]["exp_avg_sq"].view(-1)[7:11] = 0


def zeros_from_a_view(t, optimizer, params):
    if t == 20:
        optimizer.state[params[1]]["exp_avg_sq"].detach()[2].zero_()


def zeros_in_its_place(t, optimizer, params):
    if t == 20:
        v = optimizer.state[params[0]]["exp_avg_sq"].clone()
        optimizer.state[params[0]]["exp_avg_sq"] = v.mul_(torch.arange(v.shape[1]) > 4)


def zeros_as_data(t, optimizer, params):
    if t == 20:
        v = optimizer.state[params[0]]["exp_avg_sq"]
        v.data = v.data * (torch.arange(v.shape[1]) > 4)


def another_in_the_same_memory(t, optimizer, params):
    """With as many changes, too."""
    if t == 20:
        v = optimizer.state[params[0]]["exp_avg_sq"]
        other = optimizer.state[params[0]]["exp_avg_sq"] = v.data
        other[:, 5] = 0
        while other._version < v._version:
            other.add_(0)


def a_checkpoint(t, optimizer, params):
    if t == 20:
        saved = copy.deepcopy(optimizer.state_dict())
        saved["state"][0]["exp_avg_sq"][:, 5] = 0
        optimizer.load_state_dict(saved)


def a_copy(t, optimizer, params):
    if t == 20:
        optimizer, params = copy.deepcopy((optimizer, params))
        optimizer.state[params[0]]["exp_avg_sq"][:, 5] = 0
        return optimizer, params


def a_pickle(t, optimizer, params):
    if t == 20:
        return pickle.loads(pickle.dumps((optimizer, params)))


def another_group(t, optimizer, params):
    if t == 20:
        late = torch.nn.Parameter(torch.ones(50))
        late.grad = torch.arange(50.0)
        optimizer.add_param_group({"params": [late]})
        params = [*params, late]
    return optimizer, params


def another_path(t, optimizer, params):
    optimizer.param_groups[0]["foreach"] = True if t % 7 > 3 else None


def no_guard_for_a_while(t, optimizer, params):
    optimizer.param_groups[0]["wake"] = not 12 < t < 20


def another_optimizer(t, optimizer, params):
    """A copy that shares the state steps in between."""
    if t % 8 == 0:
        other = create("adaxw", params, lr=0.01)
        other.state = optimizer.state
        other.step()


def a_new_memory(t, optimizer, params):
    if t == 20:
        optimizer.restart_memory()


def a_large_gain(t, optimizer, params):
    """Time goes back to where v fades fast."""
    if t == 20:
        optimizer.state[params[0]]["step"].fill_(1)


CHANGES = (
    zeros_in_place,
    zeros_from_a_view,
    zeros_in_its_place,
    zeros_as_data,
    another_in_the_same_memory,
    a_checkpoint,
    a_copy,
    a_pickle,
    another_group,
    another_path,
    no_guard_for_a_while,
    another_optimizer,
    a_new_memory,
    a_large_gain,
)


@pytest.mark.parametrize("pattern", ["none", "one", "few", "few, long", "half, waking"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_list_is_not_believed_when_something_changed(change, pattern, monkeypatch):
    same_bits(monkeypatch, pattern, between=change)


def test_zeros_that_nobody_could_see_are_guarded_beside_others():
    """`.data` counts no change: what it zeroes is guarded where the tensor is, at the latest from the next look."""

    def behind(t, optimizer, params):
        if t == 20:
            optimizer.state[params[0]]["exp_avg_sq"].data[0, 7] = 0
        if t >= 20:
            params[0].grad[0, 7] = 0.0 if t < 30 else 2.0

    optimizer, params = trained("one", between=behind, steps=30)
    assert optimizer.state[params[0]]["exp_avg_sq"][0, 7] == 4.0


@pytest.mark.parametrize("pattern", ["none", "one"])
@pytest.mark.parametrize("foreach", [None, True])
@pytest.mark.parametrize("beta", [0.01, 0.4, 0.5, 0.50000001])
def test_no_result_is_cached_when_the_gain_is_large(beta, foreach, pattern, monkeypatch):
    """From a gain of one half, the smallest number is rounded away: a small v becomes 0, and is inactive again."""

    def faint(t, optimizer, params):
        if t < 36:
            params[0].grad[:, 5] = 1e-21 if t < 6 else 0.0
        v = optimizer.state[params[0]]["exp_avg_sq"][:, 5] if t > 1 else torch.ones(1)
        faded.append(bool((v == 0).all()))

    faded = []
    optimizer, _ = same_bits(
        monkeypatch, pattern, name="adam", betas=(0.9, beta), between=faint, foreach=foreach
    )
    assert faded[35]
    assert not faded[36]
    assert not any(known.holds(optimizer.state[p]["exp_avg_sq"]) for p, known in optimizer._inactive.items())


def test_16_bits_may_be_rounded_to_0(monkeypatch):
    """A v at the smallest number of bfloat16 becomes 0 at about one step in 1/k; its coordinate is inactive again."""

    def faint(t, optimizer, params):
        if t < 31:
            params[0].grad[:, 5:7] = 1e-20 if t < 6 else 0.0
        if t == 31:
            lost.append(int((optimizer.state[params[0]]["exp_avg_sq"][:, 5:7] == 0).sum()))

    lost = []
    same_bits(monkeypatch, "one", between=faint, state_dtype=torch.bfloat16)
    assert min(lost) > 10


def test_inference_tensors_count_no_changes():
    with torch.inference_mode():
        optimizer, _ = trained("one")
        assert [known.awake for known in optimizer._inactive.values()] == [False] * len(SHAPES)


PATHS = {
    "default": {},
    "foreach": dict(foreach=True),
    "for-loop": dict(foreach=False),
    "capturable": dict(capturable=True),
    "differentiable": dict(differentiable=True),
    "rows": {},
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", [n for n in METHODS if METHODS[n].rule.memory is not None])
def test_the_guard_is_one_rule_on_every_path(name, path):
    """v <- g^2 where v = 0, from the first step on, whether or not the memory is normalised."""
    row = METHODS[name]
    if path == "rows" and row.rule.mean == "window":
        pytest.skip("no sparse gradients")
    options = {"window": 1} if row.rule.mean == "window" else {}
    p = torch.ones(3, 1, dtype=torch.float64)
    p = p if path == "differentiable" else torch.nn.Parameter(p)
    optimizer = create(name, [p], lr=0.1, wake=True, **options, **PATHS[path])
    x, zero = torch.ones(3, 1, dtype=torch.float64), torch.zeros(3, 1, dtype=torch.float64)
    m = None if row.rule.mean == "none" else zero
    v, v_max, old = zero, zero if row.rule.maximum else None, zero
    for t in range(1, 7):  # the third coordinate is activated at step 4
        g = torch.tensor([[0.5], [-1.0 / t], [3.0 if t > 3 else 0.0]], dtype=torch.float64)
        p.grad = g.to_sparse(1) if path == "rows" else g.clone()
        if path == "rows" and p.grad._nnz() < 3:  # name the row all the same
            p.grad = torch.sparse_coo_tensor(torch.arange(3)[None], g, (3, 1), check_invariants=False)
        optimizer.step()
        n = row.numbers(float(t), {"lr": 0.1, "dtype": "float64", **options})
        seen = g + n.l2 * x
        if row.rule.mean == "window":
            given, n = dict(old=old), n._replace(l2=0.0)
        else:
            given, seen = {}, g
        k = torch.where(v == 0, torch.ones_like(v), torch.full_like(v, n.k))
        x, m, v, v_max, _ = step(x, seen, m, v, n._replace(k=k), v_max=v_max, xp=torch, **given)
        old = seen
        torch.testing.assert_close(p.detach(), x, rtol=1e-12, atol=0)
        torch.testing.assert_close(optimizer.state[p]["exp_avg_sq"].detach(), v, rtol=1e-12, atol=0)
