"""What is tuned, and over which range: `lr`, `weight_decay`, `b1`, `b2`, or any number that an optimizer takes.

    lr             a hundredth of the optimizer's own to a hundred times it
    weight_decay   the same around its own, at most 1; from 1e-6 to 0.1 where its own is 0
    b1, b2         1 - b1 from 0.01 to 0.5; 1 - b2 from 1e-4 to 0.2
                   for AdaX, whose b2 is a rate of growth, b2*T from 0.3 to 30
    name=low:high  the same range for every optimizer that has such an option

All but short ranges are logarithmic. An optimizer that lacks a setting spends its trials on the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from adaxlab import optimizers
from adaxlab.errors import LabError

BETAS = {"b1": 0, "b2": 1}
NAMED = ("lr", "weight_decay", *BETAS)
"""Settings that have a range of their own."""


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`; `below_one` draws 1 - x on a logarithmic scale, as suits a decay rate near 1."""

    low: float
    high: float
    log: bool = True
    below_one: bool = False

    def clip(self, x: float) -> float:
        """The number of the range that is nearest to x."""
        return min(max(x, self.low), self.high)

    def inner(self) -> tuple[float, float]:
        """The ends of what is drawn."""
        return (1 - self.high, 1 - self.low) if self.below_one else (self.low, self.high)

    def drawn(self, x: float) -> float:
        """The number that is drawn for the setting x."""
        return min(max(1 - x if self.below_one else x, self.inner()[0]), self.inner()[1])

    def outer(self, drawn: float) -> float:
        """The setting for a number that was drawn, to three digits.

        >>> Range(0.8, 0.9999, below_one=True).outer(0.0123456)
        0.9877
        """
        if self.below_one:
            return round(1 - float(f"{drawn:.3g}"), 8)
        return self.clip(float(f"{drawn:.3g}"))


@dataclass(frozen=True)
class Knob:
    """A setting to tune, by the name of the option, and its range where one was given."""

    name: str
    given: Range | None = None


def parse(words: Iterable[str]) -> tuple[Knob, ...]:
    """`lr`, `weight_decay`, `momentum=0.5:0.99`, each once.

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
                f"--tune-over {word}: has no range of its own (those are {', '.join(NAMED)}); give one: {word}=0.1:0.9"
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
    """The ranges of an optimizer whose own options are `own`; settings that it does not have are left out."""
    taken = optimizers.options(method, own)
    found = {}
    for knob in knobs:
        name = knob.name
        last = name.rpartition(".")[2]
        if name == "b2" and optimizers.grows(method, own):
            found[name] = knob.given if knob.given and not knob.given.below_one else Range(0.3, 30)
        elif last in BETAS:
            if _betas(method, taken, name) and (last == "b1" or optimizers.remembers(method, own)):
                found[name] = knob.given or Range(
                    *((0.5, 0.99) if last == "b1" else (0.8, 0.9999)), below_one=True
                )
        elif optimizers.accepts(method, name):
            found[name] = knob.given or _around(last, _own(taken, name))
    return found


def _own(options: Mapping[str, Any], name: str) -> Any:
    """An option's own value; of a split, the shared one or that of the first part that has one."""
    last = name.rpartition(".")[2]
    keys = (name, last, *(f"{side}.{last}" for side in optimizers.SIDES))
    return next((options[key] for key in keys if key in options), None)


def _around(name: str, own: Any) -> Range:
    if not own:
        return Range(1e-6, 0.1)
    return Range(own / 100, min(own * 100, 1.0) if name == "weight_decay" else own * 100)


def _betas(method: str, options: Mapping[str, Any], name: str) -> list[float] | None:
    """The betas that `b2` or `second.b2` is one of."""
    prefix = name.rpartition(".")[0]
    key = f"{prefix}.betas" if prefix else "betas"
    found = options.get(key)
    return list(found) if isinstance(found, list | tuple) and len(found) == len(BETAS) else None


def value(method: str, options: Mapping[str, Any], name: str) -> Any:
    """A setting in the options of a run.

    >>> value("adamw", {"lr": 0.1, "betas": [0.9, 0.99]}, "b2")
    0.99
    """
    last = name.rpartition(".")[2]
    if last not in BETAS:
        return _own(options, name)
    key = (
        optimizers.betas_of(method)
        if name == "b2" and optimizers.grows(method, options)
        else name.removesuffix(last) + "betas"
    )
    return options[key][BETAS[last]]


def point(method: str, own: Mapping[str, Any], space: Mapping[str, Range]) -> dict[str, float]:
    """The optimizer's own settings, where the range has them: the first trial of every optimizer."""
    taken = optimizers.options(method, own)
    found = {}
    for name, span in space.items():
        last = name.rpartition(".")[2]
        if last in BETAS:
            betas = _betas(method, taken, name)
            grows = optimizers.grows(method, own) and name == "b2"
            found[name] = span.clip(3.0 if grows or betas is None else betas[BETAS[last]])
        else:
            mine = _own(taken, name)
            mine = optimizers.default(method, name) if mine is None else mine
            found[name] = span.clip(float(mine) if isinstance(mine, int | float) else span.low)
    return found


def options(method: str, own: Mapping[str, Any], chosen: Mapping[str, float]) -> dict[str, Any]:
    """The options `own` with the settings that were chosen; AdaX's b2*T is left to the row, which knows T."""
    taken, result = optimizers.options(method, own), optimizers.settled(method, own)
    for name, value in chosen.items():
        last = name.rpartition(".")[2]
        if last not in BETAS:
            result[name] = value
            continue
        if optimizers.grows(method, own) and name == "b2":
            continue
        key = name.removesuffix(last) + "betas"
        betas = list(result.get(key, _betas(method, taken, name) or []))
        betas[BETAS[last]] = value
        result[key] = betas
    return result
