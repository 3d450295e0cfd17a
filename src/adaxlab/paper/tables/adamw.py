"""The table of docs/adamw.md: AdamW by several libraries, from records/adamw_step.json (benchmarks/adamw.py)."""

from __future__ import annotations

import math
from typing import Any

from adaxlab.markdown import table
from adaxlab.paper.tables import gpu_step

REFERENCE = "torch AdamW, fused"
OURS, PLAIN = "adaxopt AdamW", "torch AdamW, default"
RECORD = "../records/adamw_step.json"


def summary(record: dict[str, Any]) -> str:
    """AdamW's step and a whole training step, compared with torch's fused AdamW."""
    steps = [row["speedup"] for row in _fresh(record) if row["row"] == OURS]
    text = f"a step of `adaxopt.AdamW` is {min(steps):.1f} to {max(steps):.1f} times as fast"
    whole = {row["model"]: 100 * (row["speedup"] - 1) for row in record["training"] if row["row"] == OURS}
    if not whole:
        return text
    most = math.floor(max(whole.values())) + 1
    return f"{text}, and a whole training step gains less than {most}% ({' and '.join(whole)})"


def _fresh(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in record["rows"] if row.get("gradients") == "fresh"]


def measured(record: dict[str, Any]) -> str:
    """The answer, a line per library and a column per model, then whole training steps."""
    gpu = record["environment"]["gpu"]
    versions = ", ".join(f"{name} {v}" for name, v in record["versions"].items() if name != "adaxopt")
    days = sorted({row.get("date", record["environment"]["date"]) for row in record["rows"]})
    text = (
        f"Compared with torch's fused AdamW on one {gpu}, {summary(record)}: the forward and backward passes take "
        "most of its time. Other GPUs were not measured; `python benchmarks/adamw.py` measures yours.\n\n"
        f"Milliseconds of `optimizer.step()` on one {gpu} for float32 parameters ({' and '.join(days)}), "
        "medians of n alternating rounds, and in brackets the speed as a multiple of torch's fused AdamW: above 1 is "
        f"faster, below 1 slower ({versions}). Each library runs at its fastest setting. Rows with low-bit state "
        "are marked, because their updates differ. Gradients are new tensors at every step, as after `zero_grad()`."
    )
    missing = record["not_importable"]
    text += " Empty cells were not measured."
    text += f" Not installed: {', '.join(missing)}.\n\n" if missing else "\n\n"
    text += _steps(_fresh(record))
    text += _bound(_fresh(record))
    text += f"\n\nQuartiles, and times with gradients at fixed addresses, are in the [record]({RECORD})."
    trained = [
        (
            f"{row['model']}, batch {row['batch']}",
            row["row"],
            row["n"],
            gpu_step.spread(row),
            f"{row['speedup']:.3f}",
        )
        for row in record["training"]
    ]
    if trained:
        text += "\n\nA whole training step (forward, backward, step, `zero_grad`; bf16 autocast), in milliseconds:\n\n"
        text += table(("model", "optimizer", "n", "median (quartiles)", "speed (torch, fused = 1)"), trained)
        text += "\n\nWhere the quartiles of two rows overlap, the difference is within the noise."
    else:
        text += "\n\nWhole training steps have not been measured yet."
    return text


def _bound(rows: list[dict[str, Any]]) -> str:
    """What a training step can gain at most, for the model with the largest factor."""
    ms = {(row["row"], row["model"]): row["ms"] for row in rows}
    ours = [row for row in rows if row["row"] == OURS]
    if not ours:
        return ""
    model = max(ours, key=lambda row: row["speedup"])["model"]
    saved = ms[REFERENCE, model] - ms[OURS, model]
    text = (
        f"\n\nA training step gains at most about the difference between two rows: on {model} {saved:.2f} ms against "
        f"torch's fused AdamW, that is {saved:.2g}% of a training step of 100 ms"
    )
    if (PLAIN, model) in ms:
        plain, mine = ms[PLAIN, model], ms[OURS, model]
        text += f", and {plain - mine:.2f} ms ({plain / mine:.1f} times as fast) against its default"
    return f"{text}. Large models are bound by memory bandwidth, small ones by host time ([why](speed.md#on-a-gpu))."


def _steps(rows: list[dict[str, Any]]) -> str:
    models = list(dict.fromkeys(row["model"] for row in rows))
    found = {(row["row"], row["model"]): row for row in rows}
    size = {row["model"]: row for row in rows}
    heads = []
    for model in models:
        numbers, tensors, n = (size[model][key] for key in ("numbers", "tensors", "n"))
        heads.append(f"{model}: {numbers / 1e6:.0f}M in {tensors} tensor{'s' * (tensors > 1)}, n = {n}")

    def cell(name: str, model: str) -> str:
        row = found.get((name, model))
        if row is None:
            return ""
        return f"{row['ms']:.3f}" + ("" if name == REFERENCE else f" ({row['speedup']:.2f})")

    def state(name: str) -> str:
        found = next(row["state_bytes"] for row in rows if row["row"] == name)
        return "" if found is None else f"{found:.1f}"

    names = list(dict.fromkeys(row["row"] for row in rows))
    lines = [(name, state(name), *(cell(name, model) for model in models)) for name in names]
    return table(("optimizer", "bytes of state per parameter", *heads), lines)
