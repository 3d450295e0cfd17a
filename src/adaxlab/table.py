"""Tables for the terminal: a comparison, a list of runs, one run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

from adaxlab import markdown
from adaxlab.stats import Estimate
from adaxlab.store import RunRecord
from adaxlab.summary import Comparison, RowResult
from adaxopt.zoo import METHODS

SHORT = 8
"""Digits of a run's name in the list; `adax runs show` accepts any unique prefix."""


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
    """The table of a study, with n, intervals, the verdict on each claim and its rule."""
    from rich import box
    from rich.table import Table

    if not result.study.seeds:
        return plain(result)
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
    table.add_column("optimizer", style="bold", overflow="fold")  # the one that gives way: no digit is lost
    table.add_column("lr", justify="right", no_wrap=True)
    table.add_column(f"{result.metric_name},\n{percent}", justify="right", no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    table.add_column(_header(study.baseline), justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("ms/step", justify="right", no_wrap=True)
    sign = 1 if result.higher_is_better else -1
    means = [sign * row.estimate.mean for row in result.rows if row.estimate]
    for row in result.rows:
        leads = row.estimate is not None and sign * row.estimate.mean == max(means)
        table.add_row(
            row.name,
            f"{row.lr:.3g}" + ("*" if row.edge else ""),
            spread(row.estimate),
            str(row.n) + (f" ({row.diverged} diverged)" if row.diverged else ""),
            *_verdict(result, row),
            number(row.step_ms, 3),
            style="green" if leads else None,
        )
    return table


def plain(result: Comparison) -> str:
    """The study as plain text, without further packages: final runs, or the learning rates where it only tunes."""
    name = f"{result.study.name}: {result.metric_name} after {result.study.epochs} epochs"
    if not result.study.seeds:
        rows = [
            (row.name, *(f"{lr:g}: {number(score)}" for lr, score in row.trials.items()))
            for row in result.rows
        ]
        most = max(len(row) for row in rows)
        head = ("row", *("lr: score" for _ in range(most - 1)))
        return f"{name}\n\n{markdown.table(head, rows)}"
    rows = [
        (
            row.name,
            f"{row.lr:g}",
            spread(row.estimate),
            f"{row.n}" + (f" ({row.diverged} diverged)" if row.diverged else ""),
            *_verdict(result, row),
        )
        for row in result.rows
    ]
    percent = f"{100 * result.study.rule.confidence:g}%"
    head = ("row", "lr", f"{result.metric_name}, {percent}", "n", f"better than {result.study.baseline}?", "")
    return f"{name}\n\n{markdown.table(head, rows)}"


def _verdict(result: Comparison, row: RowResult) -> tuple[str, str]:
    """The difference from the baseline, and what it says; a row that failed has neither."""
    if row.verdict:
        return spread(row.verdict.difference, "+"), row.verdict.outcome
    return "baseline" if row.name == result.study.baseline else "-", "failed" if row.error else ""


def _header(baseline: str, width: int = 16) -> str:
    """The baseline's name in lines no wider than the numbers below it."""
    words = [baseline[i : i + width] for i in range(0, len(baseline), width)]
    if len(words[-1]) == width:
        words.append("")
    return "\n".join(["better than", *words]) + "?"


def _equal(difference: Estimate) -> bool:
    """No spread but that of rounding."""
    return difference.n > 1 and difference.sd <= 1e-9 * abs(difference.mean)


def _caption(result: Comparison, percent: str) -> str:
    study = result.study
    given = [row.name for row in study.rows if "lr" in row.options]
    if study.tuning:
        how = (
            f"lr: the best of {study.tuning.trials} per optimizer on a held-out fifth (or 'valid') of the training "
            "data, "
            f"seed {study.tuning.first_seed}; final runs on fresh seeds {study.first_seed} to "
            f"{study.first_seed + study.seeds - 1}."
        )
    elif study.follows:
        how = f"lr: each row's best in {study.follows}; seeds {study.first_seed} to "
        how += f"{study.first_seed + study.seeds - 1}."
    else:
        how = "lr: each method's documented default, not tuned; --tune N gives every method the same budget."
        if given:
            rest = "" if len(given) == len(study.rows) else ", the documented default for the others"
            how = f"lr: as given for {', '.join(given)}{rest}; not tuned here."
    edge = " * the best lr is at the edge of the tried range: a larger --tune may find a better one." * any(
        row.edge for row in result.rows
    )
    for row in result.rows:
        if row.error:
            edge += f" {row.name} failed: {row.error}; the traceback is in {row.error_file}."
        if row.verdict and (row.verdict.outcome == "undecided" or row.verdict.note):
            edge += f" {row.name}: {row.verdict.sentence()}."
        elif row.verdict and row.verdict.difference and _equal(row.verdict.difference):
            edge += (
                f" {row.name}: all {row.verdict.n} differences are equal, so their interval has no width; if "
                f"{result.metric_name} takes few values, use more seeds."
            )
    return (
        f"{how}{_memory(result)}{edge} Verdict on 'better than {study.baseline}': held when the whole {percent} "
        f"{study.rule.interval} interval of the paired difference (n >= {study.rule.least}) lies above "
        f"{study.rule.margin:g}, fixed before the runs (study.json). ms/step: inside optimizer.step()."
    )


def _memory(result: Comparison) -> str:
    """b2*T where b2 is a growth rate: at the default b2, the memory depends on the length of the run."""
    found: dict[str, tuple[float, int]] = {}
    for r in (r for r in result.records if r.spec["purpose"] == "final" and r.done and r.done["steps"]):
        assert r.done is not None
        name = r.spec["optimizer"]
        known = METHODS.get(name.split("@")[0])
        if known and known.rule.memory and known.rule.memory.kind == "growing":
            betas = r.spec["options"].get("betas", known.defaults["betas"])
            found[name] = (float(betas[1]) * r.done["steps"], r.done["steps"])
    if not found:
        return ""
    text = f" b2*T: {', '.join(f'{name} {x:.2g}' for name, (x, _) in found.items())}"
    for name, (x, steps) in found.items():
        if x < 1:
            return f"{text}; below 1 v is nearly a plain mean; --set {name}.betas=0.9,{2 / steps:.2g} makes it 2."
    return f"{text}."


def runs(records: Iterable[RunRecord]) -> Any:
    """One line per run under its study, in 80 columns: names fold, numbers do not."""
    from rich.console import Group

    studies: dict[tuple[str, str], list[RunRecord]] = {}
    for r in records:
        studies.setdefault((r.spec["study"], r.spec["task"]), []).append(r)
    if not studies:
        return "no runs"
    return Group(*(_runs(f"{study}: {task}", mine) for (study, task), mine in studies.items()))


def _runs(title: str, records: Iterable[RunRecord]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    numbers = ("lr", "seed", "metric", "epochs", "s")
    for name in ("run", "optimizer", "lr", "seed", "for", "status", "metric", "epochs", "s"):
        justify: Literal["right", "left"] = "right" if name in numbers else "left"
        table.add_column(name, justify=justify, no_wrap=name != "optimizer", overflow="fold")
    for r in records:
        done = r.done or {}
        last = r.metrics[-1] if r.metrics else {}
        table.add_row(
            r.name[:SHORT],
            r.row,
            f"{r.spec['options']['lr']:.3g}",
            str(r.spec["seed"]),
            r.spec["purpose"],
            r.status,
            number(done.get("metric", last.get("metric"))),
            f"{last.get('epoch', 0)}/{r.spec['epochs']}",
            number(done.get("seconds", last.get("seconds")), 3),
        )
    return table
