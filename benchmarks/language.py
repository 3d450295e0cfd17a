"""Words a second of the language task, one run alone on a GPU, and the optimizer's share of its step.

    PYTHONPATH=src python benchmarks/language.py [--text ptb] [--rounds 31] [--out FILE]

Steps as a study takes them: a window of the text goes to the device, forward, backward, clipping, step. Rows take
`--steps` steps in turn; what counts is the median over rounds, with quartiles. The optimizer's time is taken on the
device, between two events around `optimizer.step()`: what the device waits for the host there is in it. Beside the
study's rows stands what torch offers for sparse gradients: SparseAdam for embedding and softmax, Adam for the rest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import torch
from gpu_measure import environment

from adaxlab import optimizers
from adaxlab.errors import LabError
from adaxlab.paper.language import ENWIK8, ROWS
from adaxlab.study import Row
from adaxlab.tasks.language import Language

TORCH = "torch SparseAdam and Adam"


def torch_own(model: Any) -> Callable[[], None]:
    """torch's step where some gradients are sparse: two optimizers."""
    rows = [*model.embedding.parameters(), *model.softmax.parameters()]
    rest = [*model.lstm.parameters(), *model.projection.parameters()]
    both = torch.optim.SparseAdam(rows, lr=5e-4), torch.optim.Adam(rest, lr=5e-4, fused=True)

    def step() -> None:
        for one in both:
            one.step()

    return step


class Run:
    """One row: its model, its place in the text, its times."""

    def __init__(self, text: str, data: str, row: Row | None) -> None:
        self.name = TORCH if row is None else row.name
        sparse = row is None or row.task_options["sparse"]
        limit = ENWIK8.task_options["limit"] if text == "enwik8" else 0
        self.task = Language(text=text, data=data, sparse=sparse, limit=limit)
        source = self.task.data()["train"]
        self.windows: Iterator[Any] = chain.from_iterable(repeat(source))
        torch.manual_seed(0)
        self.model = self.task.model().cuda()
        if row is None:
            self.step = torch_own(self.model)
        else:
            options = row.at(row.options["lr"] / 100, len(source))  # small: speed is asked, not learning
            self.step = optimizers.build(row.name, self.model.parameters(), options).step
        self.ms: list[float] = []
        self.optimizer_ms: list[float] = []

    def round(self, steps: int, keep: bool = True) -> None:
        marks = []
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for targets, tokens, mask, fresh in (next(self.windows) for _ in range(steps)):
            there = (None if t is None else t.cuda() for t in (targets, tokens, mask))
            loss, _ = self.task.loss(self.model, (*there, fresh))
            loss.backward()
            self.task.before_step(self.model)
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            self.step()
            after.record()
            self.model.zero_grad(set_to_none=True)
            marks.append((before, after))
        torch.cuda.synchronize()
        if keep:
            self.ms.append(1e3 * (time.perf_counter() - begin) / steps)
            self.optimizer_ms.append(statistics.mean(a.elapsed_time(b) for a, b in marks))

    def row(self, words: int) -> dict[str, Any]:
        low, middle, high = statistics.quantiles(self.ms, n=4)
        return {
            "optimizer": self.name,
            "ms": round(middle, 4),
            "quartiles": [round(low, 4), round(high, 4)],
            "optimizer_ms": round(statistics.median(self.optimizer_ms), 4),
            "words_a_second": round(1e3 * words / middle),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--text", default="ptb")
    parser.add_argument("--data", default="")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "--out", type=Path, help="default: records/language/speed.json, speed-TEXT.json for others"
    )
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds: at least 2, for quartiles")
    name = "speed.json" if options.text == "ptb" else f"speed-{options.text}.json"
    out = options.out or Path("records/language") / name
    try:
        runs = [Run(options.text, options.data, row) for row in (None, *ROWS)]
    except LabError as error:
        parser.error(str(error))
    for run in runs:
        run.round(10, keep=False)
    for _ in range(options.rounds):
        for run in runs:
            run.round(options.steps)
    task = runs[0].task
    words = task.batch_size * task.bptt
    record = {
        "text": options.text,
        "words": len(task.corpus().words),
        "words_a_step": words,
        "rounds": options.rounds,
        "steps": options.steps,
        "environment": environment(),
        "rows": [run.row(words) for run in runs],
        "ms": {run.name: [round(ms, 4) for ms in run.ms] for run in runs},
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n")
    for row in record["rows"]:
        print(row, flush=True)


if __name__ == "__main__":
    main()
