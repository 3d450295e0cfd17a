"""GPU step time and memory of AdaXW beside torch's AdamW, over four models' shapes.

    PYTHONPATH=src python benchmarks/gpu.py [--rounds 11] [--models 256M ResNet-20] [--out records/gpu_step.json]

Wall time of `optimizer.step()`, host and device together: every round times each row once, in turn, and what counts is
the ratio of medians within one run. "fixed": gradients at the same addresses every step. "fresh": other tensors every
step, the time of handing them over taken off where the host is what bounds a step (what is left is no less than a
replay of the step's own graph: the device works meanwhile). "frozen": random gradients at t = 150,000, where AdaX's
memory no longer moves. "floor": the bytes that must be moved, at the bandwidth of a device copy measured in the same
run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gpu_measure import alternate, copy_bandwidth, environment, gradient, peak_bytes
from shapes import MODELS

from adaxopt import AdaXW

FROZEN = 150_000
BF16, U8 = torch.bfloat16, torch.uint8
OTHERS = ("optimi", "apex", "bitsandbytes", "torchao", "adax")
STEPS = {"256M": 10, "GPT-2 medium": 10, "ResNet-50": 100, "ResNet-20": 200}
REFERENCE = "torch AdamW fused"

# row: (bytes moved per number, dtype of parameters and gradients, optimizer)
Make = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]
ROWS: dict[str, tuple[int, torch.dtype, Make]] = {
    REFERENCE: (28, torch.float32, lambda p: torch.optim.AdamW(p, lr=1e-6, fused=True)),
    "AdaXW fused": (28, torch.float32, lambda p: AdaXW(p, lr=1e-6, fused=True)),
    "AdaXW fused, frozen": (24, torch.float32, lambda p: AdaXW(p, lr=1e-6, fused=True)),
    "AdaXW fused, bf16 state": (20, torch.float32, lambda p: AdaXW(p, lr=1e-6, fused=True, state_dtype=BF16)),
    "AdaXW fused, all bf16": (
        14,
        BF16,
        lambda p: AdaXW(p, lr=1e-6, fused=True, state_dtype=BF16, rounding="stochastic"),
    ),
    "AdaXW fused, 8-bit state": (16, torch.float32, lambda p: AdaXW(p, lr=1e-6, fused=True, state_dtype=U8)),
    "AdaXW fused, 8-bit state, 24-bit weights": (
        12,
        BF16,
        lambda p: AdaXW(p, lr=1e-6, fused=True, state_dtype=U8, rounding="24bit"),
    ),
    "torch AdamW fused, all bf16": (14, BF16, lambda p: torch.optim.AdamW(p, lr=1e-6, fused=True)),
    "torch AdamW foreach": (28, torch.float32, lambda p: torch.optim.AdamW(p, lr=1e-6, foreach=True)),
    "AdaXW foreach": (28, torch.float32, lambda p: AdaXW(p, lr=1e-6, foreach=True)),
}
COMPILED = {
    "torch AdamW compiled": lambda p: torch.optim.AdamW(
        p, lr=torch.tensor(1e-6, device="cuda"), foreach=True, capturable=True
    ),
    "AdaXW compiled": lambda p: AdaXW(p, lr=torch.tensor(1e-6, device="cuda"), foreach=True, capturable=True),
}
GRAPHS: dict[str, Make] = {
    "torch AdamW fused, graph": lambda p: torch.optim.AdamW(p, lr=1e-6, fused=True, capturable=True),
    "AdaXW fused, graph": lambda p: AdaXW(p, lr=1e-6, fused=True, capturable=True),
}


def parameters(model: str, dtype: torch.dtype) -> list[torch.nn.Parameter]:
    made = [torch.nn.Parameter(torch.randn(shape, device="cuda").to(dtype)) for shape in MODELS[model]()]
    for p in made:
        p.grad = gradient(p)
    return made


def freeze(optimizer: torch.optim.Optimizer) -> None:
    """As after 150,000 steps on unit Gaussian gradients: v near 1, every one of its digits in use."""
    for state in optimizer.state.values():
        state["exp_avg_sq"].copy_(1 + 0.01 * torch.randn_like(state["exp_avg_sq"]))
        state["step"].fill_(FROZEN)


def captured(optimizer: torch.optim.Optimizer) -> Callable[[], Any]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            optimizer.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()

    def replay(kept: torch.optim.Optimizer = optimizer) -> None:  # the graph writes to its state
        graph.replay()

    return replay


def blocks_written(block: int = 1024) -> dict[str, float]:
    """The share of v's blocks that a step changes, and so writes, at 74k, 100k and 150k steps of Gaussian gradients."""
    p = torch.nn.Parameter(torch.randn(1 << 24, device="cuda"))
    p.grad = gradient(p)
    optimizer = AdaXW([p], fused=True)
    optimizer.step()
    shares = {}
    for t in (74_000, 100_000, 150_000):
        freeze(optimizer)
        state = optimizer.state[p]
        state["step"].fill_(t - 1)
        before = state["exp_avg_sq"].clone()
        optimizer.step()
        shares[str(t)] = (before != state["exp_avg_sq"]).view(-1, block).any(1).float().mean().item()
    return shares


class Fresh:
    """Hand over other gradients, then step; the host's time for each is kept."""

    def __init__(self, params: list[torch.nn.Parameter], step: Callable[[], Any]) -> None:
        self.params, self.step = params, step
        self.sets = [[p.grad for p in params], [gradient(p) for p in params]]
        self.turn = self.calls = 0
        self.handing = self.stepping = 0.0

    def __call__(self) -> None:
        self.turn ^= 1
        begin = time.perf_counter()
        for p, g in zip(self.params, self.sets[self.turn], strict=True):
            p.grad = g
        middle = time.perf_counter()
        self.step()
        self.stepping += time.perf_counter() - middle
        self.handing += middle - begin
        self.calls += 1

    def alone(self, result: dict[str, float], device_ms: float) -> dict[str, float]:
        """The step's own time: all of it where the device was the slower, else without the handing over.

        Where both took about as long, the device worked meanwhile: no time is less than its own, `device_ms`.
        """
        handing, stepping = (1e3 * t / self.calls for t in (self.handing, self.stepping))
        bound = result["ms"] > 1.1 * (handing + stepping)
        own = {k: v if bound or k == "n" else max(v - handing, device_ms) for k, v in result.items()}
        return own | {"handing_ms": handing}


def measure(model: str, bandwidth: float, rounds: int, compiled: bool) -> list[dict[str, Any]]:
    count = sum(math.prod(s) for s in MODELS[model]())
    params = {dtype: parameters(model, dtype) for dtype in (torch.float32, BF16)}
    calls: dict[str, Callable[[], Any]] = {}
    sizes: dict[str, int] = {}
    rows = []
    for name, (size, dtype, make) in ROWS.items():
        optimizer = make(params[dtype])
        optimizer.step()
        if "frozen" in name:
            freeze(optimizer)
        calls[name], sizes[name] = optimizer.step, size
    for name, make in GRAPHS.items():
        calls[name], sizes[name] = captured(make(params[torch.float32])), 28
    for name, make in COMPILED.items() if compiled else ():
        try:
            step = torch.compile(make(params[torch.float32]).step)
            step()
        except Exception as error:  # a compiler's failure is a result too, and no reason to lose the others
            print(f"{model}: {name}: {type(error).__name__}: {str(error)[:200]}")
            continue
        calls[name], sizes[name] = step, 28
    peaks = {name: peak_bytes(call) for name, call in calls.items()}
    for name, result in alternate(calls, rounds, STEPS[model]).items():
        rows.append({"model": model, "row": name, "gradients": "fixed", **result, "peak_bytes": peaks[name]})
    moving = {name: Fresh(params[torch.float32], calls[name]) for name in (REFERENCE, "AdaXW fused")}
    replayed = {row["row"]: row["ms"] for row in rows}
    for name, result in alternate(moving, rounds, STEPS[model]).items():
        own = moving[name].alone(result, replayed[f"{name}, graph"])
        rows.append({"model": model, "row": name, "gradients": "fresh", **own})
    reference = {row["gradients"]: row["ms"] for row in rows if row["row"] == REFERENCE}
    replay = next(row["ms"] for row in rows if row["row"] == "torch AdamW fused, graph")
    for row in rows:
        row["tensors"], row["numbers"] = len(params[BF16]), count
        row["floor_ms"] = count * sizes[row["row"]] / bandwidth * 1e3
        row["of_copy"] = row["floor_ms"] / row["ms"]
        row["speedup"] = (replay if "graph" in row["row"] else reference[row["gradients"]]) / row["ms"]
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        print(
            f"{row['model']:13} {row['row']:40} {row['gradients']:6} {row['ms']:9.4f} ms "
            f"[{row['low']:.4f}, {row['high']:.4f}]  floor {row['floor_ms']:.4f} ({row['of_copy']:.3f})  "
            f"{row['speedup']:.2f}x  peak {row.get('peak_bytes', 0) / 2**20:.2f} MiB"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=11, help="times that each row is timed, at least 2")
    parser.add_argument("--models", nargs="*", choices=list(MODELS), default=list(MODELS))
    parser.add_argument(
        "--compiled",
        nargs="*",
        choices=list(MODELS),
        default=["256M", "ResNet-20"],
        help="models to compile steps for",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("records/gpu_step.json"), help="written after each model"
    )
    arguments = parser.parse_args()
    if arguments.rounds < 2:
        parser.error(f"--rounds {arguments.rounds}: must be at least 2, for quartiles")
    if not torch.cuda.is_available():
        parser.error("no CUDA device: this measures one")
    bandwidth = copy_bandwidth()
    record: dict[str, Any] = {
        "environment": environment(),
        "copy_bytes_per_s": bandwidth,
        "blocks_written": blocks_written(),
        "not_importable": [name for name in OTHERS if importlib.util.find_spec(name) is None],
        "rows": [],
    }
    print(
        f"{record['environment']}\ncopy {bandwidth / 1e12:.3f} TB/s, blocks written {record['blocks_written']}"
    )
    for model in arguments.models:
        rows = measure(model, bandwidth, arguments.rounds, model in arguments.compiled)
        show(rows)
        record["rows"] += rows
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
