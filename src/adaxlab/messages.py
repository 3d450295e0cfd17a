"""Messages for the user: progress on standard error, results on standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adaxlab import files

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


def show(what: Any) -> None:
    """Print to standard output, as wide as the terminal, or 150 columns wide if it is not a terminal.

    Text is printed verbatim: brackets in a name are not markup.
    """
    from rich.console import Console

    wide = None if sys.stdout.isatty() else 150
    Console(width=wide, highlight=False, emoji=False, markup=False).print(what)


def show_place(text: str, out: str) -> None:
    """Print where something was written: to standard output, or to standard error if `out` is standard output."""
    if files.is_stdout(Path(out)):
        print(text, file=sys.stderr)
    else:
        show(text)


def duration(seconds: float) -> str:
    """A duration in words.

    >>> duration(40), duration(700), duration(9000)
    ('40 seconds', '12 minutes', '2.5 hours')
    """
    if seconds < 90:
        whole = max(1, round(seconds))
        return f"{whole} second{'s' * (whole != 1)}"
    if seconds < 5400:
        return f"{round(seconds / 60)} minutes"
    return f"{seconds / 3600:.1f} hours"


def clock(seconds: float) -> str:
    """A duration in short form.

    >>> clock(0.5), clock(59), clock(61), clock(3700)
    ('0.50 s', '59 s', '1 min 01 s', '1 h 01 min')
    """
    if seconds < 10:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
