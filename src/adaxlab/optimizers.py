"""Optimizers by name: every method of the zoo, `torch:AdamW`, and the user's own as `module:Class` or
`file.py:Class`."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

import adaxopt
from adaxlab import task
from adaxlab.errors import LabError, unknown
from adaxlab.failures import first_line, guarded
from adaxopt.torch.optimizers import CLASSES
from adaxopt.zoo import METHODS

RECORDED = ("lr", "betas", "eps", "weight_decay")  # written into every specification, with what the user sets


def names() -> tuple[str, ...]:
    """The names of the zoo."""
    return tuple(METHODS)


def base(name: str) -> str:
    """The optimizer behind a name: `adaxw@slow` is adaxw under a second name, for other options beside the first.

    A folder may have an @ in its name; the second name has neither `:` nor `/`.

    >>> base("adaxw@slow"), base("me@corp/mine.py:Opt"), base("me@corp/mine.py:Opt@slow")
    ('adaxw', 'me@corp/mine.py:Opt', 'me@corp/mine.py:Opt')
    """
    first, _, second = name.partition("@")
    if first in METHODS:
        return first
    first, sign, second = name.rpartition("@")
    return first if sign and not set(second) & set(":/") else name


def check_name(name: str) -> str:
    """The name itself, or an error that lists the known ones."""
    if name.endswith("@"):
        raise LabError(f"optimizer {name!r}: a second name follows the @, such as adaxw@slow")
    kind = base(name)
    parts = [part.strip() for part in kind.split(",") if part.strip()]
    if len(parts) > 1 and not Path(kind.rpartition(":")[0]).is_file():
        raise LabError(f"optimizer {name!r}: names are separated by spaces: --optimizers {' '.join(parts)}")
    if ":" not in kind and kind not in METHODS:
        if kind.endswith(".py") or Path(f"{kind}.py").is_file():
            task.offer(kind, "optimizer", _is_optimizer)
        raise unknown("optimizer", kind, METHODS, ", or torch:AdamW, module:Class, file.py:Class")
    if ":" in kind:
        _class(kind)
    return kind


def _class(name: str) -> Any:
    place, _, attribute = name.rpartition(":")
    if not attribute:
        task.offer(place, "optimizer", _is_optimizer)
    module = torch.optim if place == "torch" else task.module(place, "optimizer")
    if not hasattr(module, attribute):
        known = [key for key, value in vars(module).items() if _is_optimizer(value)]
        raise unknown(f"optimizer in {place}", attribute, known or ["(none)"])
    cls = getattr(module, attribute)
    if not _is_optimizer(cls):
        raise LabError(f"optimizer {name}: must be a subclass of torch.optim.Optimizer")
    return cls


def _is_optimizer(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, torch.optim.Optimizer)


def options(name: str, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The options a run of `name` is specified by: its documented defaults under what the user sets.

    >>> options("adaxw", {"weight_decay": 0.1})
    {'lr': 0.005, 'betas': [0.9, 0.0001], 'eps': 1e-12, 'weight_decay': 0.1}
    """
    kind = check_name(name)
    if kind in METHODS:
        defaults = {key: METHODS[kind].defaults[key] for key in RECORDED}
    else:
        parameters = inspect.signature(_class(kind)).parameters
        defaults = {
            key: parameters[key].default
            for key in RECORDED
            if key in parameters and parameters[key].default is not inspect.Parameter.empty
        }
    _check_given(name, kind, given or {})
    result = {**defaults, **(given or {})}
    if "lr" not in result:
        raise LabError(f"optimizer {name}: has no default lr; give one with --set {name}.lr=0.001")
    lr = result["lr"]
    if isinstance(lr, bool) or not isinstance(lr, int | float):
        raise LabError(f"optimizer {name}: lr={lr!r}: is not a number; give one, such as {name}.lr=0.001")
    if not 0 < lr < math.inf:
        raise LabError(f"optimizer {name}: lr={lr!r}: must be > 0 and finite")
    result["lr"] = float(lr)
    return {key: list(value) if isinstance(value, tuple) else value for key, value in result.items()}


def _check_given(name: str, kind: str, given: Mapping[str, Any]) -> None:
    """Options that the optimizer does not have, or without a value, are an error of one line that lists its options."""
    cls = CLASSES[kind] if kind in METHODS else _class(kind)
    parameters = list(inspect.signature(cls).parameters.values())[
        1:
    ]  # the first takes the model's parameters
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for key in given:
            if key not in (known := [p.name for p in parameters]):
                raise unknown(f"option of {name}", key, known)
    for key, value in given.items():
        if value == "":
            raise LabError(f"optimizer {name}: {key}= has no value; give one, such as {name}.{key}=0.1")


def build(name: str, params: Iterable[Any], given: Mapping[str, Any]) -> torch.optim.Optimizer:
    """The optimizer over `params`; an option that it does not know or allow is an error of one line."""
    kind = check_name(name)
    chosen = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    with guarded(f"optimizer {name}"):
        try:
            if kind in METHODS:
                return adaxopt.create(kind, params, **chosen)
            return _class(kind)(params, **chosen)
        except (TypeError, ValueError) as error:
            raise LabError(f"optimizer {name}: {first_line(error)}") from error


def source_digest(name: str) -> str | None:
    """A digest of the files that hold a user's optimizer, so that an edited one is another run; None for those of
    torch and of this package."""
    kind = base(name)
    return None if kind in METHODS else task.file_digest(_class(kind))


@functools.cache
def warm_up() -> None:
    """One step of one number: what torch imports at a process's first step is not charged to the first run."""
    p = torch.nn.Parameter(torch.zeros(1))
    p.grad = torch.zeros(1)
    for name in ("torch:SGD", "adaxw"):
        build(name, [p], {"lr": 0.1}).step()


def check_options(name: str, given: Mapping[str, Any]) -> None:
    """Build the optimizer once over a single number, so that a wrong option is found before any run
    starts."""
    build(name, [torch.nn.Parameter(torch.zeros(1))], given)
