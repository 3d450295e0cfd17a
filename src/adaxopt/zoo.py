"""The methods as a table: each row has a rule, default values and their source.

A row defines the method's class, its name in `create`, its title in reports and its line in docs/method.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from adaxopt.memories import Equal, Fading, Growing, Power, Unnormalised
from adaxopt.memory import Number, scalars
from adaxopt.rule import Rule, StepCoefficients, numbers

Decay = Literal["l2", "decoupled", "fully_decoupled"]
DECAYS: tuple[str, ...] = get_args(Decay)


@dataclass(frozen=True)
class Method:
    """A named method: its rule, its defaults and its source.

    `betas` holds (b1, b2) for every method. `names` maps a method's own name for one of them (`momentum`) to its index
    in `betas`.
    """

    name: str
    rule: Rule
    defaults: Mapping[str, Any]
    source: str
    names: Mapping[str, int] = field(default_factory=dict)
    title: str = ""
    """The name as shown in tables and legends."""

    def numbers(
        self, t: Number, options: Mapping[str, Any] | None = None, xp: Any = scalars
    ) -> StepCoefficients:
        """The coefficients of step t under `options` (missing ones are the defaults).

        >>> METHODS["adaxw"].numbers(1).k, round(METHODS["adam"].numbers(1).s, 9)
        (1.0, 10.0)
        """
        o = {**self.defaults, **(options or {})}
        lr, wd, form = o["lr"], o["weight_decay"], o["decay"]
        l2: Number = 0.0
        decay: Number = 0.0
        if form == "l2":
            l2 = wd
        elif form == "decoupled":
            decay = lr * wd
        elif wd:
            decay = wd * (lr / o["reference_lr"])
        return numbers(
            self.rule,
            t,
            lr=lr,
            b1=o["betas"][0],
            b2=o["betas"][1],
            eps=o["eps"],
            p=o["p"],
            l2=l2,
            decay=decay,
            clip=o.get("clip_update"),
            window=o.get("window", 0),
            plain_eps=o.get("eps_placement", "paper") == "plain",
            memory=o.get("memory"),
            correct=o.get("correct", True),
            cautious=o.get("cautious", False),
            dtype=o.get("dtype", "float32"),
            xp=xp,
        )


def _row(
    name: str, title: str, rule: Rule, source: str, names: Mapping[str, int] | None = None, **defaults: Any
) -> Method:
    common: dict[str, Any] = dict(
        eps=0.0, weight_decay=0.0, decay="l2", p=0.5, eps_placement="paper", wake=False, clip_update=None
    )
    if rule.memory is not None and not rule.sigma:  # sigma ties s_t to the norm of the rule's own memory
        common["memory"] = None
    if rule.mean in ("average", "sum"):
        common["cautious"] = False
    if rule.memory is Growing:
        common["total_steps"] = None
    return Method(name, rule, {**common, **defaults}, source, names or {}, title)


_ADAX = Rule(Growing, tau="-p", floor=True)
_ADAM = Rule(Fading, debias=True)
_AMSGRAD = Rule(Unnormalised, debias=True, sigma=0.5, tau=0.5, maximum=True)

METHODS: dict[str, Method] = {
    row.name: row
    for row in (
        _row(
            "sgdm",
            "SGDM",
            Rule(None, mean="sum"),
            "Polyak 1964; lr of torch.optim.SGD, momentum of the paper",
            {"momentum": 0},
            lr=1e-3,
            betas=(0.9, 0.0),
        ),
        _row(
            "adagrad",
            "AdaGrad",
            Rule(Equal, mean="none", sigma=-0.5, tau=-0.5),
            "Duchi et al. 2011; defaults of torch.optim.Adagrad",
            lr=1e-2,
            betas=(0.0, 0.0),
            eps=1e-10,
        ),
        _row(
            "rmsprop",
            "RMSProp",
            Rule(Unnormalised, mean="none"),
            "Tieleman and Hinton 2012; defaults of torch.optim.RMSprop",
            {"alpha": 1},
            lr=1e-2,
            betas=(0.0, 0.99),
            eps=1e-8,
        ),
        _row(
            "adam",
            "Adam",
            _ADAM,
            "Kingma and Ba 2015; defaults of torch.optim.Adam",
            lr=1e-3,
            betas=(0.9, 0.999),
            eps=1e-8,
        ),
        _row(
            "adamw",
            "AdamW",
            _ADAM,
            "Loshchilov and Hutter 2019; defaults of torch.optim.AdamW",
            lr=1e-3,
            betas=(0.9, 0.999),
            eps=1e-8,
            weight_decay=1e-2,
            decay="decoupled",
        ),
        _row(
            "amsgrad",
            "AMSGrad",
            _AMSGRAD,
            "Reddi et al. 2018; torch.optim.Adam(amsgrad=True)",
            lr=1e-3,
            betas=(0.9, 0.999),
            eps=1e-8,
            correct=True,
        ),
        _row(
            "amsgradw",
            "AMSGrad(W)",
            _AMSGRAD,
            "Reddi et al. 2018; torch.optim.AdamW(amsgrad=True)",
            lr=1e-3,
            betas=(0.9, 0.999),
            eps=1e-8,
            weight_decay=1e-2,
            decay="decoupled",
            correct=True,
        ),
        _row(
            "adashift",
            "AdaShift",
            Rule(Fading, mean="window"),
            "Zhou et al. 2019, element-wise; its n = 10, Adam's rest",
            lr=1e-3,
            betas=(0.9, 0.999),
            eps=1e-8,
            window=10,
        ),
        _row(
            "nosadam",
            "NosAdam",
            Rule(Power, debias=True),
            "Huang et al. 2019; its c = 0.1, Adam's rest",
            {"c": 1},
            lr=1e-3,
            betas=(0.9, 0.1),
            eps=1e-8,
        ),
        _row(
            "adamnx",
            "AdamNX",
            Rule(Growing, debias=True),
            "Zhu et al. 2025 (arXiv 2511.13465); its 0.99^0.01 is 1/(1+b2)",
            lr=1e-3,
            betas=(0.9, math.expm1(-0.01 * math.log(0.99))),
            eps=1e-8,
            weight_decay=1e-2,
            decay="decoupled",
        ),
        _row(
            "padam",
            "Padam",
            Rule(Unnormalised, debias=True, sigma=0.5, maximum=True, eps_inside=True),
            "Chen et al. 2018; p, lr and L2 of its own code",
            lr=0.1,
            betas=(0.9, 0.999),
            eps=1e-8,
            weight_decay=5e-4,
            p=1 / 8,
            correct=True,
        ),
        _row(
            "adax",
            "AdaX",
            _ADAX,
            "Li et al. 2020, Algorithm 3 with L2; lr of the released class (its weight decay was 5e-4)",
            lr=1.5e-3,
            betas=(0.9, 1e-4),
            eps=1e-12,
            wake=True,
        ),
        _row(
            "adaxw",
            "AdaX-W",
            _ADAX,
            "Li et al. 2020, Algorithm 3 with decoupled decay",
            lr=5e-3,
            betas=(0.9, 1e-4),
            eps=1e-12,
            weight_decay=5e-2,
            decay="decoupled",
            wake=True,
        ),
        _row(
            "padax",
            "Padax",
            _ADAX,
            "Li et al. 2020, section 5.3; lr unstated there, Padam's here",
            lr=0.1,
            betas=(0.9, 1e-4),
            eps=1e-12,
            weight_decay=5e-4,
            p=1 / 8,
            wake=True,
        ),
    )
}


def method(name: str) -> Method:
    """The method of the given name. The error for an unknown name lists the known ones.

    >>> method("adaxw").defaults["lr"]
    0.005
    """
    try:
        return METHODS[name]
    except (KeyError, TypeError):
        raise ValueError(f"name={name!r}: unknown method; known are {', '.join(METHODS)}") from None
