"""Seconds per model and epoch of stacks of ResNet-20, by their number and their precision, on a GPU.

    PYTHONPATH=src python benchmarks/cifar.py [--epochs 3] [--out records/cifar10/throughput.json]

Whole epochs of 50,000 training and 10,000 test images, as a study runs them: gather, crop, forward, backward, four
optimizers in equal parts, evaluation. Images are random bytes: time does not depend on them. An epoch goes before
those that count; what counts is their median. Rows are written into the record; the rest of it stays.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_measure import environment

from adaxlab.paper.cifar10 import TABLE2
from adaxlab.stacked.loader import Images
from adaxlab.stacked.stack import Run, StackRecipe, make_stack

KINDS = ((8, "bf16"), (25, "bf16"), (8, "tf32"), (8, "fp32"), (1, "bf16"))


def runs(count: int) -> list[Run]:
    """Table 2's optimizers in equal parts, each row's runs side by side."""
    rows = [row for row in TABLE2.rows if row.name != "sgdm-1e-4"]
    chosen = sorted(i % len(rows) for i in range(count))
    return [Run(rows[k].name, rows[k].optimizer, rows[k].options, seed) for seed, k in enumerate(chosen)]


def measure(count: int, precision: str, train: Images, test: Images, epochs: int) -> dict[str, Any]:
    """Seconds per model of an epoch and of its evaluation."""
    stack = make_stack(StackRecipe(), runs(count), train, test, precision)
    stack.run_epoch()
    whole, tested = [], []
    for _ in range(epochs):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        stack.run_epoch()
        torch.cuda.synchronize()
        whole.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        stack._launch("test", stack._evaluate)
        torch.cuda.synchronize()
        tested.append(time.perf_counter() - begin)
    both, test_only = statistics.median(whole) / count, statistics.median(tested) / count
    return {
        "models": count,
        "precision": precision,
        "train_seconds": round(both - test_only, 4),
        "test_seconds": round(test_only, 4),
        "n": epochs,
        "cuts": "final",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("records/cifar10/throughput.json"))
    options = parser.parse_args()
    draw = np.random.default_rng(0)
    train, test = (
        Images.of(
            draw.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8),
            draw.integers(0, 10, n),
            torch.device("cuda"),
        )
        for n in (50_000, 10_000)
    )
    rows = []
    for count, precision in KINDS:
        rows.append(measure(count, precision, train, test, options.epochs))
        print(rows[-1], flush=True)
    record = json.loads(options.out.read_text()) if options.out.is_file() else {}
    record |= {"rows": rows, "environment": environment(), "not_measured": []}
    options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
