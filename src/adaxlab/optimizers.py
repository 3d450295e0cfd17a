"""Optimizers by name: every method of the zoo, `torch:AdamW`, and the user's own as `module:Class` or
`file.py:Class`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from adaxlab.errors import LabError, unknown
from adaxlab.task import file_digest, find, first_line, import_module
from adaxopt.zoo import METHODS

RECORDED = ("lr", "betas", "eps", "weight_decay")  # written into every specification, with what the user sets


def names() -> tuple[str, ...]:
    """The names of the zoo."""
    return tuple(METHODS)


def base(name: str) -> str:
    """The optimizer behind a name: `adaxw@slow` is adaxw under a second name, for other options beside the first.

    >>> base("adaxw@slow"), base("torch:AdamW")
    ('adaxw', 'torch:AdamW')
    """
    return name.partition("@")[0]


def check_name(name: str) -> str:
    """The name itself, or an error that lists the known ones."""
    if "@" in name and not name.partition("@")[2]:
        raise LabError(f"optimizer {name!r}: a second name follows the @, such as adaxw@slow")
    name = base(name)
    if ":" not in name and name not in METHODS:
        raise LabError(
            f"unknown optimizer {name!r}; known are {', '.join(METHODS)}, or torch:AdamW, module:Class, "
            "file.py:Class"
        )
    if ":" in name:
        _class(name)
    return name


def _class(name: str) -> Any:
    place, _, attribute = name.rpartition(":")
    if place.endswith(".py"):
        cls = find(name)
    else:
        module = torch.optim if place == "torch" else import_module(place, "optimizer")
        if not hasattr(module, attribute):
            known = [
                k
                for k, v in vars(module).items()
                if inspect.isclass(v) and issubclass(v, torch.optim.Optimizer)
            ]
            raise unknown(f"optimizer in {place}", attribute, known or ["(none)"])
        cls = getattr(module, attribute)
    if not (inspect.isclass(cls) and issubclass(cls, torch.optim.Optimizer)):
        raise LabError(f"optimizer {name}: must be a subclass of torch.optim.Optimizer")
    return cls


def options(name: str, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The options a run of `name` is specified by: its documented defaults under what the user sets.

    >>> options("adaxw", {"weight_decay": 0.1})
    {'lr': 0.005, 'betas': [0.9, 0.0001], 'eps': 1e-12, 'weight_decay': 0.1}
    """
    check_name(name)
    kind = base(name)
    if kind in METHODS:
        defaults = {key: METHODS[kind].defaults[key] for key in RECORDED}
    else:
        parameters = inspect.signature(_class(kind)).parameters
        defaults = {
            key: parameters[key].default
            for key in RECORDED
            if key in parameters and parameters[key].default is not inspect.Parameter.empty
        }
    result = {**defaults, **(given or {})}
    if "lr" not in result:
        raise LabError(f"optimizer {name}: has no default lr; give one with --set {name}.lr=0.001")
    if isinstance(result["lr"], (bool, str)) or not result["lr"] > 0:
        raise LabError(f"optimizer {name}: lr={result['lr']!r}: must be > 0")
    result["lr"] = float(result["lr"])
    return {key: list(value) if isinstance(value, tuple) else value for key, value in result.items()}


def build(name: str, params: Iterable[Any], given: Mapping[str, Any]) -> torch.optim.Optimizer:
    """The optimizer over `params`; an option that it does not know or allow is an error of one line."""
    import adaxopt

    check_name(name)
    kind = base(name)
    chosen = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    try:
        if kind in METHODS:
            return adaxopt.create(kind, params, **chosen)
        return _class(kind)(params, **chosen)
    except (TypeError, ValueError) as error:
        raise LabError(f"optimizer {name}: {first_line(error)}") from error


def source_digest(name: str) -> str | None:
    """A digest of the file that holds a user's optimizer, so that an edited one is another run."""
    kind = base(name)
    known = kind in METHODS or kind.startswith(("torch", "adaxlab."))
    return None if known else file_digest(_class(kind))


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
