"""Checkpoints of all executors: torch's format, written atomically, and read without executing code."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from adaxlab import files
from adaxlab.errors import StoreError
from adaxlab.joint import Joint
from adaxlab.spec import SCHEMA
from adaxopt.torch.engine import Engine


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Replace the checkpoint atomically."""
    buffer = io.BytesIO()
    torch.save({"schema": SCHEMA, **content}, buffer)
    files.write(path, buffer.getvalue())


def kept_outside(optimizer: Any) -> dict[str, list[Any]]:
    """The numbers, tensors and generators that an optimizer of another package or of the user keeps as plain
    attributes, by name, in a form that can be compared later. Parameters, caches of this package's optimizers, and
    flags such as torch's `_need_device_dtype_check_for_fused` are left out."""
    if isinstance(optimizer, Joint):
        return {name: found for part in optimizer.parts for name, found in kept_outside(part).items()}
    if type(optimizer).__module__.partition(".")[0] in ("torch", "adaxopt", "adaxlab"):
        return {}
    params = {id(p) for group in optimizer.param_groups for p in group["params"]}
    known = ("state", "param_groups", "defaults", *(Engine.CACHES if isinstance(optimizer, Engine) else ()))
    return {
        name: list(_leaves(value, params))
        for name, value in vars(optimizer).items()
        if name not in known and not (name.startswith("_") and isinstance(value, bool))
    }


def _leaves(value: Any, seen: set[int]) -> Iterator[Any]:
    """The numbers, tensors and generators inside a value, but those that were seen, by id."""
    if isinstance(value, bool | int | float | str | np.generic):
        yield repr(value)
    elif isinstance(value, np.ndarray):
        yield hashlib.sha256(value.tobytes()).digest()
    elif isinstance(value, torch.Generator):
        yield hashlib.sha256(bits(value.get_state())).digest()
    elif isinstance(value, np.random.Generator):
        yield repr(value.bit_generator.state)
    elif isinstance(value, torch.Tensor):
        if id(value) not in seen and value.layout is torch.strided:
            yield hashlib.sha256(bits(value)).digest()
    elif isinstance(value, Mapping | list | tuple | deque) and id(value) not in seen:
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(each, seen | {id(value)})


def bits(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor's values."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def obstacle(optimizer: Any, before: Mapping[str, list[Any]]) -> str:
    """Why a checkpoint would not restore the optimizer, which kept `before` outside of its state when it was built;
    empty if it would."""
    changed = [name for name, found in kept_outside(optimizer).items() if before.get(name, []) != found]
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
