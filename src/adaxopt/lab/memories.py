"""What b2*T changed in the studies that ran AdaX at several: a part of the guide, from the records.

A row compares two memories on the same seeds; each has its own lr where the study tuned it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from adaxopt.lab import markdown, stats
from adaxopt.lab.cifar.drive import records
from adaxopt.lab.voc import claims as segmentation

Scores = Mapping[int, float]
"""Of a seed, higher is better."""


class Pair(NamedTuple):
    """Two memories of one task."""

    task: str
    short: str
    long: str
    unit: str
    digits: int
    a: Scores
    b: Scores


def table(root: Path) -> str:
    """A row a pair: how much better the longer memory was, with its interval."""
    rows = []
    for pair in _all(root):
        found = [pair.b[seed] - pair.a[seed] for seed in sorted(pair.a.keys() & pair.b.keys())]
        if len(found) > 1:
            seen = stats.t_interval(found)
            mean, low, high = (f"{x:+.{pair.digits}f}" for x in (seen.mean, seen.low, seen.high))
            told = "longer" if seen.low > 0 else "shorter" if seen.high < 0 else "not told apart"
            rows.append(
                (pair.task, pair.short, pair.long, seen.n, f"{mean} ({low} to {high}) {pair.unit}", told)
            )
    if not rows:
        return "*Not run yet (`adax reproduce` lists the studies).*"
    head = ("task", "b2·T", "longer", "n", "the longer is better by (95%, paired by seed)", "better")
    return markdown.table(head, rows)


def _all(root: Path) -> Iterator[Pair]:
    cifar = root / "cifar10" / "beta2.jsonl"
    for short, long, *names in (
        ("0.7", "7", "adaxw b2 1e-05", "adaxw b2 0.0001"),
        ("7", "71", "adaxw b2 0.0001", "adaxw b2 0.001"),
    ):
        yield _pictures(cifar, "[CIFAR-10](cifar10.md#beta2), ResNet-20", short, long, *names)
    for study, words in {"tiny": "the paper's lr", "tuned": "each its lr"}.items():
        task, path = f"[Tiny-ImageNet](imagenet.md), ResNet-18, {words}", root / "imagenet" / f"{study}.jsonl"
        yield _pictures(path, task, "0.78", "50", "adaxw", "adaxw-b2T50")
    yield _segmentation(root)
    for short, long in (("1", "3"), ("3", "10"), ("10", "30")):
        names = [f"adaxw@b2T={short}", f"adaxw@b2T={long}"]
        yield _grid(root / "gpt" / "gpt.json", "[transformer](gpt.md), each its lr", short, long, *names)
    for text, of in {"ptb": "Penn Treebank", "enwik8": "words of enwik8"}.items():
        task = f"[{of}](language.md), LSTM, sparse, each its lr"
        yield _grid(root / "language" / f"{text}.json", task, "3", "35", "adax@b2T=3", "adax")


def _segmentation(root: Path) -> Pair:
    runs = segmentation.records("camvid", root)
    values = [
        {seed: segmentation.iou(run) for seed, run in segmentation.finals(runs, row).items()}
        for row in ("adaxw@b2=1e-4", "adaxw")
    ]
    a, b = ({seed: value for seed, value in each.items() if value is not None} for each in values)
    return Pair("[CamVid](voc.md), the paper's lr", "0.2", "2", "points", 2, a, b)


def _pictures(path: Path, task: str, short: str, long: str, *names: str) -> Pair:
    lines = records(path)
    a, b = ({r["seed"]: r["test_accuracy"] for r in lines if r["row"] == name} for name in names)
    return Pair(task, short, long, "points", 2, a, b)


def _grid(path: Path, task: str, short: str, long: str, *names: str) -> Pair:
    rows = json.loads(path.read_text())["rows"] if path.is_file() else []
    curves = {row["optimizer"]: row["curves"] for row in rows}
    a, b = (
        {int(seed): -curve[-1][2] for seed, curve in curves.get(name, {}).items() if curve} for name in names
    )
    return Pair(task, short, long, "nats", 3, a, b)
