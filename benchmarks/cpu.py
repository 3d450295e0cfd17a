"""CPU step time and memory of AdaXW beside torch's AdamW over the shapes of ResNet-50, and of AdaX beside torch's
SparseAdam over an embedding of 200,000 rows of 64, of which a step names 8,192. In rows "one
coordinate without a gradient" the first coordinate of every tensor never has a gradient, in rows "half of the
coordinates" its first half, so that `wake` guards them. Rows "n tensors of 1,000" are small nets, where the step is the
work of the host: ten steps are timed at once.

    python benchmarks/cpu.py [--rounds 30] [--out records/cpu_step.json]

Machines are noisy: every round times each optimizer once, in turn, and what is reported is a ratio of medians of one
run. Memory is counted by the allocator: the peak of bytes held during a step above what stood before it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from shapes import resnet50
from torch.utils._python_dispatch import TorchDispatchMode

from adaxopt import AdaX, AdaXW

Make = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]

ROWS: dict[str, Make] = {
    "torch AdamW fused": lambda p: torch.optim.AdamW(p, fused=True),
    "AdaXW fused": lambda p: AdaXW(p, fused=True),
    "torch AdamW foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "AdaXW foreach": lambda p: AdaXW(p, foreach=True),
    "torch AdamW for-loop": lambda p: torch.optim.AdamW(p, foreach=False),
    "AdaXW for-loop": lambda p: AdaXW(p, foreach=False),
    "AdaXW default": lambda p: AdaXW(p),
}
ASLEEP: dict[str, Make] = {
    "AdaXW default, one coordinate without a gradient": lambda p: AdaXW(p),
    "AdaXW default, one coordinate without a gradient, wake=False": lambda p: AdaXW(p, wake=False),
}
HALF_ASLEEP: dict[str, Make] = {
    "AdaXW default, half of the coordinates without a gradient": lambda p: AdaXW(p),
    "AdaXW default, half of the coordinates without a gradient, wake=False": lambda p: AdaXW(p, wake=False),
}
SMALL = (4, 20, 60, 150)
"""Numbers of tensors of 1,000 elements; the target of each row is at most 1.1 times torch's fused AdamW."""
SMALL_STEPS = 10
SPARSE: dict[str, Make] = {
    "torch SparseAdam, sparse rows": torch.optim.SparseAdam,
    "AdaX, sparse rows": AdaX,
}
TABLE, TOUCHED = (200_000, 64), 8192
AGAINST = {
    "AdaXW fused": "torch AdamW fused",
    "AdaXW foreach": "torch AdamW foreach",
    "AdaXW for-loop": "torch AdamW for-loop",
    "AdaXW default": "torch AdamW fused",
    "AdaXW default, one coordinate without a gradient": "AdaXW default",
    "AdaXW default, one coordinate without a gradient, wake=False": "AdaXW default",
    "AdaXW default, half of the coordinates without a gradient": "AdaXW default",
    "AdaXW default, half of the coordinates without a gradient, wake=False": "AdaXW default",
    "AdaX, sparse rows": "torch SparseAdam, sparse rows",
    **{f"AdaXW default, {n} tensors of 1,000": f"torch AdamW fused, {n} tensors of 1,000" for n in SMALL},
}


class PeakBytes(TorchDispatchMode):
    """Bytes of storages that come to life under this mode, at their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, int] = {}
        self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        given = {t.untyped_storage()._cdata for t in _tensors(args)}
        for t in _tensors(result if isinstance(result, (list, tuple)) else [result]):
            storage = t.untyped_storage()
            if storage._cdata not in given and storage._cdata not in self.alive:
                self._watch(storage)
        return result

    def _watch(self, storage: torch.UntypedStorage) -> None:
        import weakref

        key = storage._cdata
        self.alive[key] = storage.nbytes()
        self.peak = max(self.peak, sum(self.alive.values()))
        weakref.finalize(storage, self.alive.pop, key, None)


def _tensors(values):
    for value in values:
        if isinstance(value, torch.Tensor):
            yield from (value._indices(), value._values()) if value.is_sparse else (value,)
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def build(
    make: Make, shapes: list[tuple[int, ...]], dtype: torch.dtype, asleep: Callable[[int], int] | None = None
) -> torch.optim.Optimizer:
    """`asleep`: of n coordinates, how many never have a gradient."""
    generator = torch.Generator().manual_seed(0)
    params = []
    for shape in shapes:
        p = torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype))
        p.grad = torch.randn(shape, generator=generator).to(dtype)
        if asleep is not None:
            p.grad.view(-1)[: asleep(p.numel())] = 0.0
        params.append(p)
    return make(params)


def build_sparse(make: Make) -> torch.optim.Optimizer:
    generator = torch.Generator().manual_seed(0)
    p = torch.nn.Parameter(torch.randn(TABLE, generator=generator))
    rows = torch.randint(0, TABLE[0], (1, TOUCHED), generator=generator)
    values = torch.randn((TOUCHED, TABLE[1]), generator=generator)
    p.grad = torch.sparse_coo_tensor(rows, values, TABLE, check_invariants=False)
    return make([p])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("records/cpu_step.json"))
    arguments = parser.parse_args()
    if arguments.rounds < 2:
        parser.error(f"--rounds {arguments.rounds}: at least 2, for quartiles")
    shapes = resnet50()
    count = sum(torch.Size(s).numel() for s in shapes)
    optimizers = {name: build(make, shapes, torch.float32) for name, make in ROWS.items()}
    for some, asleep in ((ASLEEP, lambda n: 1), (HALF_ASLEEP, lambda n: n // 2)):
        optimizers |= {name: build(make, shapes, torch.float32, asleep) for name, make in some.items()}
    optimizers |= {name: build_sparse(make) for name, make in SPARSE.items()}
    for n in SMALL:
        for row in ("torch AdamW fused", "AdaXW default"):
            optimizers[f"{row}, {n} tensors of 1,000"] = build(ROWS[row], [(1000,)] * n, torch.float32)
    for _ in range(3):
        for optimizer in optimizers.values():
            optimizer.step()
    times: dict[str, list[float]] = {name: [] for name in optimizers}
    for _ in range(arguments.rounds):
        for name, optimizer in optimizers.items():
            steps = SMALL_STEPS if name.endswith("of 1,000") else 1
            start = time.perf_counter()
            for _ in range(steps):
                optimizer.step()
            times[name].append((time.perf_counter() - start) / steps)
    rows = {}
    print(
        f"ResNet-50 shapes: {len(shapes)} tensors, {count / 1e6:.1f}M float32, {torch.get_num_threads()} threads"
    )
    print(f"{'':40}{'ms':>8}{'ratio':>8}   against{'':24}{'peak MB':>8}")
    for name, optimizer in optimizers.items():
        with PeakBytes() as memory:
            optimizer.step()
        median = statistics.median(times[name])
        other = AGAINST.get(name)
        ratio = median / statistics.median(times[other]) if other else None
        rows[name] = {
            "median_ms": median * 1e3,
            "quartiles_ms": [q * 1e3 for q in statistics.quantiles(times[name], n=4)[::2]],
            "against": other,
            "ratio": ratio,
            "peak_bytes": memory.peak,
        }
        shown = f"{ratio:8.2f}   {other:30}" if ratio else " " * 41
        print(f"{name:40}{median * 1e3:8.2f}{shown}{memory.peak / 1e6:9.1f}")
    environment = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
    }
    record = {"benchmark": "cpu_step", "tensors": len(shapes), "numbers": count, "rounds": arguments.rounds}
    record |= {"sparse_table": TABLE, "sparse_named": TOUCHED}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(
        json.dumps({**record, "environment": environment, "rows": rows}, indent=1) + "\n"
    )
    print(f"written to {arguments.out}")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
