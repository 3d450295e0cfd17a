"""Record the gradients of three coordinates along real training runs, for docs/memory-explorer.md.

    python tools/record_memory.py            # writes records/memory/gradients.json, half a minute on a CPU

A weight of a convolution and a gain of a norm, in a small convolutional network on 1,347 handwritten digits; a
coordinate of a rare word's embedding, in a next-word model of the text of this repository's licence. Both are trained
by AdamW at lr 1e-3, 400 steps, seed 0. The recorded coordinate is the one with the median root mean square gradient of
its tensor, so that it is a typical one and not a chosen one.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from adaxlab.tasks.digits import Digits

ROOT = Path(__file__).parents[1]
OUT = ROOT / "records" / "memory" / "gradients.json"
STEPS = 400
OPTIMIZER = {"optimizer": "torch.optim.AdamW", "lr": 1e-3, "weight_decay": 0.01, "seed": 0}


def recorded(model: nn.Module, loss, watched: dict[str, nn.Parameter]) -> dict[str, torch.Tensor]:
    """Train, and keep every gradient of the watched parameters: [steps, elements] each."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=OPTIMIZER["lr"], weight_decay=0.01)
    kept: dict[str, list[torch.Tensor]] = {name: [] for name in watched}
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss().backward()
        for name, p in watched.items():
            kept[name].append(p.grad.flatten().clone())
        optimizer.step()
    return {name: torch.stack(rows) for name, rows in kept.items()}


def typical(rows: torch.Tensor) -> int:
    """The element whose root mean square is the tensor's median."""
    return int(rows.square().mean(0).argsort()[rows.shape[1] // 2])


def images() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    x, y = Digits().data()["train"]
    x = x.reshape(-1, 1, 8, 8)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(128, 10),
    )  # fmt: skip
    draw = torch.Generator().manual_seed(0)

    def loss() -> torch.Tensor:
        rows = torch.randint(len(x), (64,), generator=draw)
        return F.cross_entropy(model(x[rows]), y[rows])

    return recorded(model, loss, {"convolution": model[3].weight, "gain": model[4].weight})


def words() -> tuple[torch.Tensor, str]:
    torch.manual_seed(0)
    text = re.findall(r"[a-z]+", (ROOT / "LICENSE").read_text().lower())
    counts = Counter(text)
    number = {word: i for i, word in enumerate(sorted(counts))}
    tokens = torch.tensor([number[word] for word in text])
    rare = min(word for word, count in counts.items() if count == 1 and len(word) > 6)
    table = nn.Embedding(len(number), 32)
    model = nn.Sequential(table, nn.Flatten(), nn.Linear(4 * 32, 64), nn.Tanh(), nn.Linear(64, len(number)))
    draw = torch.Generator().manual_seed(0)

    def loss() -> torch.Tensor:
        begin = torch.randint(len(tokens) - 4, (16, 1), generator=draw)
        return F.cross_entropy(model(tokens[begin + torch.arange(4)]), tokens[begin[:, 0] + 4])

    rows = recorded(model, loss, {"table": table.weight})["table"].view(STEPS, len(number), 32)
    return rows[:, number[rare]], rare


def main() -> None:
    torch.set_num_threads(1)
    found = images()
    row, word = words()
    digits = "a convolutional network on 1,347 handwritten digits, batch 64"
    series = [
        ("convolution", "convolution weight", f"a 3 x 3 convolution of {digits}", found["convolution"]),
        ("gain", "norm gain", f"a batch norm's gain of {digits}", found["gain"]),
        (
            "word",
            "rare word",
            f"the embedding of the word '{word}' (once in the text of the Apache licence), batch 16",
            row,
        ),
    ]
    record = {
        "made_by": "tools/record_memory.py",
        "steps": STEPS,
        **OPTIMIZER,
        "series": [
            {
                "id": id,
                "name": name,
                "what": what,
                "gradients": [float(f"{g:.4g}") for g in rows[:, typical(rows)].tolist()],
            }
            for id, name, what, rows in series
        ],
    }
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(record, indent=1).replace(",\n    ", ", ") + "\n")


if __name__ == "__main__":
    main()
