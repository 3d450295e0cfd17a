"""One step of the rows' kernel against the rule in float64 and against `operators.row_step`, from the same numbers.

Shared by `test_rows.py` (Triton's interpreter, CPU tensors) and `test_gpu_rows.py` (the compiled kernel).
"""

from __future__ import annotations

from typing import Any

import torch
from kernel_table import BF16, EPS, F16, F32, F64, Case, close, oracle

from adaxopt import create
from adaxopt.torch import fused_cuda, fused_rows, hyper, operators
from adaxopt.torch.state import unscaled
from adaxopt.zoo import METHODS

ALL = [name for name, m in METHODS.items() if m.rule.memory is not None and m.rule.mean != "window"]
TIMES = (5.0, 0.0, 1.0, 2.0, 0.0, 60_000.0, 74_000.0, 1e6, 1e9)
"""How often each row has met a gradient."""
NAMED = (5, 1, 8, 2, 7, 3, 6)
"""Rows 0 and 4 are not named: no row stands in the parameter where it stands in the gradient."""
KEYS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")

TABLE = [
    *(Case(name) for name in ALL),
    *(Case(name, {"weight_decay": 0.1, "decay": decay, "reference_lr": 0.2}, maximize=decay != "l2")
      for name in ("adax", "adam", "padam") for decay in ("l2", "decoupled", "fully_decoupled")),
    *(Case("adax", {"p": p}) for p in (0.0, 0.25, 0.3)),
    *(Case("padam", {"p": p}) for p in (0.2, 0.5)),
    Case("adax", {"eps_placement": "plain", "eps": 1e-3}),
    Case("adax", {"betas": (0.9, 0.0)}),
    Case("nosadam", {"betas": (0.9, 1.0)}),
    Case("amsgrad", {"correct": False}),
    Case("adax", {"clip_update": 0.05}),
    Case("adaxw", {"memory": "log_time", "betas": (0.9, 8.0)}),
    Case("adaxw", {"memory": "fading floor 0.01 freeze 70000", "betas": (0.9, 0.999)}),
    Case("adaxw", wake=False),
    Case("adam", wake=True),
    Case("adaxw", scale=1024.0),
    Case("adam", scale=3.0, maximize=True),
    *(Case(name, tensor_lr=True, tensor_betas=betas) for name in ("adaxw", "adam") for betas in (False, True)),
    Case("nosadam", tensor_betas=True),
    *(Case(name, x=F64) for name in ("adaxw", "adam", "nosadam", "amsgrad")),
    *(Case("adaxw", x=x, state=state) for x in (F32, BF16, F16) for state in (F32, BF16) if (x, state) != (F32, F32)),
    *(Case("adaxw", x=x, rounding=mode) for x in (BF16, F16) for mode in ("stochastic", "kahan")),
    Case("adaxw", x=BF16, state=BF16, rounding="stochastic"),
    *(Case(name, state=BF16) for name in ("amsgradw", "adagrad")),
    Case("adaxw", x=F32, state=F64),
]  # fmt: skip


torch.sparse.check_sparse_tensor_invariants.disable()  # said aloud: torch warns once where nobody chose; `coo` checks


def coo(rows, values, shape, dtype=None):
    rows = torch.as_tensor(rows, device=values.device).reshape(1, -1)
    return torch.sparse_coo_tensor(rows, values.to(dtype or values.dtype), shape, check_invariants=True)


def served(optimizer) -> list[Any]:
    """The parameters that the rows' kernel knows."""
    return [p for share, owners in _shares(optimizer) for p in owners]


def _shares(optimizer) -> list[Any]:
    found = [(share, owners) for plan in optimizer._plans.values() for share, owners, _ in plan.shares]
    return [(share, owners) for share, owners in found if isinstance(share, fused_rows.Share)]


def buckets(optimizer) -> list[Any]:
    return [share for share, _ in _shares(optimizer)]


def build(case: Case, shape: tuple[int, ...], device: str = "cpu") -> tuple[Any, Any]:
    """(parameter, optimizer) in the middle of training: rows of several ages, some v are zero, new rows all zeros."""
    generator = torch.Generator().manual_seed(3)

    def draw(dtype, positive=False):
        t = torch.randn(shape, generator=generator, dtype=F64)
        return (t * t if positive else t).to(dtype).to(device)

    p = torch.nn.Parameter(draw(case.x))
    wake = {} if case.wake is None else {"wake": case.wake}
    options: dict[str, Any] = {}
    if case.tensor_lr:
        options["lr"] = torch.tensor(METHODS[case.method].defaults["lr"], dtype=F32, device=device)
    if case.tensor_betas:
        betas = METHODS[case.method].defaults["betas"]
        options["betas"] = tuple(torch.tensor(b, dtype=F64, device=device) for b in betas)
    optimizer = create(
        case.method, [p], maximize=case.maximize, rounding=case.rounding, seed=11, state_dtype=case.state, **options,
        **wake,
    )  # fmt: skip
    optimizer.param_groups[0].update(case.options)
    p.grad = coo([0], torch.ones((1, *shape[1:]), device=device), shape, case.x)
    optimizer.step()  # makes the state
    entry = optimizer.state[p]
    entry["step"].fill_(100.0)
    entry["row_step"].copy_(torch.tensor(TIMES))
    for key in KEYS:
        if key in entry:
            entry[key].copy_(draw(entry[key].dtype, positive=key != "exp_avg"))
            if key == "exp_avg_sq":
                late = (
                    torch.inf if optimizer.param_groups[0]["wake"] else 1e5
                )  # a square times k would underflow
                entry[key].view(shape[0], -1)[entry["row_step"] < late, ::7] = 0
            entry[key][entry["row_step"] == 0] = 0
    if "compensation" in entry:
        entry["compensation"].copy_((draw(F64) * 1e-3).to(case.x))
    return p, optimizer


def check(case: Case, shape: tuple[int, ...] = (9, 128), device: str = "cpu") -> None:
    """Named rows do what the rule says, and what `row_step` does; the others, and the gradient, stay as they are."""
    p, optimizer = build(case, shape, device)
    entry, group = optimizer.state[p], optimizer.param_groups[0]
    values = torch.randn((len(NAMED), *shape[1:]), generator=torch.Generator().manual_seed(4), dtype=F64)
    p.grad = coo(NAMED, (values * (case.scale or 1.0)).to(device), shape, case.x)
    kept = p.grad._values().clone()
    x, old = p.detach().clone(), {k: t.clone() for k, t in entry.items()}
    twin, twins = x.clone(), {k: t.clone() for k, t in entry.items()}
    scale = None if case.scale is None else torch.tensor(case.scale, device=device)
    g = p.grad if scale is None else unscaled(p.grad, scale)
    operators.row_step(twin, g, twins, optimizer.method, hyper.floats(group), 0)
    optimizer.grad_scale, optimizer.found_inf = (
        scale,
        None if scale is None else torch.zeros((), device=device),
    )
    optimizer.step()
    assert [q is p for q in served(optimizer)] == [True]
    assert torch.equal(p.grad._values(), kept)
    assert entry["step"].item() == 101.0
    assert torch.equal(entry["row_step"], twins["row_step"])
    others = [i for i in range(shape[0]) if i not in NAMED]
    assert torch.equal(p[others], x[others])
    for i, row in enumerate(NAMED):
        at = {k: t[row] for k, t in old.items() if k in KEYS or k == "compensation"}
        want = oracle(case, x[row], kept[i], at, TIMES[row] + 1)
        for name, value in zip(KEYS, want[1:], strict=True):
            if name in entry:
                low, spread = entry[name].dtype in (BF16, F16), float(name == "exp_avg")
                close(entry[name][row], value, entry[name].dtype, low, f"{name} of row {row}", spread)
        if "compensation" in entry:
            total = p[row].double() + entry["compensation"][row].double()
            lost = 2 * EPS[p.dtype] ** 2 * want[0].abs() + 2.0**-24
            assert ((total - want[0]).abs() <= lost + 4e-6 * (want[0].abs() + 1)).all()
        spread = 0.01 if case.x == F64 else 0.1
        close(p[row].detach(), want[0], p.dtype, case.rounding == "stochastic", f"x of row {row}", spread)
    for name in KEYS:
        if name in entry:
            assert torch.equal(entry[name][others], old[name][others])
            alike(entry[name], twins[name], old[name].double().abs() + 1.0, True, name)
    moved = (twin.double() - x.double()).abs()
    alike(p.detach(), twin, x.double().abs() + moved, case.rounding == "stochastic", "x")


def alike(got, want, scale, stochastic: bool, what: str) -> None:
    """The same bits up to a few units of float32, of what they were made from; in 16 bits what is drawn is the same."""
    apart = (got.double() - want.double()).abs()
    if got.dtype in (BF16, F16):
        unit = EPS[got.dtype] * want.double().abs() + 2.0**-24
        assert (apart <= unit).all(), what
        if stochastic or not fused_cuda.interpreted():  # the interpreter truncates to bfloat16
            assert (apart > 0).double().mean() <= 0.01, f"{what}: {(apart > 0).double().mean():.3f} differ"
    else:
        worst = (apart / scale).max().item()
        assert worst <= (1e-13 if got.dtype == F64 else 8 * 2.0**-23), f"{what}: {worst:.1e} apart"


class switched:
    """Sparse gradients take the kernel, or do not."""

    def __init__(self, on: bool) -> None:
        self.on = on

    def __enter__(self) -> None:
        self.before, fused_rows.ROWS = fused_rows.ROWS, self.on

    def __exit__(self, *_: object) -> None:
        fused_rows.ROWS = self.before


def walk(on: bool, steps: int = 6, change=None, device: str = "cpu", **options):
    """A model of sparse and dense parameters, rows named now and then, an lr that moves: (parameters, optimizer)."""
    generator = torch.Generator().manual_seed(7)
    shapes = ((9, 128), (6,), (4, 4), (5, 3, 2), (9, 16), (9, 16))
    params = [torch.nn.Parameter(torch.randn(s, generator=generator).to(device)) for s in shapes]
    optimizer = create(options.pop("method", "adaxw"), params, **{"lr": 1e-2, **options})
    with switched(on):
        for t in range(steps):
            if t == steps // 2 and change is not None:
                change(params, optimizer)
            for group in optimizer.param_groups:
                group["lr"] = 1e-2 / (1 + t)
            for i, p in enumerate(params):
                rows = torch.randint(0, p.shape[0], (2,), generator=generator)  # a row may come twice
                g = torch.randn((2, *p.shape[1:]), generator=generator)
                dense = i == 2 or (i == 1 and t == 3)
                g = g[:1].expand_as(p).to(device).contiguous() if dense else coo(rows, g, p.shape).to(device)
                p.grad = None if i == 3 and t == 2 else g
            optimizer.step()
    return params, optimizer


def check_walks_agree(device: str = "cpu", **options) -> None:
    """Runs with the kernel and without: same counts, same numbers up to rounding; the kernel was at work."""
    (ours, with_kernel), (theirs, without) = (
        walk(on, device=device, **dict(options)) for on in (True, False)
    )
    assert served(with_kernel)
    assert not served(without)
    for p, q in zip(ours, theirs, strict=True):
        a, b = with_kernel.state[p], without.state[q]
        assert a.keys() == b.keys()
        for key in a:
            if not isinstance(a[key], torch.Tensor):
                assert a[key] == b[key]
            elif key in ("step", "row_step"):
                assert torch.equal(a[key], b[key])
            else:
                torch.testing.assert_close(a[key], b[key], rtol=2e-6, atol=2e-6)
        torch.testing.assert_close(p, q, rtol=2e-6, atol=5e-6)
