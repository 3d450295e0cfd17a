"""The table of docs/adamw.md: AdamW by several libraries, from records/adamw_step.json (benchmarks/adamw.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adaxlab.markdown import read, table
from adaxlab.paper.tables import gpu_step

REFERENCE = "torch AdamW, fused"


def section(root: Path) -> str:
    record = read(root, "adamw_step.json")
    return measured(record) if record else _of_adaxw(root)


def measured(record: dict[str, Any]) -> str:
    """Steps per model and library, then whole training steps."""
    environment = record["environment"]
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    missing = record["not_importable"]
    rows = []
    for row in record["rows"]:
        if "failed" in row:
            rows.append((row["model"], row["row"], "", row["failed"], "", ""))
        else:
            speedup = "" if row["row"] == REFERENCE else f"{row['speedup']:.2f}"
            state = f"{row['state_bytes']:.1f}"
            rows.append((row["model"], row["row"], row["gradients"], gpu_step.spread(row), speedup, state))
    n = {row["n"] for row in record["rows"] if "n" in row}
    text = (
        f"`optimizer.step()` on one {environment['gpu']}, float32 parameters; {versions}; medians of n = "
        f"{', '.join(map(str, sorted(n)))} alternating rounds. Each library at its fastest setting; low-precision "
        "state is marked, because it computes something else. Fresh gradients are other tensors at every step."
    )
    text += f" Not installed: {', '.join(missing)}.\n\n" if missing else "\n\n"
    head = ("model", "optimizer", "gradients", "ms (quartiles)", "speedup", "bytes of state per parameter")
    text += table(head, rows)
    trained = [
        (
            f"{row['model']}, batch {row['batch']}",
            row["row"],
            row["n"],
            gpu_step.spread(row),
            "" if row["row"] == REFERENCE else f"{row['speedup']:.3f}",
        )
        for row in record["training"]
    ]
    if trained:
        text += "\n\nA whole training step (forward, backward, step, bf16 autocast):\n\n"
        text += table(("model", "optimizer", "n", "ms (quartiles)", "speedup"), trained)
    return text


def _of_adaxw(root: Path) -> str:
    """Before AdamW is measured: AdaXW's step, which is the same kernel with another gain."""
    text = (
        "*AdamW beside torch, optimi, FlashOptim, torchao and bitsandbytes, with fresh gradients and in whole training "
        "steps: not measured yet (`python benchmarks/adamw.py`).*"
    )
    record = gpu_step.read(root / "records")
    if record is None:
        return text
    found = {(r["model"], r["row"]): r for r in record["rows"] if r["gradients"] == "fixed"}
    rows = [
        (
            model,
            ours["n"],
            gpu_step.spread(found[model, "torch AdamW fused"]),
            gpu_step.spread(ours),
            f"{ours['speedup']:.2f}",
        )
        for (model, name), ours in found.items()
        if name == "AdaXW fused"
    ]
    return (
        f"{text} The same kernel with AdaX's gain ([speed](speed.md)), on one {record['environment']['gpu']}, torch "
        f"{record['environment']['torch']}:\n\n"
        + table(("", "n", "torch AdamW fused, ms (quartiles)", "AdaXW, ms (quartiles)", "speedup"), rows)
    )
