"""The engine keeps the kernel's tables true, whatever happens to parameters and state between steps."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernel needs Triton: pip install triton")


SOURCE = Path(__file__).resolve().parents[2] / "src"


def test_the_kernel_follows_what_happens_between_steps() -> None:
    table = Path(__file__).with_name("plans_table.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(table)],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 58, done.stdout
