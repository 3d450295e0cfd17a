"""How far a second moment in 8 bits is from float64 after many steps, on a CPU.

    PYTHONPATH=src python benchmarks/eightbit_drift.py [--steps 20000 200000] [--out records/eightbit_drift.json]

v <- v + k_t*(g*g - v) with the gains of AdaX (b2 = 1e-4 and 3/T) and of Adam (b2 = 0.95 and 0.999). Gradients
are Gaussian; the sizes of coordinates are log-normal (sigma 1): groups of 32 span about two orders of magnitude.
stationary: as they are. decaying: their size falls by 10^3 over the run. spiking: a coordinate's gradient is 100 times
larger with probability 1e-3. Reported: sqrt(v) over its float64 value, mean and root mean square of the relative
difference, over all coordinates of a row.

Stored as: the package's codes, stochastically and to the nearest; FlashOptim's (0.1.4): sqrt(v) in 255 equal steps of
the group's largest, which is kept in float16, to the nearest; bfloat16, stochastically. Where v is 0 it takes the whole
square, as this package's `wake` does; FlashOptim's does not.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from adaxopt.memory import fading_gain, growing_gain
from adaxopt.torch import codes
from adaxopt.torch.rounding import stochastic_

COUNT = 512
"""Coordinates of a row: 16 groups."""
KINDS = ("stationary", "decaying", "spiking")


class Codes:
    def __init__(self, like: Tensor, stochastic: bool) -> None:
        self.entry, self.stochastic = codes.create(like, "exp_avg_sq"), stochastic

    def read(self) -> Tensor:
        return codes.expanded(self.entry, "exp_avg_sq")

    def write(self, v: Tensor, t: int) -> None:
        if self.stochastic:
            codes.store_(self.entry, {"exp_avg_sq": v}, seed=0, index=0, step=t)
        else:
            codes.encode_(*self.entry.values(), v)


class FlashOptim:
    def __init__(self, like: Tensor) -> None:
        self.shape = like.shape
        self.code = torch.zeros(like.numel() // codes.GROUP, codes.GROUP)
        self.scale = torch.zeros(len(self.code), 1, dtype=torch.float16)

    def read(self) -> Tensor:
        return (self.code / 255 * self.scale.float()).square().view(self.shape)

    def write(self, v: Tensor, t: int) -> None:
        root = v.sqrt().view_as(self.code)
        largest = root.amax(1, keepdim=True).clamp(min=1e-12)
        self.code = (root / largest * 255 + 0.5).floor()
        self.scale = largest.half()


class Bfloat16:
    def __init__(self, like: Tensor) -> None:
        self.v = torch.zeros_like(like, dtype=torch.bfloat16)

    def read(self) -> Tensor:
        return self.v.float()

    def write(self, v: Tensor, t: int) -> None:
        stochastic_(self.v, v, seed=0, index=0, step=t, stream=2)


def run(steps: int) -> list[dict[str, Any]]:
    gains = {
        "AdaX, b2=1e-4": lambda t: growing_gain(t, 1e-4),
        "AdaX, b2=3/T": lambda t: growing_gain(t, 3 / steps),
        "Adam, b2=0.95": lambda t: fading_gain(t, 0.95),
        "Adam, b2=0.999": lambda t: fading_gain(t, 0.999),
    }
    names = [(memory, kind) for memory in gains for kind in KINDS]
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randn(COUNT, generator=generator).exp().repeat(len(names), 1)
    shape = (len(names), COUNT)
    exact = torch.zeros(shape, dtype=torch.float64)
    stored: dict[str, Any] = {
        "8-bit, stochastic": Codes(exact, True),
        "8-bit, nearest": Codes(exact, False),
        "FlashOptim": FlashOptim(exact),
        "bfloat16, stochastic": Bfloat16(exact),
    }
    decaying = torch.tensor([kind == "decaying" for _, kind in names]).unsqueeze(1)
    spiking = torch.tensor([kind == "spiking" for _, kind in names]).unsqueeze(1)
    rows = []
    for t in range(1, steps + 1):
        g = torch.randn(COUNT, generator=generator) * sizes
        g = torch.where(decaying, g * 10 ** (-3 * t / steps), g)
        large = torch.rand(COUNT, generator=generator) < 1e-3
        square = torch.where(spiking & large, 100 * g, g).square()
        k = torch.tensor([gain(t) for gain in gains.values() for _ in KINDS], dtype=torch.float64)
        exact += k.unsqueeze(1) * (square.double() - exact)
        single = k.float().unsqueeze(1)
        for store in stored.values():
            v = store.read()
            if not isinstance(store, FlashOptim):
                v = torch.where(v == 0, square, v)  # what `wake` does
            store.write(v + single * (square - v), t)
    for name, store in stored.items():
        ratio = (store.read().double() / exact).sqrt() - 1
        for i, (memory, kind) in enumerate(names):
            mean, rms = ratio[i].mean().item(), ratio[i].square().mean().sqrt().item()
            row = {"memory": memory, "gradients": kind, "stored": name, "steps": steps}
            rows.append({**row, "mean": mean, "rms": rms})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, nargs="*", default=[20_000, 200_000], help="lengths of runs")
    parser.add_argument("--out", type=Path, default=Path("records/eightbit_drift.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    began = time.perf_counter()
    rows = [row for steps in arguments.steps for row in run(steps)]
    record = {"torch": torch.__version__, "coordinates": COUNT, "rows": rows}
    arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    for row in rows:
        print(f"{row['steps']:7} {row['memory']:18} {row['gradients']:10} {row['stored']:22} "
              f"mean {row['mean']:+.4f} rms {row['rms']:.4f}")  # fmt: skip
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
