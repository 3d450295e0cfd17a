"""Late-activated embedding rows: the size of a word's first update against the step at which it first appears.

A coordinate whose first non-zero gradient g comes at step t has m = (1-b1)*g and v = k_t*g^2, so its first update is

    lr * s_t * (1-b1)/sqrt(k_t)        for any g

For AdaX without the guard k_t = b2/((1+b2)^t - 1), so the update grows with t. With `wake`, or with sparse gradients
(each row keeps its own step count), k is 1 and the update is 0.1*lr at any step. Adam's k tends to 1-b2: 3.2*lr.

    adax reproduce language/late-activation          Penn Treebank, a small model, 600 steps; about three minutes
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from adaxlab import environment, files, loop, optimizer_options, optimizers, randomness, schedule, task
from adaxlab.errors import LabError
from adaxlab.settings import choose_device

SMALL = {"batch": 32, "embedding": 32, "projection": 32, "hidden": 64, "layers": 1, "samples": 256}
ROWS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "adam, dense": ("adam", {"lr": 5e-4}, False),
    "adax, dense, no guard": ("adax", {"lr": 5e-4, "wake": False}, False),
    "adax, dense, guarded": ("adax", {"lr": 5e-4, "wake": True}, False),
    "adax, sparse": ("adax", {"lr": 5e-4}, True),
}
"""Optimizer, options and whether gradients are sparse; one lr for all, because updates are in units of lr."""
B2_STEPS = 35.0
TITLES = {"ptb": "Penn Treebank", "enwik8": "words of enwik8", "folder": "a folder of text"}
BINS = 24


def take(made: Any, model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any, lr: float) -> Tensor:
    """Loss, gradient, clipping, step at `lr`; the loss before the step."""
    for group in optimizer.param_groups:
        loop.set_lr(group, lr)
    loss, _ = made.loss(model, batch)
    loss.backward()
    made.before_step(model)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def measure(
    name: str, options: Mapping[str, Any], task_options: Mapping[str, Any], steps: int, seed: int = 0
) -> list[dict[str, float]]:
    """Train the task `language` for `steps` steps and return a line for every step with new words.

    A line is {step, words, median, largest, loss}: the size of a word's update is max |change of its row|/lr, and
    median and largest are over the words that are new in that step.
    """
    made: Any = task.load("language", task_options)
    device = torch.device("cpu")
    with randomness.controlled(seed, device, 1):
        train = made.data()["train"]
        model = made.model()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="betas")  # b2 follows from b2*T and is large
            optimizer = optimizers.build(name, model.parameters(), optimizer_options.complete(name, options))
        factor = schedule.factor(made.schedule, steps)
        table = model.embedding.weight
        seen = torch.zeros(len(table), dtype=torch.bool)
        lines: list[dict[str, float]] = []
        step = 0
        model.train()
        while step < steps:
            for batch in train:
                lr = options["lr"] * factor(step)
                words = batch[1].unique()
                new = words[~seen[words]]
                before = table.detach()[new].clone()
                loss = take(made, model, optimizer, batch, lr)
                step += 1
                seen[new] = True
                if len(new):
                    size = (table.detach()[new] - before).abs().amax(1).double() / lr
                    median, largest = float(size.median()), float(size.max())
                    lines.append(
                        {
                            "step": step,
                            "words": len(new),
                            "median": median,
                            "largest": largest,
                            "loss": loss.item(),
                        }
                    )
                if step == steps or not math.isfinite(loss.item()):
                    return lines
    return lines


def binned(lines: list[dict[str, float]], steps: int) -> list[dict[str, float]]:
    """Return the lines aggregated over `BINS` equal ranges of steps."""
    found = []
    for i in range(BINS):
        part = [x for x in lines if i * steps / BINS < x["step"] <= (i + 1) * steps / BINS]
        if part:
            words = sum(x["words"] for x in part)
            found.append(
                {
                    "step": round(sum(x["step"] * x["words"] for x in part) / words, 1),
                    "words": words,
                    "median": sorted(x["median"] for x in part)[len(part) // 2],
                    "largest": max(x["largest"] for x in part),
                    "loss": sum(x["loss"] for x in part) / len(part),
                }
            )
    return found


def run(
    name: str = "language/late-activation",
    out: str | Path = "runs",
    records: str = "",
    steps: int = 600,
    data: str = "",
    text: str = "ptb",
) -> Path:
    """Measure each of ROWS with one seed and write late_activation.json to `records`/language, or else to `out`."""
    if steps <= B2_STEPS:
        raise LabError(f"steps={steps}: must be > {B2_STEPS:g}, because b2*T = {B2_STEPS:g} and b2 < 1")
    rows = []
    for label, (method, options, sparse) in ROWS.items():
        chosen = dict(options)
        if method == "adax":
            chosen["betas"] = (0.9, float(f"{B2_STEPS / steps:.6g}"))
        task_options = {**SMALL, "text": text, "sparse": sparse, **({"data": data} if data else {})}
        lines = measure(method, chosen, task_options, steps)
        rows.append(
            {
                "row": label,
                "optimizer": method,
                "options": chosen,
                "sparse": sparse,
                "points": binned(lines, steps),
            }
        )
    content = {
        "study": name,
        "title": f"A small model on {TITLES.get(text, text)}, {steps} steps, one seed, on a CPU",
        "text": text,
        "steps": steps,
        "task_options": SMALL,
        "environment": environment.describe(choose_device("cpu"), 1),
        "rows": rows,
    }
    path = (Path(records) / "language" if records else Path(out)) / "late_activation.json"
    files.make_folder(path.parent)
    files.write_json(path, content)
    return path
