"""One step of the kernel against one step of the rule in float64, from the same stored numbers.

Shared by `test_kernel.py` (Triton's interpreter, CPU tensors) and `test_gpu.py` (the compiled kernel).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from shares import Shares

from adaxopt import rule
from adaxopt.torch import fused_cuda, rounding
from adaxopt.zoo import METHODS

F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
EPS = {F64: 1e-13, F32: 4e-6, BF16: 2.0**-7, F16: 2.0**-10}
"""Relative agreement asked of a stored number: a unit in the last place of 16-bit formats, a few of float32."""


@dataclass(frozen=True)
class Case:
    """A row of the table; everything else is the method's default."""

    method: str
    options: dict[str, Any] = field(default_factory=dict)
    x: torch.dtype = F32
    g: torch.dtype | None = None
    state: torch.dtype | None = None
    rounding: str = "nearest"
    maximize: bool = False
    wake: bool | None = None
    scale: float | None = None
    sizes: tuple[tuple[int, ...], ...] = ((3,), (1100,))
    times: tuple[int, ...] = (1, 60_000, 0)
    tensor_lr: bool = False
    tensor_betas: bool = False

    def __str__(self) -> str:
        shown = [self.method, *(f"{k}={v}" for k, v in self.options.items())]
        shown += [str(d).removeprefix("torch.") for d in (self.x, self.g, self.state) if d not in (None, F32)]
        shown += [k for k in ("maximize", "scale", "tensor_lr", "tensor_betas") if getattr(self, k)]
        return "-".join([*shown, *([self.rounding] if self.rounding != "nearest" else [])])


ALL = [name for name in METHODS if METHODS[name].rule.mean != "window"]

TABLE = [
    *(Case(name) for name in ALL),
    *(Case(name, {"weight_decay": 0.1, "decay": decay, "reference_lr": 0.2}, maximize=True)
      for name in ("adax", "adam", "sgdm") for decay in ("l2", "decoupled", "fully_decoupled")),
    *(Case("adax", {"p": p}) for p in (0.0, 0.125, 0.25, 0.3, 0.45)),
    *(Case("padam", {"p": p}) for p in (0.0, 0.2, 0.25, 0.5)),
    Case("adax", {"eps_placement": "plain", "eps": 1e-3}),
    Case("adax", {"eps": 1e-3}),
    Case("adax", {"betas": (0.9, 0.0)}),
    Case("adam", {"betas": (0.0, 0.0)}, times=(0,)),
    Case("nosadam", {"betas": (0.9, 1.0)}),
    Case("amsgrad", {"correct": False}),
    Case("adax", {"clip_update": 0.05}),
    Case("sgdm", {"clip_update": 0.05}),
    Case("adaxw", wake=False),
    *(Case("adaxw", {"memory": text, "betas": (0.9, number)}) for text, number in (
        ("growing", 1e-3), ("fading", 0.9), ("equal", 0.0), ("power", 0.5), ("log_time", 8.0), ("polynomial", 0.8),
        ("log_time floor 0.01", 8.0), ("fading freeze 100", 0.9), ("equal floor 0.1 freeze 70000", 0.0))),
    Case("adam", {"memory": "polynomial", "betas": (0.9, 0.8)}, x=F64),
    *(Case(name, {"cautious": True, **more}) for name in ("adaxw", "sgdm", "adam")
      for more in ({}, {"clip_update": 0.05})),
    *(Case(name, {"cautious": True, "weight_decay": 0.1, "decay": "l2"}, x=F64) for name in ("adaxw", "sgdm")),
    Case("adaxw", {"cautious": True}, x=BF16, g=F32, rounding="kahan"),
    Case("amsgradw", {"cautious": True}, x=F64, maximize=True),
    Case("adaxw", scale=1024.0),
    Case("adam", scale=3.0, maximize=True),
    *(Case(name, tensor_lr=True, tensor_betas=betas) for name in ("adaxw", "adam") for betas in (False, True)),
    Case("nosadam", tensor_betas=True),
    *(Case(name, x=F64) for name in ALL),
    *(Case("adaxw", x=x, state=state) for x in (F32, BF16, F16) for state in (F32, BF16)),
    *(Case("adaxw", x=x, g=F32, rounding=mode) for x in (BF16, F16) for mode in ("stochastic", "kahan")),
    *(Case("adaxw", x=BF16, state=BF16, rounding=mode) for mode in ("stochastic", "kahan")),
    *(Case(name, state=BF16) for name in ("amsgradw", "sgdm", "adagrad", "padax")),
    Case("adaxw", x=F32, g=BF16),
    Case("adaxw", x=F32, state=F64),
    *(Case(name, x=F64, state=BF16) for name in ("adaxw", "amsgradw", "sgdm")),
    Case("adaxw", x=BF16, state=F64, rounding="stochastic"),
]  # fmt: skip


def build(case: Case, device: str = "cpu", seed: int = 0) -> tuple[Any, list, list, dict[str, Any]]:
    """(plan, parameters, states, hyper) in the middle of training: state is not zero, some v are."""
    method = METHODS[case.method]
    r = method.rule
    generator = torch.Generator().manual_seed(seed)

    def draw(shape, dtype, positive=False):
        t = torch.randn(shape, generator=generator, dtype=F64)
        return (t * t if positive else t).to(dtype).to(device)

    dtype = case.state or (F32 if case.x in (BF16, F16) else case.x)
    params = [draw(shape, case.x) for shape in case.sizes]
    states = []
    for p in params:
        state = {"step": torch.zeros((), dtype=F64, device=device)}
        if r.mean != "none":
            state["exp_avg"] = draw(p.shape, dtype)
        if r.memory is not None:
            state["exp_avg_sq"] = draw(p.shape, dtype, positive=True)
            state["exp_avg_sq"].view(-1)[::7] = 0
        if r.maximum:
            state["max_exp_avg_sq"] = draw(p.shape, dtype, positive=True)
        if case.rounding == "kahan":
            state["compensation"] = (draw(p.shape, F64) * 1e-3).to(case.x)
        states.append(state)
    hyper = {**method.defaults, **case.options}
    if case.tensor_lr:
        hyper["lr"] = torch.tensor(hyper["lr"], dtype=F32, device=device)
    if case.tensor_betas:
        hyper["betas"] = tuple(torch.tensor(b, dtype=F64, device=device) for b in hyper["betas"])
    n = len(params)
    plan = Shares(
        r.using(case.options.get("memory")),
        params,
        states,
        maximize=case.maximize,
        wake=method.defaults["wake"] if case.wake is None else case.wake,
        rounding=case.rounding,
        seed=11,
        indices=list(range(n)),
        offsets=[0] * n,
        capturable=False,
        cautious=case.options.get("cautious", False),
    )
    return plan, params, states, hyper


def oracle(case: Case, x, g, state, t):
    """The rule in float64 from stored numbers: (x, m, v, v_max), before anything is rounded."""
    method = METHODS[case.method]
    wake = method.defaults["wake"] if case.wake is None else case.wake
    arithmetic = "float64" if F64 in (case.x, case.state) else "float32"
    options = {**case.options, "dtype": arithmetic}
    if case.tensor_lr:
        options["lr"] = float(torch.tensor(method.defaults["lr"], dtype=F32))
    n = method.numbers(float(t), options)
    g = g.double() * (-1 if case.maximize else 1) / (case.scale or 1.0)
    stored = [state[k].double() if k in state else None for k in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")]
    x = x.double() + (state["compensation"].double() if "compensation" in state else 0)
    return rule.step(x, g, stored[0], stored[1], n, v_max=stored[2], wake=wake, xp=torch)[:4]


def close(got, want, dtype, stochastic: bool, what: str, scale: float = 0.0) -> None:
    """Within half a unit of the stored format, a whole one after stochastic rounding (the interpreter truncates)."""
    got, unit = got.double(), 0.5
    if stochastic or dtype in (F32, F64) or (dtype == BF16 and fused_cuda.interpreted()):
        unit = 1.0
    tolerance = unit * EPS[dtype] * (want.abs() + scale)
    if dtype == F16:
        tolerance = tolerance.clamp(min=unit * 2.0**-24)
    if dtype != F64:
        tolerance = tolerance + 4e-6 * (want.abs() + scale)
    wrong = (got - want).abs() > tolerance
    assert not wrong.any(), (
        f"{what}: {int(wrong.sum())} of {wrong.numel()}, {got[wrong][:3]} for {want[wrong][:3]}"
    )


def check(case: Case, device: str = "cpu") -> None:
    """Several times t, each one step from the same stored numbers."""
    plan, params, states, hyper = build(case, device)
    generator = torch.Generator().manual_seed(1)
    scale = None if case.scale is None else torch.tensor(case.scale, device=device)
    found = None if case.scale is None else torch.zeros((), device=device)
    for t in case.times:
        if t == 0:  # as training begins: with k_1 = 1 a stored v would only cancel
            for s in states:
                for tensor in s.values():
                    tensor.zero_()
        before = [
            (p.clone(), {k: v.clone() for k, v in s.items()}) for p, s in zip(params, states, strict=True)
        ]
        for s in states:
            s["step"].fill_(t)
        grads = []
        for p in params:
            g = torch.randn(p.shape, generator=generator, dtype=F64) * (case.scale or 1.0)
            grads.append(g.to(case.g or case.x).to(device))
        kept = [g.clone() for g in grads]
        assert plan.step(hyper, scale, found, grads=grads) == []
        for p, s, (x, old), g, unchanged in zip(params, states, before, grads, kept, strict=True):
            assert torch.equal(g, unchanged)
            assert s["step"].item() == t + 1
            want = oracle(case, x, g, old, t + 1)
            for name, value in zip(("exp_avg", "exp_avg_sq", "max_exp_avg_sq"), want[1:], strict=True):
                if name in s:
                    low = s[name].dtype in (BF16, F16)
                    spread = 1.0 if name == "exp_avg" else 0.0
                    close(s[name], value, s[name].dtype, low, f"{name} at {t}", spread)
            if "compensation" in s:  # together they hold what one rounding of the rest leaves
                total = p.double() + s["compensation"].double()
                lost = 2 * EPS[p.dtype] ** 2 * want[0].abs() + 2.0**-24
                assert ((total - want[0]).abs() <= lost + 4e-6 * (want[0].abs() + 1)).all()
            stochastic = case.rounding == "stochastic"
            close(p, want[0], p.dtype, stochastic, f"x at {t}", 0.01 if case.x == F64 else 0.1)


def expected_bits(x, g, dtype, t, stream, index, offset):
    """What `rounding.stochastic_` makes of a float32 number that needs no arithmetic."""
    out = torch.empty_like(x, dtype=dtype)
    return rounding.stochastic_(out, g, seed=11, index=index, step=t, stream=stream, offset=offset)


def check_bits(dtype: torch.dtype, device: str = "cpu") -> None:
    """x - g, m = g and v = g*g are exact in float32 here, so that only the drawn bits can differ: all three streams."""
    n, first = 3000, 2**32 - 1000
    generator = torch.Generator().manual_seed(2)
    quarter = torch.randint(1, 2**11, (n,), generator=generator).float().to(device) * 2.0**-20
    for t, offset in ((0, 0), (12345, first), (2**33, 7)):
        for name, betas in (("sgdm", (0.0, 0.0)), ("rmsprop", (0.0, 0.0))):
            r = METHODS[name].rule
            x = torch.ones(n, dtype=dtype, device=device)
            state = {"step": torch.tensor(float(t), dtype=F64, device=device)}
            if r.mean != "none":
                state["exp_avg"] = torch.zeros(n, dtype=dtype, device=device)
            if r.memory is not None:
                state["exp_avg_sq"] = torch.zeros(n, dtype=dtype, device=device)
            plan = Shares(r, [x], [state], maximize=False, wake=False, rounding="stochastic", seed=11,
                                   indices=[3], offsets=[offset], capturable=False)  # fmt: skip
            hyper = {
                **METHODS[name].defaults,
                "betas": betas,
                "lr": 1.0 if name == "sgdm" else 0.0,
                "eps": 1.0,
            }
            assert plan.step(hyper, grads=[quarter]) == []
            drawn = dict(index=3, offset=offset)
            if name == "sgdm":
                assert torch.equal(x, expected_bits(x, 1 - quarter, dtype, t + 1, 0, **drawn))
                assert torch.equal(state["exp_avg"], expected_bits(x, quarter, dtype, t + 1, 1, **drawn))
            else:
                want = expected_bits(x, quarter * quarter, dtype, t + 1, 2, **drawn)
                assert torch.equal(state["exp_avg_sq"], want)
                assert (state["exp_avg_sq"] != (quarter * quarter).to(dtype)).any()


def check_changed_power(device: str = "cpu") -> None:
    """c of a power memory as a tensor that changes in place: every k is that of the c it was taken with."""
    case = Case("nosadam", tensor_betas=True, sizes=((5,),))
    plan, params, states, hyper = build(case, device)
    for t, c in ((10, 0.1), (20, 1.0), (30, 0.6)):
        hyper["betas"][1].fill_(c)
        states[0]["step"].fill_(t - 1)
        plan.step(hyper, grads=[torch.ones_like(p) for p in params])
        k = plan.buckets[0].numbers[0].item()
        want = t**-c / sum(i**-c for i in range(1, t + 1))
        assert abs(k - want) <= 1e-6 * want, (t, c, k, want)


def check_replaced_square(device: str = "cpu") -> None:
    """Where k is 1 the new v is g*g whatever v was: 1 + (g*g - 1) would be 0, and the update m / eps."""
    for method, options in (
        ("adaxw", {}),
        ("adam", {"betas": (0.9, 0.0)}),
        ("rmsprop", {"betas": (0.0, 0.0)}),
    ):
        plan, params, states, hyper = build(Case(method, options, sizes=((5,),)), device)
        states[0]["exp_avg_sq"].fill_(1.0)
        g = torch.full_like(params[0], 1e-5)
        plan.step(hyper, grads=[g])
        assert torch.equal(states[0]["exp_avg_sq"], g * g), (method, states[0]["exp_avg_sq"])


def check_no_power(device: str = "cpu") -> None:
    """v**0 is 1 where v is 0 too, as torch has it: only the mean and eps make the update."""
    for method in ("adax", "padam"):
        case = Case(
            method, {"p": 0.0, "lr": 0.5, "eps": 1.0, "weight_decay": 0.0}, wake=False, sizes=((70,),)
        )
        plan, params, states, hyper = build(case, device)
        r = METHODS[method].rule
        for name in ("exp_avg_sq", "max_exp_avg_sq"):
            if name in states[0]:
                states[0][name].zero_()
        states[0]["exp_avg"].fill_(1.0)
        states[0]["step"].fill_(50)
        before = params[0].clone()
        plan.step(hyper, grads=[torch.zeros_like(params[0])])
        n = METHODS[method].numbers(51.0, {**hyper, "dtype": "float32"})
        zero = torch.zeros(70, dtype=F64, device=device)
        want, *_ = rule.step(
            before.double(), zero, zero + 1, zero, n, v_max=zero if r.maximum else None, xp=torch
        )
        assert (want - before).abs().min() > 0.01
        close(params[0], want, F32, False, method, 1.0)


def check_numbers(method: str, device: str = "cpu") -> None:
    """Every time from 1 to a billion, in float64, against the scalar formulas."""
    m = METHODS[method]
    times = [1, 2, 3, 7, 100, 9_999, 74_000, 887_000, 10**7, 10**9]
    params = [torch.ones(1, dtype=F64, device=device) for _ in times]
    states = []
    for t in times:
        state = {"step": torch.tensor(float(t - 1), dtype=F64, device=device)}
        for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"):
            state[name] = torch.ones(1, dtype=F64, device=device)
        states.append(state)
    plan = Shares(m.rule, params, states, maximize=False, wake=False, rounding="nearest", seed=0,
                           indices=list(range(len(times))), offsets=[0] * len(times), capturable=False)  # fmt: skip
    hyper = {**m.defaults, "reference_lr": m.defaults["lr"]}
    plan.step(hyper, grads=[torch.ones_like(p) for p in params])
    rows = plan.buckets[0].numbers.view(len(times), -1).cpu()
    for t, row in zip(times, rows, strict=True):
        n = m.numbers(float(t), {**hyper, "dtype": "float64"})
        got = dict(zip(("k", "rate", "eps", "decay", "a", "b", "l2"), row.tolist(), strict=False))
        want = dict(k=n.k, rate=n.lr * n.s, eps=n.eps, decay=n.decay, a=n.a, b=n.b, l2=n.l2)
        for name, value in want.items():
            assert abs(got[name] - value) <= 1e-12 * abs(value) + 1e-300, (method, t, name, got[name], value)


def simple(shapes, method="adaxw", layout=torch.contiguous_format, capturable=False, **options):
    params = [torch.randn(s, generator=torch.Generator().manual_seed(i)) for i, s in enumerate(shapes)]
    params = [p.to(memory_format=layout) if p.dim() == 4 else p for p in params]
    states = [
        {
            "step": torch.zeros((), dtype=F64),
            **{k: torch.zeros_like(p) for k in ("exp_avg", "exp_avg_sq")},
        }
        for p in params
    ]
    n = len(params)
    settings = dict(maximize=False, wake=True, rounding="nearest", seed=0, indices=range(n), offsets=[0] * n)
    plan = Shares(METHODS[method].rule, params, states, capturable=capturable, **settings)
    return plan, params, states, {**METHODS[method].defaults, **options}
