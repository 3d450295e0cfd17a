"""Lines for people while something takes its time; results go elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Say = Callable[[str], None]


def say(text: str) -> None:
    """A line of progress on the standard error."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def passing(text: str) -> Iterator[None]:
    """Show a word in a terminal while something takes its time, then wipe it away."""
    shown = sys.stderr.isatty()
    if shown:
        print(f"{text} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
