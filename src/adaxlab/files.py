"""Atomic file writes, locks and append-only logs that survive a killed process and a full disk."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from adaxlab.errors import Busy, StoreError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FIXED = (errno.EACCES, errno.EPERM, errno.EBUSY, errno.EROFS, errno.EXDEV)
"""Errors of a folder that cannot be changed, or of a mounted file: the file itself may still be writable."""
_STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
TEMPORARY = ".tmp"


def failed(path: Path, error: OSError) -> StoreError:
    """Return the one-line error of a failed write."""
    way_out = "free some space" if error.errno in _FULL else "check the folder"
    return StoreError(
        f"cannot write {path}: {error.strerror}; {way_out} and repeat the command to resume (nothing is lost)"
    )


def write(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically: temporary file, fsync, rename, fsync of the folder.

    A reader sees either the old or the new content; after an error the old content remains. A symbolic link is kept,
    and its target is written. A device, a pipe or a file with several hard links is opened and written in place.
    """
    try:
        handle = _descriptor(path)
        if handle is not None:
            _pour(os.dup(handle), data)
            return
        found = path.stat() if path.exists() else None
        if found is None:
            _replace(Path(os.path.realpath(path)), data, None)
        elif not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            _overwrite(path, data)
        else:
            try:
                _replace(Path(os.path.realpath(path)), data, stat.S_IMODE(found.st_mode))
            except OSError as error:
                if error.errno not in _FIXED:
                    raise
                _overwrite(path, data)
    except OSError as error:
        raise failed(path, error) from error


def put(path: Path, data: bytes) -> None:
    """Write `data` to a path given by the user; missing folders are created."""
    check_place(path)
    if _descriptor(path) is None:
        make_folder(path.parent if path.exists() else Path(os.path.realpath(path)).parent)
    write(path, data)


def make_folder(path: Path) -> None:
    """Create the folder and its parents; if it is a link to a missing folder, create the target."""
    try:
        Path(os.path.realpath(path)).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise failed(path, error) from error


def check_place(path: Path) -> None:
    """Raise StoreError if a file cannot be written at `path`, as far as this is known in advance."""
    try:
        if path.is_dir():
            raise StoreError(f"cannot write {path}: it is a folder; name a file in it")
        real = Path(os.path.realpath(path))
        if real.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        above = real.parent
        while not above.exists():
            above = above.parent
        if not above.is_dir():
            raise StoreError(f"cannot write {path}: {above} is not a folder; name another file")
        if not path.exists() and not os.access(above, os.W_OK):
            raise StoreError(f"cannot write {path}: no permission to write in {above}; name another file")
    except OSError as error:  # a link to itself, a name that is too long
        raise StoreError(f"cannot write {path}: {error.strerror}; name another file") from error
    except ValueError as error:  # a name with a zero byte
        raise StoreError(f"cannot write {str(path)!r}: {error}; name another file") from error


def is_stdout(path: Path) -> bool:
    """Whether `path` refers to the standard output, as `/dev/stdout` does."""
    if _descriptor(path) == 1:
        return True
    try:
        return os.path.samestat(path.stat(), os.fstat(1))
    except OSError:
        return False


def _replace(path: Path, data: bytes, mode: int | None) -> None:
    if path.is_symlink():  # to itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if mode is not None:
                os.fchmod(file.fileno(), mode)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def _overwrite(path: Path, data: bytes) -> None:
    """Write to the existing file, pipe or device."""
    _pour(os.open(path, os.O_WRONLY | os.O_TRUNC), data)


def _pour(handle: int, data: bytes) -> None:
    with open(handle, "wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) or 0 :]


def _descriptor(path: Path) -> int | None:
    """Return the file descriptor of `/dev/stdout`, `/dev/fd/3` or a link to one, else None. Opening such a path again
    would write a redirected file from its start."""
    place = os.path.abspath(path)
    for _ in range(40):
        if place in _STREAMS:
            return _STREAMS[place]
        found = re.fullmatch(rf"/(?:dev|proc/self|proc/{os.getpid()})/fd/(\d+)", place)
        if found:
            return int(found[1])
        if not os.path.islink(place):
            return None
        place = os.path.normpath(os.path.join(os.path.dirname(place), os.readlink(place)))
    return None


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON; NaN and infinity are errors."""
    write(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read(path: Path) -> bytes:
    """Return the content of the file; raise StoreError with its path if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error


def loads(data: bytes | str) -> Any:
    """Return the JSON value; NaN and infinity are errors (ValueError)."""
    return json.loads(data, parse_constant=_no_number)


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def read_json(path: Path) -> Any:
    """Return the JSON value in the file; raise StoreError with its path if it is not valid."""
    try:
        return loads(read(path))
    except ValueError as error:
        raise StoreError(
            f"{path}: is not JSON (damaged?); left untouched, move it away to continue"
        ) from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file at `path`, or raise Busy immediately. The kernel releases the lock when the process ends."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise failed(path, error) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Busy(
                f"{path.parent}: another process is writing this run; wait for it or stop it"
            ) from error
        yield
    finally:
        os.close(handle)


class Appender:
    """A file of JSON lines to append to; it is first truncated to `keep` bytes."""

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
        """Append one line. A partially written line is removed."""
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
        """Wait until the lines are on disk."""
        try:
            os.fsync(self.handle)
        except OSError as error:
            raise failed(self.path, error) from error

    def close(self) -> None:
        os.close(self.handle)
