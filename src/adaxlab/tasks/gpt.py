"""Task `gpt`: next-byte prediction on enwik8 (or any file) with a small transformer. Not an experiment of the paper.

    adax data get enwik8
    adax compare gpt --optimizers adamw adaxw --set adaxw.lr=1e-3 adaxw.betas=0.9,5e-4 --device cuda

An epoch is `steps` batches of windows at random positions (from the run's seed), so `epochs` is the number of
evaluations: 20, each after 100 steps. The metric is the mean of -log P(byte), in nats, over the first `eval_bytes` of
the split; divide it by log 2 for bits per byte. The batch size is an option of the task (`batch=64`), not --batch-size.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import adaxopt
from adaxlab.data import default_root, enwik8
from adaxlab.errors import LabError
from adaxlab.models.gpt import Decoder


@functools.lru_cache(maxsize=2)
def read(place: str) -> dict[str, np.ndarray]:
    """Return the bytes of each split; cached, because the runs of a study use the same file."""
    return enwik8.as_bytes(place or default_root() / "enwik8")


class RandomWindows:
    """Iterate over `steps` batches of windows [batch, context + 1] at positions drawn from torch's generator, or, with
    a `seed`, from a generator of its own that is seeded by it and by the epoch."""

    def __init__(
        self, text: np.ndarray, steps: int, batch: int, context: int, seed: int | None = None
    ) -> None:
        if len(text) <= context:
            raise LabError(
                f"a text of {len(text)} bytes has no window of {context + 1}; choose a smaller context"
            )
        self.text, self.steps, self.batch, self.context = text, steps, batch, context
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[tuple[Tensor]]:
        own = None if self.seed is None else torch.Generator().manual_seed(1_000_000 * self.seed + self.epoch)
        shape = (self.steps, self.batch)
        places = torch.randint(0, len(self.text) - self.context, shape, generator=own).numpy()
        inside = np.arange(self.context + 1)
        for begin in places:
            yield (torch.from_numpy(self.text[begin[:, None] + inside]),)


class Gpt:
    """The decoder's sizes, the windows and the clipping are options; the defaults have 21.2 million parameters. With an
    `init_seed` or an `order_seed` of 0 or more all runs share the first weights or the windows, whatever their seed.
    `precision` is that of the matrix products on a GPU, `weights` that of the matrices and their gradients."""

    metric = "nats per byte"
    higher_is_better = False
    epochs = 20

    def __init__(
        self,
        data: str = "",
        steps: int = 100,
        batch: int = 64,
        context: int = 512,
        layers: int = 8,
        width: int = 512,
        heads: int = 8,
        inner: int = 1024,
        smear: bool = False,
        clip: float = 1.0,
        eval_bytes: int = 2**20,
        precision: str = "bf16",
        weights: str = "fp32",
        compile: bool = False,
        init_seed: int = -1,
        order_seed: int = -1,
    ) -> None:
        sizes = dict(layers=layers, width=width, heads=heads, inner=inner, context=context)
        for key, value in {
            **sizes,
            "steps": steps,
            "batch": batch,
            "clip": clip,
            "eval_bytes": eval_bytes,
        }.items():
            if not value > 0:
                raise LabError(f"{key}={value!r}: must be > 0")
        for key, given in {"precision": precision, "weights": weights}.items():
            if given not in ("bf16", "fp32"):
                raise LabError(f"{key}={given!r}: must be bf16 or fp32")
        if weights == "bf16" and precision != "bf16":
            raise LabError("weights='bf16': needs precision=bf16")
        self.place, self.sizes, self.smear = str(data), sizes, smear
        self.steps, self.batch_size = steps, batch
        self.context, self.clip, self.eval_bytes = context, clip, eval_bytes
        self.precision, self.weights, self.compile = precision, weights, compile
        self.init_seed, self.order_seed = init_seed, order_seed
        self.eval_batch_size = batch
        self.schedule = {"name": "cosine", "warmup": 0.1, "final": 0.1}

    def digest(self) -> str:
        """Return the SHA-256 of the concatenated bytes of the three splits."""
        text = read(self.place)
        whole = hashlib.sha256()
        for part in ("train", "valid", "test"):
            whole.update(np.ascontiguousarray(text[part]).tobytes())
        return whole.hexdigest()

    def data(self) -> dict[str, Any]:
        text = read(self.place)
        return {
            "train": RandomWindows(text["train"], self.steps, self.batch_size, self.context, self._order()),
            "valid": (self._whole(text["valid"]),),
            "test": (self._whole(text["test"]),),
        }

    def _order(self) -> int | None:
        return self.order_seed if self.order_seed >= 0 else None

    def _whole(self, text: np.ndarray) -> Tensor:
        """Return consecutive windows, each starting with the last byte of the previous one."""
        count = min(len(text) - 1, self.eval_bytes) // self.context
        if not count:
            raise LabError(
                f"a split of {len(text)} bytes has no window of {self.context + 1}; choose a smaller context"
            )
        places = np.arange(count)[:, None] * self.context + np.arange(self.context + 1)
        return torch.from_numpy(text[places])

    def model(self) -> nn.Module:
        with torch.random.fork_rng(devices=[], enabled=self.init_seed >= 0):
            if self.init_seed >= 0:
                torch.manual_seed(self.init_seed)
            model = Decoder(**self.sizes, smear=self.smear)
        if self.weights == "bf16":
            for p in model.parameters():
                p.data = p.data.bfloat16() if p.dim() == 2 else p.data
        if self.compile:
            model.compile()
        return model

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """Return the mean loss over all bytes; bf16 autocast on a GPU or with bf16 weights, the loss in float32."""
        (window,) = batch
        window = window.long()
        low = self.weights == "bf16" or (window.is_cuda and self.precision == "bf16")
        with torch.autocast(window.device.type, dtype=torch.bfloat16, enabled=low):
            scores = model(window[:, :-1])
        loss = F.cross_entropy(scores.float().flatten(0, 1), window[:, 1:].flatten())
        return loss, loss

    def before_step(self, model: nn.Module) -> None:
        """Clip the norm of the whole gradient."""
        adaxopt.clip_grad_norm_(model.parameters(), self.clip)
