"""Errors for unknown argument names, with a suggestion."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
TORCHS = {
    **dict.fromkeys(("lr", "rate", "stepsize"), "did you mean 'learning_rate'?"),
    **dict.fromkeys(("wd", "l2"), "did you mean 'weight_decay'?"),
    **dict.fromkeys(
        ("foreach", "fused", "capturable", "differentiable", "maximize", "rounding", "project"),
        "an option of the PyTorch optimizers only; leave it out",
    ),
}
"""Advice for names of the PyTorch optimizers, in JAX and Keras. Keys are in lower case, without underscores."""


def refuse_unknown(
    name: str,
    given: Iterable[str],
    known: Iterable[str],
    others: Iterable[str] = (),
    *,
    advice: Mapping[str, str],
) -> None:
    """Raise TypeError for an unknown name. `others`, already removed from `given`, are also listed as allowed.

    >>> refuse_unknown("adaxw", ["lr"], ["learning_rate"], advice={"lr": "did you mean 'learning_rate'?"})
    Traceback (most recent call last):
    TypeError: adaxw: unknown argument 'lr': did you mean 'learning_rate'? Allowed are learning_rate
    """
    unknown = sorted(set(given) - set(known))
    if unknown:
        known = {*known, *others}
        do = suggestion(unknown[0], known, advice)
        end = " Allowed" if do.endswith("?") else "; allowed"
        raise TypeError(f"{name}: unknown argument {unknown[0]!r}{do}{end} are {', '.join(sorted(known))}")


def suggestion(name: str, known: Iterable[str], advice: Mapping[str, str]) -> str:
    """The advice for a name, unless it is a question about an unknown name; else the known name that is closest to it,
    if one is close enough. Keys of `advice` are in lower case, without underscores.

    >>> suggestion("weight_dcay", ["lr", "weight_decay"], {}), suggestion("seed", ["use_ema"], {})
    (": did you mean 'weight_decay'?", '')
    """
    spelled = {_bare(option): option for option in known}
    bare = _bare(name)
    do = advice.get(bare, "")
    asked = re.fullmatch(r"did you mean '(\w+)'\?", do)
    if do and bare not in spelled and (asked is None or asked[1] in spelled.values()):
        return f": {do}"
    alike = [option for option in spelled if option[:1] == bare[:1]]
    match = difflib.get_close_matches
    near = match(bare, spelled, 1, 0.65) or match(bare, alike, 1, 0.55)
    return f": did you mean {spelled[near[0]]!r}?" if near else ""


def suggests(advice: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: calls with an unknown argument name raise as `refuse_unknown` does."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        known = list(inspect.signature(function).parameters)

        @functools.wraps(function)
        def checked(*args: P.args, **given: P.kwargs) -> R:
            refuse_unknown(function.__name__, given, known, advice=advice)
            return function(*args, **given)

        return checked

    return decorate


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
