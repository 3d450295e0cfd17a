"""Driving optimizers over seeded problems: gradients that depend on the parameter, so that errors feed back."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from adaxopt.zoo import METHODS

BACKENDS: dict[str, dict[str, Any]] = {
    "default": {},
    "foreach": {"foreach": True},
    "for-loop": {"foreach": False},
    "fused": {"fused": True},
    "capturable": {"capturable": True},
}
"""Ways of asking for a backend on a CPU."""

FUSES = tuple(
    name
    for name, row in METHODS.items()
    if row.rule.mean == "average" and row.rule.memory and row.defaults["p"] == 0.5
)
"""Methods whose step torch's fused CPU kernel can compute: an averaged m over sqrt(v) + eps."""

SHAPES = ((3, 4), (5,), ())


class Problem:
    """Curved and noisy: g_t = h*x + noise_t in float64, the same for torch and numpy, for flat x."""

    def __init__(self, size: int, steps: int, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.start = random.normal(size=size)
        self.curvature = random.uniform(0.1, 2.0, size=size)
        self.noise = random.normal(size=(steps + 1, size))

    def __call__(self, t: int, x: np.ndarray) -> np.ndarray:
        return self.curvature * x + self.noise[t]


def split(flat: Any, shapes=SHAPES, dtype=torch.float64) -> list[torch.nn.Parameter]:
    """Parameters of these shapes that hold `flat`."""
    flat = torch.tensor(np.asarray(flat), dtype=torch.float64)
    parts, at = [], 0
    for shape in shapes:
        count = int(np.prod(shape))
        parts.append(torch.nn.Parameter(flat[at : at + count].reshape(shape).to(dtype).clone()))
        at += count
    assert at == flat.numel()
    return parts


def flat(tensors) -> np.ndarray:
    return torch.cat([t.detach().double().reshape(-1) for t in tensors]).numpy().copy()


def give(params, gradient: np.ndarray) -> None:
    """Set every .grad from one flat array."""
    at = 0
    for p in params:
        part = torch.from_numpy(np.asarray(gradient[at : at + p.numel()], dtype=np.float64))
        p.grad = part.reshape(p.shape).to(p.dtype)
        at += p.numel()


def drive(
    optimizer, params, gradient: Callable[[int, np.ndarray], np.ndarray], steps: int, first: int = 1
) -> np.ndarray:
    """`steps` steps; returns the parameters as one flat float64 array."""
    for t in range(first, first + steps):
        give(params, gradient(t, flat(params)))
        optimizer.step()
    return flat(params)


def relative(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference in units of the largest entry."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-300))


def snapshot(optimizer) -> dict[str, Any]:
    """Everything an optimizer and its parameters hold, as values that can be compared."""
    groups = [
        {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in g.items() if k != "params"}
        for g in optimizer.param_groups
    ]
    params = [p.detach().clone() for g in optimizer.param_groups for p in g["params"]]
    state = [
        {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in optimizer.state.get(p, {}).items()}
        for g in optimizer.param_groups
        for p in g["params"]
    ]
    return {"groups": groups, "params": params, "state": state}


def same(a: Any, b: Any) -> bool:
    """Bitwise equality of two snapshots (dtypes and shapes included)."""
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return (
            isinstance(a, torch.Tensor)
            and isinstance(b, torch.Tensor)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and torch.equal(a, b)
        )
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def saved_and_read(optimizer, weights_only=True):
    """Through a file, as a user does it."""
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=weights_only)


def stepped(kind, shapes=((2, 3), (4,)), groups=1, **options):
    params = [torch.nn.Parameter(torch.ones(s)) for s in shapes]
    given = params if groups == 1 else [{"params": [p]} for p in params]
    optimizer = kind(given, **options)
    for p in params:
        p.grad = torch.ones_like(p) * 0.3
    optimizer.step()
    return optimizer


def check_late_coordinate(x, optimizer, late: int, sparse: bool = False, rel: float = 1e-9) -> None:
    """AdamW with Fading(0.9).freeze(5), lr 1, eps and decay 0: the v of a coordinate whose first gradient comes after
    the freeze is that gradient's square. `x` has two rows of one element; with `sparse` every gradient has both."""
    for t in range(1, late + 1):
        g = torch.tensor([[1.0], [3.0 * (t == late)]], dtype=x.dtype)
        x.grad = (
            torch.sparse_coo_tensor(torch.arange(2)[None], g, (2, 1), check_invariants=True) if sparse else g
        )
        before = x.detach().clone()
        optimizer.step()
    v = optimizer.state[x]["exp_avg_sq"]
    if v.is_floating_point():
        assert v.reshape(-1).tolist() == pytest.approx([1.0, 9.0], rel=rel)
    moved = (before - x.detach()).reshape(-1).tolist()
    assert moved == pytest.approx([1.0, 0.1 / (1 - 0.9**late)], rel=rel)
