"""The tables that the optimizer tests run over: an OptimizerInfo per method, inputs, and an independent oracle.

`INFOS` has torch's own shape (`torch.testing._internal.common_optimizers.OptimizerInfo`), so that torch's generated
tests could be pointed at it. `Recursion` is the paper's raw recursion in numpy, written from Algorithm 3.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ExponentialLR, LinearLR, ReduceLROnPlateau, StepLR
from torch.testing._internal.common_optimizers import OptimizerInfo, OptimizerInput

import adaxopt
from adaxopt.torch.optimizers import CLASSES
from runner import FUSES

PUBLIC = ("adax", "adaxw", "padax")
TORCH = {
    "sgdm": functools.partial(torch.optim.SGD, lr=1e-3, momentum=0.9),
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "amsgrad": functools.partial(torch.optim.Adam, amsgrad=True),
    "amsgradw": functools.partial(torch.optim.AdamW, amsgrad=True),
}
"""Methods that torch has too: oracles by another hand."""

OWN: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "adashift": [("window", {"window": 3})],
    "nosadam": [("c", {"c": 0.7})],
    "sgdm": [("momentum", {"momentum": 0.5})],
    "rmsprop": [("alpha", {"alpha": 0.9})],
    "amsgrad": [("uncorrected", {"correct": False})],
    "padam": [("p", {"p": 0.25}), ("uncorrected", {"correct": False})],
    "padax": [("p", {"p": 0.3})],
}


def _table(name: str) -> list[tuple[str, dict[str, Any]]]:
    rows: list[tuple[str, dict[str, Any]]] = [
        ("default", {}),
        ("lr", {"lr": 0.02}),
        ("l2", {"decay": "l2", "weight_decay": 0.1}),
        ("decoupled", {"decay": "decoupled", "weight_decay": 0.1}),
        ("fully decoupled", {"decay": "fully_decoupled", "weight_decay": 1e-3}),
        ("maximize", {"maximize": True, "weight_decay": 0.1}),
        ("clipped", {"clip_update": 0.05}),
        ("tensor lr", {"lr": torch.tensor(0.02, dtype=torch.float64)}),
        ("capturable", {"capturable": True, "weight_decay": 0.1}),
    ]
    if name in PUBLIC:
        rows += [
            ("betas", {"betas": (0.5, 1e-2)}),
            ("plain eps", {"eps": 1e-3, "eps_placement": "plain"}),
            ("eps", {"eps": 1e-3}),
            ("unguarded", {"wake": False}),
            ("equal memory", {"betas": (0.9, 0.0)}),
            ("no momentum", {"betas": (0.0, 1e-4)}),
        ]
    return rows + OWN.get(name, [])


def _inputs(name: str, device: Any = "cpu", dtype: Any = None) -> list[OptimizerInput]:
    return [OptimizerInput(params=None, kwargs=copy.deepcopy(k), desc=d) for d, k in _table(name)]


def _info(name: str) -> OptimizerInfo:
    fused = name in FUSES
    return OptimizerInfo(
        CLASSES[name],
        optim_inputs_func=functools.partial(_inputs, name),
        scheduler_inputs=(
            [lambda opt: StepLR(opt, gamma=0.9, step_size=10)],
            [
                lambda opt: LinearLR(opt, start_factor=0.4, total_iters=4),
                lambda opt: ExponentialLR(opt, 0.98),
            ],
            [lambda opt: ReduceLROnPlateau(opt)],
        ),
        supported_impls=("foreach", "differentiable", *(("fused",) if fused else ())),
        not_og_supported_flags=(),
        has_capturable_arg=True,
        supports_sparse=name in PUBLIC,
        supports_complex=True,
        supports_fused_on=("cpu", "cuda") if fused else ("cuda",),
    )


NAMES = tuple(CLASSES)
INFOS = {name: _info(name) for name in NAMES}


def options(info: OptimizerInfo) -> list[OptimizerInput]:
    return info.optim_inputs_func(device="cpu")


each_method = pytest.mark.parametrize("name", NAMES)
each_public = pytest.mark.parametrize("name", PUBLIC)


def each_input(
    names: tuple[str, ...] = NAMES, unless: Callable[[dict[str, Any]], bool] = lambda kwargs: False
):
    """Every method of `names` with every row of its table: one test each, named after both."""
    cases = [(name, i) for name in names for i in options(INFOS[name]) if not unless(i.kwargs)]
    return pytest.mark.parametrize(
        ("name", "kwargs"), [(n, i.kwargs) for n, i in cases], ids=[f"{n}-{i.desc}" for n, i in cases]
    )


def build(name: str, params: Any, **kwargs: Any):
    """The optimizer of that name; tensors among the options are its own copies."""
    if name == "adashift":  # its own 10 would keep every short run still
        kwargs = {"window": 2, **kwargs}
    return adaxopt.create(name, params, **copy.deepcopy(kwargs))


# -- gradients that do not depend on the parameters, so that two runs can be compared step by step -------------------

SHAPES = ((3, 4), (5,), (), (2, 1, 3), (0,))


def parameters(dtype: torch.dtype = torch.float64, shapes=SHAPES, seed: int = 0) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    return [nn.Parameter(torch.randn(s, generator=generator, dtype=wide).to(dtype)) for s in shapes]


def set_gradients(params: list[nn.Parameter], step: int, seed: int = 7) -> list[Tensor]:
    """Give every parameter the gradient of that step: Gaussian, of a scale that differs between parameters."""
    for i, p in enumerate(params):
        generator = torch.Generator().manual_seed(seed + 1000 * step + i)
        wide = torch.complex128 if p.is_complex() else torch.float64
        p.grad = (torch.randn(p.shape, generator=generator, dtype=wide) * 10.0 ** (i - 2)).to(p.dtype)
    return [p.grad for p in params if p.grad is not None]


def run(name: str, steps: int = 6, dtype: torch.dtype = torch.float64, **kwargs: Any):
    """Parameters and optimizer after some steps."""
    params = parameters(dtype)
    optimizer = build(name, params, **kwargs)
    for t in range(steps):
        set_gradients(params, t)
        optimizer.step()
    return params, optimizer


def everything(params, optimizer) -> list[Tensor]:
    """Every number that a run ended with: parameters and state."""
    return [p.detach() for p in params] + [
        optimizer.state[p][key] for p in params for key in sorted(optimizer.state[p])
    ]


def assert_same(left: list[Tensor], right: list[Tensor]) -> None:
    """Bit for bit, dtypes included."""
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def assert_near(left: list[Tensor], right: list[Tensor], tolerance: float = 1e-12) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


# -- the paper's recursion -------------------------------------------------------------------------------------------


class Recursion:
    """Algorithm 3 of the paper as it stands there, in numpy float64, one parameter: v grows, and is never normalised.

    v_t = (1+b2) v_{t-1} + b2 g^2;   x_t = x_{t-1} - lr c^p m / (v^p + eps) - decay,   c = (1+b2)^t - 1
    """

    def __init__(self, name: str, x: Tensor) -> None:
        self.name = name
        self.x = x.detach().double().numpy().copy()
        self.m = np.zeros_like(self.x)
        self.v = np.zeros_like(self.x)
        self.t = 0

    def step(self, g: Tensor, **given: Any) -> None:
        base = {
            "adax": {"lr": 1.5e-3, "weight_decay": 0.0, "decay": "l2", "p": 0.5},
            "adaxw": {"lr": 5e-3, "weight_decay": 5e-2, "decay": "decoupled", "p": 0.5},
            "padax": {"lr": 0.1, "weight_decay": 5e-4, "decay": "l2", "p": 0.125},
        }[self.name]
        o = {"betas": (0.9, 1e-4), "eps": 1e-12, "maximize": False, "wake": True, "clip_update": None}
        o |= {"eps_placement": "paper", "project": None} | base | given
        lr, wd, p = float(o["lr"]), float(o["weight_decay"]), o["p"]
        first = float(given.get("first_lr", lr))
        b1, b2 = (float(b) for b in o["betas"])
        grad = g.detach().double().numpy() * (-1.0 if o["maximize"] else 1.0)
        if o["decay"] == "l2":
            grad = grad + wd * self.x
        self.t += 1
        c = math.expm1(self.t * math.log1p(b2)) if b2 else float(self.t)  # b2 -> 0: every square counts alike
        fresh = self.v == 0
        self.m = b1 * self.m + (1 - b1) * grad
        self.v = (1 + b2) * self.v + (b2 or 1.0) * grad**2
        if o["wake"]:
            self.v = np.where(fresh, c * grad**2, self.v)
        if o["eps_placement"] == "paper":
            update = c**p * self.m / (self.v**p + float(o["eps"]))
        else:
            update = self.m / ((self.v / c) ** p + float(o["eps"]))
        if o["clip_update"] is not None:
            update = np.clip(update, -o["clip_update"], o["clip_update"])
        shrink = {"l2": 0.0, "decoupled": lr * wd, "fully_decoupled": wd * lr / (first or 1.0)}[o["decay"]]
        self.x = self.x - lr * update - shrink * self.x
        if o["project"] is not None:
            self.x = np.clip(self.x, *o["project"])


def recursion(name: str, params: list[nn.Parameter]) -> list[Recursion]:
    return [Recursion(name, p) for p in params]
