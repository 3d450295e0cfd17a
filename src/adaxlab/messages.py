"""Progress messages on standard error; results go to standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Say = Callable[[str], None]


def say(text: str) -> None:
    """Print a line of progress to standard error."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def passing(text: str) -> Iterator[None]:
    """Show `text` in a terminal while the block runs, then erase it."""
    shown = sys.stderr.isatty()
    if shown:
        print(f"{text} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
