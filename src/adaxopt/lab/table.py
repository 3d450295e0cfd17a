"""Tables for the terminal: a comparison, a list of runs, one run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from adaxopt.lab.compare import Comparison
from adaxopt.lab.stats import Estimate
from adaxopt.lab.store import RunRecord


def number(value: float | None, digits: int = 4) -> str:
    """Four significant digits, or a dash."""
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}g}"


def spread(estimate: Estimate | None, sign: str = "-") -> str:
    """`0.9533 ± 0.0041`, or the mean alone when one run gives no interval; `sign="+"` shows a plus as well.

    >>> spread(Estimate(3, 0.5, 0.1, 0.25, 0.75), "+")
    '+0.5000 ± 0.2500'
    """
    if estimate is None:
        return "-"
    middle = f"{round(estimate.mean, 4) + 0.0:{sign}.4f}"  # + 0.0 turns -0 into 0
    if math.isnan(estimate.low):
        return middle
    return f"{middle} ± {(estimate.high - estimate.low) / 2:.4f}"


def comparison(result: Comparison) -> Any:
    """The table of a study, with n, intervals, the verdict on each claim and how it was come by."""
    from rich import box
    from rich.table import Table

    study, rule = result.study, result.study.rule
    better = "higher" if result.higher_is_better else "lower"
    percent = f"{100 * rule.confidence:g}%"
    table = Table(
        title=f"{study.task}: test {result.metric_name} after {study.epochs} epochs ({better} is better)",
        caption=_caption(result, percent),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("optimizer", style="bold", no_wrap=True)
    table.add_column("lr", justify="right", no_wrap=True)
    table.add_column(f"{result.metric_name}, {percent}", justify="right", no_wrap=True)
    table.add_column("n", justify="right")
    table.add_column(f"better than {study.baseline}?", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("ms/step", justify="right", no_wrap=True)
    sign = 1 if result.higher_is_better else -1
    means = [sign * row.estimate.mean for row in result.rows if row.estimate]
    for row in result.rows:
        leads = row.estimate is not None and sign * row.estimate.mean == max(means)
        table.add_row(
            row.optimizer,
            f"{row.lr:.3g}" + ("*" if row.edge else ""),
            spread(row.estimate),
            str(row.n) + (f" ({row.diverged} diverged)" if row.diverged else ""),
            spread(row.verdict.difference, "+") if row.verdict else "baseline",
            row.verdict.outcome if row.verdict else "",
            number(row.step_ms, 3),
            style="green" if leads else None,
        )
    return table


def _caption(result: Comparison, percent: str) -> str:
    study = result.study
    if study.tune:
        how = (
            f"lr: the best of {study.tune} per optimizer on a held-out fifth (or 'valid') of the training data, "
            f"seed {10_000}; final runs on fresh seeds 0 to {study.seeds - 1}."
        )
    else:
        how = "lr: each method's documented default, not tuned; --tune N gives every method the same budget."
    edge = " * the best lr lies at the edge of those tried: a larger --tune may find a better one." * any(
        row.edge for row in result.rows
    )
    for row in result.rows:
        if row.verdict and (row.verdict.outcome == "undecided" or row.verdict.note):
            edge += f" {row.optimizer}: {row.verdict.sentence()}."
    return (
        f"{how}{edge} Verdict on 'better than {study.baseline}': held when the whole {percent} "
        f"{study.rule.interval} interval of the paired difference (n >= {study.rule.least}) lies above "
        f"{study.rule.margin:g}, fixed before the runs (study.json). ms/step: inside optimizer.step()."
    )


def runs(records: Iterable[RunRecord]) -> Any:
    """One line per run."""
    from rich.table import Table

    table = Table()
    for name in (
        "run",
        "study",
        "task",
        "optimizer",
        "lr",
        "seed",
        "purpose",
        "status",
        "metric",
        "epochs",
        "s",
    ):
        table.add_column(name, justify="right" if name in ("lr", "seed", "metric", "epochs", "s") else "left")
    for r in records:
        done = r.done or {}
        last = r.metrics[-1] if r.metrics else {}
        table.add_row(
            r.name,
            r.spec["study"],
            r.spec["task"],
            r.spec["optimizer"],
            f"{r.spec['options']['lr']:.3g}",
            str(r.spec["seed"]),
            r.spec["purpose"],
            r.status,
            number(done.get("metric", last.get("metric"))),
            f"{last.get('epoch', 0)}/{r.spec['epochs']}",
            number(done.get("seconds", last.get("seconds")), 3),
        )
    return table
