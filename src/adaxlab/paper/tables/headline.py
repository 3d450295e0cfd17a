"""The first lines of README.md: speed, AdaX against AdamW after equal tuning, when not to use it; from the records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaxlab.paper import claims
from adaxlab.paper.tables import gpu_step
from adaxlab.paper.tables.decision import TASKS, Task, mark
from adaxlab.report.numbers import listed

WHEN_NOT = (
    "- **When not to use AdaX**: when gradients grow or change character late in training, when you cannot clip them, "
    "or when the length of the run is unknown ([Should I use AdaX?](docs/should-i-use-adax.md))."
)
SHORT = {
    "cifar10.fresh-over-adamw": "CIFAR-10",
    "imagenet.tuned.adaxw-over-adamw": "Tiny-ImageNet",
    "voc.adaxw-over-adamw-tuned": "CamVid",
    "language.ptb.adax-over-adam.b2T3": "an LSTM on Penn Treebank",
    "language.enwik8.adax-over-adam.b2T3": "an LSTM on words of enwik8",
}
MODELS = {"256M": "one tensor of 256M numbers"}
"""Names of the benchmark's rows that say too little on their own."""
WORDS = {
    "inconclusive": "no significant difference on",
    "supported": "better on",
    "contradicted": "worse on",
}


def section(root: Path) -> str:
    return "\n".join((_speed(root), _tuned(root), WHEN_NOT))


def _speed(root: Path) -> str:
    record = gpu_step.read(root / "records")
    if record is None:
        return "- **Speed**: not measured yet (`make bench-gpu`)."
    rows = [r for r in record["rows"] if r["row"] == "AdaXW fused" and r["gradients"] == "fixed"]
    shown = ", ".join(f"{row['speedup']:.1f} ({MODELS.get(row['model'], row['model'])})" for row in rows)
    return (
        f"- **Speed**: a step of AdaXW on one {record['environment']['gpu']} is faster than torch's fused AdamW by "
        f"a factor of {shown} ([measurements](docs/speed.md){_old(record)})."
    )


def _old(record: dict[str, Any]) -> str:
    return ", made before the last changes of the step" if record.get("since") else ""


def _tuned(root: Path) -> str:
    """What the claims of the decision page came to, those of one verdict together."""
    judged = {row["id"]: row for row in claims.committed(root / "records")}
    groups: dict[str, list[str]] = {}
    for task in TASKS:
        row = judged.get(task.claim, {"verdict": "not run", "n": 0, "provisional": False})
        groups.setdefault(row["verdict"], []).append(f"{SHORT[task.claim]} ({_details(task, row)})")
    said = "; ".join(f"{words} {listed(groups[v])}" for v, words in WORDS.items() if v in groups)
    return (
        "- **AdaX against AdamW**, each at the best of equally many learning rates, on the paper's data or on "
        f"[stand-ins](docs/reproduction.md#scope): {said or 'not run yet'}."
    )


def _details(task: Task, row: Mapping[str, Any]) -> str:
    """What a verdict rests on: the data, the baseline where it is not AdamW, n, whether pairing by seed decides."""
    parts = ["stand-in"] if "stand-in" in task.data else []
    parts += [f"against {task.baseline}"] if task.baseline != "AdamW" else []
    parts.append(f"n = {row['n']}{mark(row)}")
    parts += ["only if paired by seed"] if "which would be inconclusive" in row.get("ours", "") else []
    return ", ".join(parts)
