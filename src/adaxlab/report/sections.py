"""The sections of a page as HTML: a study, a table of claims, additional figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from adaxlab import stats
from adaxlab.answer import Answer, answer
from adaxlab.claim import ENOUGH
from adaxlab.messages import clock
from adaxlab.repeat_command import command
from adaxlab.report import html, tables
from adaxlab.report.charts import figures
from adaxlab.report.html import esc
from adaxlab.report.judged import Judged, judged, stored
from adaxlab.report.numbers import percent
from adaxlab.report.palette import Look
from adaxlab.report.series import StudyRuns

Draw = Callable[[str, str, Any], str]


def _words(rule: stats.DecisionRule) -> str:
    """The decision rule of the verdicts, in words."""
    margin = f" by more than {rule.margin:g}" if rule.margin else ""
    return (
        "Brackets show 95% t intervals of the mean over seeds. Differences are paired by seed; a positive difference "
        f"means that the method is better. A method is better{margin}, or worse, if a paired t test, "
        f"corrected for the number of comparisons (Holm), is significant at {percent(rule.confidence)} confidence on "
        f"at least {rule.least} pairs (fewer than {ENOUGH}: provisional); otherwise the comparison is inconclusive. "
        "A diverged run counts as worse than any finished one and is not included in a mean."
    )


def _rates(study: StudyRuns) -> str:
    """A caution for studies in which no learning rate was tuned."""
    if len({s.optimizer for s in study.series}) < 2 or any(s.tune for s in study.series):
        return ""
    return (
        " Learning rates were given, not tuned in this study; at other learning rates the order may change."
    )


@dataclass(frozen=True)
class Section:
    """A study on the page: its runs, its verdicts, and the rows of its summary table."""

    study: StudyRuns
    found: Judged
    rows: list[tables.SummaryRow]

    @classmethod
    def of(cls, study: StudyRuns) -> Section:
        found = judged(study)
        return cls(study, found, tables.summary(study, found))

    @property
    def anchor(self) -> str:
        return "study-" + "".join(c if c.isalnum() or c in "-_" else "-" for c in self.study.name)

    @cached_property
    def answer(self) -> Answer:
        """The answer that `adax compare` prints; without a study.json beside the runs, the verdicts in a sentence."""
        if self.found.result and not self.failed:
            return answer(self.found.result)
        return Answer(tables.headline(self.study, self.rows, self.found))

    @property
    def failed(self) -> bool:
        """Whether no final run has finished; such a study is shown last."""
        return not any(row.n for row in self.rows)


def contents(sections: Sequence[Section]) -> str:
    """A list of the studies, each with its answer."""
    items = "".join(
        f'<li><a href="#{esc(s.anchor)}">{esc(s.study.name)}</a> <span class="meta">{esc(s.answer.text)}</span></li>'
        for s in sections
    )
    return (
        '<section id="contents"><div class="wrap"><h2>Studies</h2>'
        f'<ol class="contents">{items}</ol></div></section>'
    )


def answered(section: Section) -> str:
    """The answer, and the line of code that constructs the recommended optimizer."""
    code = f"<pre>{esc(section.answer.code)}</pre>" if section.answer.code else ""
    return f'<div class="answer"><p class="lead">{esc(section.answer.text)}</p>{code}</div>'


def study_section(section: Section, looks: Mapping[str, Look], draw: Draw, single: bool) -> str:
    """One study: its answer, the summary table, all charts, and how it was run."""
    study, found, rows = section.study, section.found, section.rows
    charts = [draw(p.title, p.caption, p.chart) for p in figures(study, found)]
    words = _words(found.rule)
    if not found.fixed and sum(r.n > 0 for r in rows) > 1:
        words += (
            " The reference is the method with the best mean. It was chosen after the runs, which favours it."
        )
    if study.replaced:
        words += (
            f" {study.replaced} runs of an earlier version of the task's or an optimizer's file are left out."
        )
    return (
        f'<section id="{esc(section.anchor)}"><div class="wrap"><h2>{esc(study.name)}</h2>'
        f"{answered(section)}{_summary(section, looks)}"
        f'<p class="note">{esc(words + _rates(study))}</p>'
        f'<div class="grid study">{"".join(charts)}</div>'
        f"{_how(study, rows, single)}{_runs(study)}</div></section>"
    )


def _summary(section: Section, looks: Mapping[str, Look]) -> str:
    study, rows, base = section.study, section.rows, section.found.base
    index = {label: i for i, label in enumerate(looks)}
    spans = [(r.low, r.high) for r in rows if r.low is not None and r.high is not None]
    span = (min(s[0] for s in spans), max(s[1] for s in spans)) if spans else (0.0, 1.0)
    columns: dict[str, list[str]] = {
        "optimizer": [f'<span class="name">{html.swatch(looks[r.label])}{esc(r.label)}</span>' for r in rows],
        f"{study.metric_name} [95%]": [
            f'<span class="{"best" if r.leads else ""}">{esc(r.text)}</span>' if r.text else "" for r in rows
        ],
        "": [
            "" if r.mean is None else html.whisker(r.mean, r.low or 0.0, r.high or 0.0, span, looks[r.label])
            for r in rows
        ],
        f"better than {base} by" if base else "difference": [esc(r.difference) for r in rows],
        "verdict": [_verdict(r) for r in rows],
        **{name: [esc(r.others.get(name, "")) for r in rows] for one in rows for name in one.others},
        "paper": [esc(r.paper) for r in rows],
        "lr": [f'<span title="{esc(r.options)}">{esc(r.lr)}</span>' if r.lr else "" for r in rows],
        "b2*T": [esc(r.b2_steps) for r in rows],
        "runs": [_counts(r) for r in rows],
        "time per run": [esc(clock(r.seconds)) if r.seconds is not None else "" for r in rows],
    }
    optional = ("paper", "b2*T", "time per run")
    shown = {head: cells for head, cells in columns.items() if head not in optional or any(cells)}
    body = [list(cells) for cells in zip(*shown.values(), strict=True)]
    attributes = [f'data-index="{index[r.label]}"' for r in rows]
    return html.table([esc(head) for head in shown], body, "summary cards", attributes)


def _counts(row: tables.SummaryRow) -> str:
    counts = [f"{row.n}"]
    counts += [f'<span class="lost">{row.diverged} diverged</span>'] if row.diverged else []
    counts += [f"{row.unfinished} unfinished"] if row.unfinished else []
    return ", ".join(counts)


def _how(study: StudyRuns, rows: Sequence[tables.SummaryRow], single: bool) -> str:
    options = [[esc(r.label), esc(r.lr), f"<code>{esc(r.options)}</code>"] for r in rows if r.lr or r.options]
    parts = ["<h4>Runs</h4>", html.pairs(tables.setup(study))]
    if options:
        parts += [
            "<h4>Options of the final runs</h4>",
            html.table(["optimizer", "lr", "other options"], options, "cards"),
        ]
    env = tables.environment(study)
    if env:
        parts += ["<h4>Versions and hardware</h4>", html.pairs(env)]
    parts += _again(study)
    opened = " open" if single else ""
    inside = f'<div class="inside">{"".join(parts)}</div>'
    return f"<details{opened}><summary>What was run, and how</summary>{inside}</details>"


def _again(study: StudyRuns) -> list[str]:
    """The command that repeats the study, if it is that of `adax compare`."""
    planned = stored(study)
    text = command(planned.study, {r.row for r in study.records}) if planned else ""
    return ["<h4>Run it again</h4>", f"<pre>{esc(text)}</pre>"] if text else []


def _runs(study: StudyRuns) -> str:
    rows = tables.runs(study)
    head = list(rows[0])
    body = [[_cell(k, v) for k, v in row.items()] for row in rows]
    return (
        f"<details><summary>All {len(rows)} runs</summary>"
        f'<div class="inside">{html.table([esc(h) for h in head], body, "cards")}</div></details>'
    )


def _verdict(r: tables.SummaryRow) -> str:
    note = f'<span class="meta">{esc(r.note)}</span>' if r.note else ""
    note += f' <span class="meta">traceback: <code>{esc(r.error)}</code></span>' if r.error else ""
    return f'<span class="verdict">{html.badge(r.verdict, r.words)}{note}</span>' if r.words else note


def _cell(key: str, value: str) -> str:
    if key == "status" and value != "finished":
        return html.badge(value, value)
    return f"<code>{esc(value)}</code>" if key == "run" else esc(value)
