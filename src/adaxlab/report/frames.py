"""The y range (frame) of a line chart, and the caption's text about values outside it.

The frame is the range of the means, widened to contain the lines of single seeds (or the bands, if there are many
seeds). The caption names what is outside the frame.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adaxlab.report.numbers import listed

Rows = Sequence[dict[str, Any]]
FAR = 0.5
"""A band that extends beyond the means by more than this fraction of their spread is cut."""
FAR_LINE = 1.0
"""The same for the line of a single seed."""
BEGINNING = 0.15
"""The fraction of a run, from its start, that may be outside the frame."""


@dataclass(frozen=True)
class Frame:
    """The y scale of a chart, whether the beginning of the curves is outside, and the series that are cut."""

    scale: dict[str, Any]
    beginning: bool = False
    cut: tuple[str, ...] = ()
    lines: bool = False

    @property
    def log(self) -> bool:
        return self.scale.get("type") == "log"

    @property
    def domain(self) -> tuple[float, float]:
        low, high = self.scale["domain"]
        return low, high

    def words(self, titles: Mapping[str, str]) -> str:
        """The caption's text about what is not shown.

        >>> Frame({}, True, ("adax",)).words({"adax": "AdaX"})
        ' The beginning lies outside the frame. The band of AdaX is cut at its edge.'
        """
        said = " The beginning lies outside the frame." if self.beginning else ""
        names = [titles.get(label, label) for label in self.cut]
        edge = "its edge" if said else "the edge of the frame"
        if not names:
            return said
        if self.lines:
            whose = listed(names) if len(names) <= 3 else f"{len(names)} methods"
            return f"{said} Lines of single seeds of {whose} extend beyond {'it' if said else 'the frame'}."
        if len(names) > 3:
            return f"{said} {len(names)} wide bands are cut at {edge}."
        many = len(names) > 1
        return f"{said} The band{'s' * many} of {listed(names)} {'are' if many else 'is'} cut at {edge}."


def frame(sound: Rows, lost: Rows, quantity: str, higher: bool, lines: bool = False) -> Frame:
    """The frame of a learning curve, from rows `mean`, `low`, `high` of the means and rows `mean` of diverged runs.

    `low` and `high` are the ends of a band or, with `lines`, the lowest and the highest seed.

    The scale of a positive loss is logarithmic if its range exceeds a factor of 30. If the beginning of the runs would
    take more than half of a metric's frame, it is left out, so that the ends can be distinguished. The intervals of
    shown values are inside the frame, except for series whose intervals would flatten the lines (`FAR`).
    """
    rows = [*sound, *lost]
    low, high = min(r["mean"] for r in rows), max(r["mean"] for r in rows)
    log = quantity != "metric" and low > 0 and high / low > 30
    shown, beginning = sound, False
    if quantity == "metric":
        late = _late(sound or rows)
        if len({r["x"] for r in late}) > 2:
            bottom, top = min(r["mean"] for r in late), max(r["mean"] for r in late)
            reach = top - low if higher else high - bottom
            if top - bottom < 0.5 * reach:
                low, high, shown, beginning = bottom, top, late, True
    at = math.log10 if log else float
    spread = at(high) - at(low)
    pad = 0.08 * spread or 0.05 * abs(high) or 1.0
    far = FAR_LINE if lines else FAR
    ends, cut = _widen([r for r in shown if "low" in r], at(low), at(high), spread, log, far)
    ends = min(at(low) - pad, ends[0]), max(at(high) + pad, ends[1])
    domain = [float(f"{10**end if log else end:.6g}") for end in ends]
    kind = {"type": "log"} if log else {"zero": False}
    beginning = beginning and any(not domain[0] <= r["mean"] <= domain[1] for r in sound)
    return Frame({**kind, "nice": False, "domain": domain}, beginning, cut, lines)


def _late(rows: Rows) -> list[dict[str, Any]]:
    """The rows after the beginning, which always includes the first evaluation."""
    first, last = min(r["x"] for r in rows), max(r["x"] for r in rows)
    return [r for r in rows if r["x"] > first + BEGINNING * (last - first)]


def _widen(
    rows: Rows, low: float, high: float, spread: float, log: bool, far: float
) -> tuple[tuple[float, float], tuple[str, ...]]:
    """The bounds that contain the bands, with a small margin, and the series whose bands are cut."""

    def place(value: float) -> float:
        if not log:
            return value
        return math.log10(value) if value > 0 else -math.inf

    ends, cut, air = [low, high], [], 0.02 * spread
    for label in dict.fromkeys(r["optimizer"] for r in rows):
        mine = [r for r in rows if r["optimizer"] == label and r["high"] > r["low"]]
        if not mine:
            continue
        down, up = min(place(r["low"]) for r in mine), max(place(r["high"]) for r in mine)
        below = spread == 0 or low - down <= far * spread
        above = spread == 0 or up - high <= far * spread
        ends = [min(ends[0], down - air) if below else ends[0], max(ends[1], up + air) if above else ends[1]]
        if not (below and above):
            cut.append(label)
    return (ends[0], ends[1]), tuple(cut)
