"""What the user's own code raises, in one line: tasks, optimizers and the files that hold them.

`sys.exit` in a task is a failure of the task, not the end of the command.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch

from adaxlab.errors import LabError, RunError


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type when there is none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def describe(error: BaseException) -> str:
    """The error's type, the first line of its message, and where it was raised.

    >>> describe(ValueError("too few\\nrows")), describe(SystemExit(0))
    ('ValueError: too few', 'it called sys.exit(0)')
    """
    if isinstance(error, SystemExit):
        text = f"it called sys.exit({'' if error.code is None else repr(error.code)})"
    else:
        line = first_line(error)
        kind = type(error).__name__
        text = line if line == kind else f"{kind}: {line}"
    place = where(error)
    return f"{text} (at {place})" if place else text


def where(error: BaseException) -> str:
    """The innermost line outside torch and other installed packages: a wrong shape is found in the task's own file."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    installed = (
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("purelib"),
        str(Path(torch.__file__).parent),
        "<",  # code without a file
    )
    own = [frame for frame in frames if not frame.filename.startswith(installed)] or frames
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""


def text(error: BaseException) -> str:
    """The whole traceback."""
    return "".join(traceback.format_exception(error))


@contextmanager
def guarded(what: str, kind: type[LabError] = LabError) -> Iterator[None]:
    """Convert any exception of the user's code inside the block to a one-line error that begins with `what`.

    Errors of the lab and Ctrl-C pass through.
    """
    try:
        yield
    except (LabError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raise kind(f"{what}: {describe(error)}") from error


class Folder(Protocol):
    """An object that stores the reason of a failure (`adaxlab.store.RunFolder`)."""

    path: Path

    def fail(self, reason: str, trace: str) -> None: ...


@contextmanager
def kept(folder: Folder) -> Iterator[None]:
    """Raise RunError for any exception of the task or the optimizer, and keep the traceback in the run's folder."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except LabError as error:
        if isinstance(error, RunError):
            folder.fail(str(error), text(error))
        raise
    except BaseException as error:
        reason = describe(error)
        folder.fail(reason, text(error))
        raise RunError(f"run {folder.path} failed: {reason}") from error
