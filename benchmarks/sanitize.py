"""Steps of every kind of bucket, small, for NVIDIA's compute-sanitizer to watch (`make sanitize-gpu`).

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck python benchmarks/sanitize.py
    compute-sanitizer --tool racecheck python benchmarks/sanitize.py

Without torch's cache every tensor is an allocation of its own, so that a read past its end is seen. Parameters and
state of 32, 16 and 8 bits, rounding, the running maximum, a schedule, gradients at fresh addresses, sparse gradients,
parameters without one, GradScaler's numbers, optimizers that are dropped with work in flight. Exits with 1 if a
parameter is no number at the end. TRITON_INTERPRET=1 and --device cpu try the script itself.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import sys
from typing import Any

import torch

import adaxopt

SMALL = ((3,), (17, 5), (1024,), (33, 65), ())
LARGE = (*SMALL, (1100, 1024))
METHODS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("adaxw", {}),
    ("adaxw", {"wake": False, "clip_update": 1.0}),
    ("adam", {"maximize": True, "weight_decay": 0.1}),
    ("amsgradw", {}),
    ("padax", {}),
    ("nosadam", {}),
    ("sgdm", {}),
)
KINDS: tuple[tuple[torch.dtype, dict[str, Any]], ...] = (
    (torch.float32, {}),
    (torch.float32, {"state_dtype": torch.bfloat16}),
    (torch.bfloat16, {"rounding": "stochastic"}),
    (torch.bfloat16, {"rounding": "kahan"}),
    (torch.float32, {"state_dtype": torch.uint8}),
    (torch.bfloat16, {"rounding": "24bit", "state_dtype": torch.uint8}),
    (torch.float64, {}),
)


def walk(
    shapes: Any, name: str, options: dict[str, Any], dtype: torch.dtype, device: str, steps: int
) -> bool:
    """A few steps; whether all parameters are numbers."""
    params = [torch.nn.Parameter(torch.randn(shape, device=device).to(dtype)) for shape in shapes]
    optimizer = adaxopt.create(name, params, lr=1e-3, **options)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for i in range(steps):
        for j, p in enumerate(params):
            p.grad = None if (i + j) % 4 == 3 else torch.randn(p.shape, device=device).to(dtype)
        if i % 3 == 2:  # as GradScaler sets them
            optimizer.grad_scale = torch.full((), 8.0, device=device)  # type: ignore[attr-defined]
            optimizer.found_inf = torch.full((), float(i % 2), device=device)  # type: ignore[attr-defined]
        optimizer.step()
        for left in ("grad_scale", "found_inf"):
            vars(optimizer).pop(left, None)
        schedule.step()
    del optimizer
    gc.collect()
    return all(bool(torch.isfinite(p).all()) for p in params)


def walk_rows(name: str, width: int, dtype: torch.dtype, device: str, steps: int) -> bool:
    """A few steps of an embedding by sparse gradients, coalesced and not, the last row of the table among them."""
    table = torch.nn.Embedding(37, width, sparse=True, device=device, dtype=dtype)
    optimizer = adaxopt.create(name, table.parameters(), lr=1e-3)
    for i in range(steps):
        optimizer.zero_grad()
        table(torch.tensor([36, i, i, 0], device=device)).square().sum().backward()
        if i % 2:
            adaxopt.clip_grad_norm_(table.parameters(), 1.0)
        optimizer.step()
    del optimizer
    gc.collect()
    return bool(torch.isfinite(table.weight).all())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=7)
    options = parser.parse_args()
    torch.manual_seed(0)
    failed = 0
    cases = itertools.product((SMALL, LARGE), METHODS, KINDS)
    for shapes, (name, given), (dtype, kind) in cases:
        if name == "sgdm" and "state_dtype" in kind:
            continue
        right = walk(shapes, name, {**given, **kind}, dtype, options.device, options.steps)
        failed += not right
        if not right:
            print(f"no number: {name} {given} {dtype} {kind} {len(shapes)} tensors", flush=True)
    for name, width, dtype in itertools.product(
        ("adaxw", "adam"), (1, 5, 256, 300), (torch.float32, torch.bfloat16)
    ):
        right = walk_rows(name, width, dtype, options.device, options.steps)
        failed += not right
        if not right:
            print(f"no number: rows of {name} {dtype}, width {width}", flush=True)
    print(f"{failed} failed", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
