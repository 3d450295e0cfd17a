"""A piece of a test in which nothing may wait for the CUDA device."""

from __future__ import annotations

import contextlib
import warnings

import torch


@contextlib.contextmanager
def refused():
    torch.cuda.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "a prototype feature"
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
