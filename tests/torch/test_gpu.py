"""The compiled kernel on a GPU: the interpreter's tables again, and what only a GPU can show."""

from __future__ import annotations

import copy
import gc
import weakref
from contextlib import nullcontext

import pytest
import torch

from adaxopt import AdaXW, create, rule, step_in_backward
from adaxopt.zoo import METHODS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
pytest.importorskip("triton", reason="the kernel needs Triton")

import kernel_table as table  # noqa: E402
import waits  # noqa: E402
from kernel_table import BF16, F16, F32, F64  # noqa: E402

from adaxopt.torch import fused_cuda  # noqa: E402


def parameters(shapes, seed=0, dtype=F32, channels_last=False):
    generator = torch.Generator().manual_seed(seed)
    made = []
    for shape in shapes:
        t = torch.randn(shape, generator=generator).to("cuda", dtype)
        if channels_last and t.dim() == 4:
            t = t.to(memory_format=torch.channels_last)
        made.append(torch.nn.Parameter(t))
    return made


def gradients(params, seed):
    """Fresh tensors, in each parameter's own layout."""
    generator = torch.Generator().manual_seed(seed)
    for p in params:
        g = torch.randn(p.shape, generator=generator).to("cuda", p.dtype)
        p.grad = torch.empty_like(p).copy_(g)


def states(optimizer, key="exp_avg_sq"):
    return [optimizer.state[p][key] for group in optimizer.param_groups for p in group["params"]]


def kernels(optimizer):
    shares = [share for plan in optimizer._plans.values() for share, _, _ in plan.shares]
    return [share for share in shares if isinstance(share, fused_cuda.Share)]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


SHAPES = [(16, 3, 3, 3), (16,), (300, 200), (7,), (5_000_003,), (1, 1)]


@pytest.mark.parametrize("case", table.TABLE, ids=str)
def test_one_step_is_the_rule(case):
    table.check(case, "cuda")


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_random_bits_are_those_of_rounding_py(dtype):
    table.check_bits(dtype, "cuda")


@pytest.mark.parametrize("method", table.ALL)
def test_numbers_from_1_to_a_billion_steps(method):
    table.check_numbers(method, "cuda")


@pytest.mark.parametrize("name", ["adaxw", "adam", "padam", "sgdm"])
def test_the_optimizer_takes_the_kernel_and_agrees_with_foreach(name):
    ours, theirs = parameters(SHAPES), parameters(SHAPES)
    fused, foreach = create(name, ours, lr=1e-3), create(name, theirs, lr=1e-3, foreach=True)
    for t in range(8):
        gradients(ours, t), gradients(theirs, t)
        fused.step(), foreach.step()
    assert len(kernels(fused)) == 1
    assert not kernels(foreach)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6)


def test_fresh_gradients_fixed_gradients_and_a_host_far_ahead_give_the_same_bits():
    """While the device sleeps the host goes several times around the ring of slots, with another lr every step."""
    results = []
    for kind in ("fixed", "fresh", "ahead"):
        params = parameters(SHAPES)
        optimizer = AdaXW(params, fused=True)
        gradients(params, 0)
        torch.cuda.synchronize()
        for t in range(100):
            if kind == "ahead" and t % 10 == 0:
                torch.cuda._sleep(20_000_000)
            for p in params:
                p.grad = (p.grad if kind == "fixed" else p.grad.clone()).mul_(-0.99)
            optimizer.param_groups[0]["lr"] = 1e-3 * (1 + t % 7)
            optimizer.step()
        results.append(params)
    assert same(results[0], results[1])
    assert same(results[0], results[2])


def test_no_step_waits_for_the_device():
    params = parameters(SHAPES)
    optimizer = AdaXW(params, fused=True)
    gradients(params, 0)
    optimizer.step()
    with waits.refused():
        for t in range(5):
            optimizer.param_groups[0]["lr"] = 1e-3 * t
            optimizer.step()


def test_a_graph_replays_with_another_lr_between_eager_steps():
    eager, captured = parameters(SHAPES), parameters(SHAPES)
    rates = [torch.tensor(1e-3, device="cuda") for _ in range(2)]
    optimizers = [AdaXW(p, lr=lr, capturable=True) for p, lr in zip((eager, captured), rates, strict=True)]
    gradients(eager, 0), gradients(captured, 0)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            optimizers[1].step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizers[1].step()
    for _ in range(3):
        optimizers[0].step()
    assert same(eager, captured)
    static = [p.grad for p in captured]
    for t in range(60):
        for rate in rates:
            rate.fill_(1e-3 / (1 + t))
        if t % 3 == 2:  # an eager step from other addresses goes through the same table
            gradients(eager, t), gradients(captured, t)
            optimizers[0].step(), optimizers[1].step()
            for p, q, g in zip(eager, captured, static, strict=True):
                q.grad = g
                p.grad = g.clone()
        else:
            optimizers[0].step(), graph.replay()
    assert same(eager, captured)
    assert states(optimizers[1], "step")[0].item() == 63


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_capture_with_an_lr_on_the_host_says_what_to_do():
    params = parameters(SHAPES)
    optimizer = AdaXW(params, lr=torch.tensor(1e-3), capturable=True)
    gradients(params, 0)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        optimizer.step()
    torch.cuda.synchronize()
    with (
        pytest.raises(RuntimeError, match=r"lr as a tensor on the CPU: .* put it on the parameters' device"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        optimizer.step()


def test_capture_without_a_step_before_says_what_to_do():
    params = parameters([(8,)])
    optimizer = AdaXW(params, capturable=True)
    gradients(params, 0)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="take a few steps before capturing"), torch.cuda.graph(graph):
        optimizer.step()
    assert not optimizer.state  # it would lie in the graph's memory, which others may get
    del graph
    optimizer.step()
    assert optimizer.state[params[0]]["step"] == 1


def test_grad_scaler_skips_what_overflowed():
    params, twin = parameters(SHAPES), parameters(SHAPES)
    optimizer, plain = AdaXW(params, fused=True), AdaXW(twin, fused=True)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**16, growth_interval=1000)
    for t in range(6):
        gradients(twin, t)
        for p, q in zip(params, twin, strict=True):
            p.grad = q.grad * scaler.get_scale()
        if t == 3:
            params[2].grad.view(-1)[5] = float("inf")
        scaler.scale(torch.zeros((), device="cuda"))
        scaler.step(optimizer)
        scaler.update()
        if t != 3:
            plain.step()
    assert scaler.get_scale() == 2.0**15
    assert same(params, twin)
    assert {s.item() for s in states(optimizer, "step")} == {5.0}


@pytest.mark.parametrize("home", ["cpu", "cuda:1"])
def test_scale_and_overflow_that_live_on_another_device(home):
    if home == "cuda:1" and torch.cuda.device_count() < 2:
        pytest.skip("needs a second CUDA device, for the scale to live on")
    plan, params, states, hyper = table.build(table.Case("adaxw"), "cuda:0")
    twin, others, _, _ = table.build(table.Case("adaxw"), "cuda:0")
    grads = [torch.ones_like(p) for p in params]
    for found in (0.0, 1.0, 0.0):
        plan.step(hyper, torch.tensor(4.0, device=home), torch.tensor(found, device=home), grads=grads)
    for _ in range(2):
        twin.step(hyper, grads=[g / 4 for g in grads])
    assert [s["step"].item() for s in states] == [2] * len(states)
    assert same(params, others)


def test_a_captured_step_does_not_keep_the_model():
    params = parameters(SHAPES)
    optimizer = AdaXW(params, capturable=True)
    gradients(params, 0)
    for _ in range(3):
        optimizer.step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    model = [weakref.ref(p) for p in params]
    del params, optimizer, graph
    gc.collect()
    assert [r() for r in model] == [None] * len(model)


def test_a_kernel_outlives_the_caches_of_triton():
    """New releases unload a compiled kernel that nobody holds."""
    from adaxopt.torch import kernel

    p = torch.nn.Parameter(torch.zeros(1000, device="cuda"))
    optimizer = AdaXW([p], lr=1e-2, weight_decay=0.0)
    for _ in range(3):
        p.grad = torch.ones_like(p)
        optimizer.step()
        for function in (kernel.advance, kernel.update):
            function.device_caches.clear()
        gc.collect()
    assert optimizer.state[p]["step"].item() == 3
    assert p.max().item() < -2e-3


def test_a_changed_launch_goes_the_plain_way():
    """As if Triton took other arguments: the first use says so, and the step is taken all the same."""

    def refuse(*arguments):
        raise TypeError("function takes other arguments")

    results = []
    for broken in (False, True):
        plan, params, states, hyper = table.build(table.Case("adaxw"), "cuda")
        grads = [torch.ones_like(p) for p in params]
        plan.step(hyper, grads=grads)
        for one in next(iter(plan.buckets[0].launches.values())) if broken else ():
            one.run, one.proven = refuse, False
        plan.step(hyper, grads=grads)
        assert [s["step"].item() for s in states] == [2] * len(states)
        results.append(params)
    assert same(*results)


@pytest.mark.parametrize(
    "check", [table.check_changed_power, table.check_no_power, table.check_replaced_square]
)
def test_powers_and_gains(check):
    check("cuda")


def test_channels_last_and_gradients_of_another_layout():
    shapes = [(8, 4, 3, 3), (16, 8, 1, 1), (5,), (6, 5, 7, 7)]
    last, plain = parameters(shapes, channels_last=True), parameters(shapes)
    optimizers = [AdaXW(last), AdaXW(plain)]
    for t in range(6):
        gradients(last, t), gradients(plain, t)
        if t == 3:
            last[0].grad = last[0].grad.contiguous()
        for optimizer in optimizers:
            optimizer.step()
    assert last[0].is_contiguous(memory_format=torch.channels_last)
    for a, b in zip(last, plain, strict=True):
        assert torch.allclose(a, b, rtol=1e-6, atol=1e-7)
    assert torch.equal(last[3], plain[3])


def test_dtypes_devices_and_late_gradients_in_one_group():
    params = [p for dtype in (F32, BF16, F16, F64) for p in parameters(SHAPES[:4], dtype=dtype)]
    params.append(torch.nn.Parameter(torch.randn(6, dtype=torch.complex64, device="cuda")))
    twin = [torch.nn.Parameter(p.detach().clone()) for p in params]
    fused, foreach = AdaXW(params), AdaXW(twin, foreach=True)
    for t in range(6):
        for some in (params, twin):
            gradients(some[:-1], t)
            some[-1].grad = torch.full_like(some[-1], 1 + 2j)
            if t in (0, 2):
                some[1].grad = some[6].grad = None
        fused.step(), foreach.step()
    assert [fused.state[p]["step"].item() for p in params[:8]] == [6, 4, 6, 6, 6, 6, 4, 6]
    for p, q in zip(params, twin, strict=True):
        unit = {BF16: 2.0**-7, F16: 2.0**-10}.get(p.dtype, 1e-5)
        assert torch.allclose(p, q, rtol=unit, atol=unit * 1e-2)
    assert len(kernels(fused)) >= 4


@pytest.mark.parametrize("mode", ["nearest", "stochastic", "kahan"])
def test_two_runs_give_the_same_bits(mode):
    runs = []
    for _ in range(2):
        params = parameters(SHAPES, dtype=BF16)
        optimizer = AdaXW(params, rounding=mode, state_dtype=BF16)
        for t in range(10):
            gradients(params, t)
            optimizer.step()
        runs.append([*params, *states(optimizer), *states(optimizer, "exp_avg")])
    assert same(*runs)


def test_stochastic_rounding_is_the_foreach_path_s():
    """The same random bits in both implementations: nearly all elements are equal (the last float32 bit may differ)."""
    ours, theirs = parameters(SHAPES, dtype=BF16), parameters(SHAPES, dtype=BF16)
    optimizers = [AdaXW(ours, rounding="stochastic"), AdaXW(theirs, rounding="stochastic", foreach=True)]
    gradients(ours, 0), gradients(theirs, 0)
    for optimizer in optimizers:
        optimizer.step()
    equal = torch.cat([(a == b).view(-1) for a, b in zip(ours, theirs, strict=True)]).float().mean()
    moved = torch.cat([(a != b).view(-1) for a, b in zip(ours, parameters(SHAPES, dtype=BF16), strict=True)])
    assert equal > 0.999
    assert moved.float().mean() > 0.01


def test_a_frozen_memory_is_not_touched_and_parameters_move():
    params = parameters(SHAPES)
    optimizer = AdaXW(params)
    gradients(params, 0)
    optimizer.step()
    for s in states(optimizer, "step"):
        s.fill_(500_000)
    before, then = [v.clone() for v in states(optimizer)], [p.detach().clone() for p in params]
    gradients(params, 1)
    optimizer.step()
    assert same(before, states(optimizer))
    assert not any(torch.equal(a, b) for a, b in zip(params, then, strict=True))


def test_a_checkpoint_goes_on_with_the_same_bits():
    params = parameters(SHAPES)
    optimizer = AdaXW(params)
    for t in range(3):
        gradients(params, t)
        optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    copies = [torch.nn.Parameter(p.detach().clone()) for p in params]
    other = AdaXW(copies)
    other.load_state_dict(saved)
    for t in range(3, 6):
        gradients(params, t), gradients(copies, t)
        optimizer.step(), other.step()
    assert same(params, copies)


def test_extra_memory_is_small():
    gc.collect()  # what earlier tests left is freed now or counted in `others`
    torch.cuda.synchronize()
    others = torch.cuda.memory_allocated()
    params = parameters([(1024, 1024)] * 40)
    optimizer = AdaXW(params)
    gradients(params, 0)
    optimizer.step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = sum(
        t.numel() * t.element_size() for p in params for t in (p, p.grad, *optimizer.state[p].values())
    )
    optimizer.step()
    assert torch.cuda.max_memory_allocated() == before
    assert before - others - kept < 2**20 + 64 * 40 + 512 * 40  # 512: the allocator's unit, for each 0-d step


def drift(steps, sizes=(30_000,), lr=1e-3, wd=1e-2):
    """Relative error of the parameters against float64, for AdaXW (the rule) and torch's AdamW (its own)."""
    shape = sizes
    x32 = parameters([shape])[0]
    x64 = x32.detach().double()
    a32, a64 = (torch.nn.Parameter(x32.detach().to(d)) for d in (F32, F64))
    ours = AdaXW([x32], lr=lr, weight_decay=wd)
    torchs = [torch.optim.AdamW([p], lr=lr, weight_decay=wd, fused=True) for p in (a32, a64)]
    m = v = torch.zeros_like(x64)
    generator = torch.Generator("cuda").manual_seed(0)
    method = METHODS["adaxw"]
    for t in range(1, steps + 1):
        g = torch.randn(shape, device="cuda", generator=generator) * 0.1 + 0.02
        x32.grad = a32.grad = g
        a64.grad = g.double()
        ours.step(), torchs[0].step(), torchs[1].step()
        n = method.numbers(t, {"lr": lr, "weight_decay": wd})
        x64, m, v, _, _ = rule.step(x64, g.double(), m, v, n, wake=True, xp=torch)

    def error(a, b):
        return ((a.double() - b).norm() / b.norm()).item()

    return error(x32, x64), error(a32, a64.detach()), error(ours.state[x32]["exp_avg_sq"], v)


def test_after_1000_steps_no_further_from_float64_than_torch():
    ours, torchs, _ = drift(1_000)
    assert ours <= 1.5 * torchs, (ours, torchs)


def test_10_000_steps_of_drift():
    ours, torchs, moment = drift(10_000)
    assert ours <= 1.5 * torchs, (ours, torchs)
    assert moment < 1e-4


def test_steps_inside_backward_take_the_kernel_and_wait_for_nothing():
    ends = []
    for options in ({}, {"foreach": True}):
        torch.manual_seed(0)
        layers = torch.nn.Linear(40, 30), torch.nn.Tanh(), torch.nn.Linear(30, 2)
        model = torch.nn.Sequential(*layers).to("cuda", F64)
        optimizer = AdaXW(model.parameters(), **options)
        x = torch.ones(2, 40, device="cuda", dtype=F64)
        step_in_backward(optimizer)
        model(x).square().sum().backward()
        with nullcontext() if options else waits.refused():
            for _ in range(5):
                model(x).square().sum().backward()
        ends.append((list(model.parameters()), optimizer))
    assert len(kernels(ends[0][1])) == 4
    for a, b in zip(ends[0][0], ends[1][0], strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-9)
