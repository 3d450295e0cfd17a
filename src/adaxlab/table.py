"""Tables for the terminal: a comparison, its details, and a list of runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from adaxlab import markdown
from adaxlab.claim import ENOUGH
from adaxlab.reach import median
from adaxlab.stats import Estimate
from adaxlab.store import RunRecord
from adaxlab.study import B2_STEPS
from adaxlab.summary import Comparison, RowResult
from adaxlab.tuning_curve import bands, best_so_far

LARGE = 1e7
"""Numbers from here on are shown with an exponent."""
SHORT = 8
"""Digits of a run's name in the list; `adax runs show` accepts any unique prefix."""


def number(value: float | None, digits: int = 4) -> str:
    """The value with `digits` significant digits, or a dash; numbers below ten million have no exponent.

    >>> number(0.95333), number(23731.6), number(2.5e8), number(None)
    ('0.9533', '23732', '2.5e+08', '-')
    """
    if value is None or math.isnan(value):
        return "-"
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e+" in text and abs(value) < LARGE else text


def spread(estimate: Estimate | None, sign: str = "-") -> str:
    """`0.9533 ± 0.0041`, or only the mean if there is one run; `sign="+"` also shows the sign of positive means.

    Both have as many decimals as two digits of the half-width need.

    >>> spread(Estimate(3, 0.5, 0.1, 0.25, 0.75), "+"), spread(Estimate(5, 5935.8, 352.6, 5497.9, 6373.7))
    ('+0.50 ± 0.25', '5936 ± 438')
    """
    if estimate is None:
        return "-"
    mean, half = estimate.mean, (estimate.high - estimate.low) / 2
    known = 0 < half < math.inf
    decimals = max(0, 1 - math.floor(math.log10(half))) if known else 4
    if max(abs(mean), half) >= LARGE or decimals > 8:
        return f"{mean:{sign}.4g}" + ("" if math.isnan(half) else f" ± {half:.2g}")
    middle = f"{round(mean, decimals) + 0.0:{sign}.{decimals}f}"  # + 0.0 turns -0 into 0
    return middle if math.isnan(half) else f"{middle} ± {half:.{decimals}f}"


def comparison(result: Comparison) -> Any:
    """The table of a study, with n, intervals, and each row's verdict against the baseline."""
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
    table.add_column("optimizer", style="bold", overflow="fold")  # only names are wrapped: no digit is lost
    table.add_column("lr", justify="right", no_wrap=True)
    tuned = list(dict.fromkeys(name for row in result.rows for name in row.tuned))
    for name in tuned:
        table.add_column(name.replace("_", "\n"), justify="right", no_wrap=True)
    grows = any(row.b2_steps is not None for row in result.rows)
    if grows:
        table.add_column("b2*T", justify="right", no_wrap=True)
    table.add_column(f"{result.metric_name},\n{percent}", justify="right", no_wrap=True)
    others = list(dict.fromkeys(name for row in result.rows for name in row.others))
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    table.add_column(_header(study.baseline), justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("ms/step", justify="right", no_wrap=True)
    for row in result.rows:
        table.add_row(
            row.name,
            f"{row.lr:.3g}" + "*" * ("lr" in row.edge),
            *(_setting(row, name) for name in tuned),
            *([number(row.b2_steps, 2) if row.b2_steps is not None else ""] * grows),
            spread(row.estimate),
            *(number(row.others[name].mean) if name in row.others else "-" for name in others),
            str(row.n) + (f" ({row.diverged} diverged)" if row.diverged else ""),
            *(cell.replace(" (", "\n(") for cell in _verdict(result, row)),
            number(row.step_ms or None, 3),  # runs of a stack have no time of their own
        )
    return table


def details(result: Comparison) -> Any:
    """The table of when the target was reached, the best score after n tuning trials, and failures."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, caption_justify="left")
    table.add_column("optimizer", style="bold", overflow="fold")
    said = []
    if result.target is not None:
        reached = f"reached {number(result.target)}"
        table.add_column(f"{reached},\nsteps", justify="right")
        table.add_column("\nseconds", justify="right")
        own = (
            "the given target"
            if result.study.target is not None
            else f"the median final result of {result.study.baseline}"
        )
        said.append(
            f"{result.metric_name} {number(result.target)}: {own}. Medians over seeds; a run that did not reach it "
            "counts as later than all others."
        )
    curves = {row.name: best_so_far(row.scores, result.higher_is_better) for row in result.rows}
    longest = max(map(len, curves.values()), default=0)
    trials = sorted({longest, *(2**i for i in range(longest.bit_length()))} if longest else ())
    for n in trials:
        table.add_column(("best of\n" if n == 1 else "\n") + str(n), justify="right")
    if trials:
        said.append(
            f"Best of n: validation {result.metric_name} of the best settings among the first n tried."
        )
    table.add_column("failures", overflow="fold")
    for row in result.rows:
        cells = [row.name]
        if result.target is not None:
            cells += [_time(row.steps_to), _time(row.seconds_to)]
        cells += [number(curves[row.name][n - 1]) if len(curves[row.name]) >= n else "-" for n in trials]
        table.add_row(*cells, failures(row))
    table.caption = " ".join([*said, *_expected(result)]) or None
    return table


def _expected(result: Comparison) -> list[str]:
    """A sentence on what other random trials would find, if the trials were random."""
    tuning = result.study.tuning
    if not tuning or tuning.sampler != "random":
        return []
    try:
        found = {
            row.name: bands(row.scores, result.higher_is_better)[-1] for row in result.rows if row.scores
        }
    except ModuleNotFoundError:
        return ["To estimate what other random trials would find, install opda (pip install opda)."]
    each = "; ".join(
        f"{name} {number(band.median)} [{number(band.low)}, {number(band.high)}]"
        for name, band in found.items()
    )
    return [f"Median best of {tuning.trials} random trials, with a simultaneous 95% band (opda): {each}."]


def _time(times: Sequence[float | None]) -> str:
    """The median, and the number of runs that reached the target if some did not."""
    found = sum(time is not None for time in times)
    count = "" if found == len(times) else f" ({found} of {len(times)})"
    return f"{number(median(times), 3) if found else 'never'}{count}" if times else "-"


def failures(row: RowResult) -> str:
    """What went wrong with a row's runs.

    >>> from adaxlab.summary import RowResult
    >>> scores = (None, None, *[0.1] * 6)
    >>> failures(RowResult("a", None, 0.1, {}, {0: None, 1: 0.5}, None, None, None, 0.0, 0.0, scores=scores))
    '2 of 8 trials diverged, 1 of 2 final runs diverged'
    """
    said = []
    if row.error:
        said.append(f"failed: {row.error}")
    if None in row.scores:
        said.append(f"{row.scores.count(None)} of {len(row.scores)} trials diverged")
    if row.diverged:
        said.append(f"{row.diverged} of {row.n} final runs diverged")
    return ", ".join(said) or "none"


def plain(result: Comparison) -> str:
    """The study as plain text, without rich: its final runs, or its learning rates if it has only tuning runs."""
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
    """The difference from the baseline and the verdict; a row that failed has neither."""
    if row.verdict and not row.error:
        return spread(row.verdict.difference, "+"), row.verdict.word
    return "baseline" if row.name == result.study.baseline else "-", "failed" if row.error else ""


def _header(baseline: str) -> str:
    """The column's header; the baseline's name is broken into lines no wider than the numbers below it."""
    width = 16
    words = [baseline[i : i + width] for i in range(0, len(baseline), width)]
    if len(words[-1]) == width:
        words.append("")
    return "\n".join(["better than", *words]) + "?"


def _caption(result: Comparison, percent: str) -> str:
    study = result.study
    said = [_rates(result), *_remarks(result), *result.history]
    judged = [row.verdict for row in result.rows if row.verdict and row.verdict.outcome != "none"]
    if judged:
        margin = f" by more than {study.rule.margin:g}" if study.rule.margin else ""
        said.append(
            f"Verdict: better or worse than {study.baseline}{margin} by a paired t test over the seeds at {percent} "
            "confidence, corrected for the number of optimizers compared (Holm), fixed before the runs (study.json); "
            "the intervals are not corrected. A diverged run counts as worse than any finished one."
        )
        if study.terms == "given":
            said.append("Verdicts hold at the given settings.")
        if any(found.provisional for found in judged):
            said.append(f"Provisional: fewer than {ENOUGH} seeds.")
    said.append("ms/step: time in optimizer.step().")
    return " ".join(said)


def _rates(result: Comparison) -> str:
    """A sentence on the source of the learning rates."""
    study = result.study
    seeds = f"{study.first_seed} to {study.first_seed + study.seeds - 1}"
    if study.tuning:
        what = "lr" if study.tuning.walks else " ".join(word.partition("=")[0] for word in study.tuning.over)
        return (
            f"{what}: the best of {study.tuning.trials} per optimizer on a held-out fifth (or 'valid') of the training "
            f"data, seed {study.tuning.first_seed}; final runs on fresh seeds {seeds}."
        )
    if study.follows:
        return f"lr: each row's best in {study.follows}; seeds {seeds}."
    given = [row.name for row in study.rows if "lr" in row.options]
    if study.terms == "given":
        return f"lr: as given for {', '.join(given)}; not tuned here."
    rest = f"as given for {', '.join(given)}, the documented default for the others" if given else ""
    return f"lr: {rest or 'the documented default of each optimizer'}; not tuned."


def _given(result: Comparison, name: str) -> bool:
    """Whether the row's betas were set by the user."""
    return "betas" in result.study.row(name).options


def _setting(row: RowResult, name: str) -> str:
    """A tuned setting, with a star at an end of its range."""
    return number(row.tuned.get(name), 4 if name.endswith("b2") else 3) + "*" * (name in row.edge)


def _remarks(result: Comparison) -> list[str]:
    """Remarks on the budget and on individual rows."""
    said = []
    if budget := result.study.budget:
        said.append(f"Planned for {budget['asked']}: {budget['cut']}.")
    if any(row.edge for row in result.rows):
        wider = (
            "a larger --tune" if result.study.tuning and result.study.tuning.walks else "a wider --tune-over"
        )
        said.append(f"* at the edge of what was tried; {wider} may find a better value.")
    short = [row.name for row in result.rows if row.b2_steps is not None and row.b2_steps < 1]
    if short:
        advice = (
            f"; without betas in --set it is {B2_STEPS:g}"
            if any(_given(result, name) for name in short)
            else ""
        )
        said.append(f"b2*T of {', '.join(short)} is below 1: v is nearly a plain mean{advice}.")
    for row in result.rows:
        if row.error:
            said.append(f"{row.name} failed: {row.error}; the traceback is in {row.error_file}.")
        elif row.verdict and row.verdict.outcome == "inconclusive" and row.verdict.why:
            said.append(
                f"{row.name}: {row.verdict.why}; if {result.metric_name} takes few values, use more seeds."
            )
    return said


def runs(records: Iterable[RunRecord]) -> Any:
    """One line per run, grouped by study, in 80 columns: names are wrapped, numbers are not."""
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
