"""All charts of a study, in reading order, with titles and captions, as Altair charts computed from records.

A chart is one layered view whose rows have a field `optimizer`. The page adds optimizer switches based on that field;
image files add background and fonts.
"""

from __future__ import annotations

from dataclasses import dataclass

import altair as alt

from adaxlab.report import curves
from adaxlab.report.encoding import Chart
from adaxlab.report.judged import Judged, judged
from adaxlab.report.numbers import percent
from adaxlab.report.rates import over_setting, tried
from adaxlab.report.rows import differences, seed_dots, wall_clock
from adaxlab.report.series import StudyRuns, axis_of, swept


@dataclass(frozen=True)
class Figure:
    """A chart with its name (for files), title and caption."""

    name: str
    title: str
    caption: str
    chart: alt.LayerChart


def figures(study: StudyRuns, found: Judged | None = None) -> list[Figure]:
    """The charts of a study; charts without data are omitted."""
    axis = axis_of(study)
    found = found or judged(study)
    base = study.says(found.base)
    several = any(len(s.finished) > 1 for s in study.series)
    over = f"Mean over {_seeds(study)}{' with its 95% interval' if several else ''}"
    lines = f"{_seeds(study)[0].upper()}{_seeds(study)[1:]}"
    if several and curves.single(study):
        lines = f"Thin: one line per seed ({_seeds(study)}). Thick: their mean"
    elif several:
        lines = over
    crosses = (
        " A thin line that ends in a cross is a diverged run."
        if any(s.diverged for s in study.series)
        else ""
    )
    steps = any(s.seconds("step_seconds") for s in study.series)
    solid = " The solid part is the optimizer's own step." if steps else ""
    paper = " The ring is the paper's mean, with its margin." if any(s.paper for s in study.series) else ""
    metric, metric_cut = curves.drawn(study, "metric", axis)
    loss, loss_cut = curves.drawn(study, "train_loss", axis)
    over_time, time_cut = curves.drawn(study, "train_loss", curves.TIME)
    sweep, edge = over_setting(study)
    over_lr, marks = tried(study)
    made: list[tuple[str, str, str, Chart]] = [
        (
            "metric",
            f"{study.metric_name[:1].upper()}{study.metric_name[1:]} during training",
            f"{lines}; {study.direction} is better.{crosses}{metric_cut}",
            metric,
        ),
        ("train-loss", "Training loss", f"{lines}.{crosses}{loss_cut}", loss),
        (
            "loss-time",
            "Training loss against wall-clock",
            f"{lines}, at the mean time of each evaluation; the time includes evaluations.{crosses}{time_cut}",
            over_time,
        ),
        (
            "seeds",
            f"Final {study.metric_name}, seed by seed",
            f"Each point is one run ({_seeds(study)}); the tick is the mean, the box its 95% interval.{paper}",
            seed_dots(study),
        ),
        (
            "sweep",
            f"Sensitivity to {key[0].replace('_', ' ')}" if (key := swept(study)) else "",
            f"Final runs: {over[0].lower()}{over[1:]}.{edge}",
            sweep,
        ),
        (
            "lr",
            "Sensitivity to the learning rate",
            "Tuning runs, scored on data kept from training and from the test. The line joins the best result "
            f"at each rate (the mean, if several seeds were tried){marks}.",
            over_lr,
        ),
        (
            "difference",
            f"Compared with {base} on the same seeds",
            f"Mean of the paired differences ({_seeds(study)}) and its {percent(found.rule.confidence)} interval; to "
            f"the right: better than {base}. The verdict comes from the test named under the table.",
            differences(study, found),
        ),
        (
            "time",
            "Time for one run",
            f"Mean wall-clock time; each tick is one run.{solid}",
            wall_clock(study),
        ),
    ]
    return [Figure(name, title, caption, chart) for name, title, caption, chart in made if chart is not None]


def _seeds(study: StudyRuns) -> str:
    """The number of finished runs per mean: `5 seeds`, or `3 to 5 seeds`."""
    counts = sorted({len(s.finished) for s in study.series if s.finished}) or [0]
    few = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
    return f"{few} seed{'s' * (counts[-1] != 1)}"
