"""Ctrl-C while a training runs: the first is heard where a checkpoint can be written, between two steps; the second at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Whether Ctrl-C was pressed since `held` began."""

    def __init__(self) -> None:
        self.asked = False

    def heard(self, number: int, frame: FrameType | None) -> None:
        """A signal handler."""
        if self.asked:
            signal.default_int_handler(number, frame)
        self.asked = True


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
