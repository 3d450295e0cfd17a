"""The table of docs/should-i-use-adax.md: AdaX against AdamW after equal tuning, task by task, from the records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from adaxlab import markdown, records
from adaxlab.claim import ENOUGH, anchor
from adaxlab.paper import claims
from adaxlab.paper.gpt import GPT
from adaxlab.summary import summarise


class Task(NamedTuple):
    """A task of the table and the claim "AdaX is better than Adam(W), each at its best lr" that was judged on it."""

    task: str
    data: str
    claim: str
    baseline: str = "AdamW"


TASKS = (
    Task("image classification, ResNet-20", "CIFAR-10, the paper's data", "cifar10.fresh-over-adamw"),
    Task(
        "image classification, ResNet-18",
        "Tiny-ImageNet, a stand-in for ImageNet",
        "imagenet.tuned.adaxw-over-adamw",
    ),
    Task(
        "segmentation, ResNet-50 from ImageNet",
        "CamVid, a stand-in for VOC2012",
        "voc.adaxw-over-adamw-tuned",
    ),
    Task(
        "language, LSTM, b2·T = 3",
        "Penn Treebank, a stand-in for One Billion Word",
        "language.ptb.adax-over-adam.b2T3",
        "Adam",
    ),
    Task(
        "language, LSTM, b2·T = 3",
        "words of enwik8, a stand-in for One Billion Word",
        "language.enwik8.adax-over-adam.b2T3",
        "Adam",
    ),
)
TRANSFORMER = "adaxw@b2T=3"
ADVICE = {
    "supported": "AdaX-W",
    "contradicted": "{}",
    "inconclusive": "either; keep {}",
    "not run": "not measured",
}


def section(root: Path) -> str:
    """One line per task: recommendation, evidence, n, data."""
    judged = {row["id"]: row for row in claims.committed(root / "records")}
    lines = [_line(task, judged[task.claim]) for task in TASKS]
    lines += _transformer(root)
    return markdown.table(
        ("task", "use", "AdaX against AdamW or Adam, each at its best lr", "n", "data"), lines
    )


def _line(task: Task, row: Mapping[str, Any]) -> tuple[object, ...]:
    advice = ADVICE[row["verdict"]].format(task.baseline)
    seen = f"{row['ours']} ([rule](claims.md#{anchor(task.claim)}))"
    return (task.task, advice + mark(row), seen, row["n"], task.data)


def mark(row: Mapping[str, Any]) -> str:
    return ", provisional" if row["provisional"] else ""


def _transformer(root: Path) -> list[tuple[object, ...]]:
    """The transformer's study has no claims of the paper: its own comparison with AdamW."""
    runs = records.load(root / "records", GPT.name)
    if not runs:
        return []
    found = summarise(GPT, runs).row(TRANSFORMER).verdict
    assert found is not None
    assert found.difference is not None
    seen = found.difference
    verdict = "supported" if seen.low > 0 else "contradicted" if seen.high < 0 else "inconclusive"
    words = f"{seen.mean:+.4f} [{seen.low:+.4f}, {seen.high:+.4f}] nats per byte ([study](gpt.md))"
    few = verdict != "inconclusive" and seen.n < ENOUGH
    advice = ADVICE[verdict].format("AdamW") + mark({"provisional": few})
    return [
        (
            "language, transformer of 21M parameters, b2·T = 3",
            advice,
            words,
            seen.n,
            "enwik8; not in the paper",
        )
    ]
