"""The generated part of docs/cifar10.md about speed: seconds per model and epoch."""

from __future__ import annotations

import json
from pathlib import Path

from adaxlab.markdown import table


def section(root: Path) -> str:
    """Seconds per model and epoch, by the number of networks at once and the precision."""
    record = json.loads((root / "records" / "cifar10" / "throughput.json").read_text())
    order = ("bf16", "tf32", "fp32")
    rows = sorted(record["rows"], key=lambda row: (order.index(row["precision"]), row["models"]))
    shown = [
        (r["models"], r["precision"], f"{r['train_seconds']:.3f}", f"{r['test_seconds']:.3f}") for r in rows
    ]
    whole, floor, kernels = (record[key] for key in ("whole", "floor", "kernels_us_per_step_25_models"))
    largest = max(kernels, key=kernels.__getitem__)
    share = kernels[largest] / sum(kernels.values())
    environment = record["environment"]
    return (
        f"Measured on one {environment['gpu']} with torch {environment['torch']} and Triton {environment['triton']}, "
        f"seconds per model and epoch, medians of n = {rows[0]['n']} epochs "
        "([record](../records/cifar10/throughput.json), `benchmarks/cifar.py`):\n\n"
        + table(("networks at once", "precision", "training", "testing"), shown)
        + f"\n\nThe whole table took {whole['seconds']:.0f} s ({whole['models']} networks, {whole['epochs']} epochs). "
        f"Lower bounds per model and epoch: {floor['seconds_at_4.3_tbps']:.3f} s for the minimum memory traffic of the "
        f"activations at the GPU's copy speed, {floor['seconds_at_790_tflops']:.3f} s for the multiplications. The "
        "largest "
        f"part of a step of 25 networks is the {largest.replace('_', ' ')}, {100 * share:.0f}%. The kernels for "
        "`precision=tf32` and `precision=fp32` (three TF32 products instead of one) use tile sizes that fit the GPU "
        "and "
        "were not tuned for speed."
    )
