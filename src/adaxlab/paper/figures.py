"""Every figure of the documentation from the committed records: `python -m adaxlab.paper.figures`.

    records/**/*.jsonl       exported runs of whole studies: <study>-metric.svg and the others of `Study.figures`
    records/gpu_step.json    gpu-step.svg
    records/theory/*.json    theory-*.svg
    records/language/*.json  late-activation.svg
    records/claims/*.json    claims-forest.svg, from the runs that these claims rest on
    *memory-screen.jsonl     memory-study.svg; memory-finals.svg from the claims on the final runs

Each figure has a twin for dark pages, `<name>-dark.svg`. Nothing is computed here but what the charts need, so the
same records give the same bytes, on any machine; `--check` says which figures are not those of the records.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from adaxlab import stats
from adaxlab.errors import LabError
from adaxlab.measures import percent
from adaxlab.paper import catalogue, cifar10_charts, cifar10_runs, doc_charts, drawn, forest, memory_chart
from adaxlab.paper.memory_finals import TASKS
from adaxlab.paper.tables import gpu_step, memory_study
from adaxlab.paper.theory.figures import for_record, save
from adaxlab.records import UNFINISHED
from adaxlab.report.embed import as_dict, entitle, labels_in
from adaxlab.report.names import titles
from adaxlab.report.static import THEMES, save_chart, save_charts
from adaxlab.store import EXPORT, RunRecord, read_export
from adaxlab.study import Study

OWN = "adaxw"
"""What the tasks with images compare the others with, as their claims do."""


def draw(records: Path, folder: Path) -> list[Path]:
    """Draw every record under `records` into `folder` and return the figures."""
    if not records.is_dir():
        raise LabError(
            f"{records}: no such folder; run this from the root of the repository or give --records"
        )
    out: list[Path] = []
    studies = [study for study in catalogue.studies().values() if isinstance(study, Study)]
    wanted = frozenset(name for study in studies for name in drawn.names(study))
    for file in sorted(records.rglob("*.jsonl")):
        if file.parent.name not in (UNFINISHED, "cifar10") and EXPORT in file.read_text().partition("\n")[0]:
            runs = [in_percent(run) for run in read_export(file)]
            out += save_charts(runs, folder, THEMES, *_judged(runs), only=wanted)
    if (records / "cifar10").is_dir():
        runs = cifar10_charts.load(records)
        out += save_charts(runs, folder, THEMES, OWN, only=wanted) if runs else []
        for study in studies:
            if "second-moment" in study.figures:
                out += _trace(study.name.partition("/")[2], records, folder)
    if (records / "claims").is_dir():
        lines = forest.lines(records)
        stem = folder / "claims-forest"
        out += save_chart(forest.chart(lines), stem, forest.words(lines), known=forest.MARKS)
    out += _memories(records, folder)
    if (speed := records / gpu_step.RECORD).is_file():
        record = json.loads(speed.read_text())
        out += save_chart(
            doc_charts.gpu_steps(record), folder / "gpu-step", doc_charts.gpu_steps_words(record)
        )
    if (late := records / "language" / "late_activation.json").is_file():
        record = json.loads(late.read_text())
        words = doc_charts.late_activation_words(record)
        out += save_chart(doc_charts.late_activation(record), folder / "late-activation", words)
    for file in sorted((records / "theory").glob("*.json")):
        out += save(for_record(json.loads(file.read_text())), folder)
    return out


PERCENT = {"accuracy": "accuracy (%)", "mean IoU": "mean IoU (%)"}
"""The metrics that the tables have in percent, by their names in the records."""


def in_percent(run: RunRecord) -> RunRecord:
    """The run in the unit of the tables: shares of 1 in percent, everything else as it is."""
    if not run.done or run.done["metric_name"] not in PERCENT:
        return run
    done = {**_scaled(run.done), "metric_name": PERCENT[run.done["metric_name"]]}
    return replace(run, metrics=[_scaled(point) for point in run.metrics], done=done)


def _scaled(values: Mapping[str, Any]) -> dict[str, Any]:
    shares = ("metric", "train_metric", "best")
    return {key: percent(v) if key in shares and v is not None else v for key, v in values.items()}


def _judged(runs: Sequence[RunRecord]) -> tuple[str | None, stats.DecisionRule | None]:
    """What the study compares with and by which rule: AdaX-W where it takes part, else the study's baseline."""
    study = catalogue.studies().get(runs[0].spec["study"])
    if not isinstance(study, Study):
        return OWN, None
    return OWN if OWN in [row.name for row in study.rows] else study.baseline, study.rule


def _trace(study: str, records: Path, folder: Path) -> list[Path]:
    runs = cifar10_runs.load(study, records)
    chart = doc_charts.second_moment(runs)
    if chart is None:
        return []
    spec = as_dict(chart)
    stem = folder / f"cifar10-{study}-second-moment"
    return save_chart(entitle(spec, titles(labels_in(spec))), stem, doc_charts.second_moment_words(runs))


def _memories(records: Path, folder: Path) -> list[Path]:
    """The figures of the memory study."""
    screens = [(task, memory_study.found(records.parent, task)) for task in TASKS]
    found = [(task, memory_study.trials(one), one.higher_is_better) for task, one in screens if one]
    final = memory_study.finals(records.parent)
    if not final or len(found) < len(TASKS):
        return []
    marks = memory_chart.marks(found)
    out = save_chart(memory_chart.chart(found), folder / memory_study.FIGURE, memory_chart.WORDS, known=marks)
    chart = memory_chart.finals(final, marks)
    return out + save_chart(chart, folder / memory_study.FINAL_FIGURE, memory_chart.FINAL_WORDS, known=marks)


def stale(records: Path, folder: Path) -> list[str]:
    """The names of figures in `folder` that are missing or are not those of the records."""
    with tempfile.TemporaryDirectory() as fresh:
        made = draw(records, Path(fresh))
        return [p.name for p in made if not _same(p, folder / p.name)]


def _same(one: Path, two: Path) -> bool:
    return two.is_file() and one.read_bytes() == two.read_bytes()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Draw the figures of the documentation from the records.")
    parser.add_argument("--records", type=Path, default=Path("records"))
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if a figure is out of date"
    )
    options = parser.parse_args(arguments)
    try:
        if options.check:
            names = stale(options.records, options.out)
            for name in names:
                print(
                    f"{options.out / name}: does not match the records; run python -m adaxlab.paper.figures"
                )
            return 1 if names else 0
        made = draw(options.records, options.out)
        print(f"{len(made)} figures in {options.out}")
        return 0
    except LabError as error:
        print(f"figures: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
