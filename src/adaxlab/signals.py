"""Ctrl-C and SIGTERM ask a run to stop at its next step; a second one stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """A request to stop: `signum` is 0 until a signal arrives; `over` is true if the time limit was reached."""

    signum = 0
    over = False


@contextmanager
def listening() -> Iterator[Stop]:
    """Catch SIGINT and SIGTERM inside the block (in the main thread only) and yield a Stop.

    The first signal sets `signum` of the Stop and restores the previous handlers, so that a second signal has its usual
    effect.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        stop.signum = number
        restore()

    for number in numbers:
        signal.signal(number, note)
    try:
        yield stop
    finally:
        restore()
