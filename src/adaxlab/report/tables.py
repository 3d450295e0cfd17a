"""The rows of a report's tables: summary, settings, environment, individual runs. No drawing, no HTML."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adaxlab.report import judged
from adaxlab.report.judged import Judged
from adaxlab.report.numbers import Figures, interval, listed, published
from adaxlab.report.series import Series, StudyRuns, flat, reason, show, status
from adaxlab.store import ERROR


@dataclass(frozen=True)
class SummaryRow:
    """One row of the summary table."""

    label: str
    n: int
    mean: float | None
    low: float | None
    high: float | None
    text: str
    difference: str
    verdict: str
    words: str
    note: str
    leads: bool
    lr: str
    b2_steps: str
    options: str
    diverged: int
    unfinished: int
    error: str
    seconds: float | None
    paper: str
    others: Mapping[str, str]
    """The means of further metrics."""


def summary(study: StudyRuns, found: Judged) -> list[SummaryRow]:
    """One row per series: by mean, the best first, then series without a finished run, then failed ones."""
    spans = [interval(s.values) for s in study.ranked]
    widths = [high - low for _, low, high in spans if high > low]
    fmt = Figures(min(widths) if widths else 0.0)
    rest = [s for s in study.series if not s.scores]
    order = sorted([*study.ranked, *rest], key=lambda s: bool(s.failed))
    return [_summary_row(study, s, found, fmt) for s in order]


def _summary_row(study: StudyRuns, series: Series, found: Judged, fmt: Figures) -> SummaryRow:
    mean = low = high = None
    text = difference = note = ""
    kind = "none"
    verdict = found.verdicts.get(series.label)
    if series.values:
        mean, low, high = interval(series.values)
        text = fmt.interval(mean, low, high)
    if series.failed:
        kind, words, note = "failed", "failed", reason(series.failed[0])
    elif series.label == found.base:
        picked = study.ranked[:1] == [series] and not found.fixed
        kind, words = "base", "best mean" if picked else "baseline"
        note = f"{len(series.diverged)} of {len(series.final)} diverged" if series.diverged else ""
    elif verdict is not None and (series.values or series.diverged):
        kind, words = verdict.outcome, verdict.word
        note = "" if found.unjudged else judged.note(verdict, series)
        e = verdict.difference
        if e is not None:
            difference = Figures((e.high - e.low) or abs(e.mean)).interval(e.mean, e.low, e.high, signed=True)
    elif series.diverged:
        kind, words = "diverged", "every run diverged"
    elif series.final:
        words = "no finished run yet"
    else:
        words = "tuned only"
    options = series.options
    seconds = series.seconds()
    return SummaryRow(
        label=series.label,
        n=len(series.values),
        mean=mean,
        low=low,
        high=high,
        text=text,
        difference=difference,
        verdict=kind,
        words=words,
        note=note,
        leads=found.leads(series.label),
        lr=show(options["lr"]) if "lr" in options else "",
        b2_steps=f"{series.b2_steps:.2g}" if series.b2_steps is not None else "",
        options=", ".join(f"{k}={show(v)}" for k, v in options.items() if k != "lr" and v is not None),
        diverged=len(series.diverged),
        unfinished=len(series.unfinished),
        error=f"{series.failed[0].path}/{ERROR}" if series.failed else "",
        seconds=math.fsum(seconds) / len(seconds) if seconds else None,
        paper=published(*series.paper) if series.paper else "",
        others={name: f"{math.fsum(xs) / len(xs):.4g}" for name, xs in series.others.items()},
    )


def headline(study: StudyRuns, rows: Sequence[SummaryRow], found: Judged) -> str:
    """The study in a sentence: which methods are better or worse than the reference, and which are inconclusive."""
    done = [r for r in rows if r.n]
    if not done:
        lost = [r for r in rows if r.diverged or r.verdict == "failed"]
        if rows and len(lost) == len(rows):
            if all(r.verdict == "failed" for r in rows):
                return "Every method failed. Check the task first."
            how = "diverged" if all(r.diverged for r in rows) else "failed or diverged"
            return f"Every final run of every method {how}. Check the task first."
        return "No final run has finished yet."
    base = next((r for r in done if r.verdict == "base"), None)
    by_verdict: dict[str, list[str]] = {}
    for r in rows:
        by_verdict.setdefault(r.verdict, []).append(r.label)
    said = []
    for kind in ("better", "worse"):
        if kind in by_verdict and base:
            names = by_verdict[kind]
            said.append(f"{listed(names)} {'is' if len(names) == 1 else 'are'} {kind} than {base.label}.")
    if "inconclusive" in by_verdict and base:
        open_ = listed(by_verdict["inconclusive"])
        said.append(f"No significant difference from {base.label}: {open_} (n = {base.n}).")
    if found.unjudged:
        said.append(f"No verdict: {found.unjudged}.")
    if "failed" in by_verdict:
        said.append(f"{listed(by_verdict['failed'])} failed.")
    if not said:
        return f"{done[0].label}: {study.metric_name} {done[0].text} (n = {done[0].n})."
    return " ".join(said)


def setup(study: StudyRuns) -> list[tuple[str, str]]:
    """The settings of the study: task, epochs, batch size, schedule, seeds, tuning trials."""
    specs = [r.spec for r in study.records]
    final = [s for s in specs if s.get("purpose") != "tune"]
    trials = {s.optimizer: len(s.tune) for s in study.series}
    rows = [("task", _shared(specs, lambda s: show(s.get("task"))))]
    names = dict.fromkeys(k for s in specs for k in flat({**s, "options": {}}))
    tune = [s for s in specs if s.get("purpose") == "tune"]
    rows += [(n.replace("task.", "task option "), _setting(n, final, tune)) for n in names]
    if final:
        seeds = sorted({str(s.get("seed")) for s in final}, key=lambda v: (len(v), v))
        rows.append(("seeds of the final runs", f"{', '.join(seeds)} ({len(seeds)})"))
    sizes = {r.done["parameters"] for r in study.records if r.done and "parameters" in r.done}
    if sizes:
        rows.append(("model parameters", ", ".join(f"{v:,}" for v in sorted(sizes))))
    splits = {
        r.done["split"]
        for r in study.records
        if r.done and "split" in r.done and r.spec.get("purpose") != "tune"
    }
    if splits:
        rows.append(("final runs are scored on", ", ".join(sorted(map(str, splits)))))
    if any(trials.values()):
        counts = sorted(set(trials.values()))
        equal = (
            "per optimizer (equal budgets)" if len(counts) == 1 else "(unequal budgets: " + show(trials) + ")"
        )
        rows.append(("tuning trials", f"{', '.join(map(str, counts))} {equal}"))
    return [(k.replace("_", " "), v) for k, v in rows if v not in ("", "None")]


def _setting(name: str, final: Sequence[Mapping[str, Any]], tune: Sequence[Mapping[str, Any]]) -> str:
    """The values of a setting; those of the tuning runs are listed separately if they differ.

    >>> _setting("epochs", [{"epochs": 20}], [{"epochs": 6}]), _setting("epochs", [{"epochs": 20}], [{"epochs": 20}])
    ('20; tuning runs 6', '20')
    """

    def values(specs: Sequence[Mapping[str, Any]]) -> str:
        return _shared(specs, lambda s: show(flat(s).get(name)))

    mine, theirs = ({show(flat(s).get(name)) for s in specs} for specs in (final, tune))
    if mine and theirs and not mine & theirs:
        return f"{values(final)}; tuning runs {values(tune)}"
    return values([*final, *tune])


def environment(study: StudyRuns) -> list[tuple[str, str]]:
    """Versions, hardware and commit, as recorded. Values that differ are listed, times as a range."""
    seen: dict[str, dict[str, None]] = {}
    for record in study.records:
        for key, value in _leaves(record.env or {}):
            seen.setdefault(key, {})[show(value)] = None
    short: dict[str, int] = {}
    for key in seen:
        short[key.split()[-1]] = short.get(key.split()[-1], 0) + 1
    out = []
    for key, values in seen.items():
        name = key.split()[-1] if short[key.split()[-1]] == 1 else key
        listed = sorted(values)
        if name == "time" and len(listed) > 1:
            text = f"{listed[0]} to {listed[-1]}"
        else:
            text = "; ".join(list(values)[:4]) + (f"; and {len(values) - 4} more" if len(values) > 4 else "")
        out.append((name, text))
    return out


def runs(study: StudyRuns) -> list[dict[str, str]]:
    """One row of text per run."""
    out = []
    for r in study.records:
        done = r.done or {}
        metric, seconds = done.get("metric"), done.get("seconds")
        out.append(
            {
                "optimizer": str(r.spec.get("optimizer")),
                "purpose": str(r.spec.get("purpose")),
                "lr": show((r.spec.get("options") or {}).get("lr")),
                "seed": str(r.spec.get("seed")),
                "status": status(r),
                study.metric_name: f"{metric:.6g}" if isinstance(metric, (int, float)) else "",
                "seconds": f"{seconds:.1f}" if isinstance(seconds, (int, float)) else "",
                "run": str(r.path),
            }
        )
    return out


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in (tree or {}).items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key} ")
        elif value not in (None, "", [], {}):
            yield f"{prefix}{key}", value


def _shared(items: Iterable[Any], get: Any) -> str:
    values = list(dict.fromkeys(get(i) for i in items))
    return ", ".join(values[:6]) + (", ..." if len(values) > 6 else "")
