"""How the kernel's block size and warps were chosen: step time over a grid of both, beside the copy bandwidth.

    PYTHONPATH=src python benchmarks/gpu_tuning.py [--out tuning.json]

Each number is the median of 20 launches between events, after 5 to warm up.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import torch
from gpu_measure import copy_bandwidth, device_ms
from shapes import MODELS

from adaxopt.torch import fused_cuda
from adaxopt.torch.share import Part
from adaxopt.zoo import METHODS

GRID = [
    (block, warps, blocks)
    for block, warps in ((512, 4), (1024, 4), (1024, 8), (2048, 8))
    for blocks in (1, 2, 4, 8)
]
KINDS = {
    "fp32": (torch.float32, torch.float32, "nearest", 28, 4),
    "bf16 state": (torch.float32, torch.bfloat16, "nearest", 20, 4),
    "all bf16, 8": (torch.bfloat16, torch.bfloat16, "stochastic", 14, 8),
    "all bf16, 4": (torch.bfloat16, torch.bfloat16, "stochastic", 14, 4),
}


def part(shapes: list[tuple[int, ...]], kind: str, t: int = 0) -> Part:
    dtype, state, rounding, _, _ = KINDS[kind]
    params = [torch.randn(s, device="cuda").to(dtype) for s in shapes]
    for p in params:
        p.grad = torch.randn_like(p)
    states = [
        {
            "step": torch.full((), float(t), dtype=torch.float64, device="cuda"),
            "exp_avg": torch.randn_like(p).to(state),
            "exp_avg_sq": torch.rand_like(p).to(state),
        }
        for p in params
    ]
    n = len(params)
    group = {"maximize": False, "wake": True, "rounding": rounding, "seed": 0, "capturable": False}
    return Part(METHODS["adaxw"], group, params, states, params, states, dtype, range(n), [0] * n, {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--models", nargs="*", default=["256M"])
    parser.add_argument(
        "--share", default="0/1", help="i/n: take every n-th of the grid, to fill Triton's cache in parallel"
    )
    arguments = parser.parse_args()
    bandwidth = copy_bandwidth()
    print(f"copy {bandwidth / 1e12:.3f} TB/s")
    rows = []
    chosen = fused_cuda.tuning
    fused_cuda.PROGRAMS = 1 << 30  # the grid says how long a program is
    hyper = METHODS["adaxw"].defaults
    mine, of = map(int, arguments.share.split("/"))
    for model in arguments.models:
        shapes = MODELS[model]()
        count = sum(math.prod(s) for s in shapes)
        for kind, (*_, size, each) in KINDS.items():
            for block, warps, blocks in GRID[mine::of]:
                fused_cuda.tuning = _fixed(block, warps, blocks, each)  # type: ignore[assignment]
                given = part(shapes, kind)
                share, grads = fused_cuda.Share(given), [p.grad for p in given.xs]

                def step(share=share, grads=grads):
                    return share.step(hyper, grads, None, None, share.alike(*grads))

                row = {"model": model, "kind": kind, "block": block, "warps": warps, "blocks": blocks}
                for t in (0, 200_000):
                    for state in given.states:
                        state["step"].fill_(t)
                    ms = device_ms(step)
                    row[f"ms at {t}"], moved = ms, size if t == 0 else size - KINDS[kind][1].itemsize
                    row[f"of copy at {t}"] = count * moved / ms * 1e3 / bandwidth
                rows.append(row)
                print(" ".join(f"{v:.3f}" if isinstance(v, float) else f"{v!s:>11}" for v in row.values()))
                del given, share, grads, step
    fused_cuda.tuning = chosen
    if arguments.out:
        arguments.out.write_text(json.dumps({"copy_bytes_per_s": bandwidth, "rows": rows}, indent=1))


def _fixed(*choice: int) -> Any:
    return lambda widest: choice


if __name__ == "__main__":
    main()
