"""The rule of the memory study as functions of its screens: ranges, the memories of the final runs, their settings.

A screen is a mapping from each memory to its trials, and trials are a mapping from each learning rate to its result
(None: it diverged).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from adaxlab.summary import best_rate

Trials = Mapping[float, float | None]
Screen = Mapping[str, Trials]

KEPT = ("fading 0.95", "fading 0.999", "growing b2T=3")
"""Memories of the final runs whatever the screen says; the first is what the others are measured by."""
CHOSEN = 3
"""Number of other memories that the screen of the transformer chooses."""


class Final(NamedTuple):
    """The settings of the final runs on one task."""

    rates: Mapping[str, float]
    """The best lr of each memory."""
    above: float
    """The smallest lr above the range of Fading .95."""
    covers: tuple[str, ...]
    """The other memories whose range in the screen contains every rate of Fading .95's."""


def label(memory: str) -> str:
    """
    >>> label("growing b2T=3, floor 10/T")
    'growing, b2·T = 3, floor 10/T'
    """
    return memory.replace(" b2T=", ", b2·T = ")


def in_range(trials: Trials, level: float, tolerance: float, higher: bool) -> list[float]:
    """The rates whose result is no worse than `level` by more than the tolerance.

    >>> in_range({1e-3: 1.31, 2e-3: 1.29, 4e-3: 1.32, 8e-3: None}, 1.29, 0.02, higher=False)
    [0.001, 0.002]
    """
    sign = 1 if higher else -1
    limit = -tolerance - 1e-9  # a difference of exactly the tolerance is in the range
    return [lr for lr, x in trials.items() if x is not None and sign * (x - level) >= limit]


def shown(rates: list[float], grid: list[float]) -> str:
    """How many rates of the grid these are, and which.

    >>> shown([1e-3, 2e-3], [1e-3, 2e-3, 4e-3]), shown([1e-3, 4e-3], [1e-3, 2e-3, 4e-3]), shown([], [1e-3])
    ('2: 0.001 to 0.002', '2: 0.001, 0.004', '0')
    """
    if not rates:
        return "0"
    places = [grid.index(lr) for lr in rates]
    adjacent = len(rates) > 1 and places == list(range(places[0], places[-1] + 1))
    which = f"{rates[0]:g} to {rates[-1]:g}" if adjacent else ", ".join(f"{lr:g}" for lr in rates)
    return f"{len(rates)}: {which}"


def level(screen: Screen, higher: bool) -> float | None:
    """The best result of the memory that all are measured by."""
    trials = screen[KEPT[0]]
    lr = best_rate(trials, higher)
    return None if lr is None else trials[lr]


def chosen(screen: Screen, tolerance: float, higher: bool) -> list[str]:
    """The memories that the screen of the transformer adds to those that are kept: most rates in the range first; of
    equal ones, the better result first. None as long as the screen decides nothing."""
    reached = level(screen, higher)
    if reached is None or unfinished(screen, tolerance, higher):
        return []

    def order(name: str) -> tuple[int, float]:
        trials = screen[name]
        lr = best_rate(trials, higher)
        value = trials[lr] if lr is not None else None
        result = float("-inf") if value is None else value if higher else -value
        return len(in_range(trials, reached, tolerance, higher)), result

    return sorted((name for name in screen if name not in KEPT), key=order, reverse=True)[:CHOSEN]


def unfinished(screen: Screen, tolerance: float, higher: bool) -> str:
    """Why the screen decides nothing yet; empty if it does.

    >>> unfinished({KEPT[0]: {1e-3: 1.30, 2e-3: 1.29, 4e-3: 1.30}}, 0.02, higher=False)
    'the range of fading 0.95 reaches the largest lr, 0.004: screen larger ones'
    """
    reached, trials = level(screen, higher), screen[KEPT[0]]
    if reached is None:
        return f"{KEPT[0]} diverged at every lr: there is nothing to compare with"
    if best_rate(trials, higher) == min(trials):
        return f"{KEPT[0]} is best at the smallest lr, {min(trials):g}: screen smaller ones"
    if max(in_range(trials, reached, tolerance, higher)) == max(trials):
        return f"the range of {KEPT[0]} reaches the largest lr, {max(trials):g}: screen larger ones"
    return ""


def final(screen: Screen, memories: tuple[str, ...], tolerance: float, higher: bool) -> Final:
    """The settings of the final runs of these memories and of those that are kept.

    >>> screen = dict.fromkeys(KEPT, {1e-3: 1.30, 2e-3: 1.29, 4e-3: 1.40})
    >>> screen["equal"] = {1e-3: 1.28, 2e-3: 1.35, 4e-3: None}
    >>> final(screen, ("equal",), 0.02, higher=False).rates["equal"], final(screen, (), 0.02, higher=False).above
    (0.001, 0.004)
    """
    if reason := unfinished(screen, tolerance, higher):
        raise ValueError(reason)
    reached, trials = level(screen, higher), screen[KEPT[0]]
    assert reached is not None
    within = set(in_range(trials, reached, tolerance, higher))
    names = (*KEPT, *memories)
    rates = {name: lr for name in names if (lr := best_rate(screen[name], higher)) is not None}
    covers = (n for n in names[1:] if within <= set(in_range(screen[n], reached, tolerance, higher)))
    return Final(rates, min(lr for lr in trials if lr > max(within)), tuple(covers))
