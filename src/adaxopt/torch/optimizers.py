"""The public optimizer classes. Each defines a signature and a method."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from adaxopt.checks import EpsPlacement
from adaxopt.memories import Memory
from adaxopt.torch.adam import Adam, AdamW
from adaxopt.torch.engine import Engine
from adaxopt.torch.options import Betas, Rounding, given_by, renamed
from adaxopt.torch.project import Project
from adaxopt.zoo import METHODS, Decay, method

_SHARED = """
    Args:
        params: tensors, (name, tensor) pairs, or dicts of groups, as for every torch optimizer.
        lr: float or one-element tensor.
        betas: (b1, b2). b2 is a *growth rate*, not Adam's decay rate. Over T steps, b2*T determines the behaviour: it
            is 2 to 50 in the paper's tasks; far below 1, v is a plain mean of all squares. If b2 is None, `total_steps`
            or `memory` sets it; without them it is the paper's 1e-4.
        total_steps: the number of steps T of the whole run; sets b2 = 3/T. Cannot be combined with a b2.
        memory: another gain k_t in place of AdaX's: `Growing(b2)`, `Fading(b2)`, `Equal()`, `Power(c)`,
            `LogTime(delta)`, `Polynomial(c)`, each also with `.floor(1/horizon)` and `.freeze(after)`. Nothing else
            changes, except that eps is added as in Adam if the memory's norm has no closed form (all but the first
            three, and any with a floor or a freeze). Cannot be combined with a b2.
        eps: added to sqrt(v) before v is normalised, as Algorithm 3 and the released code do (`eps_placement="paper"`:
            eps/sqrt(b2) at the first step, then vanishing); `"plain"` adds it after, as Adam does.
        weight_decay, decay: `"decoupled"` x <- x - lr*wd*x; `"l2"` g <- g + wd*x; `"fully_decoupled"`
            x <- x - wd*(lr/first lr)*x, so that wd need not change with lr.
        foreach, fused: None selects the fastest path that supports the tensors. True requests a path; it raises if the
            path cannot compute the method, and warns once if a tensor takes another path because of its dtype or
            layout. False disables the path. `foreach=False` uses a for-loop, with bitwise the same results as foreach.
        capturable: whether the step can be captured in a CUDA graph; step count, lr and gain are kept on the device.
        differentiable: whether autograd records the step.
        maximize: maximize the objective instead of minimizing it.
        state_dtype: dtype of m and v. None is float32 for 16-bit parameters, else the parameter's dtype. 16-bit state
            is always rounded stochastically. torch.uint8 is 8-bit state: 2.06 bytes for m and v together, as codes with
            shared exponents (`adaxopt.torch.codes`).
        rounding: rounding of 16-bit parameters: "nearest", "stochastic" (the random bits depend on `seed`, the position
            of the parameter, the element and the step, and not on torch's generator), "kahan" (a second 16-bit tensor
            stores the rounding error) or "24bit" (8 correction bits in addition to bfloat16, rounded stochastically;
            `float32_weights` returns the full values).
        seed: seed of stochastic rounding.
        wake: guard late-activated coordinates: where v is exactly 0, the first gradient's square gets the weight 1.
            Without the guard, as in the paper, a coordinate whose first gradient comes at step t moves by
            (1-b1)/sqrt(k_t) * lr, which is 1500*lr at t = 100,000. Under L2 decay v is never exactly 0, because wd*x is
            part of g. False reproduces the paper. A memory that freezes has the guard even with False.
        clip_update: upper bound on |m/(v^p + eps)|, or None.
        cautious: skip the update of coordinates in which m and the gradient differ in sign, and divide the other
            updates of the tensor by the fraction of coordinates that remain, at least 1e-3 (Liang et al. 2024, arXiv
            2411.16085). For a sparse gradient the fraction is over the rows in the gradient.
        project: `Box(lo, hi)`, `Ball(radius)` or a callable (y, d) -> x (Algorithm 1, line 7), the same for all groups.
            Not stored in checkpoints.

    Sparse gradients: each row keeps its own step count. Only rows in the gradient change, and weight decay applies only
    to them.
"""


class AdaX(Engine):
    __doc__ = (
        """AdaX with L2 regularisation (Li et al. 2020, Algorithm 3).

        g <- g + wd*x
        m <- b1*m + (1-b1)*g
        v <- v + k_t*(g*g - v),       k_t = b2/((1+b2)^t - 1)
        x <- x - lr*m/(sqrt(v) + eps_t),      eps_t = eps/sqrt((1+b2)^t - 1)

    v is the paper's v-hat. The updates equal those of its recursion v = (1+b2)v + b2*g^2 divided by (1+b2)^t - 1, which
    overflows in float32 after about 887,000 steps.

    >>> p = torch.nn.Parameter(torch.tensor([1.0])); opt = AdaX([p], lr=0.1)
    >>> (p**2).sum().backward(); opt.step(); p.data
    tensor([0.9900])

    Defaults: lr is that of the released class (whose weight_decay was 5e-4), the others are the paper's. m is not
    bias-corrected, as in the paper. The paper's Algorithm 3 prints its decay with the wrong sign; the sign of the
    released code is used.
"""
        + _SHARED
    )
    method = METHODS["adax"]

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.5e-3,
        betas: Betas = (0.9, None),
        eps: float = 1e-12,
        weight_decay: float = 0.0,
        *,
        total_steps: float | None = None,
        memory: Memory | None = None,
        decay: Decay = "l2",
        eps_placement: EpsPlacement = "paper",
        wake: bool = True,
        clip_update: float | None = None,
        cautious: bool = False,
        project: Project | None = None,
        state_dtype: torch.dtype | None = None,
        rounding: Rounding = "nearest",
        seed: int = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, given_by(locals()), project)


class AdaXW(Engine):
    __doc__ = (
        """AdaX with decoupled weight decay: the paper's AdaX-W (Li et al. 2020, Algorithm 3).

        m <- b1*m + (1-b1)*g
        v <- v + k_t*(g*g - v),       k_t = b2/((1+b2)^t - 1)
        x <- x - lr*m/(sqrt(v) + eps_t) - lr*wd*x,      eps_t = eps/sqrt((1+b2)^t - 1)

    >>> p = torch.nn.Parameter(torch.tensor([1.0])); opt = AdaXW([p], lr=0.1, weight_decay=0.0)
    >>> (p**2).sum().backward(); opt.step(); p.data
    tensor([0.9900])

    Defaults are the paper's for its convolutional nets. When you switch from AdamW, start from its lr.
"""
        + _SHARED
    )
    method = METHODS["adaxw"]

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 5e-3,
        betas: Betas = (0.9, None),
        eps: float = 1e-12,
        weight_decay: float = 5e-2,
        *,
        total_steps: float | None = None,
        memory: Memory | None = None,
        decay: Decay = "decoupled",
        eps_placement: EpsPlacement = "paper",
        wake: bool = True,
        clip_update: float | None = None,
        cautious: bool = False,
        project: Project | None = None,
        state_dtype: torch.dtype | None = None,
        rounding: Rounding = "nearest",
        seed: int = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, given_by(locals()), project)


class Padax(Engine):
    __doc__ = (
        """AdaX with a partial power of the second moment (Li et al. 2020, section 5.3).

        x <- x - lr*m/(v^p + eps_t),      p = 1/8,  eps_t = eps/((1+b2)^t - 1)^p

    >>> p = torch.nn.Parameter(torch.tensor([1.0])); opt = Padax([p], lr=0.1, weight_decay=0.0)
    >>> (p**2).sum().backward(); opt.step(); round(p.item(), 4)          # 1 - 0.1*0.2/4^(1/8)
    0.9832

    Defaults: p is Padam's. The paper does not state lr and decay, so they are Padam's too (0.1, L2 of 5e-4).
"""
        + _SHARED
    )
    method = METHODS["padax"]

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.1,
        betas: Betas = (0.9, None),
        eps: float = 1e-12,
        weight_decay: float = 5e-4,
        p: float = 1 / 8,
        *,
        total_steps: float | None = None,
        memory: Memory | None = None,
        decay: Decay = "l2",
        eps_placement: EpsPlacement = "paper",
        wake: bool = True,
        clip_update: float | None = None,
        cautious: bool = False,
        project: Project | None = None,
        state_dtype: torch.dtype | None = None,
        rounding: Rounding = "nearest",
        seed: int = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, given_by(locals()), project)


class _ByName(Engine):
    """Base of methods without a public class: options are keyword arguments, defaults are in `zoo.py`."""

    def __init__(self, params: ParamsT, *, project: Project | None = None, **given: Any) -> None:
        super().__init__(params, renamed(given, self.method, self.method.defaults["betas"]), project)


CLASSES: dict[str, type[Engine]] = {
    "adam": Adam,
    "adamw": AdamW,
    "adax": AdaX,
    "adaxw": AdaXW,
    "padax": Padax,
}
for _name, _row in METHODS.items():
    if _name not in CLASSES:
        _title = _name.capitalize()
        CLASSES[_name] = globals()[_title] = type(
            _title,
            (_ByName,),
            {
                "method": _row,
                "__module__": __name__,
                "__qualname__": _title,
                "__doc__": f"{_row.source}. Defaults: {dict(_row.defaults)}.",
            },
        )


def create(name: str, params: ParamsT, **given: Any) -> Engine:
    """Create an optimizer by the name of its method, such as nosadam or amsgradw; docs/method.md lists the names.

    >>> opt = create("nosadam", [torch.nn.Parameter(torch.ones(2))], lr=1e-3, c=0.1)
    >>> opt.param_groups[0]["betas"]
    (0.9, 0.1)
    """
    return CLASSES[method(name).name](params, **given)
