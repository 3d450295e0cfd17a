"""Lines for people while something takes its time; results go elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable

Say = Callable[[str], None]


def say(text: str) -> None:
    """A line of progress on the standard error."""
    print(text, file=sys.stderr, flush=True)
