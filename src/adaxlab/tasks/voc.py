"""Task `voc`: semantic segmentation with DeepLab-ASPP, the paper's PASCAL VOC2012 experiment; also on CamVid.

    adax compare voc --task-option data=VOCdevkit/VOC2012 weights=resnet101.pth --device cuda \\
        --optimizers sgdm adamw amsgradw adaxw --set sgdm.lr=2.5e-4 adamw.lr=1e-6 amsgradw.lr=1e-6 adaxw.lr=1e-5
    adax compare voc --task-option data=CamVid backbone=resnet50 weights=resnet50-weights steps=500 --device cuda

The recipe: batch 10, four epochs of 5,000 steps with an evaluation after each, crop 321, scale 0.5 to 1.5, flip,
poly 0.9; lr x1 for the backbone, x10 for the head's weights, x20 for its biases without weight decay; frozen norms.
The metric is mean IoU from one confusion matrix over the whole split, at full size and one scale. The batch size is an
option of the task (`batch=10`), not --batch-size. `compile=true` trains the backbone with torch.compile.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from adaxlab.batches import holdout as hold_out
from adaxlab.data import default_root, resnet50
from adaxlab.data.segmentation import folders
from adaxlab.data.segmentation.crops import RandomCrops, crop
from adaxlab.data.segmentation.images import VOID, SegmentationImages, part, read
from adaxlab.errors import LabError, check_known
from adaxlab.messages import say
from adaxlab.models import pretrained as weights
from adaxlab.models.deeplab import BLOCKS, STYLES, DeepLab, deeplab

EVAL_PIXELS = 2**21
"""Largest number of pixels in an evaluation batch."""
NO_WEIGHTS = "weights: none; frozen norms are unsuitable for training from scratch; name a file (weights=...)"
REPORTED: set[str] = set()
"""Messages about weights that were already printed."""


@functools.lru_cache(maxsize=2)
def load(folder: str, layout: str, on_error: str) -> tuple[folders.Layout, dict[str, SegmentationImages]]:
    """Return the layout and the decoded splits; cached, because the runs of a study use the same folder."""
    known, root = folders.find(folder or default_root() / "camvid", layout)
    lists = folders.pairs(known, root)
    found = {split: read(pairs, known.classes, known.void, on_error) for split, pairs in lists.items()}
    for split, images in found.items():
        if images.skipped:
            say(f"voc: skipped {len(images.skipped)} images of {split}, the first: {images.skipped[0]}")
    return known, found


@functools.lru_cache(maxsize=2)
def digest(folder: str, layout: str, on_error: str, file: str) -> str:
    """Return the SHA-256 of the splits' decoded pixels, classes and sizes, and of the weights in `file` (if given)."""
    whole = hashlib.sha256()
    for name, tensor in sorted(weights.read(file).items()) if file else ():
        whole.update(name.encode() + tensor.contiguous().numpy().tobytes())
    for name, images in sorted(load(folder, layout, on_error)[1].items()):
        whole.update(f"{name} {images.places()}".encode())
        whole.update(images.pixels.contiguous().numpy().tobytes())
    return whole.hexdigest()


def _place(weights: str) -> str:
    """Return the path of the weights: as given, or the folder of `adax data get resnet50-weights`."""
    return str(default_root() / weights) if weights == resnet50.FOLDER else weights


class Whole:
    """A split as one batch, because mean IoU is not a mean over batches."""

    def __init__(self, images: SegmentationImages) -> None:
        self.images = images

    def chunks(self, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (colours [n, 3, h, w], classes [n, h, w]) of images of equal size."""
        found = self.images.on(device)
        by_size: dict[tuple[int, int], list[int]] = {}
        for start, height, width in self.images.places():
            by_size.setdefault((height, width), []).append(start)
        for (height, width), starts in by_size.items():
            n = max(1, EVAL_PIXELS // (height * width))
            for i in range(0, len(starts), n):
                places = torch.tensor(starts[i : i + n])[:, None] + torch.arange(height * width)
                whole = found.pixels[places.to(found.pixels.device)].view(-1, height, width, 4)
                yield whole[..., :3].permute(0, 3, 1, 2).float(), whole[..., 3].long()


class Voc:
    """See the module's docstring. `layout`: auto, voc, camvid; `style` (of the weights): auto, torch, caffe, keras."""

    metric = "mean IoU"
    higher_is_better = True
    epochs = 4

    def __init__(
        self,
        data: str = "",
        weights: str = "",
        backbone: str = "resnet101",
        style: str = "auto",
        layout: str = "auto",
        steps: int = 5000,
        batch: int = 10,
        crop: int = 321,
        scales: tuple[float, float] = (0.5, 1.5),
        holdout: float = 0.0,
        keep: str = "device",
        on_error: str = "raise",
        precision: str = "bf16",
        compile: bool = False,
    ) -> None:
        for name, value, known in (
            ("backbone", backbone, tuple(BLOCKS)),
            ("style", style, ("auto", *STYLES)),
            ("keep", keep, ("device", "host")),
            ("precision", precision, ("bf16", "fp32")),
        ):
            check_known(name, known, value)
        for name, number in {"steps": steps, "batch": batch, "crop": crop}.items():
            if not number > 0:
                raise LabError(f"{name}={number!r}: must be > 0")
        if not 0 <= holdout < 1:
            raise LabError(
                f"holdout={holdout!r}: must be in [0, 1), the fraction of training images held out for tuning"
            )
        self.place = (str(data), layout, on_error)
        self.weights, self.backbone = _place(str(weights)), backbone
        self.style = style if style != "auto" else _style(self.weights)
        self.steps, self.batch_size, self.crop = steps, batch, crop
        self.scales = (float(scales[0]), float(scales[1]))
        self.holdout, self.keep, self.precision, self.compile = holdout, keep, precision, compile
        self.schedule = {"name": "poly", "power": 0.9}
        self.train: SegmentationImages | None = None
        self.ready: SegmentationImages | None = None

    def digest(self) -> str:
        """Return the digest of the images and of the initial weights."""
        return digest(*self.place, self.weights)

    def data(self) -> dict[str, Any]:
        _, splits = load(*self.place)
        train, rest = splits["train"], {k: v for k, v in splits.items() if k != "train"}
        if self.holdout:
            stay, held = hold_out(len(train), self.holdout)
            train, rest["valid"] = part(train, stay), part(splits["train"], held)
        self.train, self.ready = train, None
        crops = RandomCrops(len(train), self.steps, self.batch_size, self.scales)
        return {"train": crops, **{split: [Whole(images)] for split, images in rest.items()}}

    def model(self) -> nn.Module:
        layout, _ = load(*self.place)
        net = deeplab(self.backbone, layout.classes, self.style)
        report = f"weights: {weights.load(net, self.weights)}" if self.weights else NO_WEIGHTS
        if report not in REPORTED:
            REPORTED.add(report)
            say(report)
        if self.compile:
            net.backbone.compile(dynamic=False)
        return net

    def groups(self, model: DeepLab, options: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the parameter groups: backbone x1, head's weights x10, head's biases x20 without decay."""
        lr = options["lr"]
        head = list(model.aspp.branches)
        return [
            {"params": list(model.backbone.parameters()), "lr": lr},
            {"params": [branch.weight for branch in head], "lr": 10 * lr},
            {"params": [branch.bias for branch in head], "lr": 20 * lr, "weight_decay": 0.0},
        ]

    def loss(self, model: DeepLab, batch: Any) -> tuple[Tensor, Tensor]:
        """Return loss and mean IoU: of a batch in training (IoU at every 8th pixel), of a whole split in evaluation."""
        device = model.mean.device
        low = device.type == "cuda" and self.precision == "bf16"
        if isinstance(batch, Whole):
            return self._whole(model, batch, device, low)
        place = device if self.keep == "device" else torch.device("cpu")
        draws = tuple(part.to(place) for part in batch)
        colours, classes = crop(self._there(place), draws, self.crop, model.mean.to(place))  # type: ignore[arg-type]
        scores, classes = model(colours.to(device), low), classes.to(device)
        loss = cross_entropy(scores, classes)
        with torch.no_grad():
            called = scores[:, :, ::8, ::8].argmax(1)
            iou = mean_iou(confusion(classes[:, ::8, ::8], called, scores.shape[1]))
        return loss, iou

    def _there(self, place: torch.device) -> SegmentationImages:
        """Return the training images on `place`, copied once."""
        if self.train is None:
            self.data()
        assert self.train is not None
        if self.ready is None or self.ready.pixels.device != place:
            self.ready = self.train.on(place)
        return self.ready

    def _whole(self, model: DeepLab, batch: Whole, device: torch.device, low: bool) -> tuple[Tensor, Tensor]:
        """Return the mean loss over all pixels that are not void, and mean IoU from one confusion matrix."""
        total = torch.zeros((), dtype=torch.float64, device=device)
        matrix: Any = 0
        for colours, classes in batch.chunks(device):
            with torch.compiler.set_stance("force_eager"):  # no recompilation for each image size
                scores = model(colours, low)
            matrix = matrix + confusion(classes, scores.argmax(1), scores.shape[1])
            total += cross_entropy(scores, classes).double() * (classes != 255).sum()
        return total / matrix.sum().clamp(min=1), mean_iou(matrix)


def _style(file: str) -> str:
    """Return the style of the weights: keras for a model.json, else torch (DeepLab's COCO weights need style=caffe)."""
    return weights.style_of(file) if file else "torch"


# -- loss and metric -----------------------------------------------------------------------------------------------


def cross_entropy(scores: Tensor, classes: Tensor) -> Tensor:
    """Return the mean of -log P(class) over the pixels that are not void; 0 if all are.

    scores [n, C, height, width], classes [n, height, width]. torch's own function is not deterministic on a GPU.
    """
    valid = classes != VOID
    chosen = torch.where(valid, classes, torch.zeros_like(classes))
    log_p = torch.log_softmax(scores, 1).gather(1, chosen[:, None])[:, 0]
    return -(log_p * valid).sum() / valid.sum().clamp(min=1)


def confusion(classes: Tensor, predicted: Tensor, count: int) -> Tensor:
    """Return [count, count] int64: the number of pixels of class i (row) predicted as j (column), without void pixels.

    A product of indicator matrices: it does not synchronise with a GPU, and float32 counts up to 2^24 pixels exactly.
    """
    kinds = torch.arange(count, device=classes.device)
    is_class = (classes.reshape(-1, 1) == kinds).float()
    is_called = (predicted.reshape(-1, 1) == kinds).float()
    return (is_class.T @ is_called).long()


def mean_iou(matrix: Tensor) -> Tensor:
    """Return the mean over classes of TP/(TP + FP + FN), without classes that neither occur nor are predicted.

    >>> round(mean_iou(torch.tensor([[3, 1], [0, 2]])).item(), 4)             # 3/4 and 2/3
    0.7083
    """
    matrix = matrix.double()
    both = matrix.diagonal()
    union = matrix.sum(0) + matrix.sum(1) - both
    seen = union > 0
    iou = torch.where(seen, both / union.clamp(min=1), torch.zeros_like(both))
    return iou.sum() / seen.sum().clamp(min=1)
