"""A collection: the model of a folder together with its index, so that you can search with images.

    nearkin.open_index("runs/photos").search("query.jpg")

The index stores which weights made its embeddings. It is refused with other weights, since the embeddings could not be compared.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nearkin.data.checksums import recorded_sha256
from nearkin.data.corrections import source_names
from nearkin.data.dataset import WHOLE, Dataset
from nearkin.data.disk import digest, explain_full_disk, read_json
from nearkin.data.images import Files
from nearkin.data.loader import MIN_FILES_FOR_WORKERS, Loader
from nearkin.data.lock import owned
from nearkin.data.pixels import Framing
from nearkin.data.progress import Report, Ticker, few, inform
from nearkin.data.sample import sample_of, short_name
from nearkin.data.texts import Texts
from nearkin.index import rejection, thumbnail
from nearkin.index.contract import Answer, Entries, VectorIndex, Where
from nearkin.index.durable import IndexDamagedError
from nearkin.index.local import LocalIndex
from nearkin.index.milvus_folder import Address, address, confirmed_address, create_in_milvus, open_in_milvus
from nearkin.models.feature_cache import FeatureCache, content_digests, has_contents
from nearkin.models.folder import Inputs, Model, Picture, about_of, framing_of, load
from nearkin.search.rejection import Rejection

BATCH = 1024  # points per durable step
STEP_BYTES = 1 << 25  # of vectors per durable step: encoding them costs nothing, so that the steps may be longer
SHOWN = 1000  # characters of a text that are kept to be shown

Query = Picture | int | np.ndarray | Tensor


class Added(NamedTuple):
    """The result of adding a data set to an index.

    Parameters
    ----------
    added : int
        Points that were added.
    known : int
        Points that were skipped, since their source is already in the index.
    damaged : int
        Files that could not be decoded.

    Examples
    --------
    >>> Added(added=58, known=0, damaged=2).added
    58
    """

    added: int
    known: int
    damaged: int


class Vote(NamedTuple):
    """The class that the neighbors of a point vote for.

    Parameters
    ----------
    label : str or None
        The class of most of them; None for a point of no known class.
    agreement : float
        The share of the neighbors that have the class of most.

    Examples
    --------
    >>> Vote("cat", 0.9).label
    'cat'
    """

    label: str | None
    agreement: float


class Collection:
    """A model and its index. Get one with `open_index` or `build_index`.

    Parameters
    ----------
    folder : Path
        The model folder.
    model : Model
        The model that encodes queries and new points.
    index : VectorIndex
        The index, on disk (`LocalIndex`) or in Milvus (`MilvusIndex`).

    Examples
    --------
    >>> collection = nearkin.open_index("runs/photos")  # doctest: +SKIP
    >>> [hit.source for hit in collection.search("query.jpg", k=5).hits]  # doctest: +SKIP
    """

    def __init__(self, folder: Path, model: Model, index: VectorIndex) -> None:
        self.folder, self.model, self.index = folder, model, index
        self._rejection: tuple[str, Rejection] | None = None  # with the identity of the index that it was fitted to

    def search(
        self, query: Query, k: int = 10, *, where: Where | None = None, reject: float | None = None, rescale: str | None = None
    ) -> Answer:
        """Search the nearest points of one query.

        Parameters
        ----------
        query : str, Path, PIL.Image.Image, int, or array of shape (d,)
            An image (a file or a Pillow image), for a model of texts a text, the id of a point of the index (which is left out of the
            result), or an embedding.
        k : int, default 10
            Number of neighbors.
        where : Where, optional
            Only points that this filter allows.
        reject : float, optional
            Also say whether the query belongs to no known class (`Answer.rejected`), so that this share of known queries is rejected,
            too. See `rejection`.
        rescale : {"csls", "local_scaling"}, optional
            Rank by affinities that are corrected for hubs, as `VectorIndex.search` does.

        Returns
        -------
        Answer
            The neighbors, nearest first.

        Raises
        ------
        KeyError
            If no point has this id.
        """
        exclude = None
        if isinstance(query, int | np.integer):
            vectors, exclude = self.index.vectors([int(query)]), [int(query)]
        elif isinstance(query, np.ndarray | Tensor):
            vectors = np.atleast_2d(torch.as_tensor(query).detach().cpu().numpy())
            if len(vectors) != 1:
                raise ValueError(f"query has shape {tuple(query.shape)}; pass one embedding (d,), or several to search_vectors")
        else:
            vectors = np.asarray(self.model.encode([query]))
        return self.search_vectors(vectors, k, where=where, exclude=exclude, reject=reject, rescale=rescale)[0]

    def number_of(self, name: str) -> int:
        """Find a point by what the data call it.

        Parameters
        ----------
        name : str
            The source of a point: the id that a table of vectors gave it, or the path of its file. If no source is meant, its number in
            the index, which is also accepted unless the sources are numbers themselves.

        Returns
        -------
        int
            The number of the point in the index, which `search` takes.

        Raises
        ------
        KeyError
            If there is no such point.
        """
        found = self.index.known_sources([name])
        if found:
            return found[name]
        if name.isdecimal() and not self.index.entries([int(name)])[0].source.isdecimal():
            return int(name)
        some = few([repr(entry.source) for entry in self.index.page(None, 0, 3).entries])
        raise KeyError(f"no point has the id {name!r}; the {self.index.count:,} ids are such as {some}")

    def search_vectors(
        self,
        vectors: np.ndarray,
        k: int = 10,
        *,
        where: Where | None = None,
        exclude: Sequence[int] | None = None,
        reject: float | None = None,
        rescale: str | None = None,
    ) -> list[Answer]:
        """Search the nearest points of several embeddings.

        Parameters
        ----------
        vectors : array of shape (n, d)
            The embeddings.
        k : int, default 10
            Neighbors per query.
        where : Where, optional
            Only points that this filter allows.
        exclude : sequence of int, optional
            For each query, the id of a point to leave out.
        reject, rescale
            As of `search`.

        Returns
        -------
        list of Answer
            One per query.
        """
        found = self.index.search(vectors, k, where=where, exclude=exclude, rescale=rescale)
        return found if reject is None else rejection.judged(found, self.index, self.rejection, vectors, reject, exclude)

    @property
    def rejection(self) -> Rejection:
        """The rule that rejects queries of no known class, fitted to the index as it is now.

        It compares how near a query is to the index with how near the index's own points are to one another: those of the validation or
        test part if there are at least 40, since training draws its own points together, otherwise up to 2,000 of all.

        Returns
        -------
        Rejection

        Raises
        ------
        ValueError
            If the index has fewer than 20 points.
        """
        if self._rejection is None or self._rejection[0] != self.index.identity:
            self._rejection = (self.index.identity, rejection.fit(self.index))
        return self._rejection[1]

    def predict(self, inputs: Inputs, k: int = 10, *, reject: float | None = None) -> list[str | None]:
        """Predict the class of new points by the vote of their nearest labeled points.

        Parameters
        ----------
        inputs : Tensor, ndarray, path, Pillow image, or a sequence of these
            As of `Model.encode`.
        k : int, default 10
            Number of neighbors that vote.
        reject : float, optional
            Predict None for points of no known class, so that this share of known ones is rejected, too.

        Returns
        -------
        list of str or None
            One per point.

        Raises
        ------
        ValueError
            If no point of the index has a label.
        """
        return [vote.label for vote in self.votes(inputs, k, reject=reject)]

    def votes(self, inputs: Inputs, k: int = 10, *, reject: float | None = None) -> list[Vote]:
        """Predict the class of new points, and the share of the neighbors that agree.

        Parameters
        ----------
        inputs, k, reject
            As of `predict`.

        Returns
        -------
        list of Vote
            One per point.

        Raises
        ------
        ValueError
            If no point of the index has a label.
        """
        labels = self.index.labels
        if not labels:
            raise ValueError("no point of the index has a label, so there is no class to predict; index labeled data")
        vectors = np.asarray(torch.as_tensor(self.model.encode(inputs)).cpu())
        answers = self.search_vectors(vectors, k, where=Where(labels=labels), reject=reject)
        return [_vote(answer) for answer in answers]

    def search_files(
        self,
        paths: Sequence[str | Path],
        k: int = 10,
        *,
        where: Where | None = None,
        reject: float | None = None,
        rescale: str | None = None,
    ) -> list[Answer]:
        """Search the nearest points of several image files at once.

        Parameters
        ----------
        paths : sequence of str or Path
            The files, or the texts.
        k : int, default 10
            Neighbors per file.
        where : Where, optional
            Only points that this filter allows.
        reject, rescale
            As of `search`.

        Returns
        -------
        list of Answer
            One per file.
        """
        return self.search_vectors(np.asarray(self.model.encode(list(paths))), k, where=where, reject=reject, rescale=rescale)

    def image_reading(self) -> tuple[int, Framing]:
        """Return how images are converted to what the model reads.

        Returns
        -------
        channels : int
            1 for gray, 3 for color.
        framing : Framing
            How they are resized and cut.

        Raises
        ------
        ValueError
            If the model does not read images.
        """
        shape = self.model.about["shape"]
        if len(shape) != 3:
            what, fix = ("texts", "a text") if self.model.reads_texts else (f"vectors of {shape[0]} numbers", "vector")
            raise ValueError(f"this model reads {what}, not images; search by id or by {fix}")
        return shape[0], framing_of(self.model.about) or Framing(shape[1])

    def add(self, data: Dataset, report: Report | None = None) -> Added:
        """Encode and add the points of a data set whose source is not in the index yet.

        Each batch is durable when it is added, so an interrupted call can be repeated and continues where it stopped.

        Parameters
        ----------
        data : Dataset
            The points, as `nearkin.data.open` returns them.
        report : callable, optional
            Receives progress messages.

        Returns
        -------
        Added

        Raises
        ------
        FolderInUseError
            If another process writes this index; an OSError whose message names it.
        """
        with owned(self.folder):
            return self._added(data, report)

    def _added(self, data: Dataset, report: Report | None) -> Added:
        """`add`, by the owner of the folder: another writer would add what this one has just found missing."""
        if not isinstance(data, Dataset):
            raise TypeError(f"data must be a Dataset, not {type(data).__name__}; pass nearkin.data.open(...), of a file or an array")
        sources = source_names(data)
        known = self.index.known_sources(sources)
        fresh = [row for row, source in enumerate(sources) if source not in known]
        if len(fresh) < len(data):
            inform(report, f"{len(data) - len(fresh):,} of {len(data):,} points are already in the index")
        if not fresh:
            return Added(0, len(data), 0)
        added = 0
        for entries in embedded_entries(self.folder, self.model, data, fresh, report):
            added += len(self.index.add(entries, rebuild=False))
        self.index.rebuild_if_stale()
        if self.index.calibration is None:
            self.index.calibrate()
        return Added(added, len(data) - len(fresh), len(fresh) - added)


def _vote(answer: Answer) -> Vote:
    """The label of most neighbors; of two that tie, the one whose first neighbor is nearer."""
    votes = Counter(hit.label for hit in answer.hits)
    if not votes:
        return Vote(None, 0.0)
    label, count = votes.most_common(1)[0]
    return Vote(None if answer.rejected else label, count / len(answer.hits))


def open_index(folder: str | Path, *, device: str | None = None, uri: str | None = None, verify: bool = True) -> Collection:
    """Open the index of a model folder, on disk or in Milvus.

    Parameters
    ----------
    folder : str or Path
        A model folder that `nearkin index` (or `build_index`) has indexed. If it holds a milvus.json, the index is in Milvus; set
        the environment variable NEARKIN_MILVUS_TOKEN if the server asks for a token, which is sent by https or to this machine only.
    device : str, optional
        Where the model runs, such as "cpu" or "cuda". By default a GPU if there is one.
    uri : str, optional
        The address in the folder's milvus.json. Name it once where somebody else has made the folder: an address that you have not
        named is not contacted.
    verify : bool, default True
        Compare the files of model and index with their checksums. False opens what is damaged, with results that may be wrong.

    Returns
    -------
    Collection

    Raises
    ------
    FileNotFoundError
        If there is no index.
    ValueError
        If another model made the index.

    Examples
    --------
    >>> nearkin.open_index("runs/photos").search("query.jpg", k=5)  # doctest: +SKIP
    """
    folder = Path(folder)
    model, place = load(folder, device=device, verify=verify), confirmed_address(folder, uri)
    version = model_version(folder, verified=verify)
    if place is None:
        return Collection(folder, model, LocalIndex.open(folder / "index", model=version, verify=verify))
    return Collection(folder, model, open_in_milvus(place, version))


def build_index(
    folder: str | Path,
    data: Dataset,
    *,
    backend: str = "exact",
    uri: str | None = None,
    name: str = "nearkin",
    milvus_index: str = "FLAT",
    replace: bool = False,
    device: str | None = None,
    report: Report | None = None,
    verify: bool = True,
) -> tuple[Collection, Added]:
    """Encode a data set with the model of a folder and index it.

    Parameters
    ----------
    folder : str or Path
        The model folder. The index becomes part of it, or its address if the index is in Milvus.
    data : Dataset
        The points, as `nearkin.data.open` returns them.
    backend : {"exact", "hnsw", "ivf_pq", "milvus"}, default "exact"
        "exact" compares every point and is right for up to about a million. "hnsw" and "ivf_pq" are approximate (faiss). "milvus" stores
        the points in Milvus.
    uri : str, optional
        For "milvus": a path that ends in .db (milvus-lite), or the address of a server.
    name : str, default "nearkin"
        For "milvus": the name of the collection there.
    milvus_index : {"FLAT", "HNSW", "IVF_FLAT"}, default "FLAT"
        For "milvus": its index type. FLAT is exact.
    replace : bool, default False
        Replace an existing index. A local one stays in use until the new one is complete; one in Milvus is dropped first.
    device : str, optional
        Where the model runs.
    report : callable, optional
        Receives progress messages.
    verify : bool, default True
        Compare the files of the model with their checksums.

    Returns
    -------
    collection : Collection
    added : Added

    Raises
    ------
    FileExistsError
        If there is an index and `replace` is False.
    FolderInUseError
        If another process trains or indexes in this folder; an OSError whose message names it.

    Examples
    --------
    >>> data = nearkin.data.open("photos/")  # doctest: +SKIP
    >>> collection, added = build_index("runs/photos", data)  # doctest: +SKIP
    """
    folder = Path(folder)
    with owned(folder), explain_full_disk(folder, "run the same command again; the index is as it was"):
        if backend == "milvus":
            collection = build_in_milvus(folder, uri, name, milvus_index=milvus_index, replace=replace, device=device, verify=verify)
            return collection, collection.add(data, report)
        return _built(folder, data, backend, replace, device, report, verify)


def _built(
    folder: Path, data: Dataset, backend: str, replace: bool, device: str | None, report: Report | None, verify: bool
) -> tuple[Collection, Added]:
    """`build_index` on disk, by the owner of the folder."""
    if address(folder) is not None:
        raise FileExistsError(f"{folder} has its index in Milvus; pass backend 'milvus', or remove {folder / 'milvus.json'} first")
    model, about = load(folder, device=device, verify=verify), _about(folder)
    place = folder / "index"
    if (place / "manifest.json").exists():
        if not replace and LocalIndex.open(place).count:  # an index without points was interrupted and is built again
            raise FileExistsError(f"{folder} already has an index; add to it (--add), or rebuild it (--replace)")
        try:
            index = LocalIndex.open(place)
        except IndexDamagedError:  # what it says to do is to rebuild it
            index = LocalIndex.start_over(place, **about)
        count = index.replace(embedded_entries(folder, model, data, range(len(data)), report), **about)
        collection, added = Collection(folder, model, index), Added(count, 0, len(data) - count)
        index.calibrate()
    else:
        collection = Collection(folder, model, LocalIndex.create(place, **about))
        added = collection.add(data, report)
    if backend != "exact":
        inform(report, f"building {backend} over {collection.index.count:,} points")
        collection.index.build(backend)
    return collection, added


def build_in_milvus(
    folder: Path,
    uri: str | None,
    name: str = "nearkin",
    *,
    milvus_index: str = "FLAT",
    replace: bool = False,
    keep: bool = False,
    device: str | None = None,
    verify: bool = True,
) -> Collection:
    """An empty collection in Milvus at `uri`, or where milvus.json says; with `keep` one that is there is opened instead."""
    place = confirmed_address(folder) if uri is None else Address(uri, name)
    if place is None:
        raise ValueError("backend milvus needs uri (--uri): a path that ends in .db, or the address of a server")
    model = load(folder, device=device, verify=verify)
    return Collection(folder, model, create_in_milvus(folder, place, _about(folder), kind=milvus_index, replace=replace, keep=keep))


def _about(folder: Path) -> dict[str, Any]:
    """What an index for a model folder must be created with."""
    about = about_of(folder)
    return {"model": model_version(folder), "metric": str(about["metric"]), "dimension": int(about["network"]["dimension"])}


def model_version(folder: Path, *, verified: bool = False) -> str:
    """A hash of all that determines the embeddings: the weights that `load` reads, and model.json.

    With `verified`, the weights were just compared with their checksums, and are not read again.
    """
    about = about_of(folder)
    whole = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    best = folder / "best.safetensors"
    weights = best if best.exists() else folder / "weights.safetensors"
    whole.update(bytes.fromhex((recorded_sha256(weights, folder) if verified else None) or digest(weights)))
    return whole.hexdigest()


def embedded_entries(folder: Path, model: Model, data: Dataset, rows: Sequence[int], report: Report | None) -> Iterator[Entries]:
    """The points in these rows with their embeddings, in batches."""
    workers = None if len(rows) > MIN_FILES_FOR_WORKERS else 0
    loader = Loader(data, device=model.device, resident_bytes=0, workers=workers, report=report)
    ticker = Ticker(report, f"indexing {data.name}", len(rows), "points")
    splits, sources, done = _splits(folder, data, report), source_names(data), 0
    for embeddings, at in _embedded(folder, model, data, rows, loader):
        yield Entries(
            embeddings,
            labels=[_label(data, row) for row in at],
            sources=[sources[row] for row in at],
            metadata=[_metadata(data, row, splits[row]) for row in at],
            thumbnails=_thumbnails(data, at),
        )
        done += len(at)
        ticker.update(done)


def _embedded(folder: Path, model: Model, data: Dataset, rows: Sequence[int], loader: Loader) -> Iterator[tuple[np.ndarray, list[int]]]:
    """Embeddings (b, d) with their rows, in batches; of files whose features training has kept, without decoding them again."""
    left, step = list(rows), max(BATCH, STEP_BYTES // (4 * data.shape[0])) if data.kind == "vectors" else BATCH
    if model.has_features and "features" in model.about and has_contents(data):
        cache = FeatureCache(folder, model.about["features"])
        digests = dict(zip(left, content_digests(data.subset(left)), strict=True)) if len(cache) else {}
        known = [row for row in left if digests.get(row, b"") in cache]
        for start in range(0, len(known), BATCH):
            some = known[start : start + BATCH]
            yield model.from_features(cache.get([digests[row] for row in some])).cpu().numpy(), some
        there = set(known)
        left = [row for row in left if row not in there]
    for inputs, ids in loader(torch.split(data.ids[torch.as_tensor(left, dtype=torch.int64)], step) if left else ()):
        yield np.asarray(torch.as_tensor(model.encode(inputs)).cpu()), data.rows(ids.cpu()).tolist()


def _label(data: Dataset, row: int) -> str | None:
    """The name of a point's class, None if unknown."""
    number = -1 if data.labels is None else int(data.labels[row])
    return data.classes[number] if number >= 0 else None


def _metadata(data: Dataset, row: int, split: str) -> dict[str, Any]:
    """Further fields of a point: its data set and split, its numbers by name, its set of classes, its group, and other columns."""
    found: dict[str, Any] = {name: values[row] for name, values in data.columns.items() if values[row] is not None}
    found["data"] = data.name
    if split != WHOLE:
        found["split"] = split
    if data.targets is not None:
        numbers = [float(value) for value in data.targets[row]]
        names = data.target_names or ([f"target {i}" for i in range(len(numbers))] if len(numbers) > 1 else ["target"])
        found |= {name: number for name, number in zip(names, numbers, strict=True) if not math.isnan(number)}
    if data.sets is not None:
        found["set"] = [name for name, held in zip(data.classes, data.sets[row].tolist(), strict=True) if held]
    if isinstance(data.inputs, Texts):
        found["text"] = data.inputs.texts[row][:SHOWN]
    if data.groups is not None:
        found["group"] = int(data.groups[row])
    return found


def _thumbnails(data: Dataset, rows: Sequence[int]) -> list[bytes]:
    if data.pictures or isinstance(data.inputs, Files):
        paths = data.pictures or data.inputs.paths  # type: ignore[union-attr]
        return [thumbnail.of_file(paths[row]) if paths[row] else b"" for row in rows]
    return [thumbnail.of_pixels(image) for image in data.read(data.ids[list(rows)])] if data.kind == "images" else []


def _splits(folder: Path, data: Dataset, report: Report | None) -> Sequence[str]:
    """The split of each point during training, if the model was trained on these data; otherwise the split that the data name."""
    run, page = folder / "run.json", folder / "split.json"
    if not run.exists() or not page.exists():
        return [str(name) for name in data.split]
    fix = f"`nearkin train --resume {quote(str(folder))}` writes it again; or remove it, and points are indexed without their split"
    made = read_json(page, fix)
    source = Path(read_json(run, fix)["data"]["source"]).resolve()
    names = np.array(data.split, dtype="<U10")
    within = np.flatnonzero(names == "train") if "cut" in made else np.arange(len(data))
    cut = made.get("cut", made)
    if data.name not in (source.name, source.stem) or "points" not in cut:
        return [str(name) for name in names]
    if cut["points"] < len(within) and "names" in made:  # damaged files were left out
        split_of = {name: split for split, own in made["names"].items() for name in own}
        return [split_of.get(short_name(source), WHOLE) for source in data.sources]
    if cut["points"] != len(within) or made.get("sample") not in (None, sample_of(data)):
        inform(report, f"{data.name} has the name of the data of training, and other points: they are indexed without their split of then")
        return [str(name) for name in names]
    names[names == WHOLE] = "train"  # where nothing was held out
    for name, rows in cut.get("rows", {}).items():
        names[within[rows]] = name
    return [str(name) for name in names]
