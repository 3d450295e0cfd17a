"""The common format of the theory's records: schema, versions, rounding."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import adaxopt
from adaxlab.claim import OURS, row
from adaxlab.paper.theory.problems import Array

SCHEMA = 1
NOT_THERE = {"paper": "not in the paper", "by": OURS}
Tick = Callable[[str], None]
"""A progress callback, called with a short description before each part of a study."""


def no_progress(what: str) -> None:
    """A progress callback that does nothing."""


def record(
    name: str, what: str, body: dict[str, Any], claims: list[dict[str, Any]], **more: Any
) -> dict[str, Any]:
    """Return a record with numbers rounded to ten digits and without a description of the machine."""
    versions = {"adaxopt": adaxopt.__version__, "numpy": np.__version__, "python": platform.python_version()}
    head = {"schema": SCHEMA, "name": name, "what": what, "versions": versions}
    return {**head, **_rounded({**body, **more, "claims": sorted(claims, key=order)})}


def section(name: str) -> Callable[..., dict[str, Any]]:
    """A maker of the claims of one section; one without `paper` is ours."""

    def claim(id: str, text: str, **judged: Any) -> dict[str, Any]:
        return row(id, name, text, **{**({} if "paper" in judged else NOT_THERE), **judged})

    return claim


section_2 = section("Section 2: background")
section_3 = section("Section 3: Adam's problem")
section_4 = section("Section 4: AdaX")
section_5 = section("Section 5.2: the synthesized example, Figure 3(a)")
fact = section("Facts that the library rests on")
number = section("Numbers behind the errata")


def order(row: Mapping[str, Any]) -> tuple[float, str, list[int], str]:
    """Return the sort key of a claim: section, kind, numbers, and the letter of a variant."""
    section = re.search(r"Section (\d+)", row["section"])
    letters, numbers, variant = re.fullmatch(r"([A-Z]+)([\d.]*)([a-z]*)", row["id"]).groups()  # type: ignore[union-attr]
    kind = {"S": "0", "P": "1", "L": "2", "T": "3", "C": "4", "F": "5"}.get(letters, letters)
    return float(section[1]) if section else 90.0, kind, [int(n) for n in numbers.split(".") if n], variant


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(f"{float(value):.10g}")
    raise TypeError(f"{type(value).__name__} in a record: must be a plain number, text, list or dict")


def places(steps: int, count: int = 120) -> Array:
    """Return about `count` steps from 1 to `steps`, evenly spaced on a log scale."""
    return np.unique(np.geomspace(1, steps, count).round()).astype(int)


def g(x: float, digits: int = 3) -> str:
    """Format a number for a sentence: 0.000058 as 5.8e-05, 1063.0 as 1063.

    >>> g(5.8198e-05, 2), g(0.98765), g(12345.6, 3)
    ('5.8e-05', '0.988', '1.23e+04')
    """
    return f"{x:.{digits}g}"
