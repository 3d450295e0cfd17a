"""Adam and AdamW with torch's signatures, defaults, results and checkpoints, computed by this package's step."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from adaxopt.memories import Memory
from adaxopt.torch import convert, groups
from adaxopt.torch.engine import Engine
from adaxopt.torch.options import Betas, Rounding, given_by
from adaxopt.torch.project import Project
from adaxopt.zoo import METHODS, Decay

_SHARED = """
    Arguments and defaults are torch's. Additional keyword arguments: `state_dtype`, `rounding`, `seed`, `decay`,
    `clip_update`, `wake`, `cautious`, `project` and `memory`, as in `adaxopt.AdaXW`. `amsgrad` applies to all groups.

    `load_state_dict` reads checkpoints of torch and of this package; `to_torch_state_dict` writes torch's format.
    Differences from torch: except under `amsgrad`, `exp_avg_sq` holds v / (1 - b2^t), which needs no bias correction,
    and changing b2 during training gives different results. The state of 16-bit parameters is float32 unless
    `state_dtype` is set, and keeps its dtype when it is loaded. `step` is float64. Gradients may be sparse (each row
    then keeps its own step count). `foreach` and `fused` accept lr and betas as tensors.
"""


class _Adam(Engine):
    amsgrad_method: ClassVar[str]
    """The name of the method used if amsgrad=True."""

    def _begin(self, params: ParamsT, given: dict[str, Any], project: Project | None) -> None:
        if "decoupled_weight_decay" in given:  # Adam
            decoupled = given.pop("decoupled_weight_decay")
            if given["decay"] is None:
                given["decay"] = "decoupled" if decoupled else "l2"
        if given.pop("amsgrad"):
            memory = given.pop("memory")
            if memory is not None:
                raise ValueError(
                    f"amsgrad=True, memory={memory!r}: AMSGrad has a memory of its own; give one of the two"
                )
            self.method = METHODS[self.amsgrad_method]  # type: ignore[misc]
        if any(given["betas"] is own for own in _DEFAULTS):  # betas not given, so `memory` may set b2
            given["betas"] = (given["betas"][0], None)
        super().__init__(params, given, project)

    def __setstate__(self, given: dict[str, Any]) -> None:
        super().__setstate__(given)
        if self.defaults["method"] == self.amsgrad_method:  # the class's own method is without amsgrad
            self.method = METHODS[self.amsgrad_method]  # type: ignore[misc]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a param group. Groups of torch's Adam or AdamW are accepted unchanged."""
        if isinstance(param_group, dict):
            param_group = groups.copied(param_group)
            amsgrad = param_group.pop("amsgrad", None)
            if amsgrad is not None and bool(amsgrad) != self.method.rule.maximum:
                raise ValueError(
                    f"amsgrad={amsgrad!r} in a parameter group: it applies to all groups; give it to the constructor, "
                    f"{type(self).__name__}(params, amsgrad={amsgrad!r})"
                )
            decoupled = param_group.pop("decoupled_weight_decay", None)
            if decoupled is not None:
                param_group.setdefault("decay", "decoupled" if decoupled else "l2")
        super().add_param_group(param_group)

    def to_torch_state_dict(self) -> dict[str, Any]:
        """The state in the format of the torch optimizer of the same name, for its `load_state_dict`.

        >>> p = torch.nn.Parameter(torch.ones(2)); ours = AdamW([p]); p.grad = torch.ones(2); ours.step()
        >>> theirs = torch.optim.AdamW([p]); theirs.load_state_dict(ours.to_torch_state_dict()); theirs.step()
        """
        return convert.to_torch(self)


class Adam(_Adam):
    __doc__ = (
        """Adam (Kingma and Ba 2015), a drop-in replacement for `torch.optim.Adam`.

        g <- g + wd*x
        m <- b1*m + (1-b1)*g
        v <- b2*v + (1-b2)*g*g
        x <- x - lr * m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps)

    >>> p = torch.nn.Parameter(torch.tensor([1.0])); opt = Adam([p], lr=0.1)
    >>> (p**2).sum().backward(); opt.step(); p.data
    tensor([0.9000])
"""
        + _SHARED
    )
    method = METHODS["adam"]
    amsgrad_method = "amsgrad"

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
        decay: Decay | None = None,
        memory: Memory | None = None,
        wake: bool = False,
        clip_update: float | None = None,
        cautious: bool = False,
        project: Project | None = None,
        state_dtype: torch.dtype | None = None,
        rounding: Rounding = "nearest",
        seed: int = 0,
    ) -> None:
        self._begin(params, given_by(locals()), project)


class AdamW(_Adam):
    __doc__ = (
        """AdamW (Loshchilov and Hutter 2019), a drop-in replacement for `torch.optim.AdamW`.

        m <- b1*m + (1-b1)*g
        v <- b2*v + (1-b2)*g*g
        x <- x - lr * m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps) - lr*wd*x

    >>> p = torch.nn.Parameter(torch.tensor([1.0])); opt = AdamW([p], lr=0.1, weight_decay=0.0)
    >>> (p**2).sum().backward(); opt.step(); p.data
    tensor([0.9000])
"""
        + _SHARED
    )
    method = METHODS["adamw"]
    amsgrad_method = "amsgradw"

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decay: Decay = "decoupled",
        memory: Memory | None = None,
        wake: bool = False,
        clip_update: float | None = None,
        cautious: bool = False,
        project: Project | None = None,
        state_dtype: torch.dtype | None = None,
        rounding: Rounding = "nearest",
        seed: int = 0,
    ) -> None:
        self._begin(params, given_by(locals()), project)


_DEFAULTS = [inspect.signature(kind).parameters["betas"].default for kind in (Adam, AdamW)]
"""The default betas, compared by identity: equal values passed by a caller are another object."""
