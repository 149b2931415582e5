"""Official files, fetched by pooch: a file gets its own name only after its checksum was verified.

pooch writes to a temporary file next to the target, retries, verifies and renames. What it does not have is here: several addresses for
one file, one process at a time, progress through a reporter, and permissions as of any other new file.
"""

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from nearkin.data.disk import set_default_permissions
from nearkin.data.progress import Report, Ticker, inform

try:
    import fcntl
except ImportError:  # Windows has no such locks: two processes there may fetch the same file twice
    fcntl = None  # type: ignore[assignment]

CHUNK = 1 << 18
MEGABYTE = 1_000_000
RETRIES = 2
TIMEOUT = 30.0  # seconds without a new byte
HEADERS = {"User-Agent": "nearkin", "Accept-Encoding": "identity"}  # some servers would unpack a .gz on the way


class DownloadError(OSError):
    """A file that could not be fetched. The message lists the addresses and their errors."""


def fetch(urls: Sequence[str], target: Path, checksum: str, *, report: Report | None = None) -> None:
    """Fetch `target` from the first of `urls` that serves it. `checksum` is 'sha256:...': by an md5, which can be forged, nothing is."""
    if not checksum.startswith("sha256:"):
        raise DownloadError(
            f"{target.name} is not fetched: only an md5 of it is published, which can be forged; get it yourself from {urls[0]} and put it "
            f"into {target.parent}"
        )
    with one_process(target):
        if target.exists():  # another process fetched it in the meantime
            return
        pooch = _pooch(target)
        failures: list[str] = []
        for url in urls:
            inform(report, f"fetching {url}")
            downloader = pooch.HTTPDownloader(progressbar=_Bar(target.name, report), chunk_size=CHUNK, timeout=TIMEOUT, headers=HEADERS)
            files = pooch.create(target.parent, "", registry={target.name: checksum}, urls={target.name: url}, retry_if_failed=RETRIES)
            try:
                with _silent(pooch.get_logger()):
                    files.fetch(target.name, downloader=downloader)
            except (OSError, ValueError) as error:  # errors of the connection are OSErrors, a wrong checksum is a ValueError
                failures.append(f"{url}: {error}")
            else:
                set_default_permissions(target)  # pooch's temporary files can be read by their owner only
                return
    raise DownloadError(
        f"{target.name} cannot be fetched ({'; '.join(failures)}); try again, or put the file into {target.parent} yourself"
    )


class _Bar:
    """The progress bar that pooch's downloader drives, as lines for a reporter."""

    def __init__(self, name: str, report: Report | None) -> None:
        self.name, self.report, self.done = name, report, 0

    @property
    def total(self) -> int:
        return self._total

    @total.setter
    def total(self, total: int) -> None:
        """Set by pooch at the start of every attempt."""
        self._total, self.done = total, 0
        self.ticker = Ticker(self.report, self.name, total or None, "MB", MEGABYTE)

    def update(self, count: int) -> None:
        done = min(self.done + count, self.total or self.done + count)  # pooch counts the last chunk as a full one
        if done != self.done:
            self.ticker.update(done)
        self.done = done

    def reset(self) -> None:
        """Called by pooch before it sets a finished bar to its total, which `update` has reached already."""

    def close(self) -> None:
        """Called by pooch when all bytes have arrived."""


def _pooch(target: Path) -> Any:
    try:
        return import_module("pooch")
    except ImportError:
        raise ImportError(
            f"fetching {target.name} needs pooch; pip install 'nearkin[download]', or put the file into {target.parent} yourself"
        ) from None


@contextlib.contextmanager
def _silent(logger: logging.Logger) -> Iterator[None]:
    """Without pooch's own lines on stderr."""
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def one_process(target: Path) -> Iterator[None]:
    """Let one process at a time work on `target`: all ranks of a job may need the same file."""
    lock = target.with_name(target.name + ".lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    held = _locked(lock)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        held.close()


def _locked(lock: Path) -> BinaryIO:
    """The lock file, open and locked."""
    while True:
        held = os.fdopen(os.open(lock, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o644), "wb")
        if fcntl is None:
            return held
        fcntl.flock(held, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(held.fileno()), lock.stat()):
                return held
        held.close()  # the process that held it removed it in the meantime, so this lock protects nothing
