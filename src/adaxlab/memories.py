"""What b2*T changed in the studies that ran AdaX at several: a part of the guide, from the records.

A row compares two memories on the same seeds; each has its own lr where the study tuned it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from adaxlab import claims, markdown, stats
from adaxlab import records as committed
from adaxlab.cifar.claims import diverged
from adaxlab.cifar.drive import records
from adaxlab.imagenet.rules import failed
from adaxlab.paper import catalogue
from adaxlab.summary import summarise
from adaxlab.voc import claims as segmentation

Scores = Mapping[int, float | None]
"""Of a seed; None for a run that diverged."""
WORDS = {"held": "longer", "not held": "shorter", "undecided": "not told apart"}


class Pair(NamedTuple):
    """Two memories of one task, by b2*T."""

    task: str
    short: str
    long: str
    higher: bool
    a: Scores
    b: Scores


def table(root: Path) -> str:
    """A row a pair: how much better the longer memory was, with its interval."""
    rows = []
    for pair in _all(root):
        found = list(stats.paired(pair.b, pair.a, pair.higher).values())
        if len(found) >= claims.LEAST:
            seen = stats.t_interval(found)
            unit, digits = ("points", 2) if pair.higher else ("nats", 3)
            mean, low, high = (f"{x:+.{digits}f}" for x in (seen.mean, seen.low, seen.high))
            told = WORDS[claims.outcome("above", 0.0, seen.low, seen.high)]
            rows.append((pair.task, pair.short, pair.long, seen.n, f"{mean} ({low} to {high}) {unit}", told))
    if not rows:
        return "*Not run yet (`adax reproduce` lists the studies).*"
    head = ("task", "b2·T", "longer", "n", "the longer is better by (95%, paired by seed)", "better")
    return markdown.table(head, rows)


def _all(root: Path) -> Iterator[Pair]:
    for short, long, *names in (
        ("0.7", "7", "adaxw b2 1e-05", "adaxw b2 0.0001"),
        ("7", "71", "adaxw b2 0.0001", "adaxw b2 0.001"),
    ):
        lines = records(root / "records" / "cifar10" / "beta2.jsonl")
        scores = _pictures(lines, names, diverged)
        yield Pair("[CIFAR-10](cifar10.md#beta2), ResNet-20", short, long, True, *scores)
    for study, words in {"tiny": "the paper's lr", "tuned": "each its lr"}.items():
        lines = records(root / "records" / "imagenet" / f"{study}.jsonl")
        scores = _pictures(lines, ["adaxw", "adaxw-b2T50"], failed)
        yield Pair(f"[Tiny-ImageNet](imagenet.md), ResNet-18, {words}", "0.78", "50", True, *scores)
    runs = segmentation.records("camvid", root / "records")
    a, b = (segmentation.finals(runs, row) for row in ("adaxw@b2=1e-4", "adaxw"))
    scores = [{seed: segmentation.iou(run) for seed, run in part.items()} for part in (a, b)]
    yield Pair("[CamVid](voc.md), the paper's lr", "0.2", "2", True, *scores)
    for short, long in (("1", "3"), ("3", "10"), ("10", "30")):
        scores = _losses(root, "gpt", [f"adaxw@b2T={short}", f"adaxw@b2T={long}"])
        yield Pair("[transformer](gpt.md), each its lr", short, long, False, *scores)
    for text, of in {"ptb": "Penn Treebank", "enwik8": "words of enwik8"}.items():
        scores = _losses(root, f"language/{text}", ["adax@b2T=3", "adax"])
        yield Pair(f"[{of}](language.md), LSTM, sparse, each its lr", "3", "35", False, *scores)


def _pictures(
    lines: list[dict[str, Any]], names: list[str], lost: Callable[[Mapping[str, Any]], bool]
) -> list[Scores]:
    return [
        {r["seed"]: None if lost(r) else r["test_accuracy"] for r in lines if r["row"] == name}
        for name in names
    ]


def _losses(root: Path, study: str, names: list[str]) -> list[Scores]:
    runs = committed.load(root / "records", study)
    found = summarise(catalogue.study(study), runs)
    return [found.row(name).values for name in names]
