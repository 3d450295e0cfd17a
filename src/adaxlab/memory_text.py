"""Memories as words: `LogTime(8)`, `Fading(0.999).floor(0.001)`, as adaxopt.memories writes them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from adaxlab.errors import LabError
from adaxlab.failures import first_line
from adaxopt.memories import KINDS, Growing, Memory, Unnormalised, read

CLASSES = {kind.__name__: kind for kind in KINDS.values() if kind is not Unnormalised}
FORMS = ", ".join(f"{name}({kind.name})" for name, kind in CLASSES.items())
ALLOWED = f"must be one of {FORMS}, each also with .floor(gain) and .freeze(steps)"


def parse(text: str) -> Memory:
    """The memory that a text describes; ValueError if it describes none.

    >>> parse("LogTime(8)"), parse("Fading(0.999).floor(1e-3).freeze(500)")
    (LogTime(8), Fading(0.999).floor(0.001).freeze(500))
    """
    try:
        return _made(ast.parse(text, mode="eval").body)
    except (SyntaxError, TypeError):
        raise ValueError(ALLOWED) from None


def made(text: str, number: float) -> Memory:
    """The memory of a specification: its text, and its number.

    >>> made("fading floor 0.001", 0.99)
    Fading(0.99).floor(0.001)
    """
    family, least, last = read(text)
    return family(number, least, last)


def _made(node: ast.expr) -> Memory:
    match node:
        case ast.Call(func=ast.Name(id=name), args=numbers, keywords=[]) if name in CLASSES:
            return CLASSES[name](*map(_number, numbers))
        case ast.Call(
            func=ast.Attribute(value=inner, attr="floor" | "freeze" as how), args=[number], keywords=[]
        ):
            changed: Memory = getattr(_made(inner), how)(_number(number))
            return changed
    raise ValueError(ALLOWED)


def _number(node: ast.expr) -> float:
    try:
        found = ast.literal_eval(node)
    except ValueError:
        found = None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ValueError(ALLOWED)
    return found


def with_number(name: str, key: str, betas: str, b1: float, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a memory sets: its text, and its number in the betas. A growing memory may have no number: the
    row sets it from the length of the run."""
    memory, pair = given[key], given.get(betas, (b1, None))
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise LabError(f"optimizer {name}: {betas}={pair!r}: must be a pair (b1, b2)")
    b1, number = pair
    try:
        if isinstance(memory, str) and "(" not in memory:
            family = read(memory)[0]
            if number is not None or family is Growing:
                return {}
            if not family.name:
                return {betas: [b1, 0.0]}
            raise LabError(
                f"optimizer {name}: {key}={memory}: its number is missing; write "
                f"{name}.{key}={family.__name__}({family.name}) with a number for {family.name}"
            )
        found = parse(str(memory))
    except (TypeError, ValueError) as error:
        said = ALLOWED if str(error).startswith("memory=") else first_line(error)
        raise LabError(f"optimizer {name}: {key}={memory}: {said}") from error
    if number is not None:
        raise LabError(
            f"optimizer {name}: {key}={memory}, {betas}={tuple(pair)}: a memory has its own number; give one of the two"
        )
    return {key: found.text, betas: [b1, found.number]}
