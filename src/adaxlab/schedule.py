"""Learning-rate schedules: a factor that multiplies the lr of each parameter group.

A schedule is data in a run's specification, `{"name": "cosine", "warmup": 0.05}`; users write "cosine,warmup=0.05".
Values of `warmup` and `milestones` below 1 are fractions of the run; values from 1 on are numbers of steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from adaxlab.errors import LabError, check_known

Factor = Callable[[int], float]

_OPTIONS: dict[str, dict[str, Any]] = {
    "constant": {},
    "step": {"milestones": (0.5, 0.75), "gamma": 0.1},
    "cosine": {"final": 0.0},
    "poly": {"power": 0.9},
    "linear": {"final": 0.0},
}
NAMES = tuple(_OPTIONS)


def complete(schedule: Mapping[str, Any] | str) -> dict[str, Any]:
    """Return the schedule with all options, checked; in a text, milestones are separated by `/`.

    >>> complete("poly")
    {'name': 'poly', 'warmup': 0, 'power': 0.9}
    >>> complete("step,milestones=0.5/0.75,gamma=0.2")["milestones"]
    [0.5, 0.75]
    """
    if not isinstance(schedule, str | Mapping):
        raise LabError(
            f"schedule={schedule!r}: must be a name with its options, such as 'cosine,warmup=0.05'"
        )
    given = _parsed(schedule) if isinstance(schedule, str) else dict(schedule)
    name: Any = given.pop("name", None)
    check_known("schedule", NAMES, name)
    defaults = {"warmup": 0, **_OPTIONS[name]}
    check_known(f"option of schedule {name}", defaults, *given)
    result: dict[str, Any] = {"name": name, **defaults, **given}
    if "milestones" in result:
        result["milestones"] = list(result["milestones"])
        _check("milestones", result["milestones"], all(m >= 0 for m in result["milestones"]), "each >= 0")
    _check(
        "warmup", result["warmup"], result["warmup"] >= 0, ">= 0 (below 1: a fraction of the run; else steps)"
    )
    for key, allowed in {"gamma": ">= 0", "final": ">= 0", "power": "> 0"}.items():
        if key in result:
            _check(key, result[key], result[key] > 0 or (">=" in allowed and result[key] == 0), allowed)
    return result


def words(schedule: Mapping[str, Any] | str) -> str:
    """The schedule as users write it, without options that have their default.

    >>> words({"name": "step", "milestones": [0.3, 0.6], "warmup": 0, "gamma": 0.1})
    'step,milestones=0.3/0.6'
    """
    given = complete(schedule)
    name = given.pop("name")
    usual = complete(name)
    changed = [(key, value) for key, value in given.items() if value != usual[key]]
    texts = (f"{key}={'/'.join(map(str, v)) if isinstance(v, list) else v}" for key, v in changed)
    return ",".join([name, *texts])


def _parsed(text: str) -> dict[str, Any]:
    name, *rest = text.split(",")
    given: dict[str, Any] = {"name": name}
    for word in rest:
        key, sign, value = (part.strip() for part in word.partition("="))
        if not sign:
            raise LabError(f"schedule {text}: {word!r} must be option=value")
        try:
            numbers = [float(part) if set(part) & set(".eE") else int(part) for part in value.split("/")]
        except ValueError:
            raise LabError(f"schedule {text}: {key}={value} must be a number (several: 0.5/0.75)") from None
        given[key] = numbers if key == "milestones" else numbers[0]
    return given


def _check(key: str, value: object, good: bool, allowed: str) -> None:
    if not good:
        raise LabError(f"schedule {key}={value!r}: must be {allowed}")


def step_of(point: float, total: int) -> int:
    """Return the step of a point in time: a fraction of the run if below 1, else a number of steps."""
    return round(point * total) if point < 1 else round(point)


def factor(schedule: Mapping[str, Any] | str, total: int) -> Factor:
    """Return a function of the step 0, 1, ..., total - 1 that gives the factor on lr.

    With w warm-up steps the factor is (step+1)/w for step < w; then, with u = (step-w)/(total-w) from 0 to 1:

        constant  1                                    step    gamma^(number of milestones passed)
        cosine    final + (1-final)*(1+cos(pi*u))/2    linear  1 - (1-final)*u
        poly      (1-u)^power

    Milestones are counted from the start of the run, warm-up included.

    >>> f = factor({"name": "linear", "warmup": 2}, total=6)
    >>> [f(step) for step in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    full = complete(schedule)
    name = full["name"]
    warm = step_of(full["warmup"], total)
    rest = max(1, total - warm)
    shape: Factor
    if name == "constant":
        shape = _constant
    elif name == "step":
        gamma, points = full["gamma"], [step_of(m, total) for m in full["milestones"]]

        def shape(step: int) -> float:
            return float(gamma ** sum(step >= point for point in points))

    elif name == "cosine":
        final = full["final"]

        def shape(step: int) -> float:
            return float(final + (1 - final) * (1 + math.cos(math.pi * (step - warm) / rest)) / 2)

    elif name == "linear":
        final = full["final"]

        def shape(step: int) -> float:
            return float(1 - (1 - final) * (step - warm) / rest)

    else:
        power = full["power"]

        def shape(step: int) -> float:
            return float(max(0.0, 1 - (step - warm) / rest) ** power)

    if not warm:
        return shape
    return lambda step: (step + 1) / warm if step < warm else shape(step)


def _constant(step: int) -> float:
    return 1.0
