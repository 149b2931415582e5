"""An index in a folder on this machine: append-only segments, and one manifest that is the only truth.

Every change writes new files, syncs them, and swaps the manifest in one rename; what `add` and `delete` have returned from
survives kill -9 and a power cut, and a reader sees the old generation or the new one. Files of its own that no manifest names any
longer are removed; nothing else in the folder is touched.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from nearkin.compose.metrics import METRICS
from nearkin.compose.validation import check_choice, check_whole
from nearkin.index import structure as structures
from nearkin.index.contract import Answer, Entries, Entry, Where, check_entries
from nearkin.index.durable import (
    IndexDamagedError,
    check_record,
    mapped_arrays,
    read_manifest,
    sweep,
    write_arrays,
    write_manifest,
    writing,
)
from nearkin.index.segment import joined, packed
from nearkin.index.snapshot import Snapshot

FORMAT = 1
LARGEST = 1_000_000  # points of a segment that is no longer merged
STALE = 0.1  # share of points a structure may not know before it is built again
TRIES = 5  # a reader that meets a file just swept away starts over

Manifest = dict[str, Any]


class LocalIndex:
    """A `VectorIndex` in a folder. `create` and `open` make one."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self._manifest = manifest
        self._snapshot: Snapshot | None = None

    @classmethod
    def create(cls, folder: str | Path, *, model: str, metric: str, dimension: int) -> "LocalIndex":
        """An empty index for embeddings of `dimension` numbers made by this version of a model."""
        folder = Path(folder)
        check_choice("metric", metric, METRICS)
        check_whole("dimension", dimension)
        folder.mkdir(parents=True, exist_ok=True)
        manifest = {"format": FORMAT, "generation": 1, "model": model, "metric": metric, "dimension": dimension, **_EMPTY}
        with writing(folder):
            if (folder / "manifest.json").exists():
                raise FileExistsError(f"{folder} holds an index already; add to it, or replace it")
            write_manifest(folder / "manifest.json", manifest)
        return cls(folder, manifest)

    @classmethod
    def open(cls, folder: str | Path, *, model: str | None = None) -> "LocalIndex":
        """The index of a folder. With `model`, one made by another version is refused."""
        path = Path(folder) / "manifest.json"
        if not path.exists():
            raise FileNotFoundError(f"{folder} holds no index; `nearkin index DIR DATA` makes one")
        index = cls(Path(folder), _manifest_of(path))
        if model is not None and model != index.model:
            raise ValueError(
                f"{folder} was made by another model (version {index.model[:12]}, and this is {model[:12]}): their embeddings cannot be "
                "compared; `nearkin index DIR DATA --replace` makes it anew"
            )
        return index

    @property
    def count(self) -> int:
        return int(sum(part["rows"] for part in self._manifest["segments"]) - self._manifest["gone"])

    @property
    def dimension(self) -> int:
        return int(self._manifest["dimension"])

    @property
    def metric(self) -> str:
        return str(self._manifest["metric"])

    @property
    def model(self) -> str:
        return str(self._manifest["model"])

    @property
    def generation(self) -> int:
        """Grows by one with every change."""
        return int(self._manifest["generation"])

    @property
    def backend(self) -> str:
        """exact, hnsw or ivf_pq."""
        kept = self._manifest["structure"]
        return "exact" if kept is None else str(kept["kind"])

    @property
    def calibration(self) -> dict[str, Any] | None:
        """The rule of the verdict, and how good it is."""
        found: dict[str, Any] | None = self._manifest["calibration"]
        return found

    @property
    def labels(self) -> tuple[str, ...]:
        """The names that points may have; some may have lost all their points."""
        return tuple(self._manifest["labels"])

    @property
    def snapshot(self) -> Snapshot:
        """This generation, loaded when first asked for."""
        if self._snapshot is None or self._snapshot.manifest["generation"] != self.generation:
            self._snapshot = self._load()
        return self._snapshot

    def refresh(self) -> bool:
        """Look for a newer generation and take it; whether there was one."""
        newer = _manifest_of(self.folder / "manifest.json")
        if newer["generation"] == self.generation and newer["model"] == self.model:
            return False
        if newer["model"] != self.model:
            raise ValueError(f"{self.folder} was made anew by another model; open it again together with that model")
        fresh = LocalIndex(self.folder, newer)
        fresh._snapshot = self._snapshot  # its segments need not be mapped again
        snapshot = fresh._load()
        self._manifest, self._snapshot = fresh._manifest, snapshot
        return True

    def search(self, vectors: np.ndarray, k: int = 10, *, where: Where | None = None, exclude: Sequence[int] | None = None) -> list[Answer]:
        return self.snapshot.search(vectors, k, where=where, exclude=exclude)

    def entries(self, ids: Sequence[int]) -> list[Entry]:
        snapshot = self.snapshot
        return [snapshot.entry(row) for row in snapshot.known_rows(ids).tolist()]

    def vectors(self, ids: Sequence[int]) -> np.ndarray:
        """(n, d) float32 of these points; +-1 where only signs are kept."""
        return self.snapshot.vectors[self.snapshot.known_rows(ids)]

    def add(self, entries: Entries, *, rebuild: bool = True) -> np.ndarray:
        """Add points; durable when it returns. Small segments are merged as they come, so there are never many.

        Whoever adds many batches leaves the structure as it is with `rebuild=False`, and calls `rebuild_if_stale` at the end.
        """
        with self._change() as manifest:
            ids = self._new_ids(manifest, entries)
            labels = _with_names(manifest["labels"], entries.labels)
            arrays: Mapping[str, np.ndarray] = packed(entries, ids, labels, binary=self.metric == "hamming")
            kept = list(manifest["segments"])
            while kept and kept[-1]["rows"] <= len(arrays["ids"]) and kept[-1]["rows"] + len(arrays["ids"]) <= LARGEST:
                arrays = joined([mapped_arrays(self.folder / kept.pop()["file"]), arrays])
            record = self._write(manifest, "segment", arrays)
            next_id = max(manifest["next_id"], int(ids.max()) + 1)
            self._commit({**manifest, "segments": [*kept, record], "labels": labels, "next_id": next_id})
        if rebuild:
            self.rebuild_if_stale()
        return ids

    def delete(self, ids: Sequence[int]) -> None:
        """Remove points; durable when it returns. Their room is freed by `compact`."""
        wanted = np.unique(np.asarray(list(ids), dtype=np.int64))
        with self._change() as manifest:
            self.snapshot.known_rows(wanted.tolist())
            gone = np.union1d(self._deleted(manifest), wanted)
            record = self._write(manifest, "deleted", {"ids": gone})
            self._commit({**manifest, "deleted": record, "gone": len(gone)})

    def replace(self, batches: Iterable[Entries], *, model: str, metric: str, dimension: int) -> int:
        """Everything anew, by whatever model: the old content stands until the last batch is on disk, then goes at once."""
        with self._change() as manifest:
            next_id, labels, segments = 0, list[str](), list[dict[str, Any]]()
            made = {**manifest, "model": model, "metric": metric, "dimension": dimension, **_EMPTY}
            for number, entries in enumerate(batches):
                ids = self._new_ids({**made, "next_id": next_id}, entries, anew=True)
                next_id += len(entries)
                labels = _with_names(labels, entries.labels)
                segments.append(self._write(manifest, "segment", packed(entries, ids, labels, binary=metric == "hamming"), number))
            self._commit({**made, "segments": segments, "labels": labels, "next_id": next_id})
        return self.count

    def compact(self) -> None:
        """One segment without the deleted points, memory-mapped whole; a structure is built again if points were deleted."""
        with self._change() as manifest:
            deleted = self._deleted(manifest)
            parts = [mapped_arrays(self.folder / part["file"]) for part in manifest["segments"]]
            keep = [~np.isin(part["ids"], deleted) for part in parts]
            left = sum(int(mask.sum()) for mask in keep)
            segments = [self._write(manifest, "segment", joined(parts, keep))] if left else []
            kind = self.backend
            stands = kind != "exact" and not len(deleted)
            self._commit(
                {**manifest, "segments": segments, "deleted": None, "gone": 0, "structure": manifest["structure"] if stands else None}
            )
            if kind != "exact" and not stands and left:
                self._build(kind)

    def build(self, backend: str) -> None:
        """Search with this backend from now on: exact, hnsw or ivf_pq."""
        with self._change() as manifest:
            if backend == "exact":
                self._commit({**manifest, "structure": None})
            else:
                self._build(backend)

    def rebuild_if_stale(self) -> None:
        """Build the structure again if it does not know a tenth of the points."""
        with self._change() as manifest:
            kept = manifest["structure"]
            if kept is not None and self.count - kept["rows"] > STALE * self.count:
                self._build(kept["kind"])

    def set_calibration(self, rule: Mapping[str, Any] | None) -> None:
        """Keep the rule that says from which affinity on a neighbor is of the same kind."""
        with self._change() as manifest:
            self._commit({**manifest, "calibration": None if rule is None else dict(rule)})

    def verify(self) -> None:
        """Read every file and compare its checksum; an error names the first that is damaged."""
        for record in _files(self._manifest):
            check_record(self.folder, record, whole=True)

    @contextmanager
    def _change(self) -> Iterator[Manifest]:
        """Alone, and on top of what others have written meanwhile."""
        with writing(self.folder):
            newest = _manifest_of(self.folder / "manifest.json")
            if newest["model"] != self.model:
                raise ValueError(f"{self.folder} was made anew by another model meanwhile; open it again")
            self._manifest = newest
            yield newest

    def _commit(self, manifest: Manifest) -> None:
        """Swap the manifest: from here on the change stands."""
        manifest = {**manifest, "generation": manifest["generation"] + 1}
        write_manifest(self.folder / "manifest.json", manifest)
        self._manifest = manifest
        sweep(self.folder, {record["file"] for record in _files(manifest)})

    def _write(self, manifest: Manifest, what: str, arrays: Mapping[str, np.ndarray], number: int = 0) -> dict[str, Any]:
        """A file of the generation to come; nobody knows of it until the commit."""
        path = self.folder / f"{what}-{manifest['generation'] + 1:08d}-{number:04d}.safetensors"
        return {**write_arrays(path, arrays), "rows": len(arrays["ids"])}

    def _new_ids(self, manifest: Manifest, entries: Entries, anew: bool = False) -> np.ndarray:
        check_entries(entries, manifest["dimension"])
        if entries.ids is None or anew:
            return np.arange(manifest["next_id"], manifest["next_id"] + len(entries))
        ids = np.asarray(entries.ids)
        taken = [mapped_arrays(self.folder / part["file"])["ids"] for part in manifest["segments"]]
        clash = np.intersect1d(ids, np.concatenate([*taken, np.empty(0, np.int64)]))
        if len(clash):
            raise ValueError(
                f"ids: {clash[0]} is in the index already, or was deleted and awaits compact(); let the index number the points"
            )
        return ids

    def _deleted(self, manifest: Manifest) -> np.ndarray:
        record = manifest["deleted"]
        return np.empty(0, np.int64) if record is None else np.array(mapped_arrays(self.folder / record["file"])["ids"])

    def _build(self, kind: str) -> None:
        if self.metric == "hamming":
            raise ValueError(f"backend {kind} is for numbers, and this index holds codes; they are searched exactly, by counting bits")
        if self.metric == "inner_product":
            raise ValueError(f"backend {kind} ranks by distance, and this index by inner product; it is searched exactly: --backend exact")
        if not self.count:
            raise ValueError(f"backend {kind} needs points to be built on, and the index is empty; add some first")
        now = self.snapshot
        made = structures.build(kind, now.vectors[:], now.ids, unit=self.metric == "cosine")
        record = self._write(self._manifest, "structure", made.arrays())
        self._commit({**self._manifest, "structure": {**record, "kind": kind}})

    def _load(self) -> Snapshot:
        """The snapshot of this generation, or of a newer one if this was swept away meanwhile."""
        for _ in range(TRIES):
            try:
                return self._loaded(self._manifest)
            except FileNotFoundError as error:
                newest = _manifest_of(self.folder / "manifest.json")
                if newest["generation"] == self.generation:
                    raise IndexDamagedError(f"{error.filename} is missing; build the index anew") from None
                self._manifest = newest
        raise IndexDamagedError(f"{self.folder} changes faster than it can be read; try again")

    def _loaded(self, manifest: Manifest) -> Snapshot:
        for record in _files(manifest):
            check_record(self.folder, record, whole=False)
        before = self._snapshot
        known = {} if before is None else dict(zip((p["file"] for p in before.manifest["segments"]), before.segments, strict=True))
        parts = [known.get(part["file"]) or mapped_arrays(self.folder / part["file"]) for part in manifest["segments"]]
        kept, structure = manifest["structure"], None
        if kept is not None and before is not None and before.manifest["structure"] == kept:
            structure = before.structure
        elif kept is not None:
            structure = structures.restored(kept["kind"], mapped_arrays(self.folder / kept["file"]))
        return Snapshot(manifest, parts, self._deleted(manifest), structure)


_EMPTY: Manifest = {"next_id": 0, "labels": [], "segments": [], "deleted": None, "gone": 0, "structure": None, "calibration": None}


def _manifest_of(path: Path) -> Manifest:
    manifest = read_manifest(path)
    if manifest["format"] != FORMAT:
        raise ValueError(f"{path} has format {manifest['format']}, and this version reads {FORMAT}; build the index anew")
    return manifest


def _files(manifest: Manifest) -> list[dict[str, Any]]:
    return [*manifest["segments"], *(record for record in (manifest["deleted"], manifest["structure"]) if record is not None)]


def _with_names(names: Sequence[str], labels: Sequence[str | None]) -> list[str]:
    """The names known so far and the new ones behind them, so that old numbers stay right."""
    return [*names, *sorted({label for label in labels if label is not None} - set(names))]
