"""8-bit state and 24-bit weights on one GPU: time of a step and bytes of state per parameter, beside wider state.

    PYTHONPATH=src python benchmarks/eightbit.py [--rounds 11] [--models "GPT-2 small" 256M] [--no-memory] [--variants]

Wall time of `optimizer.step()`, alternating; gradients at the same addresses every step. "frozen": the same gradients
at t = 150,000, where AdaX's memory no longer moves and no code of v is written. FlashOptim and torchao are timed where
they are installed. Then the peak memory of training steps of a transformer with about a billion parameters.
`--variants` adds the 8-bit rows with other limits on registers and other distances of the prefetch, at the end.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from adamw import Transformer, state_bytes
from gpu_measure import alternate, copy_bandwidth, environment, gradient
from shapes import ADAMW_MODELS, MODELS

import adaxopt
from adaxopt import AdamW, AdaXW
from adaxopt.torch import fused_cuda

F32, BF16, U8 = torch.float32, torch.bfloat16, torch.uint8
SHAPES = {**MODELS, **ADAMW_MODELS}
STEPS = {"256M": 10, "GPT-2 small": 30}
Make = Callable[[list[torch.nn.Parameter]], Any]
OPTIONS: dict[str, Any] = {"lr": 1e-6, "weight_decay": 0.01}


def _flash(bits: int | None) -> Make:
    def make(params: list[torch.nn.Parameter]) -> Any:
        from flashoptim import FlashAdamW

        return FlashAdamW(params, **OPTIONS, master_weight_bits=bits)

    return make


def _torchao(params: list[torch.nn.Parameter]) -> Any:
    from torchao.optim import AdamW8bit

    return AdamW8bit(params, **OPTIONS)


# row: (package, dtype of parameters and gradients, bytes moved per parameter, optimizer)
ROWS: dict[str, tuple[str, torch.dtype, float, Make]] = {
    "torch AdamW fused": ("torch", F32, 28, lambda p: torch.optim.AdamW(p, **OPTIONS, fused=True)),
    "AdaXW": ("torch", F32, 28, lambda p: AdaXW(p, **OPTIONS)),
    "AdaXW, bf16 state": ("torch", F32, 20, lambda p: AdaXW(p, **OPTIONS, state_dtype=BF16)),
    "AdaXW, 8-bit state": ("torch", F32, 16.125, lambda p: AdaXW(p, **OPTIONS, state_dtype=U8)),
    "AdaXW, 8-bit state, frozen": ("torch", F32, 15.1, lambda p: AdaXW(p, **OPTIONS, state_dtype=U8)),
    "AdamW, 8-bit state": ("torch", F32, 16.125, lambda p: AdamW(p, **OPTIONS, state_dtype=U8)),
    "FlashOptim AdamW, 8-bit state": ("flashoptim", F32, 16.25, _flash(None)),
    "torchao AdamW, 8-bit state": ("torchao", F32, 16.1, _torchao),
    "bf16: torch AdamW fused": ("torch", BF16, 14, lambda p: torch.optim.AdamW(p, **OPTIONS, fused=True)),
    "bf16: AdaXW, bf16 state, stochastic": (
        "torch", BF16, 14, lambda p: AdaXW(p, **OPTIONS, state_dtype=BF16, rounding="stochastic"),
    ),
    "bf16: AdaXW, 8-bit state, 24-bit weights": (
        "torch", BF16, 12.125, lambda p: AdaXW(p, **OPTIONS, state_dtype=U8, rounding="24bit"),
    ),
    "bf16: FlashOptim AdamW, 8-bit state, 24-bit weights": ("flashoptim", BF16, 12.25, _flash(24)),
}  # fmt: skip


WORDS = 32_000
# row: (package, dtype of parameters, optimizer, whether gradients are freed in the backward pass)
PEAKS: dict[str, tuple[str, torch.dtype, Make, bool]] = {
    "float32, autocast: torch AdamW fused": ("torch", F32, ROWS["torch AdamW fused"][3], False),
    "bf16: torch AdamW fused": ("torch", BF16, ROWS["bf16: torch AdamW fused"][3], False),
    "bf16: FlashOptim AdamW, 8-bit state, 24-bit weights": ("flashoptim", BF16, _flash(24), False),
    "bf16: AdaXW, 8-bit state, 24-bit weights": (
        "torch", BF16, ROWS["bf16: AdaXW, 8-bit state, 24-bit weights"][3], False,
    ),
    "bf16: AdaXW, 8-bit state, 24-bit weights, in the backward pass": (
        "torch", BF16, ROWS["bf16: AdaXW, 8-bit state, 24-bit weights"][3], True,
    ),
}  # fmt: skip


def measure(model: str, bandwidth: float, rounds: int, names: list[str]) -> list[dict[str, Any]]:
    shapes = SHAPES[model]()
    count = sum(map(math.prod, shapes))
    params = {dtype: [] for dtype in (F32, BF16)}
    for dtype, made in params.items():
        for shape in shapes:
            p = torch.nn.Parameter(torch.randn(shape, device="cuda").to(dtype))
            p.grad = gradient(p)
            made.append(p)
    calls, rows = {}, []
    for name in names:
        package, dtype, size, make = ROWS[name]
        if importlib.util.find_spec(package) is None:
            continue
        try:
            optimizer = make(params[dtype])
            for _ in range(3):
                optimizer.step()
            if "frozen" in name:
                for entry in optimizer.state.values():
                    entry["step"].fill_(150_000)
            torch.cuda.synchronize()
        except Exception as error:  # a library's failure is a result too
            rows.append(
                {"model": model, "row": name, "failed": f"{type(error).__name__}: {str(error)[:300]}"}
            )
            continue
        calls[name] = optimizer.step
        floor = count * size / bandwidth * 1e3
        rows.append(
            {"model": model, "row": name, "state_bytes": state_bytes(optimizer) / count, "floor_ms": floor}
        )
    timed = alternate(calls, rounds, STEPS[model])
    return [{**row, **timed.get(row["row"], {})} for row in rows]


def peaks() -> list[dict[str, Any]]:
    """Bytes allocated at most during three training steps, and between steps, per parameter."""
    tokens = torch.randint(0, WORDS, (4, 1024), device="cuda")
    found = []
    for name, (package, dtype, make, released) in PEAKS.items():
        if importlib.util.find_spec(package) is None:
            continue
        gc.collect()
        torch.cuda.empty_cache()
        torch.manual_seed(0)
        model = Transformer(2048, 18, 16, words=WORDS).to("cuda", dtype)
        count = sum(p.numel() for p in model.parameters())
        optimizer = make(list(model.parameters()))
        release = adaxopt.step_in_backward(optimizer) if released else None
        for step in range(4):
            if step == 1:  # state exists
                torch.cuda.reset_peak_memory_stats()
            with torch.autocast("cuda", torch.bfloat16, enabled=dtype == F32):
                logits = model(tokens)
            torch.nn.functional.cross_entropy(
                logits.flatten(0, -2).float(), tokens.roll(-1, 1).flatten()
            ).backward()
            if release is None:
                optimizer.step()
                optimizer.zero_grad()
            del logits
        torch.cuda.synchronize()
        peak, between = torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()
        found.append({"row": name, "parameters": count, "peak": peak, "between": between})
        print(
            f"{name:60} peak {peak / 2**30:.2f} GiB  between steps {between / count:.2f} bytes a parameter",
            flush=True,
        )
        del model, optimizer, release
    return found


def show(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if "failed" in row:
            print(f"{row['model']:12} {row['row']:48} failed: {row['failed']}")
            continue
        print(
            f"{row['model']:12} {row['row']:48} {row['ms']:8.4f} ms [{row['low']:.4f}, {row['high']:.4f}]  "
            f"floor {row['floor_ms']:.4f}  {row['state_bytes']:.3f} bytes of state  n={row['n']}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=11, help="times that each row is timed, at least 2")
    parser.add_argument("--models", nargs="*", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--no-memory", action="store_true", help="without the peak memory of training steps")
    parser.add_argument("--variants", action="store_true", help="8-bit rows with other constants too")
    parser.add_argument(
        "--out", type=Path, default=Path("records/gpu_eightbit.json"), help="written after each model"
    )
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("no CUDA device: this measures one")
    bandwidth = copy_bandwidth()
    record: dict[str, Any] = {"environment": environment(), "copy_bytes_per_s": bandwidth, "rows": []}
    print(f"{record['environment']}\ncopy {bandwidth / 1e12:.3f} TB/s", flush=True)

    def add(model: str, names: list[str], **more: Any) -> None:
        rows = [{**row, **more} for row in measure(model, bandwidth, arguments.rounds, names)]
        show(rows)
        record["rows"] += rows
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")
        torch.cuda.empty_cache()

    for model in arguments.models:
        add(model, list(ROWS))
    if not arguments.no_memory:
        record["memory"] = peaks()
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    if arguments.variants:
        ours = ["AdaXW, 8-bit state", "bf16: AdaXW, 8-bit state, 24-bit weights"]
        for registers, ahead in ((72, 0), (72, 1024), (64, 256), (80, 256), (80, 1024)):
            fused_cuda.REGISTERS, fused_cuda.AHEAD = registers, ahead
            for model in arguments.models:
                print(f"at most {registers} registers, {ahead} programs ahead")
                add(model, ours, registers=registers, ahead=ahead)


if __name__ == "__main__":
    main()
