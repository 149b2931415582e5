"""A file layer that fails: it stands for `os` in nearkin.data.disk, through which everything that is to last is written.

    with faults(at=7, fault="ENOSPC") as disk: ...

The n-th write call fails: a full disk, an I/O error, a failed sync, a short write, or a kill. As SQLite's tests do, a test runs one
operation with a fault at call 1, 2, 3, ... until it has none, and looks each time at what is on disk. `after_power_cut` rebuilds the folder
as a power cut after the n-th call may leave it, with all that was not synced lost.
"""

import errno
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from unittest import mock

from nearkin.data import disk as disk_module

Fault = Literal["", "ENOSPC", "EIO", "fsync", "short", "kill"]
FAULTS: tuple[Fault, ...] = ("ENOSPC", "EIO", "fsync", "short", "kill")
KILLED = 137
WHERE = {"ENOSPC": ("open", "write"), "EIO": ("open", "write", "fsync", "replace"), "fsync": ("fsync",), "short": ("write",)}


class Disk:
    """Counts the write calls, writes them down, and lets one of them fail."""

    def __init__(self, at: int = 0, fault: Fault = "") -> None:
        self.at, self.fault, self.count, self.met = at, fault, 0, False
        self.log: list[tuple[Any, ...]] = []
        self._paths: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        name = os.path.abspath(path)
        if flags & os.O_CREAT:
            self._visit("open")
            if flags & os.O_TRUNC or not os.path.exists(name):
                self.log.append(("create", name))
        handle = os.open(path, flags, mode)
        self._paths[handle] = name
        return handle

    def write(self, handle: int, content: Any) -> int:
        fault = self._visit("write", handle, content)
        done = os.write(handle, content[: max(1, len(content) // 2)] if fault == "short" else content)
        self.log.append(("write", self._paths[handle], bytes(content[:done])))
        return done

    def fsync(self, handle: int) -> None:
        self._visit("fsync")
        os.fsync(handle)
        self.log.append(("fsync", self._paths[handle]))

    def replace(self, old: Any, new: Any) -> None:
        self._visit("replace")
        os.replace(old, new)
        self.log.append(("replace", os.path.abspath(old), os.path.abspath(new)))

    def _visit(self, call: str, handle: int = -1, content: Any = b"") -> Fault:
        self.count += 1
        full = self.met and self.fault == "ENOSPC" and call in WHERE["ENOSPC"]  # and it stays full
        if (self.count != self.at and not full) or not self.fault:
            return ""
        if self.fault == "kill":
            if handle >= 0:
                os.write(handle, content[: len(content) // 2])
            os._exit(KILLED)
        if call not in WHERE[self.fault]:
            return ""
        self.met = True
        if self.fault == "short":
            return "short"
        if handle >= 0 and not full:
            os.write(handle, content[: len(content) // 2])  # what still fits
        number = errno.ENOSPC if self.fault == "ENOSPC" else errno.EIO
        raise OSError(number, os.strerror(number))


@contextmanager
def faults(at: int = 0, fault: Fault = "") -> Iterator[Disk]:
    """Put the layer in place; removed names and new folders are written down, too."""
    layer = Disk(at, fault)
    unlink, mkdir, rmtree = Path.unlink, Path.mkdir, shutil.rmtree

    def unlinked(path: Path, missing_ok: bool = False) -> None:
        there = path.exists()
        unlink(path, missing_ok=missing_ok)
        if there:
            layer.log.append(("unlink", os.path.abspath(path)))

    def made(path: Path, *rest: Any, **more: Any) -> None:
        mkdir(path, *rest, **more)
        layer.log.append(("mkdir", os.path.abspath(path)))

    def removed(path: Any, *rest: Any, **more: Any) -> None:
        rmtree(path, *rest, **more)
        layer.log.append(("unlink", os.path.abspath(path)))

    with (
        mock.patch.object(disk_module, "os", layer),
        mock.patch.object(Path, "unlink", unlinked),
        mock.patch.object(Path, "mkdir", made),
        mock.patch.object(shutil, "rmtree", removed),
    ):
        yield layer


def calls(work: Callable[[], object]) -> Disk:
    """The layer after the work was done once without a fault."""
    with faults() as layer:
        work()
    return layer


def in_a_process(work: Callable[[], object], at: int) -> bool:
    """Do the work in a forked process that is killed at the n-th call; returns whether it was."""
    child = os.fork()
    if child == 0:
        status = 3
        signal.alarm(120)  # a process that hangs ends, and with it the test
        try:
            with faults(at, "kill"):
                work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, KILLED), f"the process ended with {code}"
    return code == KILLED


def after_power_cut(before: Path, log: list[tuple[Any, ...]], root: Path, out: Path, kept: Literal["nothing", "names", "removals"]) -> None:
    """Write to `out` what a power cut may leave of `root`, whose content was `before` when the log began.

    Synced content and synced names are there. Of the rest `kept` decides: nothing is, or all names are, or only removals are.
    """
    start = {str(path.relative_to(before)): path.read_bytes() for path in before.rglob("*") if path.is_file()}
    content: dict[int, bytes] = dict(enumerate(start.values()))
    safe = dict(content)
    names = {name: number for number, name in enumerate(start)}
    safe_names = dict(names)
    unsynced: dict[str, list[tuple[str, ...]]] = {}

    def apply(to: dict[str, int], change: tuple[Any, ...]) -> None:
        if change[0] == "name":
            to[change[1]] = change[2]
        elif change[0] == "move":
            for name in [name for name in to if name == change[1] or name.startswith(f"{change[1]}/")]:
                to[change[2] + name[len(change[1]) :]] = to.pop(name)
        else:
            for name in [name for name in to if name == change[1] or name.startswith(f"{change[1]}/")]:
                del to[name]

    def change(folder: str, *what: Any) -> None:
        apply(names, what)
        unsynced.setdefault(folder, []).append(what)

    for kind, path, *rest in log:
        name = os.path.relpath(path, root)
        folder = os.path.dirname(name) or "."
        if kind == "create" and name in names:
            content[names[name]] = b""
        elif kind == "create":
            number = len(content)
            content[number], safe[number] = b"", b""
            change(folder, "name", name, number)
        elif kind == "write":
            content[names[name]] += rest[0]
        elif kind == "replace":
            change(folder, "move", name, os.path.relpath(rest[0], root))
        elif kind == "unlink":
            change(folder, "remove", name)
        elif kind == "fsync" and name in names:
            safe[names[name]] = content[names[name]]
        elif kind == "fsync":
            for one in unsynced.pop(name, []):
                apply(safe_names, one)
    for changes in unsynced.values():
        for one in changes:
            if kept == "names" or (kept == "removals" and one[0] == "remove"):
                apply(safe_names, one)
    out.mkdir(parents=True, exist_ok=True)
    _write(out, {name: safe[number] for name, number in safe_names.items()})


def _write(out: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(content)
