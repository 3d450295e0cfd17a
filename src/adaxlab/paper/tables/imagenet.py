"""Tables of the ImageNet studies in Markdown, from run records."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from adaxlab import markdown, stats
from adaxlab.measures import percent
from adaxlab.paper.imagenet import RATES
from adaxlab.paper.tables.study import Column, Layout, Line, Runs
from adaxlab.report.names import title
from adaxlab.study import Study

TITLES = {row: title(row.replace("-b2T50", "@b2T=50")) for row in RATES}
HOW = {"compiled": "compiled", "graph": "with a CUDA graph"}
NOT = {"compiled": "not compiled", "graph": "without a CUDA graph"}
PRECISION = {"bf16": "bfloat16 autocast", "tf32": "TF32", "fp32": "float32", "fp64": "float64"}


def layout(study: Study, runs: Runs) -> Layout:
    """Top-1 in percent, and the training accuracy."""
    columns = (Column("training accuracy, %", _trained),)
    return Layout("top-1, %", columns=columns, title=lambda row: TITLES.get(row, row), setting=_setting)


def _trained(line: Line) -> str:
    values = [percent(run.metrics[-1]["train_metric"]) for run in line.good]
    return f"{stats.mean(values):.2f}" if values else ""


def _setting(study: Study, runs: Runs) -> str:
    """What was trained, on what."""
    run = next((run for run in runs if run.done), None)
    if run is None or run.done is None:
        return ""
    options, done = run.spec["task_options"], run.done
    judged = "held-out images" if run.spec["purpose"] == "tune" else "validation images"
    return (
        f"{options['model'].replace('resnet', 'ResNet-')} (stem: {options['stem']}), {done['classes']} classes, "
        f"{done['images']:,} images, crops of {options['size']} pixels, {run.spec['epochs']} epochs of batch "
        f"{run.spec['batch_size']} ({done['steps']:,} steps), {PRECISION[options['precision']]}, top-1 of the last "
        f"epoch on {done['test_images']:,} {judged}; AdaX is run as published (`wake=False`)"
    )


def speed(record: Mapping[str, Any]) -> str:
    """Images a second, with and without the network: the rows of benchmarks/imagenet.py."""
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


NOT_MEASURED = "*Not measured yet (`python benchmarks/imagenet.py --data FOLDER`).*"
SECTIONS = {"imagenet-speed": markdown.recorded("imagenet/speed.json", speed, NOT_MEASURED)}
