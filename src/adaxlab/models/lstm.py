"""The paper's language model for One Billion Word: embedding, LSTM, projection, sampled softmax.

    embedding 256 -> dropout .01 -> two LSTM layers of 2048 (dropout between) -> projection to 256 -> dropout -> output

The hidden state is carried, detached, from one window of text to the next until a window marks the start of the text.
The training state is part of the model's checkpoint, so that a run resumes in the middle of a text. Evaluation has its
own state, initialised with zeros (`eval_state="zero"`) or with the training state (`eval_state="carried"`; if the
evaluation has more rows of text than training, the rows are repeated from the first).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from adaxlab.models.sampled_softmax import Output

STATES = ("zero", "carried")
State = tuple[Tensor, Tensor]


class Language(nn.Module):
    """A language model over `batch` parallel rows of text; the default sizes are the paper's."""

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
        self.eval_hidden: State | None = None

    def parts(self) -> tuple[nn.Module, ...]:
        """Return the modules whose gradients are clipped separately: LSTM, embedding, softmax, projection."""
        return self.lstm, self.embedding, self.softmax, self.projection

    def encode(self, tokens: Tensor, fresh: bool) -> Tensor:
        """Return the input of the output layer at each position: [rows, length, projection]."""
        begin = self._begin(tokens, fresh)
        out, (h, c) = self.lstm(self.drop(self.embedding(tokens)), begin)
        if self.training:
            self.h.copy_(h.detach())
            self.c.copy_(c.detach())
        else:
            self.eval_hidden = (h.detach(), c.detach())
        return self.drop(self.projection(out))

    def _begin(self, tokens: Tensor, fresh: bool) -> State:
        if self.training:
            if fresh:
                self.h.zero_()
                self.c.zero_()
            return self.h.clone(), self.c.clone()
        if fresh or self.eval_hidden is None:
            rows = torch.arange(len(tokens), device=self.h.device) % self.h.shape[1]
            h, c = self.h[:, rows], self.c[:, rows]
            self.eval_hidden = (
                (h, c) if self.eval_state == "carried" else (torch.zeros_like(h), torch.zeros_like(c))
            )
        return self.eval_hidden

    def forward(self, tokens: Tensor, targets: Tensor, keep: Tensor | None, fresh: bool) -> Tensor:
        """Return the loss at each kept position: sampled softmax in training, full softmax in evaluation.

        tokens [rows, length]; `keep` [rows, length] marks the positions of `targets` [n] (None: all).
        """
        encoded = self.encode(tokens, fresh)
        flat = encoded.flatten(0, 1) if keep is None else encoded[keep]
        return (self.softmax.sampled if self.training else self.softmax.full)(flat, targets)
