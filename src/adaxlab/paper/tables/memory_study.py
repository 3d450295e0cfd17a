"""The page of the memory study: what each memory reached over the learning rates, by the rule of `memory.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from adaxlab import markdown, records
from adaxlab.paper import drawn, memory
from adaxlab.study import Study
from adaxlab.summary import Comparison, summarise

Trials = Mapping[float, float | None]


class Screen(NamedTuple):
    """One task of the study, in the unit of its table."""

    task: str
    study: Study
    unit: str
    scale: float
    digits: int


SCREENS = (
    Screen("Transformer, bytes of enwik8", memory.GPT_SCREEN, "nats per byte", 1, 4),
    Screen("CIFAR-10, ResNet-20", memory.CIFAR_SCREEN, "points", 100, 2),
)


def best(trials: Trials, higher: bool) -> float | None:
    """The lr with the best result; None where every run diverged."""
    ended = {lr: value for lr, value in trials.items() if value is not None}
    if not ended:
        return None
    return (max if higher else min)(ended, key=lambda lr: ended[lr])


def in_range(trials: Trials, level: float, tolerance: float, higher: bool) -> list[float]:
    """The rates whose result is no worse than `level` by more than the tolerance.

    >>> in_range({1e-3: 1.30, 2e-3: 1.29, 4e-3: 1.32, 8e-3: None}, 1.29, 0.02, higher=False)
    [0.001, 0.002]
    """
    sign = 1 if higher else -1
    return [lr for lr, x in trials.items() if x is not None and sign * (x - level) >= -tolerance]


def chosen(found: Comparison, tolerance: float) -> list[str]:
    """The three memories that the rule takes to the final runs, beside those that are kept anyway."""
    higher = found.higher_is_better
    level = _level(found)
    if level is None:
        return []

    def order(row: tuple[str, Trials]) -> tuple[int, float]:
        lr = best(row[1], higher)
        value = row[1][lr] if lr is not None else None
        result = float("-inf") if value is None else value if higher else -value
        return len(in_range(row[1], level, tolerance, higher)), result

    others = [(row.name, row.trials) for row in found.rows if row.name not in memory.KEPT]
    return [name for name, _ in sorted(others, key=order, reverse=True)[: memory.CHOSEN]]


def _level(found: Comparison) -> float | None:
    """The best result of the memory that all are measured by."""
    trials = found.row(memory.KEPT[0]).trials
    lr = best(trials, found.higher_is_better)
    return None if lr is None else trials[lr]


def section(root: Path) -> str:
    return "\n\n".join(f"### {screen.task}\n{_part(screen, root)}" for screen in SCREENS)


def _part(screen: Screen, root: Path) -> str:
    runs = records.load(root / "records", screen.study.name)
    if not runs:
        return f"*Not run yet (`adax reproduce {screen.study.name}`).*"
    found = summarise(screen.study, runs)
    tolerance = memory.TOLERANCE[screen.study.name]
    level, higher = _level(found), found.higher_is_better
    if level is None:
        return f"*{memory.KEPT[0]} diverged at every learning rate.*"
    taken = chosen(found, tolerance)
    rows = []
    for row in found.rows:
        lr = best(row.trials, higher)
        value = row.trials[lr] if lr is not None else None
        rows.append(
            (
                row.name,
                "" if lr is None else f"{lr:g}",
                "diverged" if value is None else f"{screen.scale * value:.{screen.digits}f}",
                len(in_range(row.trials, level, tolerance, higher)),
                "kept" if row.name in memory.KEPT else "chosen" if row.name in taken else "",
            )
        )
    head = (
        "memory",
        "best lr",
        f"result, {screen.unit}",
        f"rates in the range, of {len(found.rows[0].trials)}",
        "final runs",
    )
    stem = screen.study.name.replace("/", "-")
    return (
        drawn.image(
            f"{stem}-lr", f"{screen.task}: result against learning rate, one line per memory", "images"
        )
        + "\n\n"
        + markdown.table(head, rows)
        + f"\n\nOne seed on held-out data. A rate is in the range if its result is within {screen.scale * tolerance:g} "
        f"{screen.unit} of the best result of {memory.KEPT[0]}."
    )
