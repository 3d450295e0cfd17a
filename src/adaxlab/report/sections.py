"""The sections of a page: a study, a table of claims, further figures. HTML out, no files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from adaxlab import stats
from adaxlab.claim import ENOUGH
from adaxlab.report import html, tables
from adaxlab.report.charts import pictures
from adaxlab.report.command import commands, differing
from adaxlab.report.html import esc
from adaxlab.report.palette import Look
from adaxlab.report.series import Study, show

Draw = Callable[[str, str, Any], str]


def _words(rule: stats.Rule) -> str:
    """The rule of the verdicts, for people."""
    margin = f" by more than {rule.margin:g}" if rule.margin else ""
    return (
        "Brackets hold 95% t intervals of the mean over seeds. Differences are paired by seed, positive where the "
        f"method is better. A method is better{margin}, or worse, if a paired t test, "
        f"corrected for the number of comparisons (Holm), says so at {tables.percent(rule.confidence)} confidence on "
        f"at least {rule.least} pairs (fewer than {ENOUGH}: provisional); otherwise the comparison is inconclusive. "
        "A diverged run counts as worse than any finished one and is not part of a mean."
    )


def _rates(study: Study) -> str:
    """Where no method tried a rate, a verdict is about the settings as much as about the methods."""
    if len({s.optimizer for s in study.series}) < 2 or any(s.tune for s in study.series):
        return ""
    return " Learning rates were given, not tuned in this study; with others the order may change."


def study_section(
    study: Study,
    looks: Mapping[str, Look],
    baseline: str | None,
    rule: stats.Rule | None,
    draw: Draw,
    single: bool,
) -> str:
    """One study: a sentence, the summary, every chart, and what was run."""
    baseline, rule = tables.plan(study, baseline, rule)
    base = tables.reference(study, baseline)
    rows = tables.summary(study, base, rule, fixed=baseline == base)
    charts = [draw(p.title, p.caption, p.chart) for p in pictures(study, baseline, rule)]
    picked = (
        " The best is picked after the runs, which flatters it a little."
        if baseline != base and sum(r.n > 0 for r in rows) > 1
        else ""
    )
    return (
        f'<section id="{esc(_anchor(study.name))}"><div class="wrap"><h2>{esc(study.name)}</h2>'
        f'<p class="lead">{esc(tables.headline(study, rows))}</p>{_summary(study, rows, base, looks)}'
        f'<p class="note">{esc(_words(rule) + picked + _rates(study))}</p>'
        f'<div class="grid study">{"".join(charts)}</div>'
        f"{_how(study, rows, single)}{_runs(study)}</div></section>"
    )


def _summary(study: Study, rows: Sequence[tables.Row], base: str, looks: Mapping[str, Look]) -> str:
    index = {label: i for i, label in enumerate(looks)}
    spans = [(r.low, r.high) for r in rows if r.low is not None and r.high is not None]
    span = (min(s[0] for s in spans), max(s[1] for s in spans)) if spans else (0.0, 1.0)
    head = [
        "optimizer",
        f"{study.metric_name} [95%]",
        "",
        f"better than {base} by" if base else "difference",
        "verdict",
    ]
    timed, known = any(r.seconds is not None for r in rows), any(r.paper for r in rows)
    head += ["paper"] * known + ["lr", "runs"] + ["time a run"] * timed
    head = [esc(h) for h in head]
    body = []
    for i, r in enumerate(rows):
        counts = [f"{r.n}"]
        counts += [f'<span class="lost">{r.diverged} diverged</span>'] if r.diverged else []
        counts += [f"{r.unfinished} unfinished"] if r.unfinished else []
        line = (
            "" if r.mean is None else html.whisker(r.mean, r.low or 0.0, r.high or 0.0, span, looks[r.label])
        )
        body.append(
            [
                f'<span class="name">{html.swatch(looks[r.label])}{esc(r.label)}</span>',
                f'<span class="{"best" if i == 0 and r.n else ""}">{esc(r.text)}</span>' if r.text else "",
                line,
                esc(r.difference),
                _verdict(r),
                *([esc(r.paper)] * known),
                f'<span title="{esc(r.options)}">{esc(r.lr)}</span>' if r.lr else "",
                ", ".join(counts),
                *([esc(tables.duration(r.seconds)) if r.seconds is not None else ""] * timed),
            ]
        )
    return html.table(head, body, "summary cards", [f'data-index="{index[r.label]}"' for r in rows])


def _how(study: Study, rows: Sequence[tables.Row], single: bool) -> str:
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


def _again(study: Study) -> list[str]:
    """The commands of the study; where `adax compare` has no such study, that they are only near to it."""
    text = f"<pre>{esc(chr(10).join(commands(study)))}</pre>"
    other = [key.replace("_", " ") for key in differing(study)]
    if not other:
        return ["<h4>Run it again</h4>", text]
    words = (
        f"The runs of this study differ in {tables.listed(other)}, which no adax compare can ask for. "
        "This is near to it, and does not repeat it."
    )
    return ["<h4>Run something near to it</h4>", f'<p class="note">{esc(words)}</p>', text]


def _runs(study: Study) -> str:
    rows = tables.runs(study)
    head = list(rows[0])
    body = [[_cell(k, v) for k, v in row.items()] for row in rows]
    return (
        f"<details><summary>All {len(rows)} runs</summary>"
        f'<div class="inside">{html.table([esc(h) for h in head], body, "cards")}</div></details>'
    )


def _verdict(r: tables.Row) -> str:
    note = f'<span class="meta">{esc(r.note)}</span>' if r.note else ""
    kind = "best" if r.words == "best mean" else r.verdict
    return f'<span class="verdict">{html.badge(kind, r.words)}{note}</span>' if r.words else note


def _cell(key: str, value: str) -> str:
    if key == "status" and value != "finished":
        return html.badge(value, value)
    return f"<code>{esc(value)}</code>" if key == "run" else esc(value)


def claims_section(claims: Sequence[Mapping[str, Any]]) -> str:
    """The table of claims: what the paper says, what was computed here, on how many runs, and the verdict."""
    rows = []
    for c in claims:
        verdict = str(c.get("verdict", "inconclusive"))
        note = f' <span class="meta">({esc(c["note"])})</span>' if c.get("note") else ""
        cells = [
            esc(c.get("id", "")),
            esc(c.get("text", "")) + note,
            _value(c.get("paper")),
            _value(c.get("ours")),
        ]
        rows.append([*cells, _value(c.get("n")), html.badge(verdict.split(" (")[0].split(":")[0], verdict)])
    kinds: dict[str, int] = {}
    for c in claims:
        kind = str(c.get("verdict", "inconclusive")).split(" (")[0].split(":")[0]
        kinds[kind] = kinds.get(kind, 0) + 1
    counts = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
    table = html.table(["id", "claim", "paper", "here", "n", "verdict"], rows, "claims cards")
    head = f'<h2>Claims</h2><p class="lead">{esc(counts)}.</p>'
    return f'<section id="claims"><div class="wrap">{head}{table}</div></section>'


def _value(value: Any) -> str:
    return "" if value is None else esc(show(value))


def figures_section(figures: Sequence[tuple[str, str, Any]], draw: Draw) -> str:
    """Further figures, two in a row."""
    cards = "".join(draw(title, caption, chart) for title, caption, chart in figures)
    one = " one" if len(figures) == 1 else ""
    grid = f'<div class="grid{one}">{cards}</div>'
    return f'<section id="figures"><div class="wrap"><h2>Figures</h2>{grid}</div></section>'


def _anchor(name: str) -> str:
    return "study-" + "".join(c if c.isalnum() or c in "-_" else "-" for c in name)
