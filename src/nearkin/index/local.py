"""An index in a folder on this machine: append-only segments, and one manifest that says which files are valid.

Every change writes new files, syncs them, and replaces the manifest in one rename. A finished `add` or `delete` therefore survives
kill -9 and a power cut, and a reader sees the old generation or the new one. Files of the index that no manifest names any longer are
removed; nothing else in the folder is touched.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from nearkin.compose.metrics import METRICS
from nearkin.compose.validation import check_choice, check_whole
from nearkin.data.disk import body_digest, damage
from nearkin.data.progress import few
from nearkin.index import calibration
from nearkin.index import structure as structures
from nearkin.index.contract import Answer, Entries, Entry, Page, StoredPoints, VectorIndex, Where, check_entries
from nearkin.index.durable import (
    FILE_NAME,
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
from nearkin.index.store import STORES, store_of

FORMAT = 1
FORMAT_OF_STORES = 2  # of indexes that store vectors smaller, which earlier versions cannot read
LARGEST = 1_000_000  # points from which a segment is no longer merged with others
STALE = 0.1  # share of points missing from the structure above which it is built again
LOOKED_AT = 65_536  # vectors decoded at a time
TRIES = 5  # attempts of a reader whose files are removed by a writer while it opens them

Manifest = dict[str, Any]


class LocalIndex(VectorIndex):
    """A `VectorIndex` in a folder on this machine. Get one with `LocalIndex.create` or `LocalIndex.open`.

    Searches are exact unless you `build` a faiss structure ("hnsw", "ivf_pq"). Its files are described by one manifest; a generation that
    was opened stays readable while others write.

    Parameters
    ----------
    folder : Path
        Where the files are.
    manifest : dict
        The body of its manifest.json.
    verify : bool, default True
        Compare every file with its checksum when it is first read.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     index = LocalIndex.create(folder, model="v1", metric="squared_euclidean", dimension=2)
    ...     ids = index.add(Entries([[0.0, 0.0], [1.0, 1.0], [3.0, 0.0]], labels=["a", "a", "b"]))
    ...     [answer] = index.search([[0.9, 1.0]], k=2)
    ...     [(hit.id, hit.label, round(hit.affinity, 2)) for hit in answer.hits]
    [(1, 'a', -0.01), (0, 'a', -1.81)]
    """

    def __init__(self, folder: Path, manifest: Manifest, verify: bool = True) -> None:
        self.folder = folder
        self._manifest, self._verify = manifest, verify
        self._snapshot: Snapshot | None = None

    @classmethod
    def create(cls, folder: str | Path, *, model: str, metric: str, dimension: int) -> "LocalIndex":
        """Create an empty index.

        Parameters
        ----------
        folder : str or Path
            A new or empty folder.
        model : str
            Version of the model that makes the embeddings; any text that changes with its weights.
        metric : {"squared_euclidean", "cosine", "inner_product", "hamming"}
            How points are compared. "hamming" stores one bit per dimension, the sign.
        dimension : int
            Length of the embeddings.

        Returns
        -------
        LocalIndex

        Raises
        ------
        FileExistsError
            If the folder holds an index, or other files.
        """
        folder = Path(folder)
        check_choice("metric", metric, METRICS)
        check_whole("dimension", dimension)
        folder.mkdir(parents=True, exist_ok=True)
        manifest = {"format": FORMAT, "generation": 1, "model": model, "metric": metric, "dimension": dimension, **_EMPTY}
        with writing(folder):
            if (folder / "manifest.json").exists():
                raise FileExistsError(f"{folder} already holds an index; add to it, or replace it")
            write_manifest(folder / "manifest.json", manifest)
        return cls(folder, manifest)

    @classmethod
    def start_over(cls, folder: Path, *, model: str, metric: str, dimension: int) -> "LocalIndex":
        """Put an empty index in the place of one whose manifest is damaged; its files are removed by the next change.

        Parameters
        ----------
        folder : Path
            The folder of the damaged index.
        model, metric, dimension
            As in `create`.

        Returns
        -------
        LocalIndex
        """
        with writing(folder):  # numbers above those of all files, so that none is overwritten before there is a manifest again
            numbers = [int(path.name.split("-")[1]) for path in folder.glob("*-*-*.safetensors") if FILE_NAME.fullmatch(path.name)]
            about = {"model": model, "metric": metric, "dimension": dimension}
            manifest = {"format": FORMAT, "generation": max(numbers, default=0) + 1, **about, **_EMPTY}
            write_manifest(folder / "manifest.json", manifest)
        return cls(folder, manifest)

    @classmethod
    def open(cls, folder: str | Path, *, model: str | None = None, verify: bool = True) -> "LocalIndex":
        """Open the index of a folder.

        Parameters
        ----------
        folder : str or Path
            Where it is.
        model : str, optional
            The version of your model. An index made by another version is refused, since its embeddings cannot be compared with yours.
        verify : bool, default True
            Compare every file with its checksum when it is first read. False opens a damaged index, whose results may be wrong.

        Returns
        -------
        LocalIndex

        Raises
        ------
        FileNotFoundError
            If there is no index.
        ValueError
            If another model made it, or the manifest is damaged. A damaged file is found at the first search.
        """
        path = Path(folder) / "manifest.json"
        if not path.exists():
            raise FileNotFoundError(f"{folder} holds no index; create one with `nearkin index DIR DATA`")
        index = cls(Path(folder), _manifest_of(path), verify)
        if model is not None and model != index.model:
            raise ValueError(
                f"{folder} was made by another model (version {index.model[:12]}, and this is {model[:12]}), so the embeddings cannot be "
                "compared; rebuild it with `nearkin index DIR DATA --replace`"
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
        return int(self._manifest["generation"])

    @property
    def identity(self) -> str:
        return body_digest(self._manifest)  # the manifest holds the checksum of every file

    @property
    def backend(self) -> str:
        kept = self._manifest["structure"]
        return "exact" if kept is None else str(kept["kind"])

    @property
    def location(self) -> str:
        return str(self.folder)

    @property
    def calibration(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._manifest["calibration"]
        return found

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name in self._manifest["labels"] if name is not None))

    @property
    def snapshot(self) -> Snapshot:
        """The points of this generation, loaded on first use.

        Returns
        -------
        Snapshot
        """
        if self._snapshot is None or self._snapshot.manifest != self._manifest:
            self._snapshot = self._load()
        return self._snapshot

    def refresh(self) -> bool:
        newer = _manifest_of(self.folder / "manifest.json")
        if newer == self._manifest:
            return False
        if newer["model"] != self.model:
            raise ValueError(f"{self.folder} was rebuilt by another model; open it again together with that model")
        fresh = LocalIndex(self.folder, newer, self._verify)
        fresh._snapshot = self._snapshot  # its segments need not be mapped again
        snapshot = fresh._load()
        self._manifest, self._snapshot = fresh._manifest, snapshot
        return True

    def frozen(self) -> "LocalIndex":
        snapshot = self.snapshot
        found = LocalIndex(self.folder, dict(snapshot.manifest), self._verify)
        found._snapshot = snapshot
        return found

    def search(
        self,
        vectors: np.ndarray,
        k: int = 10,
        *,
        where: Where | None = None,
        exclude: Sequence[int] | None = None,
        rescale: str | None = None,
    ) -> list[Answer]:
        return self.snapshot.search(vectors, k, where=where, exclude=exclude, rescale=rescale)

    def entries(self, ids: Sequence[int]) -> list[Entry]:
        snapshot = self.snapshot
        return [snapshot.entry(row) for row in snapshot.known_rows(ids).tolist()]

    def vectors(self, ids: Sequence[int]) -> np.ndarray:
        snapshot = self.snapshot
        return snapshot.vectors[snapshot.known_rows(ids)]

    def thumbnails(self, ids: Sequence[int]) -> list[bytes]:
        snapshot = self.snapshot
        return [snapshot.thumbnail(row) for row in snapshot.known_rows(ids).tolist()]

    def has_thumbnails(self, ids: Sequence[int]) -> list[bool]:
        snapshot = self.snapshot
        return [snapshot.has_thumbnail(row) for row in snapshot.known_rows(ids).tolist()]

    def page(self, where: Where | None = None, offset: int = 0, limit: int = 100) -> Page:
        snapshot = self.snapshot
        rows = np.arange(len(snapshot)) if where is None or where.allows_all else snapshot.allowed(where)
        return Page(len(rows), [snapshot.entry(row) for row in rows[offset : offset + limit].tolist()])

    def read_all(self) -> StoredPoints:
        snapshot = self.snapshot
        vectors = np.asarray(snapshot.vectors[:], dtype=np.float32)
        return StoredPoints(np.asarray(snapshot.ids), vectors, [snapshot.entry(row) for row in range(len(snapshot))])

    def sample(self, n: int, seed: int = 0) -> StoredPoints:
        snapshot = self.snapshot
        rows = np.sort(np.random.default_rng(seed).permutation(len(snapshot))[: check_whole("n", n)])
        vectors = np.asarray(snapshot.vectors[rows], dtype=np.float32)
        return StoredPoints(np.asarray(snapshot.ids)[rows], vectors, [snapshot.entry(row) for row in rows.tolist()])

    def known_sources(self, sources: Sequence[str]) -> dict[str, int]:
        asked, found = set(sources), dict[str, int]()
        for source, number in zip(self.snapshot.sources(), self.snapshot.ids.tolist(), strict=True):
            if source in asked:
                found.setdefault(source, number)
        return found

    def add(self, entries: Entries, *, rebuild: bool = True) -> np.ndarray:
        with self._change() as manifest:
            ids = self._new_ids(manifest, entries)
            labels = _with_names(manifest["labels"], entries.labels)
            # Small segments are merged with the new one, so that there are never many.
            arrays: Mapping[str, np.ndarray] = packed(entries, ids, labels, binary=self.metric == "hamming", store=store_of(manifest))
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
        removed = np.unique(np.asarray(list(ids), dtype=np.int64))
        with self._change() as manifest:
            self.snapshot.known_rows(removed.tolist())
            gone = np.union1d(self._deleted(manifest), removed)
            record = self._write(manifest, "deleted", {"ids": gone})
            self._commit({**manifest, "deleted": record, "gone": len(gone)})

    def rename_class(self, old: str, new: str) -> None:
        with self._change() as manifest:
            if not new:
                raise ValueError("new is empty; give the class a name, or remove it")
            self._known_class(old)
            self._commit({**manifest, "labels": [new if name == old else name for name in manifest["labels"]]})
        self._calibrate_again()

    def remove_class(self, name: str, *, keep_points: bool = False) -> int:
        with self._change() as manifest:
            self._known_class(name)
            now = self.snapshot
            ids = now.ids[now.allowed(Where(labels=(name,)))]
            changed = {**manifest, "labels": [None if known == name else known for known in manifest["labels"]]}
            if not keep_points and len(ids):
                gone = np.union1d(self._deleted(manifest), ids)
                changed |= {"deleted": self._write(manifest, "deleted", {"ids": gone}), "gone": len(gone)}
            self._commit(changed)
        self._calibrate_again()
        return len(ids)

    def relabel(self, ids: Sequence[int], label: str | None) -> None:
        chosen = np.unique(np.asarray(list(ids), dtype=np.int64))
        with self._change() as manifest:
            self.snapshot.known_rows(chosen.tolist())
            names = _with_names(manifest["labels"], [label])
            code = -1 if label is None else names.index(label)
            segments = []
            for number, part in enumerate(manifest["segments"]):
                arrays = mapped_arrays(self.folder / part["file"])
                mask = np.isin(arrays["ids"], chosen)
                changed = {**arrays, "labels": np.where(mask, code, arrays["labels"]).astype(np.int32)}
                segments.append(self._write(manifest, "segment", changed, number) if mask.any() else part)
            self._commit({**manifest, "segments": segments, "labels": names})
        self._calibrate_again()

    def _known_class(self, name: str) -> None:
        if name not in self.labels:
            raise KeyError(f"no class is named {name!r}; the classes are {few(list(self.labels)) or 'none'}")

    def _calibrate_again(self) -> None:
        """Fit the threshold behind `Hit.same_kind` to the new classes, if there was one."""
        if self.calibration is not None:
            self.calibrate()

    def replace(self, batches: Iterable[Entries], *, model: str, metric: str, dimension: int) -> int:
        """Replace all points, also by those of another model. The old content stays in use until the last batch is on disk.

        Parameters
        ----------
        batches : iterable of Entries
            The new points. Ids are numbered from 0.
        model, metric, dimension
            As in `create`.

        Returns
        -------
        int
            How many points there are now.
        """
        with self._change() as manifest:
            next_id, labels, segments = 0, list[str | None](), list[dict[str, Any]]()
            made = {**manifest, "format": FORMAT, "store": None, "model": model, "metric": metric, "dimension": dimension, **_EMPTY}
            for number, entries in enumerate(batches):
                ids = self._new_ids({**made, "next_id": next_id}, entries, renumber=True)
                next_id += len(entries)
                labels = _with_names(labels, entries.labels)
                segments.append(
                    self._write(manifest, "segment", packed(entries, ids, labels, binary=metric == "hamming", store=store_of(made)), number)
                )
            self._commit({**made, "segments": segments, "labels": labels, "next_id": next_id})
        return self.count

    def compact(self) -> None:
        with self._change() as manifest:
            deleted = self._deleted(manifest)
            parts = [mapped_arrays(self.folder / part["file"]) for part in manifest["segments"]]
            keep = [~np.isin(part["ids"], deleted) for part in parts]
            left = sum(int(mask.sum()) for mask in keep)
            segments = [self._write(manifest, "segment", joined(parts, keep))] if left else []
            kind = self.backend
            valid = kind != "exact" and not len(deleted)
            structure = manifest["structure"] if valid else None
            self._commit({**manifest, "segments": segments, "deleted": None, "gone": 0, "structure": structure})
            if kind != "exact" and not valid and left:
                self._build(kind)

    def build(self, backend: str) -> None:
        with self._change() as manifest:
            if backend == "exact":
                self._commit({**manifest, "structure": None})
            else:
                self._build(backend)

    @property
    def store(self) -> str:
        """How vectors are stored: "float32", "int8" or "binary".

        Returns
        -------
        str
        """
        found = store_of(self._manifest)
        return "float32" if found is None else found.kind

    @property
    def vector_bytes(self) -> int:
        """Bytes of the stored vectors, on disk and in memory.

        Returns
        -------
        int
        """
        parts = self.snapshot.segments
        return int(sum(part[name].nbytes for part in parts for name in ("vectors", "scales") if name in part))

    def set_store(self, store: str) -> None:
        """Store the vectors smaller, or as float32 again; what was lost by rounding stays lost.

        Points that are added later are stored in the same way. Searches compare queries with the stored vectors, so affinities change by
        the rounding. With "binary" they find candidates by differing bits and score them again, and `Answer.exact` is False.

        Parameters
        ----------
        store : {"float32", "int8", "binary"}
            "int8" needs a quarter of the bytes and finds nearly the same neighbors, "binary" a thirty-second.

        Raises
        ------
        ValueError
            If the metric is "hamming", which stores bits already, or the index is empty.
        """
        check_choice("store", store, STORES)
        if self.metric == "hamming":
            raise ValueError(f"store ({store}): an index with the metric hamming stores bits already; leave it out")
        with self._change() as manifest:
            now = self.snapshot
            if store == self.store:
                return
            if not len(now):
                raise ValueError(f"store ({store}) is chosen for the points of an index, and this one is empty; add points first")
            center = np.mean([now.vectors[at : at + LOOKED_AT].mean(0) for at in range(0, len(now), LOOKED_AT)], axis=0)
            kept = None if store == "float32" else {"kind": store, "center": [float(one) for one in center.astype(np.float32)]}
            before, after = store_of(manifest), store_of({"store": kept})
            segments = []
            for number, part in enumerate(manifest["segments"]):
                arrays = dict(mapped_arrays(self.folder / part["file"]))
                vectors = arrays["vectors"] if before is None else before.decoded(arrays["vectors"], arrays.pop("scales"))
                arrays |= {"vectors": vectors} if after is None else after.encoded(vectors)
                segments.append(self._write(manifest, "segment", arrays, number))
            form = FORMAT if after is None else FORMAT_OF_STORES
            self._commit({**manifest, "format": form, "store": kept, "segments": segments, "structure": None})
        self._calibrate_again()

    def rebuild_if_stale(self) -> None:
        with self._change() as manifest:
            kept = manifest["structure"]
            if kept is not None and self.count - kept["rows"] > STALE * self.count:
                self._build(kept["kind"])

    def calibrate(self) -> dict[str, Any] | None:
        now = self.snapshot
        rule = calibration.fit(now.vectors, now.codes, now.column("split"), self.metric)
        self.set_calibration(rule)
        return rule

    def set_calibration(self, rule: Mapping[str, Any] | None) -> None:
        """Store the threshold behind `Hit.same_kind`.

        Parameters
        ----------
        rule : mapping or None
            What `calibration` returns from now on; its "threshold" is applied.
        """
        with self._change() as manifest:
            self._commit({**manifest, "calibration": None if rule is None else dict(rule)})

    def verify(self) -> None:
        for record in _files(self._manifest):
            check_record(self.folder, record, whole=True)

    def damaged_files(self) -> list[tuple[str, str]]:
        """Compare every file with its checksums.

        Returns
        -------
        list of tuple of str
            The name of each file of the index, and what is wrong with it, "" if nothing is.
        """
        return [(record["file"], damage(self.folder / record["file"], record, whole=True) or "") for record in _files(self._manifest)]

    @contextmanager
    def _change(self) -> Iterator[Manifest]:
        """The newest manifest, under the lock that lets one writer in at a time."""
        with writing(self.folder):
            newest = _manifest_of(self.folder / "manifest.json")
            if newest["model"] != self.model:
                raise ValueError(f"{self.folder} was rebuilt by another model; open it again")
            self._manifest = newest
            yield newest

    def _commit(self, manifest: Manifest) -> None:
        """Replace the manifest, which makes the change valid."""
        manifest = {**manifest, "generation": manifest["generation"] + 1}
        write_manifest(self.folder / "manifest.json", manifest)
        self._manifest = manifest
        sweep(self.folder, {record["file"] for record in _files(manifest)})

    def _write(self, manifest: Manifest, what: str, arrays: Mapping[str, np.ndarray], number: int = 0) -> dict[str, Any]:
        """Write a file of the next generation. It is not part of the index until the commit."""
        path = self.folder / f"{what}-{manifest['generation'] + 1:08d}-{number:04d}.safetensors"
        return {**write_arrays(path, arrays), "rows": len(arrays["ids"])}

    def _new_ids(self, manifest: Manifest, entries: Entries, renumber: bool = False) -> np.ndarray:
        check_entries(entries, manifest["dimension"])
        if entries.ids is None or renumber:
            return np.arange(manifest["next_id"], manifest["next_id"] + len(entries))
        ids = np.asarray(entries.ids)
        taken = [mapped_arrays(self.folder / part["file"])["ids"] for part in manifest["segments"]]
        clash = np.intersect1d(ids, np.concatenate([*taken, np.empty(0, np.int64)]))
        if len(clash):
            raise ValueError(
                f"ids: {clash[0]} is already in the index, or was deleted and needs compact(); let the index number the points"
            )
        return ids

    def _deleted(self, manifest: Manifest) -> np.ndarray:
        record = manifest["deleted"]
        return np.empty(0, np.int64) if record is None else np.array(mapped_arrays(self.folder / record["file"])["ids"])

    def _build(self, kind: str) -> None:
        if self.metric == "hamming":
            raise ValueError(
                f"backend {kind} needs real vectors, and this index holds binary codes, which are always searched exactly; use exact"
            )
        if self.metric == "inner_product":
            raise ValueError(
                f"backend {kind} ranks by distance, and this index by inner product, which is always searched exactly; use exact"
            )
        if not self.count:
            raise ValueError(f"backend {kind} cannot be built on an empty index; add points first")
        now = self.snapshot
        made = structures.build(kind, now.vectors[:], now.ids, unit=self.metric == "cosine")
        record = self._write(self._manifest, "structure", made.arrays())
        self._commit({**self._manifest, "structure": {**record, "kind": kind}})

    def _load(self) -> Snapshot:
        """The snapshot of this generation, or of a newer one if a writer has removed this one."""
        for _ in range(TRIES):
            try:
                return self._loaded(self._manifest)
            except (FileNotFoundError, IndexDamagedError) as error:
                newest = _manifest_of(self.folder / "manifest.json")
                if newest == self._manifest:
                    raise IndexDamagedError(str(error)) from None
                self._manifest = newest
        raise IndexDamagedError(f"{self.folder} changes faster than it can be read; try again")

    def _loaded(self, manifest: Manifest) -> Snapshot:
        before = self._snapshot
        seen = [] if before is None else _files(before.manifest)
        for record in _files(manifest):
            if self._verify and record not in seen:
                check_record(self.folder, record)
        # By content: another index in this place may have a file of the same name.
        known = {} if before is None else dict(zip((p["sha256"] for p in before.manifest["segments"]), before.segments, strict=True))
        parts = [known.get(part["sha256"]) or mapped_arrays(self.folder / part["file"]) for part in manifest["segments"]]
        kept, structure = manifest["structure"], None
        if kept is not None and before is not None and before.manifest["structure"] == kept:
            structure = before.structure
        elif kept is not None:
            structure = structures.restored(kept["kind"], mapped_arrays(self.folder / kept["file"]))
        return Snapshot(manifest, parts, self._deleted(manifest), structure)


_EMPTY: Manifest = {"next_id": 0, "labels": [], "segments": [], "deleted": None, "gone": 0, "structure": None, "calibration": None}


def _manifest_of(path: Path) -> Manifest:
    manifest = read_manifest(path)
    if manifest["format"] not in (FORMAT, FORMAT_OF_STORES):
        raise ValueError(f"{path} has format {manifest['format']}, and this version reads {FORMAT}; rebuild the index")
    return manifest


def _files(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*manifest["segments"], *(record for record in (manifest["deleted"], manifest["structure"]) if record is not None)]


def _with_names(names: Sequence[str | None], labels: Sequence[str | None]) -> list[str | None]:
    """The names known so far, then the new ones, so that old numbers stay valid."""
    return [*names, *sorted({label for label in labels if label is not None} - set(names))]  # None among them is a removed class
