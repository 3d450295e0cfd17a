"""What b2*T changed in the studies that ran AdaX at several: a part of the guide, from the records.

A row compares two memories on the same seeds; each has its own lr where the study tuned it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from adaxlab import markdown, stats
from adaxlab.finding import LEAST, by_seed, outcome, runs_of
from adaxlab.measures import ended, final_percent
from adaxlab.paper import catalogue
from adaxlab.records import load
from adaxlab.summary import summarise

Scores = Mapping[int, float | None]
"""Of a seed; None for a run that diverged."""
WORDS = {True: "larger b2·T", False: "smaller b2·T", None: "no significant difference"}


class Pair(NamedTuple):
    """Two memories of one task, by b2*T."""

    task: str
    small: str
    large: str
    higher: bool
    a: Scores
    b: Scores


def table(root: Path) -> str:
    """A row a pair: how much better the larger b2*T was, with its interval."""
    rows = []
    for pair in _all(root):
        found = list(stats.paired(pair.b, pair.a, pair.higher).values())
        if len(found) >= LEAST:
            seen = stats.t_interval(found)
            unit, digits = ("points", 2) if pair.higher else ("nats", 3)
            mean, low, high = (f"{x:+.{digits}f}" for x in (seen.mean, seen.low, seen.high))
            told = WORDS[outcome("better", 0.0, seen.low, seen.high)]
            rows.append((pair.task, pair.small, pair.large, seen.n, f"{mean} ({low} to {high}) {unit}", told))
    if not rows:
        return "*Not run yet (`adax reproduce` lists the studies).*"
    head = (
        "task",
        "smaller b2·T",
        "larger b2·T",
        "n",
        "improvement with the larger b2·T (95%, paired by seed)",
        "better",
    )
    return markdown.table(head, rows)


def _all(root: Path) -> Iterator[Pair]:
    for short, long, *names in (
        ("0.7", "7", "adaxw b2 1e-05", "adaxw b2 0.0001"),
        ("7", "71", "adaxw b2 0.0001", "adaxw b2 0.001"),
    ):
        scores = _scores(root, "cifar10/beta2", names)
        yield Pair("[CIFAR-10](cifar10.md#beta2), ResNet-20", short, long, True, *scores)
    for study, words in {"tiny": "the paper's lr", "tuned": "each at its best lr"}.items():
        scores = _scores(root, f"imagenet/{study}", ["adaxw", "adaxw-b2T50"])
        yield Pair(f"[Tiny-ImageNet](imagenet.md), ResNet-18, {words}", "0.78", "50", True, *scores)
    scores = _scores(root, "voc/camvid", ["adaxw@b2=1e-4", "adaxw"])
    yield Pair("[CamVid](voc.md), the paper's lr", "0.2", "2", True, *scores)
    for short, long in (("1", "3"), ("3", "10"), ("10", "30")):
        scores = _losses(root, "gpt", [f"adaxw@b2T={short}", f"adaxw@b2T={long}"])
        yield Pair("[transformer](gpt.md), each at its best lr", short, long, False, *scores)
    for text, of in {"ptb": "Penn Treebank", "enwik8": "words of enwik8"}.items():
        scores = _losses(root, f"language/{text}", ["adax@b2T=3", "adax"])
        yield Pair(f"[{of}](language.md), LSTM, sparse, each at its best lr", "3", "35", False, *scores)


def _scores(root: Path, study: str, names: list[str]) -> list[Scores]:
    runs, of = load(root / "records", study), ended(final_percent)
    return [{s: of(run) for s, run in by_seed(runs_of(runs, study, name)).items()} for name in names]


def _losses(root: Path, study: str, names: list[str]) -> list[Scores]:
    runs = load(root / "records", study)
    found = summarise(catalogue.study(study), runs)
    return [found.row(name).values for name in names]
