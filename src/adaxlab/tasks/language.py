"""Task `language`: next-word prediction by an LSTM with a sampled softmax, the paper's One Billion Word experiment.

    adax compare language --task-option text=ptb hidden=512 --optimizers adam amsgrad adax
    adax compare language --task-option text=folder data=FOLDER      the benchmark's shards, or any text

The metric is the mean of -log P(word) under the full softmax, in nats; its exponential is the perplexity. The text is
read in `batch` parallel rows and the hidden state is carried from window to window, so the batch size is an option of
the task (`batch=128`), not --batch-size.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np
from torch import Tensor, nn

import adaxopt
from adaxlab.data import default_root, enwik8, ptb, text
from adaxlab.data.text import Corpus
from adaxlab.data.windows import Windows
from adaxlab.errors import LabError, check_known
from adaxlab.messages import say
from adaxlab.models.lstm import STATES
from adaxlab.models.lstm import Language as Model

TEXTS = {"ptb": 1, "enwik8": 3, "folder": 1}
"""The known texts, and the smallest count of a word in their vocabulary (default of `min_count`)."""
EVAL_ROWS = 32


@functools.lru_cache(maxsize=2)
def corpus(name: str, folder: str, on_error: str, min_count: int, limit: int) -> text.Corpus:
    """Return the text as word ids; cached, because the runs of a study use the same one."""
    how: dict[str, Any] = {"on_error": on_error, "min_count": min_count, "limit": limit}
    if name == "enwik8":
        place = folder or str(default_root() / "enwik8")
        return text.encode(enwik8.pieces(place), words=enwik8.words, **how)
    if name == "ptb" and not folder:
        return text.encode(ptb.pieces(), **how)
    if not folder:
        raise LabError("text=folder: name the folder as well, data=FOLDER")
    found = text.encode(text.pieces(folder), **how)
    if found.skipped:
        names = ", ".join(found.skipped[:3]) + (", ..." if len(found.skipped) > 3 else "")
        say(f"language: skipped {len(found.skipped)} files that are not UTF-8: {names}")
    return found


class Language:
    """The paper's language model; sizes default to the paper's.

    `sparse` makes gradients of embedding and softmax sparse. `limit` is the largest number of training words (0: all),
    `eval_words` that of evaluation. With `parts` > 1 each epoch covers the next of `parts` parts of the text.
    `eval_state` is the initial hidden state of an evaluation: zero, or carried over from training. With
    `watch` every evaluation records the RMS of the update in units of lr.
    """

    metric = "nats per word"
    higher_is_better = False
    epochs = 5

    def __init__(
        self,
        text: str = "ptb",
        data: str = "",
        batch: int = 128,
        bptt: int = 20,
        embedding: int = 256,
        hidden: int = 2048,
        layers: int = 2,
        projection: int = 256,
        dropout: float = 0.01,
        samples: int = 8192,
        sparse: bool = True,
        clip: float = 1.0,
        min_count: int = 0,
        limit: int = 0,
        parts: int = 1,
        eval_words: int = 0,
        eval_state: str = "zero",
        on_error: str = "raise",
        watch: bool = False,
    ) -> None:
        check_known("text", TEXTS, text)
        sizes = dict(
            batch=batch, bptt=bptt, embedding=embedding, hidden=hidden, layers=layers, samples=samples
        )
        for key, value in {**sizes, "projection": projection, "clip": clip, "parts": parts}.items():
            if not value > 0:
                raise LabError(f"{key}={value!r}: must be > 0")
        if eval_words < 0:
            raise LabError(f"eval_words={eval_words!r}: must be >= 0 (0: every word)")
        check_known("eval_state", STATES, eval_state)
        self.text, self.batch_size, self.bptt, self.clip, self.parts = text, batch, bptt, clip, parts
        self.eval_words, self.watch = eval_words, watch
        self.place = (text, str(data), on_error, min_count or TEXTS[text], limit)
        self.sizes: dict[str, Any] = dict(
            batch=batch,
            embedding=embedding,
            hidden=hidden,
            layers=layers,
            projection=projection,
            dropout=dropout,
            samples=samples,
            sparse=sparse,
            eval_state=eval_state,
        )
        self.schedule = {"name": "linear", "final": 2e-5}  # 5e-4 to 1e-8

    def corpus(self) -> Corpus:
        """Return the text as word ids."""
        return corpus(*self.place)

    def digest(self) -> str:
        """Return the SHA-256 of the vocabulary and of the word ids of the three splits."""
        found = self.corpus()
        whole = hashlib.sha256("\n".join(found.words).encode())
        for part in (found.train, found.valid, found.test):
            whole.update(np.ascontiguousarray(part, dtype="<i4").tobytes())
        return whole.hexdigest()

    def data(self) -> dict[str, Any]:
        found = self.corpus()
        most = self.eval_words or None
        splits = {"train": found.train, "valid": found.valid[:most], "test": found.test[:most]}
        return {
            split: Windows(
                ids,
                self.batch_size if split == "train" else min(EVAL_ROWS, len(ids)),
                self.bptt if split == "train" else 4 * self.bptt,
                found.end,
                every=split != "train",
                parts=self.parts if split == "train" else 1,
            )
            for split, ids in splits.items()
        }

    def model(self) -> nn.Module:
        return Model(len(self.corpus().words), **self.sizes)

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """Return the mean loss and the loss of each word: sampled softmax in training, full softmax in evaluation.

        On a GPU the LSTM runs in TF32, cuDNN's default.
        """
        targets, tokens, keep, fresh = batch
        losses = model(tokens, targets, keep, fresh)
        return losses.mean(), losses

    def before_step(self, model: nn.Module) -> None:
        """Clip the gradient norms of LSTM, embedding, softmax and projection separately."""
        for part in model.parts():  # type: ignore[operator]
            adaxopt.clip_grad_norm_(part.parameters(), self.clip)
