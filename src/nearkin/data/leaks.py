"""Leaks: the same content in two splits, so that a test measures memorization."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from nearkin.data.dataset import Dataset
from nearkin.data.files import byte_count, read_bytes
from nearkin.data.images import Files
from nearkin.data.progress import Report, Ticker
from nearkin.data.texts import Texts

LISTED = 10
CHUNK = 10_000  # rows compared at a time
READERS = 8  # threads: disks, and even more network disks, serve several reads at once


class LeakError(ValueError):
    """The same content is in two splits; the message lists where."""


def check_leaks(data: Dataset, report: Report | None = None) -> None:
    """Check that no content is in more than one split.

    Contents are the bytes of a file, of a text, or of an array's row. Only files whose length occurs in two splits are read. Copies that
    were resized or encoded again are not found.

    Parameters
    ----------
    data : Dataset
        Data with splits.
    report : callable, optional
        Called with each line of progress, such as `print`.

    Raises
    ------
    LeakError
        If one content is in two splits; the message lists the first ten.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data import Dataset, check_leaks
    >>> data = Dataset("toy", torch.tensor([[1.0], [2.0], [1.0]])).with_split(["train", "train", "test"])
    >>> check_leaks(data)
    Traceback (most recent call last):
        ...
    nearkin.data.leaks.LeakError: toy: the same content is in two splits 1 times; remove one of each, or split by group:
      toy row 0 [train] = toy row 2 [test]
    `nearkin clean` lists copies; `--set data.leaks=allow` trains all the same, and figures will be too good
    """
    found = leaks(data, report)
    if not found:
        return
    listed = [_listed(data, same) for same in found[:LISTED]]
    rest = f"\n  and {len(found) - LISTED:,} more" if len(found) > LISTED else ""
    raise LeakError(
        f"{data.name}: the same content is in two splits {len(found):,} times; remove one of each, or split by group:\n  "
        + "\n  ".join(listed)
        + rest
        + "\n`nearkin clean` lists copies; `--set data.leaks=allow` trains all the same, and figures will be too good"
    )


def _listed(data: Dataset, same: Sequence[int]) -> str:
    """The first rows of one content, among them one of each split."""
    firsts = {data.split[row]: row for row in reversed(same)}.values()
    shown = sorted({*same[:LISTED], *firsts})
    rest = f" and {len(same) - len(shown):,} more" if len(same) > len(shown) else ""
    return " = ".join(f"{data.sources[row]} [{data.split[row]}]" for row in shown) + rest


def leaks(data: Dataset, report: Report | None = None) -> list[list[int]]:
    """Rows with the same content, where they are in more than one split."""
    if len(data.parts) < 2:
        return []
    if isinstance(data.inputs, Files):
        paths = data.inputs.paths
        suspects = _across(data.split, [byte_count(path) for path in paths], range(len(paths)))
        rows = sorted(row for same in suspects for row in same)
        contents = _file_digests([paths[row] for row in rows], report)
    elif isinstance(data.inputs, Texts):
        rows, contents = list(range(len(data))), data.inputs.digests()
    else:
        rows = list(range(len(data)))
        contents = [_digest(point.tobytes()) for part in torch.split(data.ids, CHUNK) for point in data.read(part).numpy()]
    return _across(data.split, contents, rows)


def _across(split: np.ndarray, keys: Sequence[object], rows: Sequence[int]) -> list[list[int]]:
    """Groups of rows that share a key and are in different splits."""
    same: dict[object, list[int]] = defaultdict(list)
    for key, row in zip(keys, rows, strict=True):
        same[key].append(row)
    return [group for group in same.values() if len(group) > 1 and len(set(split[group].tolist())) > 1]


def _file_digests(paths: list[str], report: Report | None) -> list[bytes]:
    ticker = Ticker(report, "looking for the same file in two splits", len(paths), "files")
    found = []
    with ThreadPoolExecutor(READERS) as pool:
        for digest in pool.map(lambda path: _digest(read_bytes(path)), paths):
            found.append(digest)
            ticker.update(len(found))
    return found


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()
