"""Where a measure begins: the same text read from a zero state, and from the state that training is in.

A net that reads one long text meets the zero state once, at its first step, before it has learnt anything. Read from
there later, a row of text can fall into a mode in which the memory of the second layer grows without end; it does not
come back. Seen first in a net of the paper's size after 215 steps of Adam at lr 1.58e-3, on a CPU: one row of 32 at 23
nats per word, the others at 6.6, and the same row at 7.3 when it is read from training's own state.

    adax reproduce language/zero-state          the paper's model after a fifth of enwik8's words; a GPU
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import torch

from adaxopt.lab import environment, loop, optimizers, randomness, schedule, task
from adaxopt.lab.errors import LabError
from adaxopt.lab.language.model import BEGINNINGS
from adaxopt.lab.language.studies import ENWIK8
from adaxopt.lab.settings import choose_device

FAR = 5.0
"""A row of text has fallen out when its loss is so many nats above that of the middle row."""


def rows_of(model: Any, windows: Any, begin: str) -> list[dict[str, float]]:
    """{loss, memory} of each row of the text, read from `begin`: nats per word, and mean |c| of the last layer."""
    kept, model.begin = model.begin, begin
    model.eval()
    device = model.h.device
    sums: Any = 0.0
    words: Any = 0.0
    try:
        with torch.no_grad():
            for targets, tokens, keep, fresh in windows:
                losses = model(
                    tokens.to(device), targets.to(device), None if keep is None else keep.to(device), fresh
                )
                counts = keep if keep is not None else torch.ones_like(tokens, dtype=torch.bool)
                row = torch.arange(len(tokens))[:, None].expand_as(tokens)[counts].to(device)
                sums = sums + torch.zeros(len(tokens), device=device).index_add_(0, row, losses.float())
                words = words + counts.sum(1).to(device)
        memory = model.apart[1][-1].abs().mean(1)
    finally:
        model.begin = kept
        model.train()
    return [{"loss": float(s / n), "memory": float(m)} for s, n, m in zip(sums, words, memory, strict=True)]


def fallen(rows: list[dict[str, float]]) -> int:
    """How many rows have fallen out of the mode that the others are in.

    >>> fallen([{"loss": 6.5}, {"loss": 6.7}, {"loss": 6.9}, {"loss": 23.0}])
    1
    """
    middle = median(row["loss"] for row in rows)
    return sum(row["loss"] > middle + FAR for row in rows)


def measure(made: Any, lr: float, seed: int, device: torch.device, total: int) -> dict[str, Any]:
    """Train one epoch of `total` with Adam and the task's schedule, then read the test text from both beginnings."""
    with randomness.controlled(seed, device, torch.get_num_threads()):
        data = made.data()
        model = made.model().to(device)
        optimizer = optimizers.build("adam", model.parameters(), optimizers.options("adam", {"lr": lr}))
        factor = schedule.factor(made.schedule, total * len(data["train"]))
        model.train()
        for step, (targets, tokens, keep, fresh) in enumerate(data["train"]):
            for group in optimizer.param_groups:
                loop.set_lr(group, lr * factor(step))
            batch = (targets.to(device), tokens.to(device), keep if keep is None else keep.to(device), fresh)
            made.loss(model, batch)[0].backward()
            made.before_step(model)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        read = {begin: rows_of(model, data["test"], begin) for begin in BEGINNINGS}
    return {
        "seed": seed,
        "steps": len(data["train"]),
        "fallen": {b: fallen(r) for b, r in read.items()},
        "rows": read,
    }


def run(
    name: str = "language/zero-state",
    out: str | Path = "runs",
    record: str = "",
    data: str = "",
    text: str = "enwik8",
    hidden: int = 2048,
    lr: float = 1.58e-3,
    seeds: int = 3,
    device: str = "auto",
) -> Path:
    """Measure `seeds` nets and write the record (OUT/zero_state.json unless said)."""
    if seeds < 1:
        raise LabError(f"seeds={seeds}: must be >= 1")
    known = ENWIK8.task_options if text == "enwik8" else {"text": text}
    options = {**known, "hidden": hidden}
    made = task.load("language", {**options, **({"data": data} if data else {})})
    place = choose_device(device)
    content = {
        "study": name,
        "task_options": options,
        "lr": lr,
        "environment": environment.describe(place, torch.get_num_threads()),
        "nets": [measure(made, lr, seed, place, ENWIK8.epochs) for seed in range(seeds)],
    }
    path = Path(record) if record else Path(out) / "zero_state.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path
