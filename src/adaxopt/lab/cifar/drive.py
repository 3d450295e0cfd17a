"""Carry a study out in stacks, over as many bookings of a GPU as it takes.

Each finished run is one JSON line at once. What is unfinished when the time is up is a checkpoint, and the next call
goes on from it: the same call, here or on another machine, until every run has its line.
"""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from adaxopt.lab import environment, files
from adaxopt.lab.cifar import shelf
from adaxopt.lab.cifar.adopt import adopt
from adaxopt.lab.cifar.book import Study
from adaxopt.lab.cifar.feed import Images
from adaxopt.lab.cifar.plain import PlainNetwork
from adaxopt.lab.cifar.stack import Network, Run, Stack
from adaxopt.lab.errors import StoreError

Say = Callable[[str], None]


def records(path: Path) -> list[dict[str, Any]]:
    """The lines of a record file; none if it is not there. A last line that was cut off is none: it is run again."""
    text = path.read_text() if path.is_file() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def add(path: Path, found: Iterable[Mapping[str, Any]]) -> None:
    """Append lines: all of them, or none that count."""
    whole = "".join(json.dumps(line) + "\n" for line in [*records(path), *found])
    files.write(path, whole.encode())


def carry_out(
    study: Study,
    train: Images,
    test: Images,
    out: Path,
    *,
    per_stack: int = 25,
    seconds: float = math.inf,
    precision: str = "bf16",
    network: Callable[..., Network] | None = None,
    reuse: Sequence[Path] = (),
    tell: Say = lambda text: None,
) -> bool:
    """Run what `out` does not hold yet; True when the study is complete, False when the time was up before.

    `reuse` are record files of other studies: a run that is there under another name is taken from there.
    """
    out.mkdir(parents=True, exist_ok=True)
    lines = out / f"{study.name}.jsonl"
    todo = _left(study, lines, len(train))
    known = [line for path in reuse for line in records(path)]
    adopted = adopt(study, todo, known, len(train), precision if train.labels.is_cuda else "fp32")
    if adopted:
        add(lines, adopted)
        tell(f"{study.name}: {len(adopted)} runs are {adopted[0]['same_run_as'].split(':')[0]}'s own")
        todo = _left(study, lines, len(train))
    began = time.monotonic()
    for stack_runs in stacks(todo, per_stack, alone=study.alone):
        stack = _stack(study, stack_runs, train, test, precision, network)
        kept = out / f"{study.name}-{stack_runs[0].row}-{stack_runs[0].seed}-{len(stack_runs)}"
        if saved := shelf.load(kept):
            stack.load(saved)
            tell(f"{study.name}: {len(stack_runs)} runs go on from epoch {stack.epoch}")
        spent, slowest = float((saved or {}).get("seconds", 0.0)), 0.0
        while stack.epoch < study.recipe.epochs:
            started = time.monotonic()
            if started - began + 1.2 * slowest + 5 > seconds:
                shelf.save(kept, {**stack.state(), "seconds": spent})
                tell(f"{study.name}: time is up at epoch {stack.epoch}; the same call goes on from here")
                return False
            stack.run_epoch()
            took = time.monotonic() - started
            spent += took
            slowest = took if slowest == 0 else max(min(slowest, 2 * took), took)
            if stack.epoch % 10 == 0 or stack.epoch <= 2:
                tell(f"{study.name} {_summary(stack)} {took:.2f} s an epoch")
        ended = zip(stack_runs, stack.history, strict=True)
        add(
            lines,
            [_record(study, run, curve, spent, len(stack_runs), precision, train) for run, curve in ended],
        )
        shelf.drop(kept)
    return True


def _left(study: Study, lines: Path, images: int) -> list[Run]:
    """The runs that have no line yet; lines of other lengths or other data (imagenet/tuning's, say) are refused."""
    found = records(lines)
    wanted = json.loads(json.dumps({**asdict(study.recipe), "images": images}))
    for line in found:
        held = {**line["recipe"], "images": line["images"]}
        for key, value in wanted.items():
            if held.get(key) != value:
                raise StoreError(
                    f"{lines}: {line['row']} seed {line['seed']} was run with {key} {held.get(key)!r}, {value!r} is "
                    "asked for; choose another folder for these runs, or move the file away"
                )
    done = {(r["row"], r["seed"]) for r in found}
    return [run for run in study.runs() if (run.row, run.seed) not in done]


def stacks(runs: Sequence[Run], size: int, *, alone: bool = False) -> list[list[Run]]:
    """Cut the runs into stacks: whole seeds first, so that a study cut short is balanced over its rows.

    `alone` keeps rows apart instead, for a comparison of their times.
    """
    if alone:
        rows_of = [
            [run for run in runs if run.row == name] for name in dict.fromkeys(run.row for run in runs)
        ]
        return [part[k : k + size] for part in rows_of for k in range(0, len(part), size)]
    rows = len({run.row for run in runs})
    each = size // rows * rows if rows and size >= rows else size
    by_seed = sorted(range(len(runs)), key=lambda i: runs[i].seed)
    return [[runs[i] for i in sorted(by_seed[k : k + each])] for k in range(0, len(runs), each)]


def _stack(
    study: Study,
    runs: Sequence[Run],
    train: Images,
    test: Images,
    precision: str,
    network: Callable[..., Network] | None,
) -> Stack:
    if network is None and study.recipe.model != "resnet20":
        network = functools.partial(PlainNetwork, autocast=train.labels.is_cuda and precision == "bf16")
    elif network is None and train.labels.is_cuda:
        from adaxopt.lab.cifar.fused import FusedNetwork

        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        network = functools.partial(
            FusedNetwork, dtype=dtype, precision="tf32x3" if precision == "fp32" else "tf32"
        )
    extra: Mapping[str, Any] = {} if network is None else {"make_network": network}
    return Stack(runs, train, test, study.recipe, trace=study.trace, **extra)


def _summary(stack: Stack) -> str:
    parts = []
    rows = list(dict.fromkeys(run.row for run in stack.runs))
    for row in rows:
        tests = [
            c[-1]["test_accuracy"] for r, c in zip(stack.runs, stack.history, strict=True) if r.row == row
        ]
        parts.append(f"{row} {sum(t or 0 for t in tests) / len(tests):.2f}")
    return f"epoch {stack.epoch}: " + ", ".join(parts)


def _record(
    study: Study,
    run: Run,
    curve: list[dict[str, Any]],
    seconds: float,
    together: int,
    precision: str,
    train: Images,
) -> dict[str, Any]:
    """One run's line: what it was, how it ended, its curves, and where it ran."""
    device = train.labels.device
    return {
        "study": study.name,
        "row": run.row,
        "seed": run.seed,
        "optimizer": run.optimizer,
        "options": dict(run.options),
        "recipe": asdict(study.recipe),
        "images": len(train),
        "precision": precision if device.type == "cuda" else "fp32",
        "test_accuracy": curve[-1]["test_accuracy"],
        "train_accuracy": curve[-1]["train_accuracy"],
        "train_loss": curve[-1]["train_loss"],
        "curve": {key: [point[key] for point in curve] for key in curve[0]},
        "seconds": round(seconds, 1),
        "together": together,
        "environment": environment.describe(device, torch.get_num_threads()),
    }
