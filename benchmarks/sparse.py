"""A step over sparse gradients on a GPU: our rows by torch operations, by their kernel, and torch's SparseAdam.

    PYTHONPATH=src python benchmarks/sparse.py [--rounds 21] [--steps 30] [--out records/gpu_sparse.json]

Rows of the table take their steps in turn, many steps and one wait at its end (`gpu_measure.alternate`). A case is a
list of tables; every gradient names rows at random, some of them twice, as an embedding's does: putting them together
(`coalesce`) is in the time, once more without it (as after `clip_grad_norm_`, which has done it).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gpu_measure import alternate, device_ms, environment

from adaxopt import AdaX, create
from adaxopt.torch import fused_rows

CASES: dict[str, tuple[tuple[tuple[int, ...], ...], int]] = {
    "embedding, softmax and its bias": (((10_000, 512), (10_000, 512), (10_000,)), 4_096),
    "an embedding of 200,000 rows of 64": (((200_000, 64),), 8_192),
    "an embedding of 50,000 rows of 1024": (((50_000, 1024),), 16_384),
}
"""Tables, and how many names a gradient has."""

MAKERS: dict[str, tuple[Callable[[Any], torch.optim.Optimizer], bool]] = {
    "torch SparseAdam": (torch.optim.SparseAdam, False),
    "Adam, rows": (lambda params: create("adam", params), False),
    "Adam, kernel": (lambda params: create("adam", params), True),
    "AdaX, rows": (AdaX, False),
    "AdaX, kernel": (AdaX, True),
}


def step_of(
    name: str, shapes: tuple[tuple[int, ...], ...], names: int, coalesced: bool
) -> Callable[[], None]:
    make, kernel = MAKERS[name]
    generator = torch.Generator().manual_seed(0)
    params = []
    for shape in shapes:
        p = torch.nn.Parameter(torch.zeros(shape, device="cuda"))
        rows = torch.randint(0, shape[0], (1, names), generator=generator).cuda()
        values = torch.randn((names, *shape[1:]), generator=generator).cuda()
        p.grad = torch.sparse_coo_tensor(rows, values, shape, check_invariants=True)
        if coalesced:
            p.grad = p.grad.coalesce()
        params.append(p)
    optimizer = make(params)

    def step() -> None:
        fused_rows.ROWS = kernel
        optimizer.step()

    return step


def measure(
    shapes: tuple[tuple[int, ...], ...], names: int, coalesced: bool, rounds: int, steps: int
) -> dict[str, Any]:
    calls = {name: step_of(name, shapes, names, coalesced) for name in MAKERS}
    rows = alternate(calls, rounds, steps)
    for name, call in calls.items():
        rows[name]["device_ms"] = device_ms(call)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("records/gpu_sparse.json"))
    options = parser.parse_args()
    record: dict[str, Any] = {"environment": environment(), "steps": options.steps, "cases": []}
    for case, (shapes, names) in CASES.items():
        for coalesced in (False, True):
            rows = measure(shapes, names, coalesced, options.rounds, options.steps)
            record["cases"].append({"case": case, "names": names, "coalesced": coalesced, "rows": rows})
            print(case, "(coalesced)" if coalesced else "", flush=True)
            for name, row in rows.items():
                print(
                    f"  {name:18} {row['ms']:.4f} ms a step, {row['device_ms']:.4f} on the device", flush=True
                )
    options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
