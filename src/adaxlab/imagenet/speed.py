"""How fast pictures come, alone and with the network: `python -m adaxlab.imagenet speed --data FOLDER`.

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

from adaxlab import environment
from adaxlab.cifar.stack import Run
from adaxlab.imagenet import augment
from adaxlab.imagenet.drive import Data, How
from adaxlab.imagenet.feed import Batch
from adaxlab.imagenet.ranks import Ranks
from adaxlab.imagenet.recipe import Recipe
from adaxlab.imagenet.train import WARM

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
    study: str = "",
) -> dict[str, Any]:
    """Pictures a second: gathered, gathered and cropped, and trained on, by the graph and without it; then `runs` (of
    `study`) in turn, milliseconds of a step.

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
        training = replace(how, graph=graph, compiled=compiled).begin(RUN, data, recipe, ranks)
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
        "in_turn": in_turn(runs, data, recipe, ranks, how, max(1, batches // 5), tell, study),
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
    study: str = "",
) -> dict[str, Any]:
    """Milliseconds of a step of each run, `steps` steps at a time, one run after the other; every round is kept.

    Each run has a stream of batches of its own, the same ones for all, so that the beginning of an epoch (its order
    and crops are drawn then) falls into the same round of each. Every other round goes from the last run to the first.
    """
    made = [(how.begin(run, data, recipe, ranks), _endless(data, recipe, ranks)) for run in runs]
    ms: dict[str, list[float]] = {run.row: [] for run in runs}
    for number in range(ROUNDS + 1 if made else 0):  # number 0 is not counted: graphs are made in it
        if ranks.first:
            what = f"round {number} of {ROUNDS}" if number else "warm-up"
            tell(f"{len(made)} methods in turn: {what} ...")
        for training, ready in made if number % 2 else reversed(made):
            with training._on_stream():
                _wait(ranks)
                began = time.perf_counter()
                for batch in islice(ready, steps if number else WARM + 2):
                    training._launch(batch)
                _wait(ranks)
                took = time.perf_counter() - began
            if number:
                ms[training.run.row].append(round(1e3 * took / steps, 4))
    return {
        "study": study,
        "compiled": how.compiled,
        "graph": any(training.graph for training, _ in made),
        "processes": ranks.world,
        "steps": steps,
        "ms": ms,
    }


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
