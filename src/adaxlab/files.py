"""Files that are whole or absent, whenever the process dies and however full the disk is."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from adaxlab.errors import Busy, StoreError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
TEMPORARY = ".tmp"


def failed(path: Path, error: OSError) -> StoreError:
    """The one-line error for a write that did not succeed."""
    way_out = "free some space" if error.errno in _FULL else "see to the folder"
    return StoreError(
        f"cannot write {path}: {error.strerror}; {way_out} and repeat the command to resume (nothing is lost)"
    )


def write(path: Path, data: bytes) -> None:
    """Put `data` at `path` at once: temporary file, fsync, rename, fsync of the folder.

    A reader sees the old content or the new, never a part; after an error the old content is still there.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise failed(path, error) from error


def write_json(path: Path, value: Any) -> None:
    """`write` for a value; NaN and infinity are refused."""
    write(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_json(path: Path) -> Any:
    """The value in the file; a StoreError with its path if it is not whole."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise StoreError(
            f"{path}: is not JSON (damaged?); left untouched, move it away to continue"
        ) from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file at `path`, or raise Busy at once. The kernel frees it when the process dies,
    however."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise failed(path, error) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Busy(f"{path.parent}: another process writes this run; wait for it or stop it") from error
        yield
    finally:
        os.close(handle)


class Appender:
    """A file of JSON lines that grows, and can be cut back to a length known to be good."""

    def __init__(self, path: Path, keep: int) -> None:
        self.path = path
        try:
            self.handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            if os.fstat(self.handle).st_size < keep:
                os.close(self.handle)
                raise StoreError(f"{path}: is shorter than its checkpoint says (damaged?); left untouched")
            os.ftruncate(self.handle, keep)
            os.lseek(self.handle, keep, os.SEEK_SET)
        except OSError as error:
            raise failed(path, error) from error
        self.size = keep

    def add(self, value: Any) -> None:
        """Append one line. A line that did not fit is cut off again."""
        data = (json.dumps(value, allow_nan=False) + "\n").encode()
        try:
            done = 0
            while done < len(data):
                done += os.write(self.handle, data[done:])
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self.handle, self.size)
                os.lseek(self.handle, self.size, os.SEEK_SET)
            raise failed(self.path, error) from error
        self.size += len(data)

    def sync(self) -> None:
        """Wait until the lines are on the disk."""
        try:
            os.fsync(self.handle)
        except OSError as error:
            raise failed(self.path, error) from error

    def close(self) -> None:
        os.close(self.handle)
