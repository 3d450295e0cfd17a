"""Ctrl-C and SIGTERM ask a run to stop at its next step; a second one stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """`signum` is 0 until a signal came; `over` says that it was the end of the time."""

    signum = 0
    over = False


@contextmanager
def listening() -> Iterator[Stop]:
    """Catch SIGINT and SIGTERM inside the block (in the main thread; elsewhere they are left alone).

    The first signal is noted in the Stop that is given; the handlers found at entry are put back at once, so
    that a second signal acts as it would have without the lab.
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
