"""Gradients whose squares overflow: what every path has to do with them, computed with unbounded exponents."""

from __future__ import annotations

import mpmath
import torch

from adaxopt import create
from adaxopt.zoo import METHODS

F32, F64, BF16 = torch.float32, torch.float64, torch.bfloat16
WINDOW = 2
ORDINARY = (0.5, -0.25)

SPIKES = {F32: (1e19, 1e20, -3e25, 1.5e38), F64: (1e155, -1e250, 8e307)}
"""Up to half of the largest number: beyond it the difference g - m may overflow, in torch's kernels too."""
TIMES = (0, 1, 1_000, 200_000, 3_000_000)
"""Steps before the spike. The gain of AdaX is below 1e-9 at the fourth and underflows in float32 at the last."""


def gradients(spike: float, t0: int) -> list[tuple[float, float]]:
    """(gradient, count of steps before it): one ordinary step, unless the spike comes first, then a jump in time."""
    before = [(0.5, 0)] if t0 else []
    return [*before, (spike, t0), *((g, t0 + 1 + i) for i, g in enumerate(ORDINARY)), (spike, t0 + 3)]


def oracle(name: str, x: float, steps: list, dtype: torch.dtype, options: dict) -> tuple[float, bool, bool]:
    """(x, whether v has overflowed in `dtype`, whether it was ever near it) after these steps of the rule."""
    row = METHODS[name]
    rule, largest = row.rule, mpmath.mpf(torch.finfo(dtype).max)
    wake = options.get("wake", row.defaults["wake"])
    x, m, v, v_max, near = mpmath.mpf(x), mpmath.mpf(0), mpmath.mpf(0), mpmath.mpf(0), False
    ring = [mpmath.mpf(0)] * WINDOW
    for g, before in steps:
        n = row.numbers(float(before + 1), {**options, "dtype": str(dtype).removeprefix("torch.")})
        g = mpmath.mpf(-g if options.get("maximize") else g) + n.l2 * x
        seen = g
        if rule.mean == "window":
            slot = before % WINDOW
            seen, ring[slot] = ring[slot], g
            g = g - n.forget * seen
        m = g if rule.mean == "none" else n.a * m + n.b * g
        x = x - n.decay * x
        if rule.memory is None:
            x = x - n.lr * n.s * m
            continue
        if v == 0 and wake:
            v = seen * seen
        v = seen * seen if n.k == 1 else v + mpmath.mpf(n.k) * (seen * seen - v) if v != mpmath.inf else v
        near = near or 0.5 < v / largest < 2
        v = mpmath.inf if v > largest else v
        v_max = max(v_max, v) if rule.maximum else v
        if v_max != mpmath.inf:
            d = (v_max**n.p + n.eps) ** n.outer
            x = x - n.lr * n.s * m / d
    return float(x), rule.memory is not None and mpmath.inf in (v, v_max), near


def run(name: str, steps: list, dtype: torch.dtype, options: dict, *, sparse=False, step=None, scale=None):
    """An optimizer that has taken these steps; a gradient of zeros and an ordinary one stand beside the spike."""
    p = torch.nn.Parameter(torch.ones((3, 1), dtype=dtype))
    optimizer = create(name, [p.clone().detach() if options.get("differentiable") else p], **options)
    p = optimizer.param_groups[0]["params"][0]
    advance = step(optimizer) if step else optimizer.step
    for g, before in steps:
        for key in ("step", "row_step"):
            if key in optimizer.state.get(p, ()):
                optimizer.state[p][key].fill_(before)
        p.grad = torch.tensor([[0.0], [0.25], [g]], dtype=torch.float64).to(dtype)
        if sparse:
            p.grad = torch.sparse_coo_tensor(torch.arange(3)[None], p.grad, (3, 1), check_invariants=False)
        if scale is not None:
            p.grad, optimizer.grad_scale = p.grad * scale, torch.tensor(scale)
        advance()
    return optimizer, p.detach()


def check(name: str, spike: float, t0: int, dtype: torch.dtype, options: dict, **how) -> None:
    """Every coordinate against the oracle; the one that has overflowed is counted."""
    options = {"lr": 2.0**-7, **({"window": WINDOW} if name == "adashift" else {}), **options}
    steps = gradients(float(torch.tensor(spike, dtype=torch.float64).to(dtype)), t0)
    work = F64 if F64 in (dtype, options.get("state_dtype")) else F32
    known = {k: o for k, o in options.items() if k in METHODS[name].defaults or k == "maximize"}
    want, lost, near = oracle(name, 1.0, steps, work, known)
    if near:
        return  # rounding decides
    optimizer, x = run(name, steps, dtype, options, **how)
    assert x.isfinite().all()
    unit = 0.02 if BF16 in (dtype, options.get("state_dtype")) else {F32: 1e-4, F64: 1e-9}[dtype]
    got = x[2, 0].double().item()
    assert abs(got - want) <= unit * max(1.0, abs(want)), (got, want, lost)
    for i, g in ((0, 0.0), (1, 0.25)):
        beside, _, _ = oracle(name, 1.0, [(g, before) for _, before in steps], work, known)
        assert abs(x[i, 0].double().item() - beside) <= unit * max(1.0, abs(beside)), i
    if METHODS[name].rule.memory is not None:
        assert optimizer.stats()[0]["lost"] == (1 / 3 if lost else 0.0)
