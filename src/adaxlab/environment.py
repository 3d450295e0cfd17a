"""The environment of a run: versions, hardware, commit, time. No user or host names."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy
import torch

import adaxopt
from adaxlab.errors import LabError


def describe(device: torch.device, threads: int) -> dict[str, Any]:
    """Return the environment of a run that starts now."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "adaxopt": adaxopt.__version__,
            "torch": str(torch.__version__),  # a str subclass, which weights_only would not load
            "numpy": numpy.__version__,
            "python": platform.python_version(),
            "cuda": torch.version.cuda,
        },
        "hardware": {
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
            "cpu": _cpu(),
            "cores": os.cpu_count(),
        },
        "device": str(device),
        "tf32": {"matmul": torch.backends.cuda.matmul.allow_tf32, "cudnn": torch.backends.cudnn.allow_tf32},
        "threads": threads,
        "system": f"{platform.system()} {platform.machine()}",
        "commit": commit(),
    }


@functools.cache
def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def is_clean(commit: str | None) -> bool:
    """Whether a recorded commit names the code that ran, without further changes."""
    return bool(commit) and not str(commit).endswith("+")


def check_clean() -> None:
    """Raise unless the code that runs is a commit: committed records name the code that made them."""
    found = commit()
    if not is_clean(found):
        what = "not a checkout of git" if found is None else f"changed since commit {str(found)[:-1]}"
        raise LabError(
            f"records=...: the code is {what}; commit first, or name the commit of a copy in ADAXOPT_COMMIT"
        )


@functools.cache
def commit() -> str | None:
    """Return the commit of the source tree, with a plus sign if files were modified; None outside a checkout.

    For a copy without git history, set the environment variable ADAXOPT_COMMIT.
    """
    if named := os.environ.get("ADAXOPT_COMMIT"):
        return named
    here = Path(__file__).parents[1]  # the lab and the library

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *words], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        commit = git("rev-parse", "--short=12", "HEAD")
        return commit + ("+" if git("status", "--porcelain", "--untracked-files=no", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None
