"""One owner per folder, across threads and processes: a lock that the system releases when its holder ends, however it ends.

The lock file also says who holds it, for the message of the second one.
"""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

OWNER = ".lock"
PATIENCE = 60.0  # seconds that a writer waits for another one
_held: dict[tuple[str, int], int] = {}  # folder and thread -> lock of `owned`
_open: set[int] = set()


class FolderInUseError(TimeoutError):
    """Another process writes into the folder. The message says which one, and since when."""


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Own a model folder while it is changed as a whole; a second owner is refused at once. The same thread may own it twice."""
    key = (os.path.realpath(folder), threading.get_ident())
    if key in _held or fcntl is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, 0.0, OWNER):
        _held[key] = 1
        try:
            yield
        finally:
            del _held[key]


@contextmanager
def locked(folder: Path, patience: float = PATIENCE, name: str = "lock") -> Iterator[None]:
    """Hold the lock file of a folder; wait `patience` seconds for another holder."""
    if fcntl is None:
        raise OSError(f"{folder} cannot be written on this system, which has no file locks; it can be read")
    path = folder / name
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW, 0o644)
    _open.add(handle)
    try:
        until = time.monotonic() + patience
        while not _taken(handle):
            if time.monotonic() > until:
                waited = f"; waited {patience:.0f} s" if patience >= 1 else ""
                raise FolderInUseError(f"{folder} is being written by {_holder(path)}{waited}; try again when it has ended")
            time.sleep(0.01)
        _sign(handle, alone=name == OWNER)
        yield
    finally:
        if handle in _open:
            _open.discard(handle)
            fcntl.flock(handle, fcntl.LOCK_UN)  # closing alone would not free it where a process was just forked
            os.close(handle)


def holder_line() -> str:
    """How a lock file names its holder; lines of this form are no file names."""
    program = Path(sys.argv[0])
    ours = "nearkin" in (program.name, program.parent.name)  # the command, or python -m nearkin
    command = " ".join(["nearkin", *sys.argv[1:2]]) if ours else program.name or "python"
    since = datetime.now().astimezone().isoformat(timespec="seconds")
    return "#" + json.dumps({"command": command, "pid": os.getpid(), "host": socket.gethostname(), "since": since})


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(handle: int, *, alone: bool) -> None:
    """Write who holds the lock; it holds without, where the disk is full."""
    with suppress(OSError):
        if alone:
            os.ftruncate(handle, 0)
        os.write(handle, f"{holder_line()}\n".encode())


def _holder(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        found = json.loads(next(line for line in reversed(lines) if line.startswith("#"))[1:])
        return f"`{found['command']}` (process {found['pid']} on {found['host']}, since {found['since']})"
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return "another process"


def _leave_to_parent() -> None:
    """In a forked process, such as a worker of a loader: a lock would stay until all copies of its handle are closed."""
    for handle in _open:
        with suppress(OSError):
            os.close(handle)
    _open.clear()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
