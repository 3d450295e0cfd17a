"""Every way of computing a step agrees with the for-loop, and the for-loop with oracles by another hand."""

from __future__ import annotations

import pytest
import torch
from infos import (
    INFOS,
    NAMES,
    PUBLIC,
    TORCH,
    assert_near,
    assert_same,
    build,
    each_input,
    each_method,
    everything,
    options,
    parameters,
    recursion,
    run,
    set_gradients,
)
from torch.testing._internal.common_optimizers import OptimizerInfo

import adaxopt
from runner import FUSES

captures = lambda kwargs: bool(kwargs.get("capturable"))  # noqa: E731
fused_inputs = each_input(FUSES, unless=lambda k: captures(k) or "clip_update" in k)


def test_every_public_class_has_an_info_in_torchs_own_shape():
    classes = {info.optim_cls for info in INFOS.values()}
    assert {adaxopt.AdaX, adaxopt.AdaXW, adaxopt.Padax} <= classes
    assert len(classes) == 14
    for info in INFOS.values():
        assert isinstance(info, OptimizerInfo)
        descriptions = [i.desc for i in options(info)]
        assert len(descriptions) == len(set(descriptions)) >= 9
        for i in options(info):  # torch's rule: the implementation is chosen by the test, not by the table
            assert not {"foreach", "fused", "differentiable"} & set(i.kwargs)


@each_input()
def test_foreach_is_the_for_loop_bit_for_bit(name, kwargs):
    loop = everything(*run(name, foreach=False, **kwargs))
    assert_same(everything(*run(name, foreach=True, **kwargs)), loop)


@each_input()
def test_foreach_is_the_for_loop_in_float32_and_16_bits(name, kwargs):
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        loop = everything(*run(name, dtype=dtype, steps=3, foreach=False, **kwargs))
        assert_same(everything(*run(name, dtype=dtype, steps=3, foreach=True, **kwargs)), loop)


@fused_inputs
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_fused_is_the_for_loop_to_rounding(name, kwargs, dtype, tolerance):
    loop = everything(*run(name, dtype=dtype, foreach=False, **kwargs))
    assert_near(everything(*run(name, dtype=dtype, fused=True, **kwargs)), loop, tolerance)


@each_input(unless=captures)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_capturable_is_the_for_loop_to_rounding(name, kwargs, dtype, tolerance):
    loop = everything(*run(name, dtype=dtype, foreach=False, **kwargs))
    assert_near(everything(*run(name, dtype=dtype, capturable=True, **kwargs)), loop, tolerance)


@each_input(unless=captures)
def test_differentiable_is_the_for_loop_to_rounding(name, kwargs):
    loop = everything(*run(name, foreach=False, **kwargs))
    params = parameters()
    for p in params:
        p.requires_grad_(False)
    optimizer = build(name, params, differentiable=True, **kwargs)
    for t in range(6):
        set_gradients(params, t)
        optimizer.step()
    assert_near(everything(params, optimizer), loop)


@each_input(PUBLIC)
@pytest.mark.parametrize(
    "way", [{}, {"foreach": False}, {"foreach": True}], ids=["default", "loop", "foreach"]
)
def test_every_way_is_the_papers_recursion(name, kwargs, way):
    params, _ = run(name, steps=20, **kwargs, **way)
    start = parameters()
    oracle = recursion(name, start)
    for t in range(20):
        for r, g in zip(oracle, set_gradients(start, t), strict=True):
            r.step(g, **kwargs)
    assert_near(list(params), [torch.as_tensor(r.x) for r in oracle], 1e-11)


AS_TORCH = {
    "default": {},
    "lr": {"lr": 0.02},
    "weight decay": {"weight_decay": 0.1},
    "maximize": {"maximize": True},
    "tensor lr": {"lr": torch.tensor(0.02, dtype=torch.float64)},
}


@pytest.mark.parametrize("name", list(TORCH))
@pytest.mark.parametrize("kwargs", list(AS_TORCH.values()), ids=list(AS_TORCH))
@pytest.mark.parametrize(
    "way", [{}, {"foreach": False}, {"capturable": True}], ids=["default", "loop", "capturable"]
)
def test_every_way_is_torchs_own(name, kwargs, way):
    params, _ = run(name, steps=20, **kwargs, **way)
    theirs = parameters()
    optimizer = TORCH[name](theirs, **kwargs)
    for t in range(20):
        set_gradients(theirs, t)
        optimizer.step()
    assert_near(list(params), list(theirs))


@each_input()
def test_maximize_is_the_negated_gradient(name, kwargs):
    up, _ = run(name, **{**kwargs, "maximize": True})
    params = parameters()
    optimizer = build(name, params, **{**kwargs, "maximize": False})
    for t in range(6):
        for p, g in zip(params, set_gradients(params, t), strict=True):
            p.grad = -g
        optimizer.step()
    assert_near(list(up), list(params), 1e-14)


@each_input()
@pytest.mark.parametrize(
    "way", [{}, {"foreach": False}, {"foreach": True}], ids=["default", "loop", "foreach"]
)
def test_gradients_are_read_and_never_written(name, kwargs, way):
    for dtype in (torch.float32, torch.bfloat16):
        params = parameters(dtype)
        optimizer = build(name, params, **kwargs, **way)
        for t in range(3):
            grads = set_gradients(params, t)
            before = [(id(p.grad), g.clone(), g._version) for p, g in zip(params, grads, strict=True)]
            optimizer.step()
            for p, (identity, value, version) in zip(params, before, strict=True):
                assert id(p.grad) == identity
                assert p.grad._version == version
                assert torch.equal(p.grad, value)


@each_method
@pytest.mark.parametrize("with_schedulers", [False, True])
def test_goes_downhill_on_a_small_net(name, with_schedulers):
    for schedulers in INFOS[name].scheduler_inputs if with_schedulers else [[]]:
        torch.manual_seed(1)
        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        x = torch.randn(64, 4)
        y = x.sum(1, keepdim=True).sin()
        optimizer = build(name, net.parameters())
        chosen = [make(optimizer) for make in schedulers]
        losses = []
        for _ in range(60):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
            for s in chosen:
                s.step(loss.detach()) if isinstance(
                    s, torch.optim.lr_scheduler.ReduceLROnPlateau
                ) else s.step()
            losses.append(loss.item())
        assert losses[-1] < 0.97 * losses[0]
        assert losses[-1] == min(losses) or losses[-1] < 0.8 * losses[0]


@each_method
@pytest.mark.parametrize(
    "way", [{}, {"foreach": True}, {"capturable": True}], ids=["default", "foreach", "capturable"]
)
def test_dtypes_may_share_a_group(name, way):
    """Float64 beside float32 beside bfloat16, in either order: each is stepped as if it were alone."""
    dtypes = (torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.complex128, torch.float16)
    for order in (dtypes, dtypes[::-1]):
        params = [parameters(d, ((4, 3),), seed=i)[0] for i, d in enumerate(order)]
        together = build(name, params, **way)
        alone = [p.detach().clone().requires_grad_() for p in params]
        each = [build(name, [p], **way) for p in alone]
        for t in range(5):
            grads = set_gradients(params, t)
            together.step()
            for p, g, optimizer in zip(alone, grads, each, strict=True):
                p.grad = g.clone()
                optimizer.step()
        for p, q, optimizer in zip(params, alone, each, strict=True):
            state, other = together.state[p], optimizer.state[q]
            assert_same([p, *state.values()], [q, *other.values()])


@each_input()
def test_complex_is_a_plane(name, kwargs):
    """A complex parameter does what its view as pairs of reals does, coordinate by coordinate."""
    for dtype, tolerance in ((torch.complex128, 1e-14), (torch.complex64, 1e-6)):
        z, optimizer = run(name, dtype=dtype, **kwargs)
        pairs = [torch.nn.Parameter(torch.view_as_real(p.detach()).clone()) for p in parameters(dtype)]
        flat = build(name, pairs, **kwargs)
        shadow = parameters(dtype)
        for t in range(6):
            for p, g in zip(pairs, set_gradients(shadow, t), strict=True):
                p.grad = torch.view_as_real(g).clone()
            flat.step()
        assert_near([torch.view_as_real(p.detach()) for p in z], [p.detach() for p in pairs], tolerance)
        for p, q in zip(z, pairs, strict=True):
            for key, value in optimizer.state[p].items():
                other = flat.state[q][key]
                assert_near([torch.view_as_real(value) if value.is_complex() else value], [other], tolerance)


@each_method
def test_a_lazily_conjugated_gradient_is_read_rightly(name):
    z, w = parameters(torch.complex64), parameters(torch.complex64)
    a, b = build(name, z), build(name, w)
    for t in range(3):
        for p, q, g in zip(z, w, set_gradients(z, t), strict=True):
            p.grad, q.grad = g.conj(), g.conj().resolve_conj()
        a.step(), b.step()
    assert_near(list(z), list(w), 1e-6)


LAYOUTS = {
    "transposed": lambda: torch.randn(6, 4).t(),
    "every other column": lambda: torch.randn(4, 12)[:, ::2],
    "channels last": lambda: torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "a slice": lambda: torch.randn(10, 6)[3:7],
    "permuted": lambda: torch.randn(2, 3, 4).permute(2, 0, 1),
}
GRADIENTS = {
    "like the parameter": lambda p: torch.randn_like(p),
    "contiguous": lambda p: torch.randn(p.shape),
    "expanded": lambda p: torch.randn(p.shape[-1]).expand(p.shape),
    "transposed": lambda p: torch.randn(p.shape[::-1]).permute(*range(p.dim() - 1, -1, -1)),
    "a scalar, expanded": lambda p: torch.tensor(0.7).expand(p.shape),
}


@each_method
@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("gradient", list(GRADIENTS))
def test_strides_do_not_matter(name, layout, gradient):
    """torch's own fused kernel reads flat memory; whatever the strides, the step is that of contiguous copies."""
    p = torch.nn.Parameter(LAYOUTS[layout]())
    q = torch.nn.Parameter(p.detach().clone(memory_format=torch.contiguous_format))
    assert name not in NAMES or p.stride() == p.data.stride()
    ours, plain = build(name, [p]), build(name, [q], foreach=False)
    for _ in range(3):
        p.grad = GRADIENTS[gradient](p)
        q.grad = p.grad.clone(memory_format=torch.contiguous_format)
        before = p.grad.clone()
        strides = p.stride()
        ours.step(), plain.step()
        assert torch.equal(p.grad, before)
        assert p.stride() == strides
    torch.testing.assert_close(p.detach(), q.detach(), rtol=2e-6, atol=2e-6)
    for key in ours.state[p]:
        torch.testing.assert_close(ours.state[p][key], plain.state[q][key], rtol=2e-6, atol=2e-6)


@each_method
def test_state_of_a_channels_last_parameter_has_its_layout(name):
    p = torch.nn.Parameter(torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last))
    optimizer = build(name, [p])
    p.grad = torch.randn_like(p)
    optimizer.step()
    for key, value in optimizer.state[p].items():
        if value.shape == p.shape:
            assert value.stride() == p.stride(), key
