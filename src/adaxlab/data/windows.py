"""A long text as consecutive windows for truncated backpropagation through time.

A window is (targets [n], tokens [rows, length], keep, fresh). Targets are first and flat, so that the training loop
weights a window by its number of words and the mean over windows is the mean over words.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from adaxlab.errors import LabError

Window = tuple[Tensor, Tensor, Tensor | None, bool]


class Windows:
    """Windows of a text that is split into `rows` equal parts, each read `length` words at a time from its start.

    The token before the first word is `begin` (</s>). In training (`every=False`) the remainder that does not fill all
    rows, fewer than `rows` words, is dropped; in evaluation (`every=True`) each word is predicted exactly once. With
    `parts` > 1 each epoch covers the next of `parts` equal parts of the windows, so that a single pass over the text
    has several evaluations; the remaining windows, fewer than `parts`, are dropped.

    >>> text = np.arange(1, 8)
    >>> [(t.tolist(), x.tolist(), fresh) for t, x, _, fresh in Windows(text, rows=2, length=2, begin=0)]
    [([1, 2, 4, 5], [[0, 1], [3, 4]], True), ([3, 6], [[2], [5]], False)]
    """

    def __init__(
        self, text: np.ndarray, rows: int, length: int, begin: int, every: bool = False, parts: int = 1
    ) -> None:
        n = len(text)
        columns = -(-n // rows) if every else n // rows
        if not columns:
            raise LabError(f"a text of {n} words cannot be read in {rows} rows; choose a smaller batch")
        self.length, self.parts, self.part = length, parts, 0
        windows = -(-columns // length)
        if parts > windows:
            raise LabError(f"parts={parts}: the text has {windows} windows; must be <= that")
        self.windows = windows // parts
        padded = np.full(rows * columns, -1, dtype=np.int64)
        padded[: min(n, rows * columns)] = text[: rows * columns]
        before = np.concatenate([[begin], padded[:-1]])
        before[before < 0] = begin
        self.targets = torch.from_numpy(padded.reshape(rows, columns))
        self.tokens = torch.from_numpy(before.reshape(rows, columns))
        self.words = min(n, rows * columns)

    def set_epoch(self, epoch: int) -> None:
        """Select the part of the windows that this epoch covers."""
        self.part = epoch % self.parts

    def __len__(self) -> int:
        return self.windows

    def __iter__(self) -> Iterator[Window]:
        for i in range(self.part * self.windows, (self.part + 1) * self.windows):
            place = slice(i * self.length, (i + 1) * self.length)
            targets = self.targets[:, place]
            keep = None if (targets >= 0).all() else targets >= 0
            flat = targets.flatten() if keep is None else targets[keep]
            yield flat, self.tokens[:, place].contiguous(), keep, i == 0
