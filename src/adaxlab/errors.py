"""The errors of the lab, and the exit code of the command line for each.

Every message is one line that says what was given, what is allowed and what to do. Nothing that a run has
already written is removed when one of these is raised.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class LabError(Exception):
    """Wrong input: an unknown name, a task that breaks the protocol, a value out of range."""

    exit_code = 2


class RunError(LabError):
    """A run failed: the task raised or gave a value that is no number before the first step."""

    exit_code = 1


class StoreError(LabError):
    """A run folder could not be read or written. The message has its path; the folder is not changed."""

    exit_code = 1


class Busy(StoreError):
    """Another process has locked this run."""


class Interrupted(LabError):
    """A signal stopped the run; its state is on disk, and the same command resumes it."""

    def __init__(self, message: str, signum: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signum


def unknown(kind: str, given: object, known: Iterable[str], more: str = "") -> LabError:
    """The error for an unknown name. It lists the known names and suggests the closest.

    >>> str(unknown("optimizer", "AdamX", ["adam", "adamw", "sgdm"]))
    "unknown optimizer 'AdamX'; known are adam, adamw, sgdm; did you mean adam?"
    """
    names = list(known)
    near = nearest(str(given), names)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    return LabError(f"unknown {kind} {given!r}; known are {', '.join(names)}{more}{meant}")


def check_known(kind: str, known: Iterable[str], *given: object) -> None:
    """Raise the error above for the first unknown name."""
    names = list(known)
    for each in given:
        if each not in names:
            raise unknown(kind, each, names)


def check_on_error(given: str) -> str:
    """What to do about data that cannot be read: "raise" or "skip"; another word is an error."""
    check_known("on_error", ("raise", "skip"), given)
    return given


def nearest(given: str, known: Iterable[str]) -> list[str]:
    """The names that were probably meant: the same letters, then those that begin so, then similar ones.

    >>> nearest("AdamW", ["adam", "adamw"]), nearest("weightdecay", ["lr", "weight_decay"])
    (['adamw'], ['weight_decay'])
    >>> nearest("cifar10", ["cifar10/table2", "cifar10/beta1", "gpt"]), nearest("xyz", ["adam"])
    (['cifar10/table2', 'cifar10/beta1'], [])
    """
    names = {name: _letters(name) for name in known}
    wanted = _letters(given)
    same = [name for name, letters in names.items() if letters == wanted]
    if same:
        return same
    family = [name for name in names if given and name.lower().startswith(f"{given.lower().rstrip('/')}/")]
    if family:
        return family
    close = get_close_matches(wanted, names.values(), n=1, cutoff=0.6)
    return [name for name, letters in names.items() if letters in close]


def _letters(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum()) or name
