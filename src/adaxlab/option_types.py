"""Check command-line values against the type annotations of a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from adaxlab.errors import LabError


def _whole(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)


def _number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


KINDS: dict[type, tuple[str, Callable[[object], bool]]] = {
    int: ("a whole number", _whole),
    float: ("a number", _number),
    bool: ("true or false", lambda given: isinstance(given, bool)),
    str: ("a text (of a folder called 2012: ./2012)", lambda given: isinstance(given, str)),
    type(None): ("none", lambda given: given is None),
}


def check(function: Callable[..., Any], options: Mapping[str, Any], flag: str) -> None:
    """Raise LabError for a value whose type is not that of its parameter; unsupported annotations allow any value.

    >>> def train(steps: int = 1, rate: float | None = None, sizes: tuple[int, ...] = ()): ...
    >>> check(train, {"steps": 3, "rate": None, "sizes": "1,2"}, "--set")
    >>> check(train, {"rate": "fast"}, "--set")
    Traceback (most recent call last):
    adaxlab.errors.LabError: --set rate=fast: must be a number or none
    """
    hints = get_type_hints(function)
    for key, given in options.items():
        hint = hints.get(key)
        allowed = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        if not all(kind in KINDS for kind in allowed):
            continue
        if not any(KINDS[kind][1](given) for kind in allowed):
            words = " or ".join(KINDS[kind][0] for kind in allowed)
            raise LabError(f"{flag} {key}={given}: must be {words}")
