"""Output to a pipe whose reader has left, as `| head` does."""

import os
import select
import sys
from typing import TextIO

CLOSED_PIPE = 141  # the exit status of a program ended by SIGPIPE, as 130 is that of Ctrl-C


def reader_left(error: BaseException | None = None) -> bool:
    """Whether the reader of stdout or stderr has left; if so, discard further output.

    `error` is the exception at hand, if any: a broken pipe may be another one, such as a worker's.
    """
    streams = [stream for stream in (sys.stdout, sys.stderr) if stream is not None]  # None: closed from the start
    by_rich = isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError)  # rich has closed stdout by then
    left = by_rich or (isinstance(error, BrokenPipeError) and any(map(_hung_up, streams)))
    try:
        for stream in streams:
            stream.flush()
    except BrokenPipeError:
        left = True
    if left:
        devnull = os.open(os.devnull, os.O_WRONLY)
        for stream in streams:
            os.dup2(devnull, stream.fileno())
    return left


def _hung_up(stream: TextIO) -> bool:
    """Whether a stream leads into a pipe without a reader; after a failed write, another flush would not show it."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return bool(poll.poll(0))
    except (AttributeError, OSError):  # Windows has no poll, and a test's replacement of the stream has no file number
        return False
