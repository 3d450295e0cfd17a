"""Images a second on ImageNet, alone and with the network, and milliseconds of each method's step, in turn.

    PYTHONPATH=src python benchmarks/imagenet.py --data FOLDER [--compiled] [--out records/imagenet/speed.json]

For a device that nothing else uses: what is said of the methods' time is from here, because the runs of a study may
share a device. Also under torchrun.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import Any

import torch

from adaxlab import environment, files, options
from adaxlab.data.images import augment
from adaxlab.data.images.loader import Batch, Loader
from adaxlab.distributed import Ranks, joined
from adaxlab.errors import LabError
from adaxlab.imagenet.train import WARM, Training
from adaxlab.paper import catalogue
from adaxlab.paper.tables import imagenet as tables
from adaxlab.settings import ExecutionConfig
from adaxlab.tasks.imagenet import ImageNet
from adaxlab.variants import changed

ROUNDS = 9
Say = Callable[[str], None]
Spec = dict[str, Any]


def measure(
    task: ImageNet,
    specs: Sequence[Spec],
    ranks: Ranks,
    config: ExecutionConfig,
    batches: int = 100,
    tell: Say = lambda text: None,
    study: str = "",
) -> dict[str, Any]:
    """Images a second: gathered, gathered and cropped, and trained on, by the graph and without it; then `specs` (of
    `study`) in turn, milliseconds of a step.

    `tell` gets a line before each row, which on a CPU takes minutes.
    """
    recipe, size = task.recipe, specs[0]["batch_size"]
    train, _ = task.loaders("final", ranks.device, config.resident)
    rows = []

    def row(what: str, work: Callable[[Batch], object], warm: int = WARM + 2) -> None:
        tell(f"{what}: {warm} + {batches} batches of {size} ...")
        ready = _endless(train, size, ranks)
        for batch in islice(ready, warm):
            work(batch)
        _wait(ranks)
        began = time.perf_counter()
        for batch in islice(ready, batches):
            work(batch)
        _wait(ranks)
        took = (time.perf_counter() - began) / batches
        rows.append({"what": what, "images_per_second": round(size / took, 1), "ms": round(1e3 * took, 4)})

    row("read, no network", lambda batch: None)
    row("read and crop, no network", lambda batch: augment.crop_batch(batch.raw, batch.span, recipe.size))
    adaxw = next(spec for spec in specs if spec["row"] == "adaxw")
    for compiled, graph in product((False, True) if config.compiled else (False,), graphs(ranks)):
        training = task.training(adaxw, ranks, replace(config, graph=graph, compiled=compiled))
        with training._on_stream():
            words = ["training", *["compiled"] * compiled, *["CUDA graph"] * graph]
            row(", ".join(words), training._launch)
    return {
        "batch": size,
        "stored": recipe.stored,
        "model": recipe.model,
        "precision": recipe.precision,
        "images": len(train),
        "rows": rows,
        "in_turn": in_turn(task, specs, ranks, config, max(1, batches // 5), tell, study),
        "environment": environment.describe(ranks.device, torch.get_num_threads()),
    }


def in_turn(
    task: ImageNet,
    specs: Sequence[Spec],
    ranks: Ranks,
    config: ExecutionConfig,
    steps: int,
    tell: Say = lambda text: None,
    study: str = "",
) -> dict[str, Any]:
    """Milliseconds of a step of each run, `steps` steps at a time, one run after the other; every round is kept.

    Each run has a stream of batches of its own, the same ones for all, so that the beginning of an epoch (its order
    and crops are drawn then) falls into the same round of each. Every other round goes from the last run to the first.
    """
    made: list[tuple[Training, Iterator[Batch]]] = []
    for spec in specs:
        training = task.training(spec, ranks, config)
        made.append((training, _endless(training.train, spec["batch_size"], ranks)))
    ms: dict[str, list[float]] = {spec["row"]: [] for spec in specs}
    for number in range(ROUNDS + 1):  # number 0 is not counted: graphs are made in it
        tell(f"{len(made)} methods in turn: {f'round {number} of {ROUNDS}' if number else 'warm-up'} ...")
        for training, ready in made if number % 2 else reversed(made):
            with training._on_stream():
                _wait(ranks)
                began = time.perf_counter()
                for batch in islice(ready, steps if number else WARM + 2):
                    training._launch(batch)
                _wait(ranks)
                took = time.perf_counter() - began
            if number:
                ms[training.spec["row"]].append(round(1e3 * took / steps, 4))
    return {
        "study": study,
        "compiled": config.compiled,
        "graph": any(training.graph for training, _ in made),
        "processes": ranks.world,
        "steps": steps,
        "ms": ms,
    }


def graphs(ranks: Ranks) -> tuple[bool, ...]:
    """Without a CUDA graph, and with one where there can be one: on a GPU, in one process."""
    return (False, True) if ranks.device.type == "cuda" and ranks.world == 1 else (False,)


def _endless(train: Loader, size: int, ranks: Ranks) -> Iterator[Batch]:
    """Full batches of one epoch after the other."""
    epoch = 0
    while True:
        yield from (batch for batch in train.epoch(0, epoch, size, 0, ranks) if batch.total == size)
        epoch += 1


def _wait(ranks: Ranks) -> None:
    if ranks.device.type == "cuda":
        torch.cuda.synchronize(ranks.device)


def main(arguments: list[str] | None = None) -> int:
    """Measure, write the record, print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--study", default="tiny", choices=("tiny", "tiny-resnet50", "resnet18", "resnet50"))
    parser.add_argument("--data", default="")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batches", type=int, default=100, help="of each row; a fifth of them is a round")
    parser.add_argument("--batch-size", type=int, default=0)
    parser.add_argument("--compiled", action="store_true", help="with torch.compile as well")
    parser.add_argument("--set", nargs="*", default=[], metavar="OPTION=VALUE", help="options of the task")
    parser.add_argument(
        "--out", type=Path, default=None, help="the record, such as records/imagenet/speed.json"
    )
    given = parser.parse_args(arguments)
    asked = catalogue.study(f"imagenet/{given.study}")
    more = {**options.pairs(given.set), **({"data": given.data} if given.data else {})}
    study = changed(asked, batch_size=given.batch_size, **more)
    name = given.study if study.name == asked.name else f"{given.study}, changed"
    config = ExecutionConfig(compiled=given.compiled)
    try:
        with joined(given.device) as ranks:
            tell: Say = print if ranks.first else (lambda text: None)
            task = ImageNet(**study.task_options)
            specs = [study.spec(row, row.lr(), seed=0, purpose="final") for row in study.rows]
            found = measure(task, specs, ranks, config, given.batches, tell, name)
            if ranks.first:
                if given.out:
                    given.out.parent.mkdir(parents=True, exist_ok=True)
                    files.write_json(given.out, found)
                tell(tables.speed(found))
    except LabError as error:
        print(f"benchmarks/imagenet.py: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
