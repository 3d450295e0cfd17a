"""The lr that was best for Adam(W) and for AdaX(-W) in every study that tried several: a part of the guide.

Each row gives the number of learning rates tried per method. A best lr at the edge of the tried range is marked,
because a wider search might find a better one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from adaxlab import markdown
from adaxlab.finding import runs_of
from adaxlab.measures import MEASURES
from adaxlab.paper import catalogue
from adaxlab.paper.voc import ADAMW, ADAXW
from adaxlab.records import load
from adaxlab.summary import summarise

Scores = Mapping[float, float | None]


class Line(NamedTuple):
    """One task: what is better (higher or lower scores), and the scores by lr."""

    task: str
    higher: bool
    adam: Scores
    adax: Scores


def best(scores: Scores, higher: bool) -> tuple[float | None, bool]:
    """The best lr (None: all diverged), and whether it is at the edge of those tried; a run that diverged has no score.

    >>> best({1e-3: 2.0, 1e-2: 1.5, 1e-1: None}, higher=False)
    (0.01, False)
    """
    ended = {lr: score for lr, score in scores.items() if score is not None}
    if not ended:
        return None, False
    found = (max if higher else min)(ended, key=lambda lr: ended[lr])
    return found, found in (min(scores), max(scores))


def section(root: Path) -> str:
    """The marked part."""
    return table(root / "records")


def table(root: Path) -> str:
    """One row a task, AdaX's best lr over Adam's in the last column."""
    found = [line for line in _all(root) if line.adam and line.adax]
    if not found:
        return "*Not run yet (`adax reproduce` lists the studies).*"
    rows = []
    for line in found:
        adam, adax = best(line.adam, line.higher), best(line.adax, line.higher)
        count = [len(line.adam), len(line.adax)]
        tried = f"{count[0]} each" if count[0] == count[1] else f"{count[0]} and {count[1]}"
        ratio = f"{adax[0] / adam[0]:.2g}" if adam[0] and adax[0] else ""
        rows.append((line.task, tried, _cell(*adam), _cell(*adax), ratio))
    text = markdown.table(
        ("task", "learning rates tried", "best lr, Adam or AdamW", "best lr, AdaX or AdaX-W", "ratio"), rows
    )
    return text + ("\n\n\\* at the edge of the tried range." if "* |" in text else "")


def _cell(lr: float | None, edge: bool) -> str:
    return "all diverged" if lr is None else f"{lr:g}{'*' * edge}"


def _all(root: Path) -> Iterator[Line]:
    yield from _small(root / "first_lr.json")
    yield from _grid(
        root, "cifar10/tuning", "[CIFAR-10](cifar10.md#tuning), ResNet-20, b2 = 1e-4", "adamw", "adaxw"
    )
    for product, row in {"0.78": "adaxw", "50": "adaxw-b2T50"}.items():
        place = "imagenet.md#resnet-18-on-tiny-imagenet-a-stand-in-equal-tuning"
        task = f"[Tiny-ImageNet]({place}), ResNet-18, b2·T = {product}"
        yield from _grid(root, "imagenet/tuning", task, "adamw", row)
    yield _segmentation(root)
    for text, of in {"ptb": "Penn Treebank", "enwik8": "words of enwik8"}.items():
        for b, row in {3: "adax@b2T=3", 35: "adax"}.items():
            task = f"[{of}](language.md), LSTM, b2·T = {b}"
            yield from _grid(root, f"language/{text}", task, "adam", row)
    for b in (1, 3, 10, 30):
        task = f"[bytes of enwik8](gpt.md), transformer, b2·T = {b}"
        yield from _grid(root, "gpt", task, "adamw", f"adaxw@b2T={b}")


def _small(path: Path) -> Iterator[Line]:
    rows = json.loads(path.read_text())["rows"] if path.is_file() else []
    for task in dict.fromkeys(row["task"] for row in rows):
        mine = [row for row in rows if row["task"] == task]
        means = [
            {r["lr"]: None if r["diverged"] else r["mean"] for r in mine if r["optimizer"] == name}
            for name in ("adamw", "adaxw")
        ]
        yield Line(
            f"[`{task}`](migrating.md#which-lr-to-start-from), b2·T = 2", mine[0]["higher_is_better"], *means
        )


def _segmentation(root: Path) -> Line:
    runs, study = load(root, "voc/tuning"), "voc/tuning"
    adam, adax = (
        {run.spec["options"]["lr"]: MEASURES["IoU"].of(run) for run in runs_of(runs, study, row, "tune")}
        for row in (ADAMW, ADAXW)
    )
    return Line(
        "[CamVid](voc.md#with-equal-tuning-budgets-a-stand-in), ResNet-50, b2·T = 2", True, adam, adax
    )


def _grid(root: Path, name: str, task: str, adam: str, adax: str) -> Iterator[Line]:
    runs = load(root, name)
    if runs:
        found = summarise(catalogue.study(name), runs)
        yield Line(task, found.higher_is_better, found.row(adam).trials, found.row(adax).trials)
