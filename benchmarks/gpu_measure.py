"""How a step is measured on a GPU: wall time of many steps in turn with others, peak memory, the copy bandwidth."""

from __future__ import annotations

import gc
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

import torch

Step = Callable[[], Any]


def device_ms(call: Step, times: int = 20, warmup: int = 5) -> float:
    """Median milliseconds of a call's work on the device, between events."""
    for _ in range(warmup):
        call()
    marks = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(times)
    ]
    for start, stop in marks:
        start.record()
        call()
        stop.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(stop) for start, stop in marks)


def copy_bandwidth() -> float:
    """Bytes read and written per second by a device copy of 2 GiB."""
    a = torch.empty(1 << 29, dtype=torch.float32, device="cuda").normal_()
    b = torch.empty_like(a)
    return 2 * a.numel() * 4 / device_ms(lambda: b.copy_(a)) * 1e3


def wall_ms(call: Step, times: int) -> float:
    """Milliseconds per call, host and device together: many calls, one wait at the end."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(times):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / times * 1e3


def alternate(
    calls: dict[str, Step], rounds: int, times: int, longest_ms: float = 500.0
) -> dict[str, dict[str, float]]:
    """Every round times each call in turn; median, quartiles and the number of rounds for each.

    A time is the mean of `times` calls in a row, of fewer (at least 2) where they would take more than `longest_ms`.
    """
    in_a_row = {}
    for name, call in calls.items():
        for _ in range(4):
            call()
        in_a_row[name] = max(2, min(times, int(longest_ms / wall_ms(call, 2))))
    seen: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            seen[name].append(wall_ms(call, in_a_row[name]))
    return {name: summary(values) for name, values in seen.items()}


def summary(values: list[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return {"ms": middle, "low": low, "high": high, "n": len(values)}


def peak_bytes(call: Step) -> int:
    """Bytes allocated during a call above what stood before it."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def environment() -> dict[str, Any]:
    """What the numbers were measured with."""
    query = ["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,clocks.max.mem", "--format=csv,noheader"]
    try:
        driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        driver = "unknown"
    import triton

    return {
        "gpu": torch.cuda.get_device_name(),
        "driver, SM and memory clocks": driver,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "cpu": platform.processor() or platform.machine(),
        "date": time.strftime("%Y-%m-%d"),
    }


def gradient(p: torch.Tensor) -> torch.Tensor:
    """A Gaussian gradient without zeros.

    Of 10^8 Gaussian float32 numbers a few are exactly 0. Where a gradient stays the same, such a coordinate stays
    inactive, which no coordinate of an ordinary net does, and the foreach path guards it at every step.
    """
    g = torch.randn_like(p)
    return g.masked_fill_(g == 0, 1.0)
