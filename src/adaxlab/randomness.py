"""The global random generators: seeded for a run, saved in its checkpoint, restored when it ends."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """Seed torch (all devices), numpy and Python."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def state(device: torch.device) -> dict[str, Any]:
    """Return the state of the generators as tensors and plain values, loadable with `weights_only=True`."""
    name, keys, position, has_gauss, gauss = np.random.get_state()
    version, words, gauss_next = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        "numpy": [
            str(name),
            torch.from_numpy(np.asarray(keys).astype(np.int64)),
            int(position),
            int(has_gauss),
            float(gauss),
        ],
        "python": [version, list(words), gauss_next],
    }


def restore(saved: dict[str, Any], device: torch.device) -> None:
    """Restore the generators to a state returned by `state`."""
    torch.set_rng_state(saved["torch"])
    if saved["cuda"] is not None and device.type == "cuda":
        torch.cuda.set_rng_state(saved["cuda"], device)
    name, keys, position, has_gauss, gauss = saved["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, gauss))
    version, words, gauss_next = saved["python"]
    random.setstate((version, tuple(words), gauss_next))


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the generators, and restore them at the end."""
    before = state(device)
    try:
        seed_all(seed)
        yield
    finally:
        restore(before, device)


@contextmanager
def controlled(seed: int, device: torch.device, threads: int) -> Iterator[None]:
    """Seed the generators, use `threads` CPU threads and deterministic cuDNN; restore all of them at the end."""
    before, threads_before = state(device), torch.get_num_threads()
    cudnn = torch.backends.cudnn
    kept = {"enabled": cudnn.enabled, "allow_tf32": cudnn.allow_tf32}
    try:
        torch.set_num_threads(threads)
        with cudnn.flags(benchmark=False, deterministic=True, **kept):
            seed_all(seed)
            yield
    except BaseException:
        with suppress(RuntimeError):  # of a device that failed: the first error says why
            restore(before, device)
        raise
    else:
        restore(before, device)
    finally:
        torch.set_num_threads(threads_before)
