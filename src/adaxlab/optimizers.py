"""Optimizers by name: the class or factory that a name refers to, and the optimizer of a model.

    adaxw, adamw, sgdm, ...     a method of the zoo
    torch:NAdam, module:Class   a class that takes parameters; file.py:Class is one of the user's own
    file.py:function            a factory that takes the model and the options, and returns an optimizer
    muon+adamw                  a split: hidden matrices to the first, everything else to the second (adaxlab.joint)

`muon` and `torch:Muon` take matrices only and stand for a split with adamw. `optimizer_options` has the options.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from adaxlab import joint, task
from adaxlab.errors import LabError, unknown
from adaxlab.failures import first_line, guarded
from adaxopt.torch.optimizers import CLASSES
from adaxopt.torch.options import ENGINE_DEFAULTS
from adaxopt.zoo import METHODS

MUON = ("muon", "torch:Muon", "torch.optim:Muon")
"""Muon accepts only matrices, so `muon` alone means a split with adamw. Its update is scaled to the size of AdamW's, so
that both can use one lr (Liu et al. 2025)."""
SIDES = ("first", "second")
_OPTIONAL = inspect.Parameter("closure", inspect.Parameter.KEYWORD_ONLY, default=None)


def base(name: str) -> str:
    """The optimizer of a name: `adaxw@slow` is adaxw under a second name, with other options.

    A folder may have an @ in its name; the second name has neither `:` nor `/`.

    >>> base("adaxw@slow"), base("me@corp/mine.py:Opt"), base("me@corp/mine.py:Opt@slow")
    ('adaxw', 'me@corp/mine.py:Opt', 'me@corp/mine.py:Opt')
    """
    first, _, second = name.partition("@")
    if first in METHODS:
        return first
    first, sign, second = name.rpartition("@")
    return first if sign and not set(second) & set(":/") else name


def parts(name: str) -> tuple[str, ...]:
    """The optimizers that share the model's parameters.

    >>> parts("adamw"), parts("muon+adaxw@slow"), parts("torch:Muon")
    (('adamw',), ('muon', 'adaxw'), ('torch:Muon', 'adamw'))
    """
    found = _divided(base(name))
    return (*found, "adamw") if len(found) == 1 and found[0] in MUON else found


def _divided(kind: str) -> tuple[str, ...]:
    """The names between plus signs; a folder may have such a sign in its name."""
    for i, letter in enumerate(kind):
        if letter == "+" and _named(kind[:i]):
            rest = _divided(kind[i + 1 :])
            if all(map(_named, rest)):
                return kind[:i], *rest
    return (kind,)


def _named(kind: str) -> bool:
    return kind in METHODS or kind in MUON or ":" in kind


def check_name(name: str) -> None:
    """Raise LabError, with the known names, unless this is one."""
    if name.endswith("@"):
        raise LabError(f"optimizer {name!r}: a second name follows the @, such as adaxw@slow")
    kind = base(name)
    listed = [part.strip() for part in kind.split(",") if part.strip()]
    if len(listed) > 1 and not Path(kind.rpartition(":")[0]).is_file():
        raise LabError(f"optimizer {name!r}: names are separated by spaces: --optimizers {' '.join(listed)}")
    found = parts(name)
    if len(found) == 1 and "+" in kind and ":" not in kind:
        found = tuple(kind.split("+"))
    for part in found:
        if not _named(part):
            if part.endswith(".py") or Path(f"{part}.py").is_file():
                task.offer(part, "optimizer", _is_optimizer)
            more = ", muon, or torch:AdamW, module:Class, file.py:Class, file.py:function, or a split: muon+adamw"
            raise unknown("optimizer", part, METHODS, more)
        if len(found) > 2 or (len(found) > 1 and is_factory(part)):
            what = (
                "has more than two parts"
                if len(found) > 2
                else f"{part} is a factory and takes the whole model"
            )
            raise LabError(f"optimizer {name}: {what}; a split has two classes, such as muon+adamw")
        _maker(part)


def source_digest(name: str) -> str | None:
    """A digest of the files of a user's optimizer, so that an edited one gives new runs; None for optimizers of torch
    and of this package."""
    found = [task.file_digest(_maker(part)) for part in parts(name) if ":" in part]
    return "+".join(digest for digest in found if digest) or None


def _maker(kind: str) -> Any:
    """The class, or the factory, of one optimizer."""
    if kind in METHODS:
        return CLASSES[kind]
    if kind in MUON:
        return joint.muon()
    place, _, attribute = kind.rpartition(":")
    if not attribute:
        task.offer(place, "optimizer", lambda value: _is_optimizer(value) or _is_maker(value))
    module = torch.optim if place == "torch" else task.module(place, "optimizer")
    if not hasattr(module, attribute):
        known = [key for key, value in vars(module).items() if _is_optimizer(value) or _is_maker(value)]
        raise unknown(f"optimizer in {place}", attribute, known or ["(none)"])
    made = getattr(module, attribute)
    if not _is_optimizer(made) and (inspect.isclass(made) or not callable(made)):
        raise LabError(
            f"optimizer {kind}: must be a subclass of torch.optim.Optimizer, or a function that takes the model and "
            "returns an optimizer"
        )
    return made


def _is_optimizer(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, torch.optim.Optimizer)


def _is_maker(value: Any) -> bool:
    """A function with an argument lr, as a factory has."""
    return inspect.isfunction(value) and "lr" in inspect.signature(value).parameters


def is_factory(kind: str) -> bool:
    """Whether the name refers to a function that creates an optimizer for a model, not to a class."""
    return ":" in kind and not inspect.isclass(_maker(kind))


def arguments(kind: str) -> dict[str, inspect.Parameter]:
    """The options of a class or factory: its arguments after the parameters or the model."""
    return dict(list(inspect.signature(_maker(kind)).parameters.items())[1:])


def takes_any(kind: str) -> bool:
    """Whether a class or factory takes any keyword."""
    return any(p.kind is p.VAR_KEYWORD for p in arguments(kind).values())


def options_of(kind: str) -> list[str]:
    """The options of one optimizer that are known by name."""
    if kind in METHODS and takes_any(kind):
        return list({**METHODS[kind].defaults, **ENGINE_DEFAULTS})
    named = [key for key, p in arguments(kind).items() if p.kind is not p.VAR_KEYWORD]
    hidden = ("project", "total_steps") if kind in METHODS else ()  # no word, and set by the lab
    return [key for key in named if key not in hidden]


def takes(kind: str, option: str) -> bool:
    """Whether one optimizer, which is not a split, has such an option."""
    return option in options_of(kind) or (kind not in METHODS and takes_any(kind))


def in_graph(name: str) -> dict[str, Any]:
    """The options that an optimizer needs in a CUDA graph.

    >>> in_graph("adaxw@slow"), in_graph("torch:SGD")
    ({'capturable': True}, {'fused': True})
    """
    own = {"torch:SGD": {"fused": True}, "torch:AdamW": {"fused": True, "capturable": True}}
    return own.get(base(name), {"capturable": True})


ELEMENTWISE = frozenset({"torch:SGD", "torch:Adam", "torch:AdamW", "torch:Adagrad", "torch:RMSprop"})
"""torch's optimizers that step every coordinate alone."""
COUPLED = ("state_dtype", "cautious")
"""Options of adaxopt's optimizers with which a coordinate's step also depends on others, or on its place."""


def elementwise(name: str, options: Mapping[str, Any]) -> bool:
    """Whether an optimizer steps every coordinate alone, so that several networks can be one tensor. A class of
    another module says so by an attribute `elementwise`.

    >>> elementwise("adaxw", {}), elementwise("adamw", {"state_dtype": "uint8"}), elementwise("torch:Adafactor", {})
    (True, False, False)
    """
    method = base(name)
    if method in METHODS:
        return not any(options.get(key) for key in COUPLED)
    return method in ELEMENTWISE or getattr(_maker(method), "elementwise", False)


def from_data(key: str, value: Any) -> Any:
    """An option in the form that the optimizer expects: a JSON list becomes a tuple, the name of a dtype the dtype.

    >>> from_data("betas", [0.9, 0.95]), from_data("state_dtype", "bfloat16")
    ((0.9, 0.95), torch.bfloat16)
    """
    if isinstance(value, list):
        return tuple(value)
    found = getattr(torch, value, None) if key.endswith("dtype") and isinstance(value, str) else None
    return found if isinstance(found, torch.dtype) else value


def build(
    name: str, params: Iterable[Any], given: Mapping[str, Any], model: torch.nn.Module | None = None
) -> torch.optim.Optimizer:
    """Build the optimizer for `params`, the parameters or groups of `model`; a factory receives the model itself.

    An unknown or invalid option raises a one-line error.
    """
    check_name(name)
    found = parts(name)
    chosen = {key: from_data(key, value) for key, value in given.items()}
    with guarded(f"optimizer {name}"):
        try:
            if len(found) == 2:
                made = _split(name, params, chosen, model)
            elif is_factory(found[0]):
                made = _from_factory(name, chosen, model)
            else:
                made = _maker(found[0])(params, **chosen)
        except (TypeError, ValueError) as error:
            raise LabError(f"optimizer {name}: {first_line(error)}") from error
    if inspect.signature(made.step).parameters.get("closure", _OPTIONAL).default is inspect.Parameter.empty:
        raise LabError(
            f"optimizer {name}: its step() needs a closure, which would evaluate the model several times a step; "
            "choose one that steps without"
        )
    if any("lr" not in group for group in made.param_groups):
        raise LabError(
            f"optimizer {name}: its param_groups have no lr, which tuning and schedules set; add it"
        )
    return made


def _split(
    name: str, params: Iterable[Any], chosen: Mapping[str, Any], model: torch.nn.Module | None
) -> torch.optim.Optimizer:
    found = parts(name)
    if model is None:
        raise LabError(f"optimizer {name}: a split needs the model, to know its hidden matrices")
    divided = joint.divide(params, joint.hidden_matrices(model).values())
    if not divided[0]:
        raise LabError(
            f"optimizer {name}: the model has no hidden matrix for {found[0]} (two dimensions, neither an embedding "
            f"nor the output layer); use {found[1]} alone"
        )
    made = []
    for side, kind, groups in zip(SIDES, found, divided, strict=True):
        if groups:
            shared = {key: value for key, value in chosen.items() if "." not in key and takes(kind, key)}
            own = {key.partition(".")[2]: v for key, v in chosen.items() if key.startswith(f"{side}.")}
            made.append(_maker(kind)(groups, **{**shared, **own}))
    return joint.Joint(made)


def _from_factory(name: str, chosen: Mapping[str, Any], model: torch.nn.Module | None) -> Any:
    if model is None:
        raise LabError(f"optimizer {name}: a factory needs the model")
    made = _maker(base(name))(model, **chosen)
    needed = ("step", "zero_grad", "param_groups", "state_dict", "load_state_dict")
    missing = [key for key in needed if not hasattr(made, key)]
    if missing:
        raise LabError(
            f"optimizer {name}: gave a {type(made).__name__} without {', '.join(missing)}; it must return an optimizer"
        )
    inside = {id(p) for group in made.param_groups for p in group["params"]}
    left = [key for key, p in model.named_parameters() if p.requires_grad and id(p) not in inside]
    if left:
        raise LabError(
            f"optimizer {name}: leaves out {len(left)} parameters ({left[0]}, ...); put all of them into groups, or "
            "set requires_grad = False in the task's model()"
        )
    return made


@functools.cache
def warm_up() -> None:
    """Make one step of a single number, so that torch's imports at the first step are not timed with the first run."""
    p = torch.nn.Parameter(torch.zeros(1))
    p.grad = torch.zeros(1)
    for name in ("torch:SGD", "adaxw"):
        build(name, [p], {"lr": 0.1}).step()
