"""Parts of docs/hyperparameters.md, from the records: what CIFAR-10 says of each setting, the best learning rates of
Adam(W) and AdaX(-W), and what b2*T changed.

Every best lr comes with the number of learning rates tried per method; one at the edge of the tried range is marked,
because a wider search might find a better one. Two memories are compared on the same seeds, each at its own lr where
the study tuned it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from adaxlab import markdown, stats
from adaxlab.claim import ENOUGH
from adaxlab.finding import LEAST, by_seed, outcome, runs_of
from adaxlab.measures import ended, final, final_percent
from adaxlab.paper import catalogue
from adaxlab.paper.cifar10_runs import STUDIES, accuracy
from adaxlab.paper.cifar10_runs import load as cifar_runs
from adaxlab.paper.tables.cifar10 import title
from adaxlab.paper.tables.study import Layout, best
from adaxlab.paper.voc import ADAMW, ADAXW
from adaxlab.records import load
from adaxlab.summary import best_rate, summarise

NOT_RUN = "*Not run yet (`adax reproduce` lists the studies).*"
TEXTS = {"ptb-wide": "Penn Treebank", "enwik8": "words of enwik8"}

# -- settings of AdaX-W on CIFAR-10 -----------------------------------------------------------------------------------

VARIED = {
    "lr": "lr",
    "lr-new": "lr, new seeds",
    "beta1": "b1",
    "beta1-new": "b1, new seeds",
    "beta2-new": "b2, new seeds",
    "epsilon": "eps",
    "epsilon-new": "eps, new seeds",
}
"""Studies that vary one setting of AdaX-W, and what it is called."""


def settings(root: Path) -> str:
    """A line for each setting that was varied, and one for the learning rates that suit the methods."""
    records = root / "records"
    lines = [line for line in (_varied(records, *pair) for pair in VARIED.items()) if line]
    tuning = cifar_runs("tuning", records)
    if tuning:
        tops = {row.name: best(tuning, row, Layout()) for row in STUDIES["tuning"].rows}
        said = ", ".join(f"{title(row)} {lr:g}" for row, lr in tops.items())
        lines.append(
            f"- best of five learning rates on held-out images, one run each ([tuning](cifar10.md#tuning)): {said}"
        )
    if not lines:
        return "*Not run yet (`adax reproduce cifar10/lr`, `beta1`, `beta2`, `epsilon`, `tuning`).*"
    return "\n".join(
        [f"Test accuracy of AdaX-W in %, all other settings as in the paper{_noise(records)}:", "", *lines]
    )


def _noise(records: Path) -> str:
    """The standard deviation between seeds, pooled over rows with at least three runs, as a text."""
    squares, free = 0.0, 0
    for study in VARIED:
        found = [r for r in cifar_runs(study, records) if r.spec["optimizer"] == "adaxw"]
        for row in dict.fromkeys(r.row for r in found):
            values = [accuracy(r) for r in found if r.row == row]
            if len(values) >= LEAST:
                squares += stats.sd(values) ** 2 * (len(values) - 1)
                free += len(values) - 1
    if not free:
        return ""
    return f" (the standard deviation between seeds is {(squares / free) ** 0.5:.2f})"


def _varied(records: Path, study: str, letter: str) -> str:
    found = cifar_runs(study, records)
    rows = [row.name for row in STUDIES[study].rows if row.optimizer == "adaxw"]
    seen = {row: [accuracy(r) for r in found if r.row == row] for row in rows}
    if not all(seen.values()):
        return ""
    said = ", ".join(f"{stats.mean(values):.2f} at {row.split()[-1]}" for row, values in seen.items())
    return f"- {letter} ([{study}](cifar10.md#{study}), n = {min(map(len, seen.values()))}): {said}"


# -- best learning rates ----------------------------------------------------------------------------------------------

Trials = Mapping[float, float | None]
"""The score of each lr; None where it diverged."""


class Tuned(NamedTuple):
    """One task: what is better (higher or lower scores), and the scores by lr."""

    task: str
    higher: bool
    adam: Trials
    adax: Trials


def enclosed(scores: Trials, higher: bool) -> tuple[float | None, bool]:
    """The best lr (None: all diverged), and whether it is at the edge of those tried.

    >>> enclosed({1e-3: 2.0, 1e-2: 1.5, 1e-1: None}, higher=False)
    (0.01, False)
    """
    found = best_rate(scores, higher)
    return found, found is not None and found in (min(scores), max(scores))


def best_lr(root: Path) -> str:
    """One row per task; the last column is the ratio of AdaX's best lr to Adam's."""
    rows = []
    for line in _tuned(root):
        if not (line.adam and line.adax):
            continue
        adam, adax = enclosed(line.adam, line.higher), enclosed(line.adax, line.higher)
        count = [len(line.adam), len(line.adax)]
        tried = f"{count[0]} each" if count[0] == count[1] else f"{count[0]} and {count[1]}"
        ratio = f"{adax[0] / adam[0]:.2g}" if adam[0] and adax[0] else ""
        rows.append((line.task, tried, _cell(*adam), _cell(*adax), ratio))
    if not rows:
        return NOT_RUN
    head = ("task", "learning rates tried", "best lr, Adam or AdamW", "best lr, AdaX or AdaX-W", "ratio")
    text = markdown.table(head, rows)
    return text + ("\n\n\\* at the edge of the tried range." if "* |" in text else "")


def _cell(lr: float | None, edge: bool) -> str:
    return "all diverged" if lr is None else f"{lr:g}{'*' * edge}"


def _tuned(root: Path) -> Iterator[Tuned]:
    yield from _small(root)
    cifar = "[CIFAR-10](cifar10.md#tuning), ResNet-20, b2 = 1e-4"
    yield from _grid(root, "cifar10/tuning", cifar, "adamw", "adaxw")
    for product, row in {"0.78": "adaxw", "50": "adaxw-b2T50"}.items():
        place = "imagenet.md#resnet-18-on-tiny-imagenet-a-stand-in-equal-tuning"
        task = f"[Tiny-ImageNet]({place}), ResNet-18, b2·T = {product}"
        yield from _grid(root, "imagenet/tuning", task, "adamw", row)
    camvid = "[CamVid](voc.md#with-equal-tuning-budgets-a-stand-in), ResNet-50, b2·T = 2"
    yield from _grid(root, "voc/tuning", camvid, ADAMW, ADAXW)
    finer = "[CamVid](voc.md#grid), the same with weight decay 0.1"
    yield from _grid(root, "voc/grid", finer, f"{ADAMW} wd 0.1", f"{ADAXW} wd 0.1")
    for text, of in TEXTS.items():
        for b, row in {3: "adax@b2T=3", 35: "adax"}.items():
            task = f"[{of}](language.md), LSTM, b2·T = {b}"
            yield from _grid(root, f"language/{text}", task, "adam", row)
    for b in (1, 3, 10, 30):
        task = f"[bytes of enwik8](gpt.md), transformer, b2·T = {b}"
        yield from _grid(root, "gpt", task, "adamw", f"adaxw@b2T={b}")


def _small(root: Path) -> Iterator[Tuned]:
    rows = (markdown.read(root, "first_lr.json") or {"rows": []})["rows"]
    for task in dict.fromkeys(row["task"] for row in rows):
        mine = [row for row in rows if row["task"] == task]
        means = [
            {r["lr"]: None if r["diverged"] else r["mean"] for r in mine if r["optimizer"] == name}
            for name in ("adamw", "adaxw")
        ]
        words = f"[`{task}`](migrating.md#which-lr-to-start-from), b2·T = 2"
        yield Tuned(words, mine[0]["higher_is_better"], *means)


def _grid(root: Path, name: str, task: str, adam: str, adax: str) -> Iterator[Tuned]:
    if runs := load(root / "records", name):
        found = summarise(catalogue.study(name), runs)
        yield Tuned(task, found.higher_is_better, found.row(adam).trials, found.row(adax).trials)


# -- memories ---------------------------------------------------------------------------------------------------------

WORDS = {True: "larger b2·T", False: "smaller b2·T", None: "no significant difference"}


class Pair(NamedTuple):
    """Two memories of one task: b2*T, whether a higher metric is better, and the metric of each seed (None: failed)."""

    task: str
    small: str
    large: str
    higher: bool
    a: Mapping[int, float | None]
    b: Mapping[int, float | None]


def memories(root: Path) -> str:
    """One row per pair: the improvement with the larger b2*T, with its interval."""
    rows = []
    for pair in pairs(root):
        found = list(stats.paired(pair.b, pair.a, pair.higher).values())
        if len(found) >= LEAST:
            seen = stats.t_interval(found)
            unit, digits = ("points", 2) if pair.higher else ("nats", 3)
            mean, low, high = (f"{x:+.{digits}f}" for x in (seen.mean, seen.low, seen.high))
            better = outcome("better", 0.0, seen.low, seen.high)
            told = WORDS[better] + (" (provisional)" if better is not None and seen.n < ENOUGH else "")
            rows.append((pair.task, pair.small, pair.large, seen.n, f"{mean} ({low} to {high}) {unit}", told))
    if not rows:
        return NOT_RUN
    gain = "improvement with the larger b2·T (95%, paired by seed)"
    return markdown.table(("task", "smaller b2·T", "larger b2·T", "n", gain, "better"), rows)


def pairs(root: Path) -> Iterator[Pair]:
    def pair(
        study: str, task: str, small: tuple[str, str], large: tuple[str, str], higher: bool = True
    ) -> Pair:
        """`small` and `large` are b2*T and the study's row."""
        runs, of = load(root / "records", study), ended(final_percent if higher else final)
        a, b = (
            {seed: of(run) for seed, run in by_seed(runs_of(runs, study, row)).items()}
            for _, row in (small, large)
        )
        return Pair(task, small[0], large[0], higher, a, b)

    cifar = [("0.7", "adaxw b2 1e-05"), ("7", "adaxw b2 0.0001"), ("71", "adaxw b2 0.001")]
    for two in itertools.pairwise(cifar):
        yield pair("cifar10/beta2-new", "[CIFAR-10](cifar10.md#beta2-new), ResNet-20", *two)
    for study, words in {"tiny": "the paper's lr", "tuned": "each at its best lr"}.items():
        task = f"[Tiny-ImageNet](imagenet.md), ResNet-18, {words}"
        yield pair(f"imagenet/{study}", task, ("0.78", "adaxw"), ("50", "adaxw-b2T50"))
    yield pair("voc/camvid", "[CamVid](voc.md), the paper's lr", ("0.2", "adaxw@b2=1e-4"), ("2", "adaxw"))
    gpt = [(b, f"adaxw@b2T={b}") for b in ("1", "3", "10", "30")]
    for two in itertools.pairwise(gpt):
        yield pair("gpt", "[transformer](gpt.md), each at its best lr", *two, higher=False)
    for text, of in TEXTS.items():
        task = f"[{of}](language.md), LSTM, sparse, each at its best lr"
        yield pair(f"language/{text}", task, ("3", "adax@b2T=3"), ("35", "adax"), higher=False)


SECTIONS = {"cifar-settings": settings, "best-lr": best_lr, "memories": memories}
