"""AdaX against AdamW after equal tuning, task by task, from the records: the table of docs/should-i-use-adax.md, and
the first lines of README.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from adaxlab import markdown, records
from adaxlab.claim import ENOUGH, anchor
from adaxlab.paper import claims
from adaxlab.paper.gpt import GPT
from adaxlab.paper.tables import gpu_step
from adaxlab.report.numbers import listed
from adaxlab.summary import summarise


class Task(NamedTuple):
    """A task of the table and the claim "AdaX is better than Adam(W), each at its best lr" that was judged on it."""

    task: str
    data: str
    claim: str
    short: str
    """The task in README.md."""
    baseline: str = "AdamW"


TASKS = (
    Task(
        "image classification, ResNet-20",
        "CIFAR-10, the paper's data",
        "cifar10.fresh-over-adamw",
        "CIFAR-10",
    ),
    Task(
        "image classification, ResNet-18",
        "Tiny-ImageNet, a stand-in for ImageNet",
        "imagenet.tuned.adaxw-over-adamw",
        "Tiny-ImageNet",
    ),
    Task(
        "segmentation, ResNet-50 from ImageNet",
        "CamVid, a stand-in for VOC2012",
        "voc.adaxw-over-adamw-tuned",
        "CamVid",
    ),
    Task(
        "language, LSTM, b2·T = 3",
        "Penn Treebank, a stand-in for One Billion Word",
        "language.ptb.adax-over-adam.b2T3",
        "an LSTM on Penn Treebank",
        "Adam",
    ),
    Task(
        "language, LSTM, b2·T = 3",
        "words of enwik8, a stand-in for One Billion Word",
        "language.enwik8.adax-over-adam.b2T3",
        "an LSTM on words of enwik8",
        "Adam",
    ),
    Task(
        "language, LSTM, b2·T = 35 as in the paper",
        "Penn Treebank, a stand-in for One Billion Word",
        "language.ptb.adax-over-adam",
        "Penn Treebank with the paper's b2·T of 35",
        "Adam",
    ),
    Task(
        "language, LSTM, b2·T = 35 as in the paper",
        "words of enwik8, a stand-in for One Billion Word",
        "language.enwik8.adax-over-adam",
        "words of enwik8 with the paper's b2·T of 35",
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


# -- README.md -----------------------------------------------------------------------------------------------------


WHEN_NOT = (
    "- **When not to use AdaX**: when gradients grow or change character late in training, when you cannot clip them, "
    "or when the length of the run is unknown ([Should I use AdaX?](docs/should-i-use-adax.md))."
)
MODELS = {"256M": "one tensor of 256M numbers"}
"""Descriptions of benchmark rows whose names are not clear on their own."""
WORDS = {
    "inconclusive": "no significant difference on",
    "supported": "better on",
    "contradicted": "worse on",
}


def headline(root: Path) -> str:
    """Speed, AdaX against AdamW after equal tuning, when not to use it."""
    return "\n".join((_speed(root), _tuned(root), WHEN_NOT))


def _speed(root: Path) -> str:
    record = gpu_step.read(root / "records")
    if record is None:
        return "- **Speed**: not measured yet (`make bench-gpu`)."
    rows = [r for r in record["rows"] if r["row"] == "AdaXW fused" and r["gradients"] == "fixed"]
    shown = ", ".join(f"{row['speedup']:.1f} ({MODELS.get(row['model'], row['model'])})" for row in rows)
    old = ", made before the latest changes to the step" if record.get("since") else ""
    return (
        f"- **Speed**: a step of AdaXW on one {record['environment']['gpu']} is faster than torch's fused AdamW by "
        f"a factor of {shown} ([measurements](docs/speed.md){old})."
    )


def _tuned(root: Path) -> str:
    """The verdicts on the claims of the decision page, grouped by verdict."""
    judged = {row["id"]: row for row in claims.committed(root / "records")}
    groups: dict[str, list[str]] = {}
    for task in TASKS:
        row = judged.get(task.claim, {"verdict": "not run", "n": 0, "provisional": False})
        groups.setdefault(row["verdict"], []).append(f"{task.short} ({_details(task, row)})")
    said = "; ".join(f"{words} {listed(groups[v])}" for v, words in WORDS.items() if v in groups)
    return (
        "- **AdaX against AdamW**, each at the best of equally many learning rates, on the paper's data or on "
        f"[stand-ins](docs/reproduction.md#scope): {said or 'not run yet'}."
    )


def _details(task: Task, row: Mapping[str, Any]) -> str:
    """The basis of a verdict: the data, the baseline if it is not AdamW, n, and whether pairing by seed decides."""
    parts = ["stand-in"] if "stand-in" in task.data else []
    parts += [f"against {task.baseline}"] if task.baseline != "AdamW" else []
    parts.append(f"n = {row['n']}{mark(row)}")
    parts += ["only if paired by seed"] if "which would be inconclusive" in row.get("ours", "") else []
    return ", ".join(parts)
