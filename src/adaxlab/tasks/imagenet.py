"""Task `imagenet`: images in class folders and the ImageNet ResNets.

    adax data get tiny-imagenet
    adax compare imagenet --optimizers sgdm adamw adaxw --device cuda
    adax compare imagenet --task-option data=/data/imagenet size=224 stored=256 stem=imagenet

`data` is a folder with train/ and val/ (or in Tiny-ImageNet's layout), or a cache; a folder is decoded once into a
memory-mapped cache beside it. The recipe is the paper's for ResNet-18 with fewer epochs: batch 256, warmup over 5% of
the run, lr x0.1 at 30, 60 and 90%.

`adax compare` uses the general training loop. The paper's studies (`adax reproduce imagenet/tiny`) use the executor
`torchrun`, which calls `training`: several processes, CUDA graphs, crops as a function of seed and epoch.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adaxlab import distributed, messages
from adaxlab.data import default_root
from adaxlab.data.images import augment
from adaxlab.data.images import cache as caches
from adaxlab.data.images.loader import RESIDENT, Loader, Mapped, Resident, hold_out, on_device
from adaxlab.distributed import Ranks
from adaxlab.errors import LabError
from adaxlab.imagenet.recipe import SCHEDULE, ImageNetRecipe
from adaxlab.imagenet.train import NARROW, Training
from adaxlab.models.imagenet import resnet
from adaxlab.settings import ExecutionConfig

HIGH = 2**63 - 1
Place = tuple[str, int, str, str]


def place_of(data: str) -> Path:
    """Return the given folder; if empty, the folder of `adax data get tiny-imagenet`."""
    if data:
        return Path(data)
    for place in (
        default_root() / "tiny-imagenet" / "tiny-imagenet-200",
        default_root() / "tiny-imagenet-200",
    ):
        if place.is_dir():
            return place
    raise LabError(
        f"{default_root()}: no Tiny-ImageNet there; run `adax data get tiny-imagenet`, or name a folder that has "
        "train/ and val/, or a cache (data=FOLDER)"
    )


@functools.lru_cache(maxsize=2)
def _open(data: str, stored: int, cache: str, on_error: str) -> caches.Cache:
    """Open the image cache, creating it if needed; cached, because the runs of a study use the same one.

    Under torchrun the first process creates it and the others wait: call this in every process.
    """
    ranks = distributed.current()
    place = place_of(data)
    if ranks.world == 1:
        return caches.obtain(place, stored, cache=cache, on_error=on_error, tell=messages.say)

    def make() -> None:
        caches.obtain(place, stored, cache=cache, on_error=on_error, tell=messages.say)

    ranks.first_does(make)
    return caches.load(caches.folder_of(place, stored, cache))


@functools.lru_cache(maxsize=2)
def _loader(place: Place, split: str, device: torch.device, resident: bool | None) -> Loader:
    """Return a loader of a split of the image cache on the device; cached for the next run."""
    return Loader(on_device(_open(*place).parts[split], device, resident))


class ImageNet:
    """Top-1 accuracy on the images of val/. `model` is resnet18 or resnet50."""

    metric = "accuracy"
    higher_is_better = True
    epochs = 20
    batch_size = 256
    eval_batch_size = 1000
    schedule = SCHEDULE

    def __init__(
        self,
        data: str = "",
        model: str = "resnet18",
        stem: str = "small",
        size: int = 64,
        stored: int = 0,
        groups: int = 1,
        width: int = 64,
        precision: str = "bf16",
        holdout: float = 0.1,
        channels_last: bool | None = None,
        cache: str = "",
        on_error: str = "raise",
    ) -> None:
        self.recipe = ImageNetRecipe(model, stem, size, stored or size, groups, width, precision, holdout)
        self.precision = precision
        self.place: Place = (str(data), self.recipe.stored, cache, on_error)
        wide = torch.cuda.is_available() and width >= NARROW
        self.channels_last = wide if channels_last is None else channels_last

    def digest(self) -> str:
        """Return the digest of the images, which does not depend on their layout; the first call decodes them."""
        return _open(*self.place).digest

    # -- by the executor torchrun ----------------------------------------------------------------------------------

    def loaders(
        self, purpose: str, device: torch.device, resident: bool | None = None
    ) -> tuple[Loader, Loader]:
        """Return the training and the test loader; for tuning the latter has held-out training images."""
        train = _loader(self.place, "train", device, resident)
        if purpose == "tune":
            return hold_out(train, max(1, round(self.recipe.holdout * len(train))))
        return train, _loader(self.place, "val", device, resident)

    def training(self, spec: Mapping[str, Any], ranks: Ranks, config: ExecutionConfig) -> Training:
        """Return the training of a run, at step 0."""
        train, test = self.loaders(spec["purpose"], ranks.device, config.resident)
        return Training(spec, self.recipe, train, test, len(_open(*self.place).classes), ranks, config)

    # -- by the ordinary loop --------------------------------------------------------------------------------------

    def data(self) -> dict[str, Any]:
        """Return uint8 images [n, stored, stored, 3]: tensors, or a memory map if they are too large."""
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
        if self.recipe.precision not in ("bf16", "fp32"):
            raise LabError(f"precision={self.recipe.precision!r}: must be bf16 or fp32 in `adax compare`")
        net: nn.Module = resnet(classes=len(_open(*self.place).classes), **self.recipe.network())
        return net.to(memory_format=torch.channels_last) if self.channels_last else net  # type: ignore[call-overload]

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        raw, labels = batch
        if model.training:  # keys from torch's generator, whose state is in the run's checkpoint
            keys = torch.randint(-HIGH, HIGH, (len(raw),), device=raw.device)
            x = augment.crop_batch(raw, augment.spans(keys, raw.shape[1]), self.recipe.size)
        else:
            x = augment.center_crop_batch(raw, self.recipe.size)
        low = raw.is_cuda and self.recipe.precision == "bf16"
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=low):
            scores = model(x.contiguous(memory_format=torch.channels_last) if self.channels_last else x)
        return F.cross_entropy(scores.float(), labels), scores.argmax(1) == labels
