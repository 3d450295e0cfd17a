"""`imagenet`: pictures in class folders and the ImageNet ResNets, for `adax compare imagenet`.

    adax data get tiny-imagenet
    adax compare imagenet --optimizers sgdm adamw adaxw --device cuda
    adax compare imagenet --task-option data=/data/imagenet size=224 stored=256 stem=imagenet

`data` is a folder with train/ and val/ (or Tiny-ImageNet's own layout), a pack or a cache; it is decoded once, into a
memory-mapped cache beside it. The recipe is the paper's for ResNet-18, shortened: batch 256, warmup over 5% of the run,
lr x0.1 at 30, 60 and 90%. For the paper's studies, several processes and CUDA graphs see `adax reproduce
imagenet/tiny`.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adaxlab.errors import LabError
from adaxlab.imagenet import augment, studies
from adaxlab.imagenet import cache as caches
from adaxlab.imagenet.feed import RESIDENT, Mapped, Resident
from adaxlab.imagenet.recipe import Recipe
from adaxlab.imagenet.train import NARROW
from adaxlab.messages import say
from adaxlab.models.imagenet import LAYERS, resnet

HIGH = 2**63 - 1


@functools.lru_cache(maxsize=2)
def _open(data: str, stored: int, cache: str, on_error: str) -> caches.Cache:
    """The cache; kept, because a study asks for the same one again and again."""
    place = studies.place_of(data)
    return caches.obtain(place, stored, cache=cache, on_error=on_error, tell=say)


class ImageNet:
    """Top-1 accuracy on the pictures of val/. `model` is resnet18 or resnet50."""

    metric = "accuracy"
    higher_is_better = True
    epochs = 20
    batch_size = 256
    eval_batch_size = 1000

    def __init__(
        self,
        data: str = "",
        model: str = "resnet18",
        stem: str = "small",
        size: int = 64,
        stored: int = 0,
        width: int = 64,
        precision: str = "bf16",
        channels_last: bool | None = None,
        cache: str = "",
        on_error: str = "raise",
    ) -> None:
        if precision not in ("bf16", "fp32"):
            raise LabError(f"precision={precision!r}: must be bf16 or fp32")
        if model not in LAYERS:
            raise LabError(f"model={model!r}: must be one of {', '.join(LAYERS)}")
        self.recipe = Recipe(model=model, stem=stem, size=size, stored=stored or size, width=width)
        self.place = (str(data), self.recipe.stored, cache, on_error)
        wide = torch.cuda.is_available() and width >= NARROW
        self.precision, self.channels_last = precision, wide if channels_last is None else channels_last
        self.schedule = self.recipe.schedule(1.0)

    def data(self) -> dict[str, Any]:
        """uint8 pictures [n, stored, stored, 3]: tensors, or read from the memory map where they are many."""
        found = _open(*self.place)
        out: dict[str, Any] = {}
        for name, part in (("train", found.parts["train"]), ("test", found.parts["val"])):
            if sum(piece.nbytes for piece in part.pieces) > RESIDENT:
                out[name] = Mapped(part, torch.device("cpu"))
            else:
                kept = Resident.of(part, torch.device("cpu"))
                out[name] = (kept.images, kept.labels)
        return out

    def model(self) -> nn.Module:
        options = self.recipe.network()
        net: nn.Module = resnet(classes=len(_open(*self.place).classes), **options)
        return net.to(memory_format=torch.channels_last) if self.channels_last else net  # type: ignore[call-overload]

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        raw, labels = batch
        if model.training:  # keys from torch's generator, whose state is in the run's checkpoint
            keys = torch.randint(-HIGH, HIGH, (len(raw),), device=raw.device)
            x = augment.crop_batch(raw, augment.spans(keys, raw.shape[1]), self.recipe.size)
        else:
            x = augment.middle_batch(raw, self.recipe.size)
        low = raw.is_cuda and self.precision == "bf16"
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=low):
            scores = model(x.contiguous(memory_format=torch.channels_last) if self.channels_last else x)
        return F.cross_entropy(scores.float(), labels), scores.argmax(1) == labels
