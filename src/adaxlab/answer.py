"""The answer of a comparison as text: which optimizer to use, which others are not significantly different, and how
many more seeds would decide.

It is a pure function of a result, so the command line, the page and JSON show the same sentences.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import adaxopt
from adaxlab import memory_text, optimizers, schedule
from adaxlab.claim import ENOUGH
from adaxlab.messages import duration
from adaxlab.repeat_command import command
from adaxlab.stats import Estimate
from adaxlab.summary import UNTUNED, Comparison, RowResult
from adaxlab.variants import SEEDS_APART, with_base_seed
from adaxlab.verdict import POWER
from adaxopt.memories import Memory
from adaxopt.torch.optimizers import CLASSES

MANY = 100
"""The largest number of seeds that is proposed."""
ENDED = "where both finished: "


@dataclass(frozen=True)
class Answer:
    """`use` is the row to use, "" if there is no verdict; `code` is the line that constructs its optimizer."""

    text: str
    use: str = ""
    code: str = ""


def answer(result: Comparison) -> Answer:
    """The answer. The baseline is recommended unless another row is significantly better."""
    judged = [row for row in result.rows if row.verdict and row.verdict.outcome != "none"]
    better = [row for row in judged if row.verdict and row.verdict.outcome == "better" and row.estimate]
    base = next((row for row in result.rows if row.name == result.study.baseline), None)
    lost = base is not None and base.n > 0 and base.diverged == base.n and not better
    if base is None or lost or (len(result.rows) > 1 and not judged):
        return Answer(" ".join([*_no_verdict(result, lost), *result.history]))
    if len(result.rows) == 1:
        alone = f"Only {base.name} ran, at lr {base.lr:.3g}: there is nothing to compare it with."
        return Answer(" ".join([alone, *result.history]), code=_code(result, base))
    best = _first(result, better) or base
    unclear = best is base and any(row.diverged < base.diverged for row in judged)
    said = [_unclear(result, base) if unclear else _use(result, best, base, len(judged))]
    said += [_other(result, row, best, base, len(judged)) for row in result.rows if row not in (best, base)]
    if any(row.verdict and row.verdict.difference for row in judged):
        said.append(f"Differences are in {result.metric_name}; + is better.")
    if best is not base:
        than = f"{base.name}{_margin(result)}"
        said += [f"{other.name} is better than {than} as well." for other in better if other is not best]
    said += _repetition(result, judged, best)
    said += _terms(result, judged)
    use, code = ("", "") if unclear else (best.name, _code(result, best))
    return Answer(" ".join([*filter(None, said), *result.history]), use, code)


def _code(result: Comparison, row: RowResult) -> str:
    """The line that constructs the row's optimizer, with its schedule, and the run's length if b2 is set from it."""
    if not row.options:
        return ""
    code = constructor(result.study.row(row.name).method, row.options)
    said = []
    if row.runs and (row.runs[0].done or {}).get("groups"):
        said.append("with the task's groups(model, options) for model.parameters()")
    plan = row.runs[0].spec["schedule"] if row.runs else {}
    if plan and (text := schedule.words(plan)) != "constant":
        said.append(f"with the schedule {text}")
    if row.b2_steps is not None and row.runs and row.runs[0].done:
        said.append(f"b2 = {row.b2_steps:.2g}/T, T = {row.runs[0].done['steps']} steps")
    return f"{code}  # {'; '.join(said)}" if said else code


def next_base_seed(result: Comparison) -> int:
    return result.study.first_seed // SEEDS_APART + 1


def _again(result: Comparison, names: Collection[str], seeds: int) -> str:
    """The command that repeats the comparison of these rows on fresh seeds. A repetition proposes no further one: to
    repeat until there is a verdict is one look after the other."""
    base_seed = next_base_seed(result)
    rows = tuple(row for row in result.study.rows if row.name in names)
    again = with_base_seed(replace(result.study, rows=rows, seeds=seeds, name=""), base_seed)
    return command(again, names) if base_seed == 1 else ""


def _margin(result: Comparison) -> str:
    margin = result.study.rule.margin
    return f" by more than {margin:g}" if margin else ""


def _unclear(result: Comparison, base: RowResult) -> str:
    """The answer if the baseline diverged in some runs, another row in fewer, and neither is significantly better."""
    again = _again(result, [row.name for row in result.rows], 2 * base.n)
    return (
        f"No clear answer: {base.diverged} of {base.n} runs of {base.name} (lr {base.lr:.3g}) diverged, and nothing "
        f"that diverged less often is significantly better{_margin(result)}"
        f"{f'; a repetition may decide: {again}' if again else ''}."
    )


def _first(result: Comparison, rows: list[RowResult]) -> RowResult | None:
    """The row with the fewest diverged runs; of several, the one with the best mean."""
    sign = 1 if result.higher_is_better else -1
    return max(
        rows, key=lambda row: (-row.diverged, sign * row.estimate.mean if row.estimate else 0.0), default=None
    )


def _use(result: Comparison, best: RowResult, base: RowResult, judged: int) -> str:
    text, margin = f"Use {best.name} at lr {best.lr:.3g}", _margin(result)
    if best is base:
        what = "nothing else that was tried is" if judged > 1 else "the other is not"
        return f"{text}: {what} significantly better{margin}{_lost(best)}."
    by = _difference(best)
    than = f"{base.name} (lr {base.lr:.3g}{_lost(base)}){margin}"
    how = f"; {by}" if by.startswith(ENDED) else f"{':' if margin else ' by'} {by}" if by else ""
    return f"{text}: it is better than {than}{how}{_lost(best)}."


def _other(result: Comparison, row: RowResult, best: RowResult, base: RowResult, judged: int) -> str:
    """A sentence about a row that is not recommended. Rows that are better than the baseline get theirs elsewhere."""
    found, margin = row.verdict, _margin(result)
    if row.error:
        return f"{row.name} failed and has no verdict."
    if found is None or found.outcome == "better":
        return ""
    if found.outcome == "none":
        return f"{row.name} has no verdict: {found.why}."
    worse = found.outcome == "worse"
    than = "" if best is base else f" than {base.name}" if worse or margin else f" from {base.name}"
    what = (
        "worse" if worse else "not significantly better or worse" if margin else "not significantly different"
    )
    apart = judged > 1 and not found.diverged and found.own <= 1 - result.study.rule.confidence
    only = f"; significant alone, but not after the correction for {judged} comparisons" if apart else ""
    only = f"; no test: {found.why}" if found.why else only
    how = f" ({_difference(row)}{'' if worse else only})" if found.difference else ""
    return f"{row.name} (lr {row.lr:.3g}) is {what}{than}{margin}{how}{_lost(row)}."


def _lost(row: RowResult) -> str:
    return f"; {row.diverged} of {row.n} runs diverged" if row.diverged else ""


def _difference(row: RowResult) -> str:
    """`+0.13, 95% [-0.1, +0.4], n = 5`, after `ENDED` if some runs diverged; empty if no two seeds finished in both
    rows."""
    assert row.verdict is not None
    seen = row.verdict.difference
    if seen is None:
        return ""
    mean, low, high = (signed(value, seen) for value in (seen.mean, seen.low, seen.high))
    text = f"{mean}, {100 * seen.confidence:g}% [{low}, {high}], n = {seen.n}"
    return text if seen.n == row.verdict.n else f"{ENDED}{text}"


def signed(value: float, seen: Estimate) -> str:
    """A difference, rounded to two significant digits of its interval's width.

    >>> signed(0.1264, Estimate(5, 0.1264, 0.2, -0.1, 0.4))
    '+0.13'
    """
    width = (seen.high - seen.low) or abs(seen.mean)
    decimals = min(8, max(0, 1 - math.floor(math.log10(width)))) if width > 0 and math.isfinite(width) else 4
    return f"{round(value, decimals) + 0.0:+.{decimals}f}"


def _repetition(result: Comparison, judged: list[RowResult], best: RowResult) -> list[str]:
    """The study on fresh seeds that would probably decide between the baseline and that better row which needs the
    fewest: a verdict on it would be another recommendation."""
    open_ = [
        (found.needed or math.inf, row)
        for row in judged
        if (found := row.verdict) and found.outcome == "inconclusive" and not (found.diverged or found.why)
        if found.difference and found.difference.mean > result.study.rule.margin
    ]
    if not open_ or best.name != result.study.baseline:
        return []
    needed, row = min(open_, key=lambda pair: pair[0])
    pair = (best.name, row.name)
    if not (again := _again(result, pair, int(min(needed, MANY)))):
        return []
    if needed > MANY:
        about = f" (about {needed:,.0f})" if math.isfinite(needed) and needed < 1e5 else ""
        return [f"It would take more than {MANY} seeds{about} to decide between {' and '.join(pair)}."]
    tuning = [
        r.done["seconds"] for r in result.records if r.done and r.row in pair and r.spec["purpose"] == "tune"
    ]
    cost = duration(math.fsum(tuning) + needed * (best.seconds + row.seconds))
    return [
        f"To decide between {' and '.join(pair)}, repeat on fresh seeds: {again} ({cost}; {100 * POWER:g}% chance to "
        "find a difference of this size)."
    ]


def _terms(result: Comparison, judged: list[RowResult]) -> list[str]:
    """Limitations of the verdicts."""
    said = []
    if judged and result.study.terms == "given":
        said.append("The verdicts hold at the given settings: learning rates were not tuned.")
    edge = [row for row in result.rows if row.edge and row.n and not row.error]
    if judged and edge and result.study.tuning and not result.study.tuning.walks:
        which = "; ".join(f"{' and '.join(row.edge)} of {row.name}" for row in edge)
        said.append(
            f"At an end of the range: {which}. A wider --tune-over, on fresh seeds (--base-seed "
            f"{next_base_seed(result)}), may find better values."
        )
    elif judged and edge:
        names = ", ".join(row.name for row in edge)
        which = f"The best lr of {names} is" if len(edge) < len(result.rows) else "Every best lr is"
        said.append(
            f"{which} the smallest or the largest that was tried: a larger --tune, on fresh seeds (--base-seed "
            f"{next_base_seed(result)}), may find a better one."
        )
    n = min((row.verdict.n for row in judged if row.verdict), default=ENOUGH)
    if n < ENOUGH:
        said.append(f"Provisional: n = {n}, fewer than {ENOUGH} seeds.")
    return said


def _no_verdict(result: Comparison, lost: bool) -> list[str]:
    """Why nothing is recommended, and what to do; `lost`: every run of the baseline diverged."""
    base = result.study.baseline
    failed = [row.name for row in result.rows if row.error]
    if base in failed:
        return [f"No verdict: {base}, which the others are compared with, failed."]
    if failed and len(result.rows) - len(failed) < 2:
        return [f"No verdict: {', '.join(failed)} failed, so there is nothing to compare {base} with."]
    untrained = [row for row in result.rows if row.untrained]
    whys = [row.untrained for row in untrained]
    if lost:
        whys = whys or [f"every run of {base} diverged, and nothing is significantly better{_margin(result)}"]
    else:
        whys += [row.verdict.why for row in result.rows if row.verdict and not row.error]
    said = [f"No verdict: {'; '.join(dict.fromkeys(whys))}."]
    if untrained:
        lower = " ".join(
            f"{row.name}.lr={min(row.trials) / 100:.0e}".replace("e-0", "e-") for row in untrained
        )
        finite = f"loss, gradients and {result.metric_name} are finite"
        said.append(f"Check that {finite}, or start lower, such as with --set {lower}.")
    if UNTUNED in whys:
        lrs = " ".join(f"{row.name}.lr=..." for row in result.study.rows)
        tuning = result.study.tuning
        how = "add lr to --tune-over" if tuning and tuning.trials > 1 else "--tune 8"
        said.append(f"Tune them ({how}), or set every learning rate by hand (--set {lrs}).")
    return said


def constructor(name: str, options: Mapping[str, Any]) -> str:
    """The line of Python that constructs a run's optimizer for a `model`.

    >>> constructor("adaxw@slow", {"lr": 5e-3, "betas": [0.9, 0.0068], "weight_decay": 0.05})
    'import adaxopt; optimizer = adaxopt.AdaXW(model.parameters(), lr=0.005, betas=(0.9, 0.0068), weight_decay=0.05)'
    """
    kind = optimizers.base(name)
    first = {"lr": options["lr"]} if "lr" in options else {}
    given = {k: optimizers.from_data(k, v) for k, v in {**first, **options}.items()}
    if kind in CLASSES and given.get("memory"):
        b1, number = given["betas"]
        given |= {"betas": (b1, None), "memory": memory_text.made(given["memory"], number)}
    shown = {k: f"adaxopt.{v!r}" if isinstance(v, Memory) else repr(v) for k, v in given.items()}
    words = "".join(f", {key}={value}" for key, value in shown.items())
    torch = "import torch; " if "=torch." in words else ""
    place, _, attribute = kind.rpartition(":")
    if kind in CLASSES:
        public = CLASSES[kind].__name__
        call = f"{public}(" if public in adaxopt.__all__ else f'create("{kind}", '
        return f"{torch}import adaxopt; optimizer = adaxopt.{call}model.parameters(){words})"
    if len(optimizers.parts(kind)) > 1 or optimizers.is_factory(kind):
        built = f"optimizers.build({kind!r}, model.parameters(), {dict(given)!r}, model)"
        return f"{torch}from adaxlab import optimizers; optimizer = {built}"
    module = "torch.optim" if place == "torch" else Path(place).stem if place.endswith(".py") else place
    return f"{torch}from {module} import {attribute}; optimizer = {attribute}(model.parameters(){words})"
