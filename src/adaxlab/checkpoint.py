"""Checkpoints of all executors: torch's format, written atomically, and read without executing code."""

from __future__ import annotations

import io
import pickle
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


def numbers_of(optimizer: Any) -> dict[str, Any]:
    """The numbers that an optimizer of another package or of the user keeps as plain attributes."""
    if type(optimizer).__module__.partition(".")[0] in ("torch", "adaxopt", "adaxlab"):
        return {}
    kinds = (bool, int, float, str)
    return {k: v for k, v in vars(optimizer).items() if isinstance(v, kinds) and not k.startswith("_")}


def obstacle(optimizer: Any, numbers: Mapping[str, Any]) -> str:
    """Why a checkpoint would not restore the optimizer, whose plain attributes were `numbers` when it was built; empty
    if it would."""
    changed = [name for name, value in numbers_of(optimizer).items() if numbers.get(name) != value]
    if changed:
        return f"it keeps {', '.join(changed)} outside self.state and param_groups"
    buffer = io.BytesIO()
    torch.save(optimizer.state_dict(), buffer)
    try:
        torch.load(io.BytesIO(buffer.getvalue()), weights_only=True)
    except pickle.UnpicklingError:
        return "its state has objects other than tensors and Python's numbers"
    return ""


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
