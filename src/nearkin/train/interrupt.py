"""Ctrl-C while a training runs: the first is heard where a checkpoint can be written, between two steps; the second at once.

Whoever ends a process may tell it twice (`timeout` tells the process and then its group): what comes with the first is the first.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

TOGETHER = 0.3  # seconds: nobody presses twice as quickly


class Interrupt:
    """Whether Ctrl-C was pressed since `held` began."""

    def __init__(self) -> None:
        self._since: float | None = None

    @property
    def asked(self) -> bool:
        return self._since is not None

    def heard(self, number: int, frame: FrameType | None) -> None:
        """A signal handler."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        elif now - self._since >= TOGETHER:
            signal.default_int_handler(number, frame)


@contextmanager
def held(interrupt: Interrupt) -> Iterator[None]:
    """Ctrl-C waits until whoever trains looks at `interrupt.asked`. Handlers of others are left alone, and so are other threads."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, interrupt.heard)
    try:
        yield
    except RuntimeError as error:
        if interrupt.asked:  # the terminal tells worker processes, too, which may be gone by now
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
