"""How fast pictures come, alone and with the network: `python -m adaxopt.lab.imagenet speed --data FOLDER`.

Then the study's methods against each other, in turn, on a device that nothing else uses: what is said of their time is
from here, because the runs of a study may share a device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import Any

import torch

from adaxopt.lab import environment
from adaxopt.lab.cifar.stack import Run
from adaxopt.lab.imagenet import augment
from adaxopt.lab.imagenet.drive import Data, How
from adaxopt.lab.imagenet.feed import Batch
from adaxopt.lab.imagenet.ranks import Ranks
from adaxopt.lab.imagenet.recipe import Recipe
from adaxopt.lab.imagenet.train import WARM, Training

ROUNDS = 9
RUN = Run("adaxw", "adaxw", dict(lr=5e-3, weight_decay=5e-2, wake=False), 0)


def measure(
    data: Data,
    recipe: Recipe,
    ranks: Ranks,
    how: How,
    batches: int = 100,
    tell: Callable[[str], None] = lambda text: None,
    runs: Sequence[Run] = (),
) -> dict[str, Any]:
    """Pictures a second: gathered, gathered and cropped, and trained on, by the graph and without it; then `runs` in
    turn, milliseconds of a step.

    `tell` gets a line before each row, which on a CPU takes minutes.
    """
    rows = []

    def row(what: str, work: Callable[[Batch], object], warm: int = WARM + 2) -> None:
        if ranks.first:
            tell(f"{what}: {warm} + {batches} batches of {recipe.batch} ...")
        ready = _endless(data, recipe, ranks)
        for batch in islice(ready, warm):
            work(batch)
        _wait(ranks)
        began = time.perf_counter()
        for batch in islice(ready, batches):
            work(batch)
        _wait(ranks)
        took = (time.perf_counter() - began) / batches
        rows.append(
            {"what": what, "images_per_second": round(recipe.batch / took, 1), "ms": round(1e3 * took, 4)}
        )

    row("read, no network", lambda batch: None)
    row("read and crop, no network", lambda batch: augment.crop_batch(batch.raw, batch.span, recipe.size))
    for compiled, graph in product((False, True) if how.compiled else (False,), graphs(ranks)):
        training = _training(RUN, data, recipe, ranks, replace(how, graph=graph, compiled=compiled))
        with training._on_stream():
            words = ["training", *["compiled"] * compiled, *["CUDA graph"] * graph]
            row(", ".join(words), training._launch)
    return {
        "batch": recipe.batch,
        "stored": recipe.stored,
        "model": recipe.model,
        "precision": how.precision,
        "images": len(data.train),
        "rows": rows,
        "in_turn": in_turn(runs, data, recipe, ranks, how, max(1, batches // 5), tell),
        "environment": environment.describe(ranks.device, torch.get_num_threads()),
    }


def in_turn(
    runs: Sequence[Run],
    data: Data,
    recipe: Recipe,
    ranks: Ranks,
    how: How,
    steps: int,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Milliseconds of a step of each run, `steps` steps at a time, one run after the other; every round is kept."""
    made = [_training(run, data, recipe, ranks, how) for run in runs]
    ready = _endless(data, recipe, ranks)
    ms: dict[str, list[float]] = {run.row: [] for run in runs}
    for number in range(-1, ROUNDS if made else 0):  # the first one is not counted: graphs are made in it
        if ranks.first:
            tell(f"{len(made)} methods in turn: round {number + 1} of {ROUNDS} ...")
        for training in made:
            with training._on_stream():
                _wait(ranks)
                began = time.perf_counter()
                for batch in islice(ready, WARM + 2 if number < 0 else steps):
                    training._launch(batch)
                _wait(ranks)
                took = time.perf_counter() - began
            if number >= 0:
                ms[training.run.row].append(round(1e3 * took / steps, 4))
    return {"steps": steps, "ms": ms}


def _training(run: Run, data: Data, recipe: Recipe, ranks: Ranks, how: How) -> Training:
    return Training(
        run,
        recipe,
        data.train,
        data.test,
        data.classes,
        ranks,
        precision=how.precision,
        channels_last=how.channels_last,
        graph=how.graph,
        compiled=how.compiled,
    )


def graphs(ranks: Ranks) -> tuple[bool, ...]:
    """Without a CUDA graph, and with one where there can be one: on a GPU, in one process."""
    return (False, True) if ranks.device.type == "cuda" and ranks.world == 1 else (False,)


def _endless(data: Data, recipe: Recipe, ranks: Ranks) -> Iterator[Batch]:
    """Full batches of one epoch after the other."""
    epoch = 0
    while True:
        batches: Iterable[Batch] = data.train.epoch(0, epoch, recipe.batch, 0, ranks)
        yield from (b for b in batches if b.total == recipe.batch)
        epoch += 1


def _wait(ranks: Ranks) -> None:
    if ranks.device.type == "cuda":
        torch.cuda.synchronize(ranks.device)
