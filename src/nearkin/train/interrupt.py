"""Stop a training cleanly on Ctrl-C (SIGINT) or SIGTERM: write a checkpoint between two steps, then stop.

A second signal stops at once. Some programs send a signal twice (`timeout` signals the process and then its group), so
signals that arrive within `TOGETHER` seconds of the first count as one.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

TOGETHER = 0.3  # seconds: faster than a person presses Ctrl-C twice

# Held only where the disposition is still Python's own. An ignored signal stays ignored: `nohup` and background jobs of
# scripts rely on it. Handlers of the embedding program stay in place.
DEFAULTS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


class Interrupt:
    """Whether a stop was requested since `held` began."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._process = os.getpid()

    @property
    def asked(self) -> bool:
        return self._since is not None

    def heard(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: note the first one, raise KeyboardInterrupt on the second."""
        if os.getpid() != self._process:  # a forked worker inherits this handler but has no checkpoint to write
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        now = time.monotonic()
        if self._since is None:
            self._since = now
        elif now - self._since >= TOGETHER:
            signal.default_int_handler(number, frame)


@contextmanager
def held(interrupt: Interrupt) -> Iterator[None]:
    """Delay SIGINT and SIGTERM until the training loop reads `interrupt.asked`.

    Does nothing outside the main thread, where Python allows no signal handlers.
    """
    main = threading.current_thread() is threading.main_thread()
    ours = {number: default for number, default in DEFAULTS.items() if main and signal.getsignal(number) is default}
    for number in ours:
        signal.signal(number, interrupt.heard)
    try:
        yield
    except RuntimeError as error:
        if interrupt.asked:  # the terminal signals worker processes, too; one that has ended makes the loader fail
            raise KeyboardInterrupt from error
        raise
    finally:
        for number, default in ours.items():
            signal.signal(number, default)
