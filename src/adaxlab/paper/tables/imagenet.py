"""Tables of the ImageNet studies in Markdown, from run records."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from adaxlab import driver, markdown, records, stats
from adaxlab.measures import FLOORS, failed, percent
from adaxlab.paper import catalogue, drawn
from adaxlab.paper.imagenet import RATES, STUDIES
from adaxlab.provenance import not_complete
from adaxlab.report.names import title
from adaxlab.store import RunRecord
from adaxlab.study import Study
from adaxlab.summary import RowResult, summarise

TITLES = {row: title(row.replace("-b2T50", "@b2T=50")) for row in RATES}
HOW = {"compiled": "compiled", "graph": "with a CUDA graph"}
NOT = {"compiled": "not compiled", "graph": "without a CUDA graph"}
PRECISION = {"bf16": "bfloat16 autocast", "tf32": "TF32", "fp32": "float32", "fp64": "float64"}


def show(study: Study, runs: Sequence[RunRecord]) -> str:
    """A study's rows: ours with n and interval, the paper's on ImageNet beside it; of tuning, what was tried."""
    found = summarise(study, runs)
    if not study.seeds:
        return tried(study, runs)
    heads = ("", "lr", "b2·T", "n", "top-1, %", "95% interval", "training accuracy, %", "paper, on ImageNet")
    rows: list[tuple[object, ...]] = []
    for row in study.rows:
        mine = found.row(row.name)
        paper = f"{row.paper[0]:.2f} ± {row.paper[1]:.2f}" if row.paper else ""
        head = (TITLES.get(row.name, row.name), f"{mine.lr:g}", memory(mine.runs))
        good = [run for run in mine.runs if not failed(run)]
        if not good:
            rows.append((*head, 0, f"all {mine.n} failed" if mine.n else "not run", "", "", paper))
            continue
        seen = stats.t_interval([percent(run.done["metric"]) for run in good if run.done])
        trained = stats.mean([percent(run.metrics[-1]["train_metric"]) for run in good])
        interval = f"{seen.low:.2f} to {seen.high:.2f}" if seen.n > 1 else "–"
        lost = f" ({mine.n - seen.n} failed)" if mine.n > seen.n else ""
        rows.append((*head, f"{seen.n}{lost}", f"{seen.mean:.2f}", interval, f"{trained:.2f}", paper))
    edge = edges(found.rows) if study.follows else ""
    return markdown.table(heads, rows) + "\n\n" + caption(study, runs) + edge


def memory(runs: Sequence[RunRecord]) -> str:
    """b2*T of runs of AdaX."""
    for run in runs:
        if run.done and run.spec["optimizer"].startswith("adax"):
            return f"{run.spec['options']['betas'][1] * run.done['steps']:.3g}"
    return ""


def tried(study: Study, runs: Sequence[RunRecord]) -> str:
    """Tuning: a row a method, its rates from the largest to the smallest; the best in bold, once all have ended."""
    found = summarise(study, runs)
    missing = study.runs() - len(runs)
    best = {} if missing else driver.rates_of(study, runs)
    rows = []
    for row in study.rows:
        trials = found.row(row.name).trials
        cells = [
            f"{lr:g}: {_score(trials, lr, best.get(row.name))}" for lr in sorted(row.rates, reverse=True)
        ]
        mine = [run for run in runs if run.row == row.name]
        rows.append((TITLES[row.name], memory(mine), *cells))
    left = f" {missing} of {study.runs()} runs have not been made yet." if missing else ""
    lost = sum(failed(run) for run in runs)
    gone = f" {lost} runs failed." if lost else ""
    heads = ("", "b2·T", *["lr: top-1, %"] * max(len(row.rates) for row in study.rows))
    return markdown.table(heads, rows) + "\n\n" + caption(study, runs) + gone + left


def _score(trials: Mapping[float, float | None], lr: float, best: float | None) -> str:
    if lr not in trials:
        return "–"
    value = trials[lr]
    if value is None or percent(value) <= FLOORS["imagenet"]:
        return "failed"
    return f"**{percent(value):.2f}**" if lr == best else f"{percent(value):.2f}"


def edges(rows: Sequence[RowResult]) -> str:
    """A sentence on methods whose best rate was the first or last of those tried: a wider search might say more."""
    found = [TITLES[row.name] for row in rows if row.lr in (min(RATES[row.name]), max(RATES[row.name]))]
    return f" Best at the edge of the tried learning rates: {', '.join(found)}." if found else ""


def caption(study: Study, runs: Sequence[RunRecord]) -> str:
    """What was run, on what."""
    run = next((run for run in runs if run.done), None)
    if run is None or run.done is None:
        return study.note
    options, done, device = run.spec["task_options"], run.done, run.env["hardware"]["device"]
    judged = "held-out images" if run.spec["purpose"] == "tune" else "validation images"
    return (
        f"{options['model'].replace('resnet', 'ResNet-')} (stem: {options['stem']}), {done['classes']} classes, "
        f"{done['images']:,} images, crops of {options['size']} pixels, {run.spec['epochs']} epochs of batch "
        f"{run.spec['batch_size']} ({done['steps']:,} steps), {PRECISION[options['precision']]}, top-1 of the last "
        f"epoch on {done['test_images']:,} {judged}; {device}. "
        f"`adax reproduce {study.name}`. AdaX is run as published (`wake=False`). {study.note}"
    )


def table(name: str, root: Path) -> str:
    """The table of imagenet/`name` from the committed records; or a note that it was not run."""
    study = catalogue.study(f"imagenet/{name}")
    runs = records.load(root / "records", study.name)
    return show(study, runs) if runs else not_complete(study, root)


def speed(root: Path) -> str:
    """Images a second, with and without the network, from records/imagenet/speed.json."""
    path = root / "records" / "imagenet" / "speed.json"
    if not path.is_file():
        return "*Not measured yet (`python benchmarks/imagenet.py --data FOLDER`).*"
    return speed_table(json.loads(path.read_text()))


def speed_table(record: Mapping[str, Any]) -> str:
    """The rows of benchmarks/imagenet.py."""
    read = [(r["what"], f"{r['images_per_second']:,.0f}", f"{r['ms']:.2f}") for r in record["rows"]]
    text = markdown.table(("", "images per second", "ms per batch"), read)
    device = record["environment"]["hardware"]["device"]
    turns = record.get("in_turn", {})
    if ms := turns.get("ms"):
        rows = [(TITLES.get(row, row), f"{statistics.median(v):.3f}", len(v)) for row, v in ms.items()]
        text += "\n\n" + markdown.table(("alternating methods", "ms per step, median", "rounds"), rows)
    return text + (
        f"\n\nBatches of {record['batch']}, images of {record['stored']} pixels, {record['model']}, "
        f"{PRECISION[record['precision']]}; {device}, torch {record['environment']['versions']['torch']}."
        f"{_turns(turns)}"
    )


def _turns(turns: Mapping[str, Any]) -> str:
    """How the methods in turn were measured, as far as the record says it."""
    if not turns.get("ms"):
        return " Alternating methods: not measured."
    compiled, graph = (word if turns[key] else NOT[key] for key, word in HOW.items())
    many = f", {turns['processes']} processes" if turns["processes"] > 1 else ""
    return f" Alternating methods: study {turns['study']}, {turns['steps']} steps per round, {compiled}, {graph}{many}."


def _section(study: Study) -> Callable[[Path], str]:
    def section(root: Path) -> str:
        ran = (root / "records" / f"{study.name}.jsonl").is_file()
        shown = f"\n\n{drawn.shown(study.name.replace('/', '-'))}" if ran else ""
        return table(study.name.removeprefix("imagenet/"), root) + shown

    return section


SECTIONS: dict[str, Callable[[Path], str]] = {
    **{s.name.replace("/", "-").replace("50", "-fifty"): _section(s) for s in STUDIES if s.stand_in},
    "imagenet-speed": speed,
}
"""Marked parts of docs/imagenet.md (marks are letters and hyphens only)."""
