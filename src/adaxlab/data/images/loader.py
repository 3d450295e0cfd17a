"""Batches of images on the device, in an order that depends on (seed, epoch) and not on the number of processes.

`Resident` keeps all images on the device (64x64: 1.4 GB); `Mapped` reads them from the memory map in the background and
copies them through pinned memory during computation (224x224). Both give the same batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from adaxlab.data import order
from adaxlab.data.images import augment
from adaxlab.data.images.cache import Part, check_hash
from adaxlab.distributed import Ranks
from adaxlab.errors import LabError

RESIDENT = 8 * 10**9
"""Largest size in bytes of a split that is kept on the device."""
AHEAD = 4
"""Number of batches read ahead, each by a thread."""


class Images(Protocol):
    """Images as bytes [n, side, side, 3] and labels int64 [n] on `device`."""

    labels: Tensor
    device: torch.device
    side: int

    def batches(self, rows: Iterable[Tensor]) -> Iterator[Tensor]: ...


class Resident:
    """All images on the device."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels
        self.device, self.side = images.device, images.shape[1]

    @classmethod
    def of(cls, part: Part, device: torch.device, verify: bool = True) -> Resident:
        """Load a split of a cache piece by piece, comparing each piece with its hash if `verify`."""
        side = part.pieces[0].shape[1]
        images = torch.empty((len(part), side, side, 3), dtype=torch.uint8, device=device)
        begin = 0
        for piece, path, wanted in zip(part.pieces, part.paths, part.hashes, strict=True):
            if verify:
                check_hash(path, wanted)
            images[begin : begin + len(piece)].copy_(torch.from_numpy(np.array(piece)))
            begin += len(piece)
        return cls(images, torch.from_numpy(part.labels).to(device))

    def batches(self, rows: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yield the images of each index tensor in `rows`."""
        return (self.images.index_select(0, chosen) for chosen in rows)


class Mapped:
    """Images in a memory map, read ahead by `AHEAD` threads."""

    def __init__(self, part: Part, device: torch.device) -> None:
        self.part, self.device = part, device
        self.side = part.pieces[0].shape[1]
        self.labels = torch.from_numpy(part.labels).to(device)
        self.starts = np.cumsum([0, *(len(piece) for piece in part.pieces)])

    def __len__(self) -> int:
        return len(self.part)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.read(np.array([i]))[0], torch.tensor(int(self.part.labels[i]))

    def read(self, rows: np.ndarray) -> Tensor:
        """Return the images of `rows` in host memory, pinned if the device is a GPU."""
        shape = (len(rows), self.side, self.side, 3)
        out = torch.empty(shape, dtype=torch.uint8, pin_memory=self.device.type == "cuda")
        into = out.numpy()
        piece = np.searchsorted(self.starts, rows, side="right") - 1
        for k in np.unique(piece):
            mine = np.flatnonzero(piece == k)
            into[mine] = self.part.pieces[k][rows[mine] - self.starts[k]]
        return out

    def batches(self, rows: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yield the images of each index tensor in `rows`, reading ahead."""
        waiting: deque[Future[Tensor]] = deque()
        todo = iter([chosen.cpu().numpy() for chosen in rows])  # all at once: each copy synchronises
        with ThreadPoolExecutor(AHEAD) as pool:
            while True:
                for chosen in todo:
                    waiting.append(pool.submit(self.read, chosen))
                    if len(waiting) >= AHEAD:
                        break
                if not waiting:
                    return
                yield waiting.popleft().result().to(self.device, non_blocking=True)


def on_device(part: Part, device: torch.device, resident: bool | None = None) -> Resident | Mapped:
    """Return the split as `Resident` if `resident`, as `Mapped` if not; None decides by its size."""
    size = sum(piece.nbytes for piece in part.pieces)
    keep = size <= RESIDENT if resident is None else resident
    return Resident.of(part, device) if keep else Mapped(part, device)


@dataclass
class Batch:
    """This process's share of one batch of `total` images; `span` is the crop of each (`augment.spans`)."""

    raw: Tensor
    labels: Tensor
    span: Tensor
    total: int


@dataclass
class Loader:
    """Batches of the images with indices `rows` (None: all)."""

    source: Images
    rows: Tensor | None = None

    def __len__(self) -> int:
        return len(self.source.labels) if self.rows is None else len(self.rows)

    def cuts(self, batch: int) -> list[tuple[int, int]]:
        """Return (start, end) of each batch; the last may be smaller."""
        return [(a, min(a + batch, len(self))) for a in range(0, len(self), batch)]

    def epoch(self, seed: int, number: int, batch: int, skip: int, ranks: Ranks) -> Iterator[Batch]:
        """Yield this process's share of the batches of epoch `number`, without the first `skip`."""
        device, n = self.source.device, len(self)
        cuts = self.cuts(batch)
        if cuts[-1][1] - cuts[-1][0] < ranks.world:
            raise LabError(
                f"batch={batch}: the last batch of {n} images has {cuts[-1][1] - cuts[-1][0]}, fewer than the "
                f"{ranks.world} processes; choose another batch"
            )
        mixed = order.permutations([seed], number, n, device)[0].long()
        span = augment.spans(order.keys([seed], number, n, 2, device)[0], self.source.side)
        places = [(a + begin, a + end) for a, b in cuts[skip:] for begin, end in (ranks.share(b - a),)]
        rows = [self._rows(mixed[a:b]) for a, b in places]
        found = self.source.batches(rows)
        for (a, b), (first, last), chosen, raw in zip(cuts[skip:], places, rows, found, strict=True):
            yield Batch(raw, self.source.labels.index_select(0, chosen), span[first:last], b - a)

    def in_order(self, batch: int, ranks: Ranks) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield this process's share of all images in order, `batch` at a time."""
        begin, end = ranks.share(len(self))
        places = torch.arange(begin, end, device=self.source.device)
        rows = [self._rows(places[a : a + batch]) for a in range(0, end - begin, batch)]
        for chosen, raw in zip(rows, self.source.batches(rows), strict=True):
            yield raw, self.source.labels.index_select(0, chosen)

    def _rows(self, places: Tensor) -> Tensor:
        return places if self.rows is None else self.rows.index_select(0, places)


def hold_out(loader: Loader, count: int) -> tuple[Loader, Loader]:
    """Return (loader of the rest, loader of `count` held-out images), the same images in every run."""
    rest, kept = order.held_out(len(loader), count, loader.source.device)
    return Loader(loader.source, loader._rows(rest)), Loader(loader.source, loader._rows(kept))
