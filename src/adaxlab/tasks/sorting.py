"""Task `sorting`: a small transformer learns to sort eight numbers. Synthetic data; a run takes about a minute."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

NUMBERS, LENGTH = 32, 8


class Sorter(nn.Module):
    """A pre-norm transformer that reads the numbers and the answer so far, and predicts the next number."""

    def __init__(self, width: int = 64, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.token = nn.Embedding(NUMBERS, width)
        self.place = nn.Parameter(torch.randn(2 * LENGTH - 1, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(
            layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False
        )
        self.head = nn.Linear(width, NUMBERS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        ahead = torch.ones(length, length, dtype=torch.bool, device=tokens.device).triu(1)
        hidden = self.layers(self.token(tokens) + self.place, mask=ahead)
        return self.head(hidden[:, LENGTH - 1 :])


class Sorting:
    """The input is eight numbers from 0 to 31, the target the same numbers sorted. The metric is the test loss."""

    metric = "loss"
    higher_is_better = False
    epochs = 8
    batch_size = 64
    schedule = {"name": "cosine", "warmup": 0.1}  # noqa: RUF012

    def data(self) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(0)
        numbers = torch.randint(0, NUMBERS, (6000, LENGTH), generator=generator)
        answers = numbers.sort(dim=1).values
        tokens = torch.cat([numbers, answers[:, :-1]], dim=1)
        return {"train": (tokens[:4000], answers[:4000]), "test": (tokens[4000:], answers[4000:])}

    def model(self) -> nn.Module:
        return Sorter()

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        tokens, answers = batch
        return F.cross_entropy(model(tokens).flatten(0, 1), answers.flatten())
