"""What can go wrong in the lab, and the exit code of the command line for each.

Every message is one line that says what was given, what is allowed and what to do. Nothing that a run has
already written is removed when one of these is raised.
"""

from __future__ import annotations

from collections.abc import Iterable


class LabError(Exception):
    """Wrong input: an unknown name, a task that breaks the protocol, a value out of range."""

    exit_code = 2


class RunError(LabError):
    """A run failed: the task raised or gave a value that is no number before the first step."""

    exit_code = 1


class StoreError(LabError):
    """A run folder could not be read or written; its path is in the message and it is left as it was."""

    exit_code = 1


class Busy(StoreError):
    """Another process writes this run."""


class Interrupted(LabError):
    """A signal asked the run to stop; its state is on disk and the same command resumes."""

    def __init__(self, message: str, signum: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signum


def unknown(kind: str, given: object, known: Iterable[str]) -> LabError:
    """The error for a name that is not known, with those that are.

    >>> str(unknown("optimizer", "adamx", ["adam", "adamw"]))
    "unknown optimizer 'adamx'; known are adam, adamw"
    """
    return LabError(f"unknown {kind} {given!r}; known are {', '.join(known)}")
