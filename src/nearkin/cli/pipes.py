"""Whether anybody still reads what is printed."""

import os
import select
import sys
from typing import TextIO

UNREAD = 141  # the exit status of a program that SIGPIPE has ended, as 130 is that of Ctrl-C


def nobody_reads(error: BaseException | None = None) -> bool:
    """Whether the reader of what is printed has left, as `| head` does; whatever is still to be printed then goes nowhere.

    `error` is what was raised meanwhile: a broken pipe may be another one, such as a worker's.
    """
    streams = [stream for stream in (sys.stdout, sys.stderr) if stream is not None]  # None: closed from the start
    by_rich = isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError)  # which has shut stdout up by then
    gone = by_rich or (isinstance(error, BrokenPipeError) and any(map(_hung_up, streams)))
    try:
        for stream in streams:
            stream.flush()
    except BrokenPipeError:
        gone = True
    if gone:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in streams:
            os.dup2(nowhere, stream.fileno())
    return gone


def _hung_up(stream: TextIO) -> bool:
    """Whether a stream leads into a pipe that nobody reads from; after a write that failed, another flush would not tell."""
    try:
        asked = select.poll()
        asked.register(stream.fileno(), 0)
        return bool(asked.poll(0))
    except (AttributeError, OSError):  # Windows has no poll, and what a test puts in the stream's place no number
        return False
