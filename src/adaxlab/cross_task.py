"""A summary over several tasks: how much slower an optimizer is than the fastest one, and on how many tasks.

    profile     the share of tasks on which an optimizer reaches the target within tau times the time of the fastest one
                (Dolan and More 2002); a task whose target it does not reach counts against it at every tau
    geometric   the geometric mean of its time over the baseline's, on the tasks whose target all of them reached

Times are medians over seeds. Pure functions of results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from adaxlab.answer import Answer, answer
from adaxlab.reach import median
from adaxlab.summary import Comparison

FACTORS = (1.0, 1.1, 1.25, 1.5, 2.0, 4.0)
Times = Mapping[str, Mapping[str, float | None]]
"""Task -> optimizer -> time to the target; None where the median run did not reach it."""


def times(results: Sequence[Comparison], key: str = "seconds") -> dict[str, dict[str, float | None]]:
    """The median time to the target of every optimizer on every task, in `seconds` or `steps`."""
    return {
        result.study.task: {row.name: median(getattr(row, f"{key}_to")) for row in result.rows}
        for result in results
    }


def profile(found: Times, factors: Sequence[float] = FACTORS) -> dict[str, list[float]]:
    """For each optimizer, the share of tasks within each factor of the fastest.

    >>> profile({"a": {"x": 1.0, "y": 3.0}, "b": {"x": None, "y": 2.0}}, (1.0, 2.0, 4.0))
    {'x': [0.5, 0.5, 0.5], 'y': [0.5, 0.5, 1.0]}
    """
    names = list(dict.fromkeys(name for each in found.values() for name in each))
    shares: dict[str, list[float]] = {}
    for name in names:
        ratios = [_ratio(each, name) for each in found.values()]
        shares[name] = [sum(ratio <= factor for ratio in ratios) / len(ratios) for factor in factors]
    return shares


def _ratio(task: Mapping[str, float | None], name: str) -> float:
    """How many times as long as the fastest; infinite where the target was not reached."""
    mine, all_ = task.get(name), [time for time in task.values() if time is not None]
    if mine is None:
        return math.inf
    return mine / min(all_) if min(all_) > 0 else 1.0


def geometric(found: Times, baseline: str) -> tuple[dict[str, float], list[str]]:
    """Each optimizer's geometric mean of time over the baseline's, and the tasks that it is over.

    >>> geometric({"a": {"x": 1.0, "y": 4.0}, "b": {"x": 2.0, "y": 2.0}, "c": {"x": None, "y": 1.0}}, "x")
    ({'x': 1.0, 'y': 2.0}, ['a', 'b'])
    """
    whole = [
        task for task, each in found.items() if all(time is not None and time > 0 for time in each.values())
    ]
    names = list(dict.fromkeys(name for each in found.values() for name in each))
    if not whole:
        return {}, []
    logs = {
        name: [math.log((found[t][name] or 1) / (found[t][baseline] or 1)) for t in whole] for name in names
    }
    return {name: math.exp(math.fsum(each) / len(each)) for name, each in logs.items()}, whole


def tables(results: Sequence[Comparison]) -> list[Any]:
    """For the terminal: a line per task, then a line per optimizer."""
    from rich import box
    from rich.table import Table

    how: dict[str, Any] = {"box": box.SIMPLE_HEAD, "pad_edge": False, "collapse_padding": True}
    how |= {"title_justify": "left", "caption_justify": "left"}
    each = Table(title="All tasks", **how)
    for name in ("task", "use", "verdicts against the baseline"):
        each.add_column(name, overflow="fold")
    for result in results:
        found = answer(result)
        each.add_row(result.study.task, _use(result, found), _verdicts(result))
    seconds, baseline = times(results), results[0].study.baseline
    means, whole = geometric(seconds, baseline)
    steps, _ = geometric(times(results, "steps"), baseline)
    over = (
        f"over the {len(whole)} of {len(results)} tasks whose target every optimizer reached"
        if whole
        else "but on no task did every optimizer reach the target"
    )
    caption = (
        f"Within x: the share of the {len(results)} tasks whose target was reached in at most x times the seconds of "
        f"the fastest optimizer on that task; a target that was not reached counts as infinite time. Time: geometric "
        f"mean of seconds and of steps to the target, relative to {baseline}, {over}. Each task has its own verdicts."
    )
    both = Table(title="Time to target", caption=caption, **how)
    both.add_column("optimizer", style="bold", overflow="fold")
    for factor in FACTORS:
        both.add_column(f"within\n{factor:g}x", justify="right")
    both.add_column("time,\nseconds", justify="right")
    both.add_column("\nsteps", justify="right")
    for name, shares in profile(seconds).items():
        cells = [f"{round(share * len(results))}/{len(results)}" for share in shares]
        both.add_row(name, *cells, *(f"{m[name]:.2f}x" if name in m else "-" for m in (means, steps)))
    return [each, both]


def _use(result: Comparison, found: Answer) -> str:
    return f"{found.use} at lr {result.row(found.use).lr:.3g}" if found.use else "no clear answer"


def _verdicts(result: Comparison) -> str:
    """`better: adaxw; worse: sgdm; inconclusive: amsgradw`"""
    by_word: dict[str, list[str]] = {}
    for row in result.rows:
        if row.verdict:
            by_word.setdefault("failed" if row.error else row.verdict.word, []).append(row.name)
    return "; ".join(f"{word}: {', '.join(names)}" for word, names in by_word.items())
