"""Checkpoints of all executors: torch's format, written atomically, and read without executing code."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from adaxlab import files
from adaxlab.errors import StoreError
from adaxlab.spec import SCHEMA


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Replace the checkpoint atomically."""
    buffer = io.BytesIO()
    torch.save({"schema": SCHEMA, **content}, buffer)
    files.write(path, buffer.getvalue())


@contextmanager
def opened(path: Path, what: str = "this run", mmap: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the content of a checkpoint. Any error inside the block is reported as an error of the file, which is not
    deleted; `what` can be restarted without it."""
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
        if saved["schema"] != SCHEMA:
            raise StoreError(f"{path}: checkpoint of schema {saved['schema']}, this version reads {SCHEMA}")
        yield saved
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(
            f"{path}: cannot resume from it ({type(error).__name__}); left untouched, move it away to start {what} "
            "again"
        ) from error
