"""A segment: points in one memory-mapped file that is never changed.

vectors (n, d) float32, or codes (n, ceil(d / 8)) uint8 where the metric is hamming; or smaller, with scales (n,) (see store.py)
ids (n,) int64    labels (n,) int32, numbers of the manifest's label names, -1 unknown
rows, row_ends            one JSON text per point (source, metadata), concatenated, and where each ends
pictures, picture_ends    the thumbnails, stored in the same way
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nearkin.index.contract import Entries
from nearkin.index.durable import FIX, IndexDamagedError
from nearkin.index.store import Store
from nearkin.search.packing import pack

Arrays = Mapping[str, np.ndarray]
OF_ROWS = ("vectors", "scales", "ids", "labels")  # one entry for each point; scales only where vectors are stored smaller


def packed(
    entries: Entries, ids: np.ndarray, labels: Sequence[str | None], *, binary: bool = False, store: Store | None = None
) -> dict[str, np.ndarray]:
    """Entries as the arrays of a segment; `labels` are the names behind the label numbers.

    `binary`: keep only signs, one bit each. `store`: keep the vectors as it encodes them.
    """
    number = {name: at for at, name in enumerate(labels)}
    codes = np.array([-1 if label is None else number[label] for label in entries.labels], dtype=np.int32)
    rows, row_ends = _concatenated([row_text(*both) for both in zip(entries.sources, entries.metadata, strict=True)])
    pictures, picture_ends = _concatenated(entries.thumbnails)
    return {
        **({"vectors": pack(entries.vectors) if binary else entries.vectors} if store is None else store.encoded(entries.vectors)),
        "ids": ids,
        "labels": codes,
        "rows": rows,
        "row_ends": row_ends,
        "pictures": pictures,
        "picture_ends": picture_ends,
    }


def joined(segments: Sequence[Arrays], keep: Sequence[np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """Several segments as one, with only the rows of the masks `keep`."""
    if keep is not None:
        segments = [_taken(segment, np.flatnonzero(mask)) for segment, mask in zip(segments, keep, strict=True)]
    names = [name for name in (*OF_ROWS, "rows", "pictures") if name in segments[0]]
    whole = {name: np.concatenate([segment[name] for segment in segments]) for name in names}
    for texts, ends in (("rows", "row_ends"), ("pictures", "picture_ends")):
        starts = np.cumsum([0, *(len(segment[texts]) for segment in segments[:-1])])
        whole[ends] = np.concatenate([segment[ends] + start for segment, start in zip(segments, starts, strict=True)])
    return whole


def row_of(segment: Arrays, at: int) -> dict[str, Any]:
    """Source and metadata of one point."""
    return _parsed(_piece(segment["rows"], segment["row_ends"], at))


def rows_of(segment: Arrays) -> Iterator[dict[str, Any]]:
    """Source and metadata of every point."""
    whole, start = segment["rows"].tobytes(), 0
    for end in segment["row_ends"].tolist():
        yield _parsed(whole[start:end])
        start = end


def thumbnail_of(segment: Arrays, at: int) -> bytes:
    """The thumbnail of one point, b"" if it has none."""
    return _piece(segment["pictures"], segment["picture_ends"], at)


def _taken(segment: Arrays, rows: np.ndarray) -> dict[str, np.ndarray]:
    taken = {name: segment[name][rows] for name in OF_ROWS if name in segment}
    for texts, ends in (("rows", "row_ends"), ("pictures", "picture_ends")):
        taken[texts], taken[ends] = _concatenated([_piece(segment[texts], segment[ends], at) for at in rows.tolist()])
    return taken


def row_text(source: str, metadata: Mapping[str, Any]) -> bytes:
    """Source and metadata of one point as JSON."""
    try:
        return json.dumps({"source": str(source), "metadata": dict(metadata)}, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"metadata of {source!r} cannot be written as JSON ({error}); pass plain numbers, texts and lists") from None


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        row: dict[str, Any] = json.loads(text)
    except ValueError as error:  # reachable without verification only
        raise IndexDamagedError(f"the index is damaged: the source and metadata of a point cannot be read ({error}). {FIX}") from error
    return row


def _concatenated(pieces: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    return np.frombuffer(b"".join(pieces), dtype=np.uint8), ends


def _piece(texts: np.ndarray, ends: np.ndarray, at: int) -> bytes:
    return texts[int(ends[at - 1]) if at else 0 : int(ends[at])].tobytes()
