"""The search space of tuning: `lr`, `weight_decay`, `b1`, `b2`, or any numerical option of an optimizer, with ranges.

    lr             from 1/100 to 100 times the optimizer's own value
    weight_decay   the same around the optimizer's own value, at most 1; from 1e-6 to 0.1 if that value is 0
    b1, b2         1 - b1 from 0.01 to 0.5; 1 - b2 from 1e-4 to 0.2
                   for AdaX, whose b2 is a rate of growth, b2*T from 0.3 to 30
    name=low:high  the same range for every optimizer that has such an option

All but short ranges are logarithmic. If an optimizer does not have a setting, its trials vary the other settings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from adaxlab import optimizer_options, optimizers
from adaxlab.errors import LabError
from adaxopt.zoo import METHODS

BETAS = {"b1": 0, "b2": 1}
NAMED = ("lr", "weight_decay", *BETAS)
"""Settings that have a default range."""


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`. With `below_one`, 1 - x is drawn on a logarithmic scale, for decay rates near 1."""

    low: float
    high: float
    log: bool = True
    below_one: bool = False

    def clip(self, x: float) -> float:
        """Clip x to the range."""
        return min(max(x, self.low), self.high)

    def at_end(self, x: float) -> bool:
        """Whether x is at an end of the range, or nearer to it than 2% of the width.

        >>> [Range(1e-4, 1e-2).at_end(x) for x in (1e-4, 1.05e-4, 1.2e-4, 9.9e-3, 1e-2)]
        [True, True, False, True, True]
        """
        low, high, here = *self.inner(), self.drawn(x)
        if self.log:
            low, high, here = math.log(low), math.log(high), math.log(here)
        return min(here - low, high - here) < 0.02 * (high - low)

    def inner(self) -> tuple[float, float]:
        """The bounds of the number that is drawn."""
        return (1 - self.high, 1 - self.low) if self.below_one else (self.low, self.high)

    def drawn(self, x: float) -> float:
        """The drawn number that corresponds to the setting x."""
        return min(max(1 - x if self.below_one else x, self.inner()[0]), self.inner()[1])

    def outer(self, drawn: float) -> float:
        """The setting that corresponds to a drawn number, rounded to three digits.

        >>> Range(0.8, 0.9999, below_one=True).outer(0.0123456)
        0.9877
        """
        if self.below_one:
            return round(1 - float(f"{drawn:.3g}"), 8)
        return self.clip(float(f"{drawn:.3g}"))


@dataclass(frozen=True)
class Knob:
    """A setting to tune: the name of the option, and its range if one was given."""

    name: str
    given: Range | None = None


def parse(words: Iterable[str]) -> tuple[Knob, ...]:
    """Parse words such as `lr` and `momentum=0.5:0.99`; each setting may be given once.

    >>> parse(["lr", "eps=1e-10:1e-6"])[1].given
    Range(low=1e-10, high=1e-06, log=True, below_one=False)
    """
    found: dict[str, Knob] = {}
    for word in words:
        name, sign, text = word.partition("=")
        last = name.rpartition(".")[2]
        if name in found:
            raise LabError(f"--tune-over {word}: {name} was given before; give it once")
        if not sign and last not in NAMED:
            raise LabError(
                f"--tune-over {word}: has no default range (only {', '.join(NAMED)} have); give one: {word}=0.1:0.9"
            )
        found[name] = Knob(name, _range(word, last, text) if sign else None)
    if not found:
        raise LabError("--tune-over: names no setting; give lr, weight_decay, b1, b2 or option=low:high")
    return tuple(found.values())


def _range(word: str, name: str, text: str) -> Range:
    try:
        low, high = (float(part) for part in text.split(":"))
    except ValueError:
        raise LabError(f"--tune-over {word}: must be {name}=low:high, such as {name}=0.001:0.1") from None
    if not (low < high < float("inf")):
        raise LabError(f"--tune-over {word}: low must be less than high, and both numbers")
    if name in BETAS and high < 1:
        return Range(low, high, below_one=True)
    if name == "lr" and not low > 0:
        raise LabError(f"--tune-over {word}: lr must be > 0")
    return Range(low, high, log=low > 0 and high >= 10 * low)


def of(method: str, own: Mapping[str, Any], knobs: Iterable[Knob]) -> dict[str, Range]:
    """The ranges for an optimizer with options `own`; settings that the optimizer does not have are omitted."""
    taken = optimizer_options.complete(method, own)
    found = {}
    for knob in knobs:
        name = knob.name
        last = name.rpartition(".")[2]
        if name == "b2" and optimizer_options.grows(method, own):
            found[name] = knob.given if knob.given and not knob.given.below_one else Range(0.3, 30)
        elif last in BETAS:
            if _betas(taken, name) and (last == "b1" or optimizer_options.remembers(method, own)):
                found[name] = knob.given or Range(
                    *((0.5, 0.99) if last == "b1" else (0.8, 0.9999)), below_one=True
                )
        elif optimizer_options.accepts(method, name) or _beta(method, name) is not None:
            found[name] = knob.given or _around(last, _own(taken, name))
    return found


def _beta(method: str, name: str) -> int | None:
    """The place in the betas of a setting under the method's own name for it, such as SGDM's momentum."""
    known = METHODS.get(optimizers.base(method))
    return known.names.get(name) if known else None


def _own(options: Mapping[str, Any], name: str) -> Any:
    """The value of an option; for a split, the shared value or that of the first part that has the option."""
    last = name.rpartition(".")[2]
    keys = (name, last, *(f"{side}.{last}" for side in optimizers.SIDES))
    return next((options[key] for key in keys if key in options), None)


def _around(name: str, own: Any) -> Range:
    if not own:
        return Range(1e-6, 0.1)
    return Range(own / 100, min(own * 100, max(own, 1.0)) if name == "weight_decay" else own * 100)


def _betas(options: Mapping[str, Any], name: str) -> list[float] | None:
    """The betas to which `b2` or `second.b2` belongs."""
    prefix = name.rpartition(".")[0]
    key = f"{prefix}.betas" if prefix else "betas"
    found = options.get(key)
    return list(found) if isinstance(found, list | tuple) and len(found) == len(BETAS) else None


def value(method: str, options: Mapping[str, Any], name: str) -> Any:
    """The value of a setting in the options of a run.

    >>> value("adamw", {"lr": 0.1, "betas": [0.9, 0.99]}, "b2")
    0.99
    """
    last = name.rpartition(".")[2]
    if (place := _beta(method, name)) is not None:
        return options["betas"][place]
    if last not in BETAS:
        return _own(options, name)
    key = (
        optimizer_options.betas_of(method)
        if name == "b2" and optimizer_options.grows(method, options)
        else name.removesuffix(last) + "betas"
    )
    return options[key][BETAS[last]]


def point(method: str, own: Mapping[str, Any], space: Mapping[str, Range]) -> dict[str, float]:
    """The optimizer's own settings, clipped to their ranges: the first trial of every optimizer."""
    taken = optimizer_options.complete(method, own)
    found = {}
    for name, span in space.items():
        last = name.rpartition(".")[2]
        if (place := _beta(method, name)) is not None:
            found[name] = span.clip(taken["betas"][place])
        elif last in BETAS:
            betas = _betas(taken, name)
            grows = optimizer_options.grows(method, own) and name == "b2"
            found[name] = span.clip(3.0 if grows or betas is None else betas[BETAS[last]])
        else:
            mine = _own(taken, name)
            mine = optimizer_options.default(method, name) if mine is None else mine
            found[name] = span.clip(float(mine) if isinstance(mine, int | float) else span.low)
    return found


def options(method: str, own: Mapping[str, Any], chosen: Mapping[str, float]) -> dict[str, Any]:
    """The options `own` with the chosen settings. AdaX's b2*T is set by the row, which has the number of steps T."""
    taken, result = optimizer_options.complete(method, own), optimizer_options.settled(method, own)
    for name, value in chosen.items():
        last = name.rpartition(".")[2]
        if (place := _beta(method, name)) is not None:
            result["betas"] = list(result.get("betas", taken["betas"]))
            result["betas"][place] = value
            continue
        if last not in BETAS:
            result[name] = value
            continue
        if optimizer_options.grows(method, own) and name == "b2":
            continue
        key = name.removesuffix(last) + "betas"
        betas = list(result.get(key, _betas(taken, name) or []))
        betas[BETAS[last]] = value
        result[key] = betas
    return result
