"""Official files fetched over a network that may fail.

A file arrives under a temporary name (`name.part`), goes on where it stopped after a cut connection, and gets its own
name only when its checksum is right; a file with a wrong one is removed. Whatever lies under the final name is whole.
"""

import contextlib
import hashlib
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import BinaryIO

from nearkin.data.progress import Report, Ticker, tell

try:
    import fcntl
except ImportError:  # Windows: two processes that fetch one file at a time are not kept apart there
    fcntl = None  # type: ignore[assignment]

CHUNK = 1 << 18
MEGABYTE = 1_000_000
ATTEMPTS = 5  # in a row without one new byte
TIMEOUT = 30.0  # seconds without one new byte
TRY_AGAIN = (408, 429)  # too slow, too many: passing faults though they are 4xx


class DownloadError(OSError):
    """A file could not be had; the message says from where, why, and what to do."""


def fetch(urls: Sequence[str], target: Path, checksum: str | None, *, report: Report | None = None, pause: float = 2.0) -> None:
    """Fetches `target` from the first of `urls` that has it. `checksum` is 'md5:...' or 'sha256:...'.

    Where no checksum is known only the announced length is compared, nothing is resumed from an earlier call (nobody could tell
    whether the two halves belong together), and the report says so.
    """
    part = target.with_name(target.name + ".part")
    with alone(target):
        if target.exists():  # another process fetched it while this one waited
            return
        if checksum is None:
            tell(report, f"{target.name}: no checksum is known, so only its length is compared")
        failures = []
        for url in urls:
            if checksum is None:
                part.unlink(missing_ok=True)
            try:
                _transfer(url, part, report, pause)
                _verify(url, part, checksum)
            except DownloadError as error:
                failures.append(str(error))
                continue
            os.replace(part, target)
            return
    raise DownloadError("; ".join(failures))


def matches(path: Path, checksum: str) -> bool:
    """Whether the content of a file has this checksum."""
    return digest(path, checksum.partition(":")[0]) == checksum.partition(":")[2]


def digest(path: Path, algorithm: str) -> str:
    """The file's md5 or sha256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def _transfer(url: str, part: Path, report: Report | None, pause: float) -> None:
    """All of `url` into `part`, going on where it stopped as often as new bytes arrive in between."""
    tell(report, f"fetching {url}")
    best, idle, reason = _size(part), 0, ""
    while idle < ATTEMPTS:
        have = _size(part)
        try:
            if _receive(url, part, have, report):
                return
            reason = "the connection was cut"
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416 and str(error.headers.get("Content-Range")) == f"bytes */{have}":
                return  # it had all arrived before, and only the last step was missing
            if error.code == 416 and have:
                part.unlink()  # longer than the file, so not its beginning
            elif error.code < 500 and error.code not in TRY_AGAIN:
                raise DownloadError(f"{url} answers {error.code} {error.reason}; fetch it by hand if it has moved") from None
            reason = f"it answers {error.code} {error.reason}"
        except (OSError, HTTPException) as error:
            reason = str(error) or type(error).__name__
        idle = 0 if _size(part) > best else idle + 1
        best = max(best, _size(part))
        if idle < ATTEMPTS:
            tell(report, f"{part.name}: {reason} after {_size(part) / MEGABYTE:,.1f} MB; trying again")
            time.sleep(pause * idle)
    raise DownloadError(
        f"{url} cannot be fetched ({reason}, {ATTEMPTS} times); what arrived is kept in {part}, and trying again goes on from there"
    )


def _receive(url: str, part: Path, have: int, report: Report | None) -> bool:
    """One connection; True when everything that was announced has arrived."""
    request = urllib.request.Request(url, headers={"User-Agent": "nearkin", **({"Range": f"bytes={have}-"} if have else {})})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        if have and not _goes_on(answer, have):
            have = 0  # the server sends everything again
        length = answer.headers.get("Content-Length")
        total = None if length is None else have + int(length)
        ticker = Ticker(report, part.name.removesuffix(".part"), total, "MB", MEGABYTE)
        with part.open("ab" if have else "wb") as file:
            done = _copy(answer, file, have, ticker)
            file.flush()
            os.fsync(file.fileno())
    return total is None or done == total


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _copy(answer: HTTPResponse, file: BinaryIO, done: int, ticker: Ticker) -> int:
    while chunk := answer.read(CHUNK):
        file.write(chunk)
        done += len(chunk)
        ticker.update(done)
    return done


def _goes_on(answer: HTTPResponse, have: int) -> bool:
    return answer.status == 206 and str(answer.headers.get("Content-Range", "")).startswith(f"bytes {have}-")


def _verify(url: str, part: Path, checksum: str | None) -> None:
    if checksum is None or matches(part, checksum):
        return
    algorithm, _, expected = checksum.partition(":")
    found = digest(part, algorithm)
    part.unlink()
    raise DownloadError(
        f"{url} came with {algorithm} {found} where {expected} is right, and was removed; "
        "try again, and if it stays so the file has changed there"
    )


@contextlib.contextmanager
def alone(target: Path) -> Iterator[None]:
    """One process at a time for each target: every rank of a job may ask for the same one."""
    lock = target.with_name(target.name + ".lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    held = _locked(lock)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        held.close()


def _locked(lock: Path) -> BinaryIO:
    while True:
        held = lock.open("wb")
        if fcntl is None:
            return held
        fcntl.flock(held, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(held.fileno()), lock.stat()):
                return held
        held.close()  # whoever held it has removed it meanwhile: what was waited for guards nothing any more
