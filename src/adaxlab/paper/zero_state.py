"""Evaluation of a language model from a zero hidden state, compared with evaluation from the training state.

A model trained on one long text sees the zero state only at its first step, before it has learnt anything. Evaluated
from the zero state later, it may reach very different hidden states and losses. This study evaluates each row of the
test text from both states with the same model.

    adax reproduce language/zero-state          the paper's model after a fifth of enwik8's words; a GPU
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypedDict

import torch

from adaxlab import environment, files, optimizer_options, optimizers, randomness, schedule, task
from adaxlab.batches import to_device
from adaxlab.errors import LabError
from adaxlab.models.lstm import STATES
from adaxlab.paper.language import ENWIK8
from adaxlab.paper.late_words import take
from adaxlab.settings import choose_device

FAILURE_MARGIN = 5.0
"""A row of text has failed if its loss is more than this many nats above that of the median row."""


class TextRow(TypedDict):
    """Results of a row of text: nats per word (None: not finite), and mean |c| of the last layer at its end."""

    words: int
    loss: float | None
    memory: float | None


def read_rows(model: Any, windows: Any, state: str) -> list[TextRow]:
    """Return the results of each row of the text, evaluated from `state`.

    Rows without words are left out; `memory` of the last row is taken after its padding.
    """
    before, training = model.eval_state, model.training
    model.eval_state = state
    model.eval()
    device = model.h.device
    total: Any = 0.0
    words: Any = 0
    try:
        with torch.no_grad():
            for window in windows:
                targets, tokens, keep, fresh = to_device(window, device)
                kept = torch.ones_like(tokens, dtype=torch.bool) if keep is None else keep
                row = torch.arange(len(tokens), device=device)[:, None].expand_as(tokens)[kept]
                losses = model(tokens, targets, keep, fresh).double()
                total = total + losses.new_zeros(len(tokens)).index_add_(0, row, losses)
                words = words + kept.sum(1)
        memory = model.eval_hidden[1][-1].abs().mean(1)
    finally:
        model.eval_state = before
        model.train(training)
    return [
        {"words": int(n), "loss": _number(float(s / n)), "memory": _number(float(m))}
        for s, n, m in zip(total, words, memory, strict=True)
        if n
    ]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def mean(rows: Sequence[TextRow]) -> float | None:
    """Return the nats per word over all rows; None if the loss of a row is not finite.

    >>> mean([{"words": 3, "loss": 6.0}, {"words": 1, "loss": 10.0}])
    7.0
    """
    sums = [row["loss"] * row["words"] for row in rows if row["loss"] is not None]
    return sum(sums) / sum(row["words"] for row in rows) if len(sums) == len(rows) else None


def failed_rows(rows: Sequence[TextRow]) -> int:
    """Return the number of failed rows; a row whose loss is not finite has failed.

    >>> failed_rows([{"loss": 6.5}, {"loss": 6.7}, {"loss": 6.9}, {"loss": 23.0}])
    1
    """
    losses = [row["loss"] for row in rows]
    numbers = [x for x in losses if x is not None]
    middle = median(numbers) if numbers else 0.0
    return sum(x is None or x > middle + FAILURE_MARGIN for x in losses)


def measure(
    made: Any, lr: float, seed: int, device: torch.device, epochs: int, threads: int = 1
) -> dict[str, Any]:
    """Train the first of `epochs` epochs with Adam and the study's lr schedule, then evaluate from both states."""
    with randomness.controlled(seed, device, threads):
        data = made.data()
        model = made.model().to(device)
        optimizer = optimizers.build(
            "adam", model.parameters(), optimizer_options.complete("adam", {"lr": lr})
        )
        course = {"name": "linear", "final": float(f"{(ENWIK8.end_lr or 0.0) / lr:.6g}")}
        factor = schedule.factor(course, epochs * len(data["train"]))
        model.train()
        for step, batch in enumerate(data["train"]):
            take(made, model, optimizer, to_device(batch, device), lr * factor(step))
        read = {state: read_rows(model, data["test"], state) for state in STATES}
    return {"seed": seed, "steps": len(data["train"]), "rows": read}


def run(
    name: str = "language/zero-state",
    out: str | Path = "runs",
    records: str = "",
    data: str = "",
    text: str = "enwik8",
    hidden: int = 2048,
    lr: float = 1.58e-3,
    seeds: int = 3,
    device: str = "auto",
    threads: int = 1,
) -> Path:
    """Measure `seeds` models and write zero_state.json to `records`/language, or else to `out`."""
    if seeds < 1:
        raise LabError(f"seeds={seeds}: must be >= 1")
    known = dict(ENWIK8.task_options) if text == "enwik8" else {"text": text}
    known.pop("eval_state", None)  # both are measured
    options = {**known, "hidden": hidden}
    made = task.load("language", {**options, **({"data": data} if data else {})})
    place = choose_device(device)
    content = {
        "study": name,
        "task_options": options,
        "lr": lr,
        **task.data_digest(made),
        "environment": environment.describe(place, threads),
        "nets": [measure(made, lr, seed, place, ENWIK8.epochs, threads) for seed in range(seeds)],
    }
    path = (Path(records) / "language" if records else Path(out)) / "zero_state.json"
    files.make_folder(path.parent)
    files.write_json(path, content)
    return path
