"""Properties over shapes, strides, dtypes and options, drawn by hypothesis; seeded: every run draws the same."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from infos import NAMES, PUBLIC, Recursion, build

COMMON = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64)
TOLERANCE = {  # of two paths that compute in float32 (or 64) and may round a stored number differently, once a step
    torch.float64: 1e-12,
    torch.float32: 5e-6,
    torch.complex64: 5e-6,
    torch.bfloat16: 2**-6,
    torch.float16: 2**-9,
}
shapes = st.lists(st.integers(0, 5), min_size=0, max_size=4).map(tuple)
LAYOUTS = ("contiguous", "transposed", "gaps", "channels last", "offset")
GRADIENTS = (*LAYOUTS, "expanded")


def laid_out(values: torch.Tensor, layout: str) -> torch.Tensor:
    """The same numbers with other strides."""
    if layout == "transposed" and values.dim() > 1:
        order = tuple(reversed(range(values.dim())))
        return values.permute(order).contiguous().permute(order)
    if layout == "gaps" and values.dim():
        wide = values.new_zeros((*values.shape[:-1], 3 * values.shape[-1] + 1))
        wide[..., : 3 * values.shape[-1] : 3] = values
        return wide[..., : 3 * values.shape[-1] : 3]
    if layout == "channels last" and values.dim() == 4:
        return values.contiguous(memory_format=torch.channels_last)
    if layout == "offset" and values.dim():
        big = torch.cat([torch.zeros_like(values), values])
        return big[values.shape[0] :]
    return values.contiguous()


def numbers(shape, dtype, seed, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    return (scale * torch.randn(shape, generator=generator, dtype=wide)).to(dtype)


def gradient(shape, dtype, seed, layout, scale):
    if layout == "expanded" and shape:
        return numbers(shape[-1:], dtype, seed, scale).expand(shape)
    return laid_out(numbers(shape, dtype, seed, scale), layout)


@st.composite
def options(draw, name):
    """A crossing of what can be given together."""
    given = {
        "lr": draw(st.sampled_from([1e-3, 0.05])),
        "weight_decay": draw(st.sampled_from([0.0, 0.1])),
        "decay": draw(st.sampled_from(["l2", "decoupled", "fully_decoupled"])),
        "maximize": draw(st.booleans()),
    }
    if draw(st.booleans()):
        given["clip_update"] = draw(st.sampled_from([0.03, 10.0]))
    if name in PUBLIC:
        given["wake"] = draw(st.booleans())
        given["betas"] = draw(st.sampled_from([(0.9, 1e-4), (0.0, 1e-3), (0.5, 0.0)]))
        given["eps_placement"] = draw(st.sampled_from(["paper", "plain"]))
    return given


names = st.sampled_from(NAMES)
named_options = names.flatmap(lambda name: st.tuples(st.just(name), options(name)))


@settings(max_examples=250, **COMMON)
@given(
    named_options,
    st.lists(st.tuples(shapes, st.sampled_from(LAYOUTS)), min_size=1, max_size=4),
    st.sampled_from(DTYPES),
    st.sampled_from(GRADIENTS),
    st.integers(0, 10**6),
    st.sampled_from([1e-6, 1.0, 100.0]),
)
def test_the_default_path_is_the_for_loop(method, tensors, dtype, layout, seed, scale):
    """Whatever the shapes and strides; no gradient is written, no stride changes, nothing becomes nan."""
    name, given = method
    params = [
        torch.nn.Parameter(laid_out(numbers(s, dtype, seed + i), w)) for i, (s, w) in enumerate(tensors)
    ]
    twins = [torch.nn.Parameter(p.detach().clone(memory_format=torch.contiguous_format)) for p in params]
    ours, loop = build(name, params, **given), build(name, twins, foreach=False, **given)
    strides = [p.stride() for p in params]
    for t in range(3):
        for i, (p, q) in enumerate(zip(params, twins, strict=True)):
            p.grad = gradient(p.shape, dtype, seed + 10 * t + i, layout, scale)
            q.grad = p.grad.clone(memory_format=torch.contiguous_format)
        versions = [p.grad._version for p in params]
        ours.step(), loop.step()
        assert versions == [p.grad._version for p in params]
        assert all(torch.equal(p.grad, q.grad) for p, q in zip(params, twins, strict=True))
    assert [p.stride() for p in params] == strides
    tolerance = TOLERANCE[dtype]
    for p, q in zip(params, twins, strict=True):
        assert torch.isfinite(p).all()
        torch.testing.assert_close(p.detach(), q.detach(), rtol=tolerance, atol=tolerance)
        for key, value in ours.state[p].items():
            assert torch.isfinite(value).all()
            torch.testing.assert_close(
                value, loop.state[q][key], rtol=tolerance, atol=tolerance * max(1.0, scale**2)
            )


@settings(max_examples=120, **COMMON)
@given(
    st.sampled_from(PUBLIC).flatmap(lambda name: st.tuples(st.just(name), options(name))),
    shapes,
    st.sampled_from(["default", "foreach", "capturable", "differentiable"]),
    st.lists(st.sampled_from(["normal", "zero", "missing", "tiny", "one entry"]), min_size=2, max_size=8),
    st.integers(0, 10**6),
)
def test_any_history_of_gradients_is_the_papers_recursion(method, shape, way, history, seed):
    """Zero, missing, tiny and sparse-like gradients in any order, in float64."""
    name, given = method
    p = numbers(shape, torch.float64, seed)
    p.requires_grad_(way != "differentiable")
    oracle = Recursion(name, p)
    optimizer = build(name, [p], **{way: True} if way != "default" else {}, **given)
    for t, kind in enumerate(history):
        g = numbers(shape, torch.float64, seed + t + 1)
        if kind == "missing":
            p.grad = None
        else:
            if kind == "zero":
                g = torch.zeros_like(g)
            elif kind == "tiny":
                g = g * 1e-8
            elif kind == "one entry" and g.numel():
                only = torch.zeros_like(g)
                only.view(-1)[0] = g.view(-1)[0]
                g = only
            p.grad = g
            oracle.step(g, **given)
        optimizer.step()
    assert not np.isnan(oracle.x).any()
    torch.testing.assert_close(p.detach(), torch.as_tensor(oracle.x), rtol=1e-9, atol=1e-9)


@settings(max_examples=80, **COMMON)
@given(
    names,
    shapes,
    st.sampled_from([torch.bfloat16, torch.float16]),
    st.sampled_from(["nearest", "stochastic", "kahan"]),
    st.sampled_from([None, torch.float32, torch.bfloat16]),
    st.sampled_from(LAYOUTS),
    st.integers(0, 10**6),
)
def test_sixteen_bits_follow_float32(name, shape, dtype, rounding, state_dtype, layout, seed):
    """Stored in 16 bits however rounded, a short run stays within a few roundings of the float32 run."""
    start = numbers(shape, dtype, seed)
    low = torch.nn.Parameter(laid_out(start, layout))
    high = torch.nn.Parameter(start.float())
    a = build(name, [low], rounding=rounding, state_dtype=state_dtype, lr=0.01, eps=1e-3)
    b = build(name, [high], foreach=False, lr=0.01, eps=1e-3)
    for t in range(4):
        g = numbers(shape, dtype, seed + t + 1)
        low.grad, high.grad = laid_out(g, layout), g.float()
        a.step(), b.step()
    assert low.dtype == dtype
    assert torch.isfinite(low).all()
    eps = torch.finfo(dtype).eps
    moved = (high.detach() - start.float()).abs().max().item() if start.numel() else 0.0
    loose = 2**-5 * moved if state_dtype is torch.bfloat16 else 0.0  # moments are right to 2^-7 there
    torch.testing.assert_close(low.float(), high.detach(), rtol=5 * eps, atol=0.05 * eps + loose)


@settings(max_examples=60, **COMMON)
@given(
    names,
    st.lists(shapes, min_size=1, max_size=5),
    st.sampled_from([torch.float32, torch.bfloat16, torch.complex64]),
    st.integers(0, 5),
    st.integers(0, 10**6),
)
def test_any_checkpoint_resumes_to_the_same_bits(name, tensors, dtype, when, seed):
    def step(params, optimizer, t):
        for i, p in enumerate(params):
            p.grad = numbers(p.shape, dtype, seed + 10 * t + i) if (t + i) % 3 else None
        optimizer.step()

    params = [torch.nn.Parameter(numbers(s, dtype, seed + i)) for i, s in enumerate(tensors)]
    optimizer = build(name, params)
    for t in range(6):
        if t == when:
            twins = [torch.nn.Parameter(p.detach().clone()) for p in params]
            resumed = build(name, twins)
            saved = {
                "state": {
                    k: {n: v.clone() for n, v in e.items()}
                    for k, e in optimizer.state_dict()["state"].items()
                },
                "param_groups": optimizer.state_dict()["param_groups"],
            }
            resumed.load_state_dict(saved)
        step(params, optimizer, t)
        if t >= when:
            step(twins, resumed, t)
    for p, q in zip(params, twins, strict=True):
        assert torch.equal(p, q)
        assert optimizer.state[p].keys() == resumed.state[q].keys()
        assert all(torch.equal(v, resumed.state[q][k]) for k, v in optimizer.state[p].items())
