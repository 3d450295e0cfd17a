"""When a run reached a target. A run that did not is censored: it counts as later than all that did."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def reached(
    metrics: Iterable[Mapping[str, Any]], target: float, higher_is_better: bool = False, key: str = "step"
) -> float | None:
    """The step (or the `key`) at which the metric first is as good as `target`, by a line between two evaluations.

    >>> reached([{"step": 100, "metric": 3.0}, {"step": 200, "metric": 1.0}], 1.5)
    175.0
    """
    sign = 1 if higher_is_better else -1
    before: Mapping[str, Any] | None = None
    for line in metrics:
        if line.get("metric") is None or line.get(key) is None:
            continue
        if sign * line["metric"] >= sign * target:
            if before is None or before["metric"] == line["metric"]:
                return float(line[key])
            share = (before["metric"] - target) / (before["metric"] - line["metric"])
            return float(before[key] + share * (line[key] - before[key]))
        before = line
    return None


def median(times: Sequence[float | None]) -> float | None:
    """The median, with censored times later than all others; None if the median is censored.

    >>> median([3.0, None, 1.0]), median([3.0, None, None]), median([1.0, 2.0, 4.0, None])
    (3.0, None, 3.0)
    """
    ordered = sorted(math.inf if time is None else time for time in times)
    if not ordered:
        return None
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return None if math.isinf(middle) else middle
