"""Embedding, LSTM, projection, softmax: the paper's model of One Billion Word.

    embedding 256 -> dropout .01 -> two LSTM layers of 2048 (dropout between) -> projection to 256 -> dropout -> output

The hidden state goes on from one window of text to the next, without its gradient, until a window says that the text
begins anew. The state of training is part of the model's checkpoint, so that a resumed run goes on within a text;
evaluation has one of its own, which begins at zero (`eval_state="zero"`) or as the one that training is in ("carried";
more rows of text than training has take its rows again, from the first).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from adaxlab.models.sampled_softmax import Output

STATES = ("zero", "carried")
State = tuple[Tensor, Tensor]


class Language(nn.Module):
    """Scores of the next word, for `batch` texts side by side. Sizes are options; the defaults are the paper's."""

    h: Tensor
    c: Tensor

    def __init__(
        self,
        vocabulary: int,
        batch: int = 128,
        embedding: int = 256,
        hidden: int = 2048,
        layers: int = 2,
        projection: int = 256,
        dropout: float = 0.01,
        samples: int = 8192,
        sparse: bool = True,
        eval_state: str = "zero",
    ) -> None:
        super().__init__()
        self.eval_state = eval_state
        self.embedding = nn.Embedding(vocabulary, embedding, sparse=sparse)
        nn.init.uniform_(self.embedding.weight, -(embedding**-0.5), embedding**-0.5)
        between = dropout if layers > 1 else 0.0
        self.lstm = nn.LSTM(embedding, hidden, layers, dropout=between, batch_first=True)
        self.projection = nn.Linear(hidden, projection)
        self.drop = nn.Dropout(dropout)
        self.softmax = Output(vocabulary, projection, samples, sparse)
        for name in ("h", "c"):
            self.register_buffer(name, torch.zeros(layers, batch, hidden))
        self.apart: State | None = None

    def parts(self) -> tuple[nn.Module, ...]:
        """What is clipped separately: LSTM, embedding, softmax, projection."""
        return self.lstm, self.embedding, self.softmax, self.projection

    def encode(self, tokens: Tensor, fresh: bool) -> Tensor:
        """What stands for each position before the output layer: [texts, length, projection]."""
        begin = self._begin(tokens, fresh)
        out, (h, c) = self.lstm(self.drop(self.embedding(tokens)), begin)
        if self.training:
            self.h.copy_(h.detach())
            self.c.copy_(c.detach())
        else:
            self.apart = (h.detach(), c.detach())
        return self.drop(self.projection(out))

    def _begin(self, tokens: Tensor, fresh: bool) -> State:
        if self.training:
            if fresh:
                self.h.zero_()
                self.c.zero_()
            return self.h.clone(), self.c.clone()
        if fresh or self.apart is None:
            rows = torch.arange(len(tokens), device=self.h.device) % self.h.shape[1]
            h, c = self.h[:, rows], self.c[:, rows]
            self.apart = (
                (h, c) if self.eval_state == "carried" else (torch.zeros_like(h), torch.zeros_like(c))
            )
        return self.apart

    def forward(self, tokens: Tensor, targets: Tensor, keep: Tensor | None, fresh: bool) -> Tensor:
        """The loss at each position that counts: sampled in training, full in evaluation.

        tokens [texts, length]; `keep` [texts, length] says which positions `targets` [n] are for (None: all).
        """
        encoded = self.encode(tokens, fresh)
        flat = encoded.flatten(0, 1) if keep is None else encoded[keep]
        return (self.softmax.sampled if self.training else self.softmax.full)(flat, targets)
