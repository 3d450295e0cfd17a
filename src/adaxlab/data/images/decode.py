"""Decode images to square RGB arrays, in several processes.

An image is converted to RGB (grey becomes three equal channels, transparency is dropped), its shorter side is resized
to `size` (bilinear with antialiasing, as in Pillow), and the centre square is kept. An image of this size is not
changed. Workers return errors as data, so that a damaged image is reported in one line with its path.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

import numpy as np

from adaxlab.errors import LabError

Work = Callable[..., Any]


def pixels(data: bytes, size: int) -> np.ndarray:
    """Return the decoded image, uint8 [size, size, 3]; raise ValueError with the reason if it cannot be decoded."""
    from PIL import Image

    if not data:
        raise ValueError("the file is empty")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about metadata, and palettes with transparency
            with Image.open(io.BytesIO(data)) as image:
                found = image if image.mode == "RGB" else image.convert("RGB")
                found.load()
                return np.asarray(_square(found, size))
    except Image.UnidentifiedImageError as error:
        raise ValueError("is not an image of a known format") from error
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, Image.DecompressionBombError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"cannot be decoded ({reason})") from error


def _square(image: Any, size: int) -> Any:
    from PIL import Image

    width, height = image.size
    if (width, height) == (size, size):
        return image
    short = min(width, height)
    left, top = (width - short) / 2, (height - short) / 2
    box = (left, top, left + short, top + short)
    return image.resize((size, size), Image.Resampling.BILINEAR, box=box)


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_shared: tuple[Any, ...] = ()


def _set_shared(shared: tuple[Any, ...]) -> None:
    global _shared
    _shared = shared


def _call(work: Work, arguments: tuple[Any, ...]) -> Any:
    return work(*_shared, *arguments)


def map_unordered(
    work: Work, shared: tuple[Any, ...], tasks: Sequence[tuple[Any, ...]], workers: int
) -> Iterator[Any]:
    """Yield the results of work(*shared, *task) in order of completion; `shared` is sent to each worker once.

    With one worker everything runs in this process. Workers are spawned, because a process with threads must not fork.
    """
    if workers <= 1 or len(tasks) <= 1:
        for task in tasks:
            yield work(*shared, *task)
        return
    context = multiprocessing.get_context("spawn")
    count = min(workers, len(tasks))
    with _whole(), ProcessPoolExecutor(count, context, _set_shared, (shared,)) as pool:
        waiting: set[Future[Any]] = {pool.submit(_call, work, task) for task in tasks}
        try:
            while waiting:
                ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ready:
                    yield future.result()
        finally:
            for future in waiting:
                future.cancel()


@contextmanager
def _whole() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        raise LabError(
            "a worker process was killed (out of memory?); repeat the command to resume, with fewer workers"
        ) from error
