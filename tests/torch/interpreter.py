"""Tests that need Triton's interpreter, which Triton decides on at import: run in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import triton

HERE = os.environ.get("TRITON_INTERPRET") == "1"


def run(file: str) -> None:
    """All tests of `file`, with TRITON_INTERPRET=1."""
    seen = tuple(tuple(map(int, module.__version__.split(".")[:2])) for module in (triton, np))
    if seen[0] < (3, 7) and seen[1] >= (2, 4):
        pytest.skip("Triton 3.6's interpreter makes scalars of arrays in a way that NumPy 2.4 refuses")
    words = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    if seen[0] < (3, 7):
        words += ["-W", "ignore:Conversion of an array:DeprecationWarning"]
    done = subprocess.run(
        [sys.executable, *words, file],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTEST_ADDOPTS": ""},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
