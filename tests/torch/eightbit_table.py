"""A step of 8-bit state and 24-bit weights by the kernel, against the rule in float64 and against `codes.py`.

Shared by `test_kernel_eightbit.py` (Triton's interpreter, CPU tensors) and `test_gpu_eightbit.py` (compiled).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from adaxopt import create, rule
from adaxopt.torch import codes, fused_cuda
from adaxopt.torch.rounding import joined
from adaxopt.zoo import METHODS

F32, F64, BF16, F16, U8 = torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.uint8
EPS = {F32: 4e-6, BF16: 2.0**-7, F16: 2.0**-10, U8: 2.0**-15}
"""Relative agreement asked of a parameter; U8 stands for 24-bit weights."""
SHAPES = ((3,), (1100,), (40, 64), (2, 5, 3, 7), (3000,))


@dataclass(frozen=True)
class Case:
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    x: torch.dtype = F32
    rounding: str = "nearest"
    g: torch.dtype | None = None

    def __str__(self) -> str:
        shown = [self.method, *(f"{k}={v}" for k, v in self.options.items()), self.rounding]
        return "-".join(shown + [str(d).removeprefix("torch.") for d in (self.x, self.g) if d is not None])


GPU = [Case("adaxw"), Case("amsgradw"), Case("adaxw", x=BF16, rounding="24bit")]
"""What is compiled too: every kernel takes seconds."""
TABLE = [
    *GPU,
    *(
        Case(name)
        for name in METHODS
        if METHODS[name].rule.memory
        and METHODS[name].rule.mean != "window"
        and name not in ("adaxw", "amsgradw")
    ),
    Case("adaxw", {"weight_decay": 0.1, "decay": "l2"}),
    Case("adamw", {"clip_update": 0.05, "maximize": True}),
    Case("adaxw", {"wake": False}),
    Case("padax", {"p": 0.3}),
    *(Case("adaxw", x=BF16, rounding=mode) for mode in ("nearest", "stochastic", "kahan")),
    Case("adaxw", x=BF16, rounding="24bit", g=F32),
    Case("adaxw", {"weight_decay": 0.1, "decay": "l2"}, x=BF16, rounding="24bit"),
    Case("adaxw", x=F16, rounding="kahan"),
    Case("adaxw", g=BF16),
]


def parameters(dtype, device, shapes=SHAPES, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(s, generator=generator).to(device, dtype)) for s in shapes]


if not hasattr(torch.Tensor, "grad_dtype"):  # torch 2.6 refuses a gradient of another dtype
    TABLE = [case for case in TABLE if case.g is None]


def gradients(params, seed, dtype=None, scale=1.0):
    """Sizes that differ by five orders of magnitude inside groups of 32, and some zeros."""
    generator = torch.Generator().manual_seed(seed)
    for p in params:
        g = torch.randn(p.shape, generator=generator) * 10 ** (-5 * torch.rand(p.shape, generator=generator))
        g[torch.rand(p.shape, generator=generator) < 0.05] = 0
        given = (g * scale).to(p.device, p.dtype)
        if dtype is not None and dtype != p.dtype:
            p.grad_dtype = None
            given = (g * scale).to(p.device, dtype)
        p.grad = given


def made(case, params, **more):
    return create(
        case.method,
        params,
        lr=1e-2,
        state_dtype=U8,
        rounding=case.rounding,
        fused=True,
        **{**case.options, **more},
    )


def all_by_kernel(optimizer):
    shares = [share for plan in optimizer._plans.values() for share, _, _ in plan.shares]
    assert shares
    assert all(isinstance(share, fused_cuda.Share) for share in shares)
    assert not any(plan.others for plan in optimizer._plans.values())


def full(p, entry):
    """A parameter in float64 with everything that is kept of it."""
    rest = entry.get("compensation")
    if rest is None:
        return p.detach().double()
    return (
        joined(p.detach(), rest).double() if rest.dtype == torch.int8 else p.detach().double() + rest.double()
    )


def near(got, want, entry, name):
    """Every stored number is one of the two codes around the number that should be stored."""
    table, exponents = entry[name], entry[codes.scale_name(name)]
    flat = table.permute(sorted(range(table.dim()), key=table.stride, reverse=True)).reshape(-1)
    unit = (2.0 ** (exponents.double() - 127)).repeat_interleave(codes.GROUP)[: flat.numel()]
    unit = unit.view_as(table)
    got, want = got.double(), want.double()
    code = table.int() & (127 if name == "exp_avg" else 255)
    gap = (
        unit * 2.0 ** (code // 16 - 1).clamp(min=0) / 8 * 1.0001
    )  # to the next code, which is no nearer than the one before
    floor = torch.where(want > 0, unit / 8, 0.0) if name != "exp_avg" else want
    wrong = (got - torch.where(want.abs() < floor, floor, want)).abs() > gap
    assert not wrong.any(), (name, int(wrong.sum()), got[wrong][:3], want[wrong][:3])


def check(case: Case, device: str = "cpu") -> None:
    """Three steps, each compared with one step of the rule from the numbers that were stored."""
    method = METHODS[case.method]
    params = parameters(case.x, device)
    optimizer = made(case, params)
    for t in (1, 2, 3):
        gradients(params, t, case.g)
        olds = [{k: v.clone() for k, v in optimizer.state[p].items()} for p in params]
        before = [full(p, old) for p, old in zip(params, olds, strict=True)]
        optimizer.step()
        group = {k: v for k, v in optimizer.param_groups[0].items() if k not in ("params", "maximize")}
        n = method.numbers(float(t), {**group, "dtype": "float32"})
        for p, x, old in zip(params, before, olds, strict=True):
            entry = optimizer.state[p]
            g = p.grad.double() * (-1 if case.options.get("maximize") else 1)
            kept = [
                (codes.expanded(old, k) if old else codes.expanded(entry, k) * 0).double()
                if k in entry
                else None
                for k in codes.CODED
            ]
            want = rule.step(x, g, kept[0], kept[1], n, v_max=kept[2], wake=group["wake"], xp=torch)
            for name, value in zip(codes.CODED, want[1:4], strict=True):
                if name in entry:
                    near(codes.expanded(entry, name), value, entry, name)
            unit = EPS[U8 if case.rounding == "24bit" else case.x]
            least = 1e-9
            if case.rounding == "kahan":
                unit, least = unit**2, 2.0**-20 if case.x == F16 else least  # its rest is a subnormal number
            error = (full(p, entry) - want[0]).abs()
            allowed = unit * want[0].abs() + 4e-6 * ((want[0] - x).abs() + want[0].abs()) + least
            assert (error <= allowed).all(), (t, error.max())
    all_by_kernel(optimizer)


def check_codes(
    device: str = "cpu", equal: float = 1.0, names: tuple[str, ...] = ("adaxw", "rmsprop")
) -> None:
    """m = g and v = g*g need no rounding before they are encoded: the codes are those of `codes.py`."""
    for name in names:
        params = parameters(F32, device)
        betas = (0.0, 0.0) if name == "rmsprop" else (0.0, 1e-4)
        optimizer = create(name, params, lr=0.0, betas=betas, state_dtype=U8, seed=5, fused=True)
        for t in (1.0, 12345.0) if name == "rmsprop" else (1.0,):
            gradients(params, 7)
            for p in params if t > 1 else ():
                optimizer.state[p]["step"].fill_(t - 1)
            optimizer.step()
            all_by_kernel(optimizer)
            for i, p in enumerate(params):
                entry = optimizer.state[p]
                values = {"exp_avg": p.grad, "exp_avg_sq": p.grad * p.grad}
                want = {k: v.clone() for k, v in entry.items()}
                codes.store_(want, {k: values[k] for k in values if k in entry}, seed=5, index=i, step=t)
                for k, v in want.items():
                    same = (entry[k] == v).double().mean().item()
                    assert same >= min(equal, 1 - 1.5 / v.numel() if equal < 1 else 1), (k, same)
                    assert ((entry[k].int() - v.int()).abs() <= 1).all()


def check_every_code(device: str = "cpu") -> None:
    """A step that changes neither m nor v reads and writes every code exactly, at exponents up to the largest."""
    rows, free = 9, codes.GROUP - 1  # in every group the largest code, which keeps its exponent
    tables = [
        torch.tensor([[most, *(every * 2)[i * free : (i + 1) * free]] for i in range(rows)], dtype=kind)
        for kind, most, every in (
            (codes.FIRST, 127, [*range(-127, 128)]),
            (codes.SECOND, 254, [*range(1, 255)]),
        )
    ]
    for exponents in ((codes.LEAST, codes.LEAST), (60, 90), (127, 127), (237, 127), (127, 229)):
        p = torch.nn.Parameter(torch.zeros(rows, codes.GROUP, device=device))
        optimizer = create("adaxw", [p], lr=1e-3, betas=(1 - 1e-9, 1e-4), state_dtype=U8, fused=True)
        p.grad = torch.zeros_like(p)
        optimizer.step()
        entry = optimizer.state[p]
        for name, table, exponent in zip(codes.CODED, tables, exponents, strict=False):
            entry[name].copy_(table)
            entry[codes.scale_name(name)].fill_(exponent)
        entry["step"].fill_(150_000)
        before = {k: v.clone() for k, v in entry.items()}
        optimizer.step()
        all_by_kernel(optimizer)
        for name in before:
            assert name == "step" or torch.equal(entry[name], before[name]), (name, exponents)
        m, v = (codes.expanded(before, name).double() for name in codes.CODED[:2])
        if exponents[1] > codes.LEAST:  # there the least denominator is larger than sqrt(v)
            want = -1e-3 * m / v.sqrt()
            assert ((p.detach().double() - want).abs() <= 1e-5 * want.abs()).all(), exponents


def check_same_as_foreach(device: str = "cpu", equal: float = 0.999) -> None:
    """Ten steps of AdamW and AdaXW with 24-bit weights: the same codes as the foreach form, but for rounding."""
    for name in ("adamw", "adaxw"):
        ends = []
        for options in ({"fused": True}, {"foreach": True}):
            params = parameters(BF16, device)
            optimizer = create(name, params, lr=1e-3, state_dtype=U8, rounding="24bit", **options)
            for t in range(10):
                gradients(params, t)
                optimizer.step()
            ends.append([{"x": p.detach(), **optimizer.state[p]} for p in params])
        for one, other in zip(*ends, strict=True):
            for k in one:
                same = (one[k] == other[k]).float().mean().item()
                least = equal - 0.05 if k == "compensation" else equal  # it shows the last bits of float32
                assert same >= min(least, 1 - 2.5 / one[k].numel()), (name, k, same)
            assert (full(one["x"], one) - full(other["x"], other)).abs().max() <= 1e-3


def check_frozen(device: str = "cpu") -> None:
    """Where the gain is too small to change v, no code of v changes: with the weight of a step, 1e-38, or none."""
    params = parameters(F32, device)
    optimizer = create("adaxw", params, lr=1e-3, state_dtype=U8, fused=True)
    for t in range(3):
        gradients(params, t)
        optimizer.step()
    before = [{k: v.clone() for k, v in optimizer.state[p].items()} for p in params]
    for p in params:
        optimizer.state[p]["step"].fill_(10.0**6)
    for t in range(4):
        gradients(params, 100 + t)
        optimizer.step()
    for p, old in zip(params, before, strict=True):
        awake = old["exp_avg_sq"] != 0
        for k in ("exp_avg_sq",):
            assert torch.equal(codes.expanded(optimizer.state[p], k)[awake], codes.expanded(old, k)[awake])
        assert (optimizer.state[p]["exp_avg"] != old["exp_avg"]).any()


def check_lost(device: str = "cpu") -> None:
    """One gradient that is not finite: its coordinate is lost, and every other ends as if it had been 0."""
    for bad in (float("inf"), float("nan"), 1e38):
        ends = []
        for value in (0.0, bad):
            params = parameters(F32, device, shapes=((100,), (2000,)))
            optimizer = create("adamw", params, lr=1e-2, state_dtype=U8, fused=True, weight_decay=0.0)
            for t in range(4):
                gradients(params, t)
                for p in params:
                    p.grad[40] = value if t == 1 else 0.0
                optimizer.step()
            ends.append([{"x": p.detach(), **optimizer.state[p]} for p in params])
            lost = optimizer.stats()[0]["lost"]
        assert lost == 2 / 2100
        for clean, other in zip(*ends, strict=True):
            assert other["exp_avg_sq"][40] == codes.LOST
            for k in ("x", "exp_avg", "exp_avg_sq"):
                others = torch.arange(clean[k].numel(), device=device) != 40
                assert torch.equal(clean[k][others], other[k][others]), (bad, k)
            if bad == 1e38:  # v overflows, x does not
                assert other["x"][40] == clean["x"][40]


def check_large(device: str = "cpu") -> None:
    """g*g overflows, (k*g)*g does not: such a coordinate is not lost. Torch's CUDA operators compute k*(g*g)."""
    for options in ({"fused": True}, {"foreach": True}) if device == "cpu" else ({"fused": True},):
        p = torch.nn.Parameter(torch.ones(64, device=device))
        optimizer = create("adaxw", [p], lr=1e-3, betas=(0.9, 1e-3), state_dtype=U8, **options)
        for t in (0.0, 19_999.0):
            p.grad = torch.full_like(p, 1.0 if t == 0 else 3e19)
            if t > 0:
                optimizer.state[p]["step"].fill_(t)
            optimizer.step()
        v = codes.expanded(optimizer.state[p], "exp_avg_sq")
        want = 1e-3 * math.exp(-20_000 * math.log1p(1e-3)) * 3e19**2
        assert torch.isfinite(v).all(), options
        assert (v / want - 1).abs().max() < 0.1, options


def check_scaled(device: str = "cpu") -> None:
    """GradScaler's factor inside the kernel, and a step that it calls off."""
    ends = []
    for scale in (1.0, 1024.0):
        params = parameters(F32, device)
        optimizer = create("adaxw", params, lr=1e-2, state_dtype=U8, fused=True)
        optimizer.grad_scale = torch.tensor(scale, device=device)
        for found in (0.0, 1.0, 0.0):
            optimizer.found_inf = torch.tensor(found, device=device)
            gradients(params, int(found), scale=scale)
            optimizer.step()
        ends.append([{"x": p.detach(), **optimizer.state[p]} for p in params])
        assert all(optimizer.state[p]["step"] == 2 for p in params)
        all_by_kernel(optimizer)
    for one, other in zip(*ends, strict=True):
        assert all(torch.equal(one[k], other[k]) for k in one)
