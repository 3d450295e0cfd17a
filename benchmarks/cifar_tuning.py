"""Tile sizes of the stacked ResNet-20 kernels on this GPU: correctness, times of candidates, time of a whole step.

    PYTHONPATH=src python benchmarks/cifar_tuning.py --out tuning.json [--seconds 140]

The old kernels are those in `_old_stacked`. Candidates are compiled by other processes, into Triton's cache; then each
is checked against the old kernel's output and timed alone, in a CUDA graph, with a cold cache. The fastest of each kind
of layer make a table for `tiles.py`, whose whole step is timed against the old kernels. A candidate that fails is
recorded and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _old_stacked import fused as old_fused
from _old_stacked import tiles as old_tiles
from torch import Tensor

from adaxlab.models import resnet20
from adaxlab.stacked import fused
from adaxlab.stacked.loader import Images, StackLoader
from adaxlab.stacked.plain import PlainNetwork
from adaxlab.stacked.tiles import KINDS, SLOTS, Rows, Tiles

Kind = tuple[int, int]
KERNELS = ("forward", "weight", "input")
LAYERS: dict[Kind, int] = {(4, 16): 1, (16, 16): 6, (16, 32): 1, (32, 32): 5, (32, 64): 1, (64, 64): 5}
"""How many layers of a ResNet-20 are of each kind."""
STAGES: tuple[tuple[Kind, ...], ...] = (((4, 16), (16, 16)), ((16, 32), (32, 32)), ((32, 64), (64, 64)))
SLOT_CHOICES = ((32, 64, 128), (16, 32, 64), (8, 16, 32))
"""Numbers of partial weight gradients, by stage."""
FIRST: dict[Kind, tuple[int, ...]] = {
    (4, 16): (0,), (16, 16): (4, 3), (16, 32): (7,), (32, 32): (10, 9), (32, 64): (13,), (64, 64): (16, 15),
}  # fmt: skip
"""Layers that stand for their kind: without and, for the input gradient, with a shortcut."""

CANDIDATES: dict[str, dict[Kind, list[Any]]] = {
    "forward": {
        (4, 16): [Rows(4, 32, 2, 4, 2), Rows(4, 32, 2, 4, 4), Rows(8, 32, 2, 8, 2), Rows(4, 16, 2, 4, 3)],
        (16, 16): [
            Rows(4, 32, 2, 4, 1), Rows(4, 32, 2, 4, 2), Rows(4, 32, 2, 4, 3), Rows(4, 16, 2, 4, 2),
            Rows(4, 16, 2, 4, 1), Rows(8, 32, 2, 8, 2), Rows(4, 32, 2, 4, 2, 80),
        ],
        (16, 32): [(128, 4, 4, 1), (128, 8, 4, 1), (64, 4, 4, 2), (64, 4, 8, 1)],
        (32, 32): [
            Rows(8, 16, 2, 8, 2), Rows(8, 8, 2, 8, 2), Rows(8, 8, 2, 8, 1), Rows(8, 16, 2, 4, 1),
            Rows(4, 16, 1, 4, 2), Rows(4, 16, 1, 4, 1), Rows(4, 8, 1, 4, 2), Rows(8, 16, 1, 8, 2),
        ],
        (32, 64): [(64, 8, 2, 1), (64, 4, 4, 1), (64, 8, 4, 2)],
        (64, 64): [
            Rows(8, 8, 1, 4, 2, None, 2), Rows(8, 8, 1, 4, 1, None, 2), Rows(8, 4, 1, 4, 2, None, 2),
            Rows(16, 8, 1, 8, 1), Rows(16, 8, 1, 8, 2, None, 2), Rows(8, 8, 1, 4, 1), Rows(8, 8, 1, 4, 2),
        ],
    },
    "weight": {
        (4, 16): [Rows(4, 32, 2, 4, 2), Rows(4, 32, 2, 4, 3), (256, 4, 2), (128, 4, 3)],
        (16, 16): [
            Rows(4, 32, 2, 4, 2), Rows(4, 32, 2, 4, 3), Rows(4, 32, 2, 4, 4), Rows(4, 16, 2, 4, 3),
            Rows(4, 32, 2, 4, 3, 128), Rows(4, 32, 2, 4, 2, 128),
        ],
        (16, 32): [(64, 4, 3), (64, 8, 2), (128, 8, 2)],
        (32, 32): [
            Rows(8, 16, 2, 8, 2), Rows(8, 16, 2, 8, 3), Rows(8, 8, 2, 8, 2), Rows(8, 16, 2, 8, 2, 128), (64, 8, 3),
        ],
        (32, 64): [(32, 4, 2), (64, 8, 2)],
        (64, 64): [Rows(8, 8, 1, 4, 2), Rows(8, 8, 1, 4, 3), Rows(8, 8, 1, 4, 2, 168), Rows(8, 4, 1, 4, 2)],
    },
    "input": {
        (16, 16): [
            Rows(4, 32, 2, 4, 1), Rows(4, 32, 2, 4, 2), Rows(4, 32, 2, 4, 3), Rows(4, 16, 2, 4, 2),
            Rows(4, 32, 2, 4, 2, 128), Rows(8, 32, 2, 8, 2, 128),
        ],
        (16, 32): [
            Rows(4, 16, 2, 4, 1), Rows(4, 16, 2, 4, 2), Rows(4, 16, 2, 4, 2, 128), Rows(8, 16, 2, 8, 2, 128),
        ],
        (32, 32): [
            Rows(8, 16, 2, 8, 2), Rows(8, 8, 2, 8, 2), Rows(8, 8, 2, 8, 2, 128), Rows(4, 16, 1, 4, 2),
            Rows(4, 16, 1, 4, 1), Rows(4, 8, 1, 4, 2), Rows(4, 16, 1, 4, 2, 128), Rows(8, 16, 1, 8, 2, 128),
        ],
        (32, 64): [Rows(8, 8, 2, 8, 1), Rows(8, 8, 2, 8, 2), Rows(8, 8, 2, 8, 1, 128), Rows(8, 4, 2, 8, 2, 128)],
        (64, 64): [
            Rows(8, 8, 1, 4, 2, None, 2), Rows(8, 8, 1, 4, 1, None, 2), Rows(8, 4, 1, 4, 2, None, 2),
            Rows(8, 8, 1, 4, 1, 168, 2), Rows(16, 8, 1, 8, 2, None, 2), Rows(16, 8, 1, 8, 1, 128, 2),
        ],
    },
}  # fmt: skip


def say(*words: object) -> None:
    print(*words, flush=True)


def networks(count: int) -> list[Any]:
    out = []
    for seed in range(count):
        torch.manual_seed(seed)
        out.append(resnet20())
    return out


def images(count: int, device: torch.device) -> Images:
    random = np.random.default_rng(0)
    return Images.of(
        random.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8), random.integers(0, 10, count), device
    )


def short(batch: int) -> int:
    """The last batch of an epoch: 80 of 128."""
    return batch * 5 // 8 if batch % 128 == 0 else batch // 2


def choices(kernel: str, kind: Kind) -> list[Any]:
    """The old tile, the default of `tiles.py`, then the candidates, each once."""
    given = [getattr(old_tiles.KINDS[kind], kernel), getattr(KINDS[kind], kernel)]
    return list(dict.fromkeys(given + CANDIDATES[kernel].get(kind, [])))


def pairs(kernels: tuple[str, ...] = KERNELS) -> list[tuple[str, Kind]]:
    return [
        (kernel, kind) for kernel in kernels for kind in KINDS if not (kernel == "input" and kind == (4, 16))
    ]


class Bench:
    """A network whose single kernels can be called with any tile."""

    def __init__(self, models: int, batch: int, device: torch.device) -> None:
        self.data = images(max(1000, batch), device)
        self.loader = StackLoader(self.data, list(range(models)))
        self.loader.start(0)
        most = tuple(max(c) for c in SLOT_CHOICES)
        self.net = fused.FusedNetwork(
            networks(models), device, batch=batch, test_batch=8, kinds=old_tiles_as_new(), slots=most
        )
        self.batch = batch
        self._programs = 0

    def prepare(self) -> None:
        self.net.slots = old_tiles.SLOTS
        self.net.gradients(self.loader, self.batch)

    def call(
        self, kernel: str, kind: Kind, tile: Any, layer: int, slots: int | None = None, count: int = 0
    ) -> None:
        """Launch one kernel for a layer (and the small one that finishes an input gradient's sums)."""
        count = count or self.batch
        net = self.net
        conv = net.layout.convs[layer]
        net.kinds[kind] = net.kinds[kind]._replace(**{kernel: tile})
        if slots is not None:
            net.slots = tuple(slots if s == conv.stage else n for s, n in enumerate(net.slots))
        x = net._h[layer - 1] if layer else net._x
        if kernel == "forward":
            self._programs = net._conv(x, conv, net._y[layer], count, net._batch, stats=True)
        elif kernel == "weight":
            net._weight(layer, x, net._dz[0], count)
        else:
            shortcut = 0 if layer % 2 == 0 else net._shortcut(layer + 1)
            net._input(layer, net._dz[0], net._dz[1], count, shortcut=shortcut)

    def layers(self, kernel: str, kind: Kind) -> tuple[int, ...]:
        return FIRST[kind] if kernel == "input" else FIRST[kind][:1]

    def outcome(self, kernel: str, layer: int) -> list[Tensor]:
        """What the kernel has written."""
        net, conv = self.net, self.net.layout.convs[layer]
        if kernel == "forward":
            part = net._part[: net.models * 2 * conv.co * self._programs]
            return [net._y[layer].clone(), part.view(net.models, 2, conv.co, -1)[:, 0].sum(-1)]
        if kernel == "weight":
            first, _, part = net._segments[conv.stage]
            inside = part[: net.slots[conv.stage], :, conv.offset - first :][:, :, : conv.size]
            return [inside.sum(0), net._dy[conv.stage].clone()]
        below = net.layout.convs[layer - 1]
        used = net.models * self.batch * below.side**2 * below.co
        table = net._coefficients[:, :, below.channel : below.channel + below.co]
        return [net._dz[1][:used].clone(), table.clone()]


def old_tiles_as_new() -> dict[Kind, Tiles]:
    return {kind: Tiles(*tiles) for kind, tiles in old_tiles.KINDS.items()}


def difference(found: list[Tensor], wanted: list[Tensor]) -> float:
    """The largest relative difference of two lists of tensors, each in the 2-norm."""
    out = 0.0
    for a, b in zip(found, wanted, strict=True):
        norm = b.float().norm().item()
        out = max(out, (a.float() - b.float()).norm().item() / max(norm, 1e-30))
    return out


# -- correctness ------------------------------------------------------------------------------------------------------


def correctness(device: torch.device, counts: tuple[int, ...], models: int) -> list[dict[str, Any]]:
    """Relative differences of loss and gradient to the plain loop in float32, of the old kernels and of the new."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    data = images(1000, device)
    rows = []
    for count in counts:
        loader = StackLoader(data, list(range(models)))
        loader.start(0)
        plain = PlainNetwork(networks(models), device)
        loss, _ = plain.gradients(loader, count)
        row: dict[str, Any] = {"count": count}
        for name, module in (("old", old_fused), ("new", fused)):
            given = {} if name == "old" else {"kinds": KINDS, "slots": SLOTS}
            net = module.FusedNetwork(networks(models), device, batch=max(counts), test_batch=1000, **given)
            net.gradients(loader, max(counts))  # a small batch comes after a whole one
            net.running.zero_()
            net.running[1] = 1.0
            other, _ = net.gradients(loader, count)
            once = net.gradient.clone()
            row[name] = {
                "gradient": difference([once], [plain.gradient]),
                "loss": difference([other], [loss]),
                "running": difference([net.running], [plain.running]),
            }
            net.gradients(loader, count)
            row[name]["deterministic"] = torch.equal(once, net.gradient)
            row[name]["correct"] = net.count_correct(data, loader, 0, 1000).tolist()
            row[f"{name}_gradient"] = once
        row["new_to_old"] = difference([row.pop("new_gradient")], [row.pop("old_gradient")])
        row["ok"] = (
            row["new"]["deterministic"]
            and row["new"]["gradient"] < 0.3
            and all(row["new"][k] <= 1.1 * row["old"][k] + 1e-4 for k in ("gradient", "loss", "running"))
        )
        rows.append(row)
        say(f"correctness, batch {count}:", json.dumps(row))
    return rows


# -- times ------------------------------------------------------------------------------------------------------------


def graph_of(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def timed(graph: torch.cuda.CUDAGraph) -> float:
    """Microseconds of one replay."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


class Cold:
    """Times of small pieces of work, each after a read that fills the L2 cache."""

    def __init__(self, device: torch.device, times: int = 4) -> None:
        self.times = times
        self._fill = torch.zeros(32, 2**20, device=device)
        self._sink = torch.zeros(2**20, device=device)
        self._alone = self._graph(lambda: None)

    def _graph(self, work: Callable[[], object]) -> torch.cuda.CUDAGraph:
        def repeated() -> None:
            for _ in range(self.times):
                torch.sum(self._fill, 0, out=self._sink)
                work()

        return graph_of(repeated)

    def __call__(self, work: Callable[[], object], n: int = 5) -> float:
        graph = self._graph(work)
        timed(graph)
        return statistics.median((timed(graph) - timed(self._alone)) / self.times for _ in range(n))


class Warm:
    """Stands for `Cold` where there is no GPU."""

    def __call__(self, work: Callable[[], object], n: int = 1) -> float:
        begin = time.perf_counter()
        work()
        return (time.perf_counter() - begin) * 1e6


def measure(
    bench: Bench, clock: Callable[..., float], record: Record, deadline: float, only: tuple[str, ...]
) -> dict[tuple[str, Kind, int | None], dict[Any, float]]:
    """Times of all candidates by (kernel, kind, slots)."""
    out: dict[tuple[str, Kind, int | None], dict[Any, float]] = {}
    done = {row["key"]: row for row in record.content.get("candidates", [])}
    for kernel, kind in pairs(only):
        stage = next(s for s, kinds in enumerate(STAGES) if kind in kinds)
        for slots in SLOT_CHOICES[stage] if kernel == "weight" else (None,):
            times = out.setdefault((kernel, kind, slots), {})
            wanted: dict[int, list[Tensor]] = {}
            for tile in choices(kernel, kind):
                key = f"{kernel} {kind} slots {slots} {tile}"
                row = done.get(key) or {"key": key}
                if len(row) == 1:
                    if time.monotonic() > deadline:
                        row["error"] = "no time left"
                    else:
                        row |= attempt(bench, clock, kernel, kind, tile, slots, wanted)
                    record.add("candidates", row)
                if row.get("fatal"):
                    record.write()
                    again(record)
                if row.get("difference", 1.0) < 2e-2:
                    times[tile] = row["us"]
    return out


def attempt(bench: Bench, clock: Callable[..., float], *given: Any) -> dict[str, Any]:
    """`candidate`, or the error; `fatal` if the GPU cannot be used by this process any more."""
    try:
        return candidate(bench, clock, *given)
    except Exception as e:
        row: dict[str, Any] = {"error": f"{type(e).__name__}: {str(e)[:200]}"}
    try:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    except Exception:
        row["fatal"] = True
    return row


def again(record: Record) -> None:
    """Replace this process by one that goes on after the candidates in the record."""
    for row in record.content["candidates"]:
        row.pop("fatal", None)
    record.write()
    sys.stdout.flush()
    rest = [word for word in sys.argv[1:] if word != "--resume"]
    os.execv(sys.executable, [sys.executable, __file__, *rest, "--resume"])


def candidate(
    bench: Bench,
    clock: Callable[..., float],
    kernel: str,
    kind: Kind,
    tile: Any,
    slots: int | None,
    wanted: dict[int, list[Tensor]],
) -> dict[str, Any]:
    """Check one tile against the old kernel and time it; the mean over layers of the kind."""
    us, worst = [], 0.0
    for layer in bench.layers(kernel, kind):
        bench.call(kernel, kind, tile, layer, slots, short(bench.batch))
        bench.call(kernel, kind, tile, layer, slots)
        found = bench.outcome(kernel, layer)
        if layer not in wanted:
            old = getattr(old_tiles.KINDS[kind], kernel)
            bench.call(kernel, kind, old, layer, slots)
            wanted[layer] = bench.outcome(kernel, layer)
        worst = max(worst, difference(found, wanted[layer]))
        del found
        us.append(clock(lambda layer=layer: bench.call(kernel, kind, tile, layer, slots)))
    return {"us": statistics.mean(us), "each": us, "difference": worst}


def sums(bench: Bench, clock: Callable[..., float]) -> dict[tuple[int, int], float]:
    """Times of the sums of partial weight gradients by (stage, slots)."""
    out = {}
    for stage, (first, end, part) in enumerate(bench.net._segments):
        target = bench.net.gradient[:, first:end]
        for slots in SLOT_CHOICES[stage]:
            out[stage, slots] = clock(
                lambda part=part, slots=slots, target=target: torch.sum(part[:slots], 0, out=target)
            )
    return out


def best_of(
    times: dict[tuple[str, Kind, int | None], dict[Any, float]], added: dict[tuple[int, int], float]
) -> tuple[dict[Kind, Tiles], tuple[int, ...]]:
    """The fastest tiles of each kind, and the numbers of slots."""
    kinds, slots = dict(KINDS), list(SLOTS)
    for (kernel, kind, number), found in times.items():
        if number is None and found:
            kinds[kind] = kinds[kind]._replace(**{kernel: min(found, key=found.__getitem__)})
    for stage, group in enumerate(STAGES):
        costs = {}
        for number in SLOT_CHOICES[stage]:
            found = [times.get(("weight", kind, number)) for kind in group]
            if all(found):
                costs[number] = added[stage, number] + sum(
                    LAYERS[kind] * min(f.values()) for kind, f in zip(group, found, strict=True) if f
                )
        if costs:
            slots[stage] = min(costs, key=costs.__getitem__)
            for kind in group:
                found_here = times["weight", kind, slots[stage]]
                kinds[kind] = kinds[kind]._replace(weight=min(found_here, key=found_here.__getitem__))
    return kinds, tuple(slots)


def table_of(kinds: dict[Kind, Tiles], slots: tuple[int, ...]) -> str:
    """The tables as text for `tiles.py`."""

    def text(tile: Any) -> str:
        if not isinstance(tile, Rows):
            return repr(tuple(tile))
        given = list(tile)
        while len(given) > 5 and given[-1] == Rows._field_defaults[Rows._fields[len(given) - 1]]:
            given.pop()
        return f"Rows({', '.join(map(repr, given))})"

    lines = [f"SLOTS = {slots!r}", "", "KINDS: dict[tuple[int, int], Tiles] = {"]
    for kind, tiles in kinds.items():
        lines.append(f"    {kind}: Tiles({text(tiles.forward)}, {text(tiles.input)}, {text(tiles.weight)}),")
    return "\n".join([*lines, "}"])


def steps(
    models: int, batch: int, device: torch.device, kinds: dict[Kind, Tiles], slots: tuple[int, ...], n: int
) -> dict[str, Any]:
    """Microseconds of a whole step (without optimizers) of the old kernels, the defaults and the chosen tiles."""
    data = images(1000, device)
    loader = StackLoader(data, list(range(models)))
    loader.start(0)
    graphs, kept = {}, []
    new = {"default": {"kinds": KINDS, "slots": SLOTS}, "chosen": {"kinds": kinds, "slots": slots}}
    for name, given in ({"old": {}} | new).items():
        module = old_fused if name == "old" else fused
        net = module.FusedNetwork(networks(models), device, batch=batch, test_batch=8, **given)
        for _ in range(2):
            net.gradients(loader, batch)
        graphs[name] = graph_of(lambda net=net: net.gradients(loader, batch))
        kept.append(net)
    found: dict[str, list[float]] = {name: [] for name in graphs}
    for graph in graphs.values():
        timed(graph)
    for _ in range(n):
        for name, graph in graphs.items():
            found[name].append(timed(graph))
    same = difference([kept[2].gradient], [kept[0].gradient])
    return {
        **{name: {"median_us": statistics.median(v), "all": v} for name, v in found.items()},
        "models": models,
        "gradient_difference_to_old": same,
    }


# -- the command ------------------------------------------------------------------------------------------------------


class Record:
    """A JSON file that is written again after each addition that matters."""

    def __init__(self, path: Path, resume: bool) -> None:
        self.path = path
        self.content: dict[str, Any] = json.loads(path.read_text()) if resume else {}
        self._written = 0.0

    def add(self, name: str, row: Any) -> None:
        self.content.setdefault(name, []).append(row)
        if time.monotonic() - self._written > 2:
            self.write()

    def put(self, name: str, value: Any) -> None:
        self.content[name] = value
        self.write()

    def write(self) -> None:
        self.path.write_text(json.dumps(self.content, indent=1, default=str))
        self._written = time.monotonic()


def compile_share(share: int, of: int, device: torch.device) -> None:
    """Launch every `of`-th candidate on one model, so that Triton's cache has it."""
    bench = Bench(1, 128, device)
    work = [(kernel, kind, tile) for kernel, kind in pairs() for tile in choices(kernel, kind)]
    for kernel, kind, tile in work[share::of]:
        for layer in bench.layers(kernel, kind):
            try:
                bench.call(kernel, kind, tile, layer, 32)
            except Exception as e:
                say(f"compile {kernel} {kind} {tile}: {type(e).__name__}: {str(e)[:120]}")


def report(times: dict[tuple[str, Kind, int | None], dict[Any, float]]) -> None:
    """Print the old time and the best three of each kind."""
    say(f"{'kernel':8} {'kind':9} {'slots':>5} {'old us':>8}  best: us tile")
    for (kernel, kind, slots), found in times.items():
        old = found.get(getattr(old_tiles.KINDS[kind], kernel))
        best = sorted(found.items(), key=lambda item: item[1])[:3]
        shown = "; ".join(f"{us:.1f} {tuple(tile)}" for tile, us in best)
        say(f"{kernel:8} {kind!s:9} {slots or '':>5} {'' if old is None else f'{old:.1f}':>8}  {shown}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("cifar_tuning.json"))
    parser.add_argument("--seconds", type=float, default=140)
    parser.add_argument("--models", type=int, default=24)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--share", type=int, help="(internal) compile this share of the candidates")
    parser.add_argument(
        "--dry", action="store_true", help="on the CPU, by Triton's interpreter, without times"
    )
    parser.add_argument("--resume", action="store_true", help="(internal) go on with the record in --out")
    parser.add_argument("--only", nargs="*", default=list(KERNELS), choices=KERNELS)
    args = parser.parse_args()
    device = torch.device("cpu" if args.dry else "cuda")
    if args.share is not None:
        compile_share(args.share, args.workers, device)
        return
    record = Record(args.out, args.resume)
    begin = record.content.setdefault("begin", time.monotonic())
    workers = []
    if not args.dry and not args.resume:
        command = [sys.executable, __file__, "--workers", str(args.workers), "--share"]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        workers = [subprocess.Popen([*command, str(i)], env=env) for i in range(args.workers)]
    counts = (args.batch, short(args.batch))
    if not args.dry and not args.resume:
        try:
            record.put("correctness", correctness(device, counts, 2))
        except Exception as e:
            record.put("correctness", f"{type(e).__name__}: {e}")
            say("correctness failed:", record.content["correctness"][:1000])
        say(f"{time.monotonic() - begin:.0f} s: correctness done")
    for worker in workers:
        try:
            worker.wait(max(1.0, begin + args.seconds * 0.55 - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.terminate()
    say(f"{time.monotonic() - begin:.0f} s: compiled")
    bench = Bench(args.models, args.batch, device)
    bench.prepare()
    clock: Callable[..., float] = Warm() if args.dry else Cold(device)
    times = measure(bench, clock, record, begin + args.seconds * 0.8, tuple(args.only))
    report(times)
    added = sums(bench, clock)
    record.put("sums", {str(k): v for k, v in added.items()})
    say("sums of partial weight gradients (stage, slots): us", {k: round(v, 1) for k, v in added.items()})
    del bench
    kinds, slots = best_of(times, added)
    text = table_of(kinds, slots)
    record.put("table", text)
    say(f"{time.monotonic() - begin:.0f} s: chosen\n{text}")
    if not args.dry:
        torch.cuda.empty_cache()
        found = steps(args.models, args.batch, device, kinds, slots, 9)
        record.put("steps", found)
        for name in ("old", "default", "chosen"):
            say(f"whole step, {args.models} models, {name}: {found[name]['median_us']:.0f} us")
        say(f"gradient, chosen to old: {found['gradient_difference_to_old']:.2e}")
    say(f"{time.monotonic() - begin:.0f} s in all; {args.out}")
    record.put("seconds", time.monotonic() - begin)


if __name__ == "__main__":
    main()
