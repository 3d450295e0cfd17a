"""Identifies the optimizer that wrote a checkpoint of other code, by the keys of its groups and state."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from adaxopt.memories import Growing
from adaxopt.torch.groups import ANNOTATIONS
from adaxopt.zoo import Method

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine

MARKS = {
    "torch.optim.Muon": {"ns_steps", "momentum"},
    "torch.optim.SGD": {"momentum", "dampening", "nesterov"},
    "torch.optim.RMSprop": {"alpha", "centered"},
    "torch.optim.ASGD": {"lambd", "t0"},
    "torch.optim.Adagrad": {"lr_decay", "initial_accumulator_value"},
    "torch.optim.Adadelta": {"rho", "eps"},
    "torch.optim.Rprop": {"etas", "step_sizes"},
    "torch.optim.LBFGS": {"history_size", "max_iter"},
    "torch.optim.Adafactor": {"beta2_decay", "d"},
}
"""Keys that occur only in the param groups of the named optimizer."""


ADAMS = ("adam", "adamw")
"""The methods whose checkpoints `load_adamw_state_dict` converts."""
AMSGRAD = "torch.optim.Adam or AdamW with amsgrad=True"
UNKNOWN = "an optimizer of Adam's form"
OLD = {"params", "lr", "betas", "eps", "weight_decay", "amsgrad"}
"""The keys of the param groups of Adam and AdamW in torch 1.10 and older."""


class Found(NamedTuple):
    """The origin of a checkpoint: a readable name, and the kind of converter that reads it, if there is one."""

    name: str
    kind: Literal["adamw", "released"] | None
    why: str = "its state has no second moment that could be taken over"


def recognised(state_dict: Mapping[str, Any]) -> Found:
    """Identify the optimizer that wrote a checkpoint of other code."""
    groups = state_dict["param_groups"]
    keys: set[str] = set().union(*groups)
    for name, marks in MARKS.items():
        if marks <= keys:
            return Found(name, None)
    kept: set[str] = set().union(
        *(entry for entry in state_dict["state"].values() if isinstance(entry, Mapping))
    )
    if not all(_pair(group.get("betas")) for group in groups) or not groups:
        listed = ", ".join(sorted(keys - {"params"})) or "no options"
        return Found(f"another optimizer (its groups have {listed})", None)
    if "exp_inf" in kept:
        return Found("torch.optim.Adamax", None, "its exp_inf is a maximum and not a mean of squares")
    if kept and not {"step", "exp_avg", "exp_avg_sq"} <= kept:
        missing = min({"step", "exp_avg", "exp_avg_sq"} - kept)
        return Found(
            f"another optimizer with betas (its state has {_listed(kept)})", None, f"it has no {missing!r}"
        )
    if "max_exp_avg_sq" in kept or any(group.get("amsgrad") for group in groups):
        why = "it keeps no running maximum to put max_exp_avg_sq in"
        return Found(AMSGRAD, None, why)
    if {"amsgrad", "maximize"} <= keys:
        return Found(
            "torch.optim.AdamW" if groups[0].get("decoupled_weight_decay") else "torch's Adam or AdamW",
            "adamw",
        )
    if all(float(group["betas"][1]) < 0.5 for group in groups):
        return Found("the AdaX authors' code", "released")
    if "amsgrad" in keys and all(ANNOTATIONS.fullmatch(str(key)) for key in keys - OLD):
        return Found("torch's Adam or AdamW", "adamw")
    return Found(UNKNOWN, "adamw")


def refusal(found: Found, optimizer: Engine) -> str:
    """An error text: why this optimizer does not load the checkpoint, and what to do instead."""
    name = type(optimizer).__name__
    if found.kind is None or not converts(optimizer.method):
        why = found.why if found.kind is None else f"its second moment is scaled differently from {name}'s"
        if found.name == UNKNOWN:
            why = "it is not known how its second moment is scaled"
        do = "load the model's parameters alone and start with a new optimizer"
        written = _written_by(found)
        if with_amsgrad(optimizer, written) is not None:
            do = f"build {name} with amsgrad={with_amsgrad(optimizer, written)}"
            why = found.why if found.kind is None else "it has no running maximum of v"
        return f"checkpoint of {found.name}: {name} cannot continue from it, because {why}; {do}"
    return (
        f"checkpoint of {found.name}: its second moment is not the normalised one; convert it with "
        f"adaxopt.load_{found.kind}_state_dict"
    )


def is_torchs(found: Found, method: Method) -> bool:
    """Whether torch's optimizer of this method wrote the checkpoint: Adam or AdamW, with or without amsgrad."""
    return method.name in _written_by(found)


def _written_by(found: Found) -> tuple[str, ...]:
    """The methods of which a checkpoint of torch may be."""
    if found.name == AMSGRAD:
        return ("amsgrad", "amsgradw")
    return ADAMS if found.kind == "adamw" and found.name.startswith("torch") else ()


def with_amsgrad(optimizer: Engine, methods: Collection[Any]) -> bool | None:
    """The `amsgrad` with which this optimizer's class would be of one of these methods, or None."""
    kind = type(optimizer)
    made = {kind.method.name: False, kind.amsgrad_method: True} if hasattr(kind, "amsgrad_method") else {}
    return next((made[name] for name in methods if name in made), None)


def converts(method: Method) -> bool:
    """Whether checkpoints of other code can be converted for this method: AdaX's memory, no bias correction of m."""
    return method.rule.memory is Growing and not method.rule.debias


def _pair(betas: Any) -> bool:
    return isinstance(betas, (tuple, list)) and len(betas) == 2


def _listed(keys: set[str]) -> str:
    return ", ".join(sorted(map(str, keys)))
