"""A collection: a model folder and the index in it, so that pictures can be asked about.

    nearkin.open_index("runs/photos").search("query.jpg")

The index remembers which weights made it. With others their embeddings cannot be compared, and it is refused.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nearkin.data.corrections import source_names
from nearkin.data.dataset import WHOLE, Dataset
from nearkin.data.images import Files, decode_bytes
from nearkin.data.loader import MIN_FILES_FOR_WORKERS, Loader
from nearkin.data.progress import Report, Ticker, inform
from nearkin.index import thumbnail
from nearkin.index.calibration import calibrate
from nearkin.index.contract import Answer, Entries, VectorIndex, Where
from nearkin.index.local import LocalIndex
from nearkin.models.folder import Model, Picture, about_of, load

BATCH = 1024  # points of one durable step
ADDRESS = "milvus.json"  # in a model folder: its index is elsewhere
JUDGED = 5000  # points at most that the verdict's threshold is fitted on
HELD_OUT = 40  # points that the network was not trained on, below which all labeled points are taken
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")  # of pictures by strangers

Query = Picture | int | np.ndarray | Tensor


class Added(NamedTuple):
    """What became of the points of a data set."""

    added: int
    known: int  # passed over, since their source is in the index already
    damaged: int  # files that cannot be decoded


class Collection:
    """A model and its index. `open_index` and `build_index` make one."""

    def __init__(self, folder: Path, model: Model, index: LocalIndex) -> None:
        self.folder, self.model, self.index = folder, model, index

    def search(self, query: Query, k: int = 10, *, where: Where | None = None) -> Answer:
        """The k nearest points to a picture (a file, or Pillow's), to the point with an id (itself left out), or to an embedding (d,)."""
        return neighbors_of(self.model, self.index, query, k, where)

    def search_files(self, paths: Sequence[str | Path], k: int = 10, *, where: Where | None = None) -> list[Answer]:
        """The same for several image files at once."""
        return self.index.search(np.asarray(self.model.encode(list(paths))), k, where=where)

    def encode_upload(self, content: bytes, most_pixels: int) -> np.ndarray:
        """The embedding (d,) of a picture sent by a stranger; `DamagedImageError` if it is none, or too large."""
        shape = self.model.about["shape"]
        if len(shape) != 3:
            raise ValueError(f"this model reads vectors of {shape[0]} numbers, not images; ask by id or by vector")
        image = decode_bytes(content, shape[0], shape[1], name="the upload", formats=FORMATS, most_pixels=most_pixels)
        return np.asarray(self.model.encode(image[None].numpy())).reshape(-1)

    def add(self, data: Dataset, report: Report | None = None) -> Added:
        """Add what is not there yet, a durable step after the other; an interrupted add goes on where it stopped."""
        known = set(self.index.snapshot.sources())
        fresh = [row for row, source in enumerate(source_names(data)) if source not in known]
        if len(fresh) < len(data):
            inform(report, f"{len(data) - len(fresh):,} of {len(data):,} points are in the index already")
        if not fresh:
            return Added(0, len(data), 0)
        before = self.index.count
        for entries in embedded_entries(self.folder, self.model, data, fresh, report):
            self.index.add(entries, rebuild=False)
        self.index.rebuild_if_stale()
        added = self.index.count - before
        if self.index.calibration is None:
            self.calibrate()
        return Added(added, len(data) - len(fresh), len(fresh) - added)

    def calibrate(self) -> dict[str, Any] | None:
        """Fit the verdict on labeled points, those held out from training if there are enough; the rule, which the index keeps."""
        now = self.index.snapshot
        labeled = now.codes >= 0
        splits = now.column("split")
        choices = {
            "validation pairs": labeled & (splits == "validation"),
            "test pairs": labeled & (splits == "test"),
            "pairs of indexed points, which the network may have been trained on": labeled,
        }
        told, mask = next(((name, m) for name, m in choices.items() if m.sum() >= HELD_OUT), ("", labeled))
        known, asked = np.flatnonzero(labeled), np.flatnonzero(mask[labeled])  # rows of the index, and places among the labeled
        if len(asked) > JUDGED:
            asked = np.sort(np.random.default_rng(0).choice(asked, JUDGED, replace=False))
        rule = calibrate(now.vectors[known], now.codes[known], asked, self.index.metric) if told else None
        if rule is not None:
            rule["fitted_on"] = told
        self.index.set_calibration(rule)
        return rule


def neighbors_of(model: Model, index: VectorIndex, query: Query, k: int, where: Where | None) -> Answer:
    """The k nearest points of an index to a picture, to the point with an id (itself left out), or to an embedding (d,)."""
    if isinstance(query, int | np.integer):
        return index.search(index.vectors([int(query)]), k, where=where, exclude=[int(query)])[0]
    if isinstance(query, np.ndarray | Tensor):
        vectors = np.atleast_2d(torch.as_tensor(query).detach().cpu().numpy())
        if len(vectors) != 1:
            raise ValueError(f"query has shape {tuple(query.shape)}; give one embedding (d,), and several to index.search")
        return index.search(vectors, k, where=where)[0]
    return index.search(np.asarray(model.encode([query])), k, where=where)[0]


def open_index(folder: str | Path, *, device: str | None = None) -> Collection:
    """The model of a folder with the index in it, ready to be asked."""
    folder = Path(folder)
    if (folder / ADDRESS).exists():
        raise ValueError(f"the index of {folder} is in Milvus ({ADDRESS}): `nearkin search` asks it; this needs one in the folder itself")
    model = load(folder, device=device)
    return Collection(folder, model, LocalIndex.open(folder / "index", model=model_version(folder)))


def build_index(
    folder: str | Path,
    data: Dataset,
    *,
    backend: str = "exact",
    replace: bool = False,
    device: str | None = None,
    report: Report | None = None,
) -> tuple[Collection, Added]:
    """Index a data set in a model folder. With `replace` an index that is there stays in use until the new one is whole."""
    folder = Path(folder)
    model, version = load(folder, device=device), model_version(folder)
    about: dict[str, Any] = {"metric": model.about["metric"], "dimension": int(model.about["network"]["dimension"])}
    place = folder / "index"
    if (place / "manifest.json").exists():
        if not replace and LocalIndex.open(place).count:  # one that was stopped before its first points is made anew
            raise FileExistsError(f"{folder} has an index already; --add adds to it, --replace makes it anew")
        index = LocalIndex.open(place)
        count = index.replace(embedded_entries(folder, model, data, range(len(data)), report), model=version, **about)
        collection, added = Collection(folder, model, index), Added(count, 0, len(data) - count)
        collection.calibrate()
    else:
        collection = Collection(folder, model, LocalIndex.create(place, model=version, **about))
        added = collection.add(data, report)
    if backend != "exact":
        inform(report, f"building {backend} over {collection.index.count:,} points")
        collection.index.build(backend)
    return collection, added


def model_version(folder: Path) -> str:
    """A hash of all that decides where a point is embedded: the weights that `load` takes, and model.json."""
    about = about_of(folder)
    whole = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    best = folder / "best.safetensors"
    with (best if best.exists() else folder / "weights.safetensors").open("rb") as file:
        whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def embedded_entries(folder: Path, model: Model, data: Dataset, rows: Sequence[int], report: Report | None) -> Iterator[Entries]:
    """The points in these rows, embedded, in batches."""
    workers = None if len(rows) > MIN_FILES_FOR_WORKERS else 0
    loader = Loader(data, device=model.device, resident_bytes=0, workers=workers, report=report)
    ticker = Ticker(report, f"indexing {data.name}", len(rows), "points")
    splits, sources, done = _splits(folder, data), source_names(data), 0
    for inputs, ids in loader(torch.split(data.ids[torch.as_tensor(list(rows))], BATCH)):
        at = data.rows(ids.cpu()).tolist()
        yield Entries(
            np.asarray(torch.as_tensor(model.encode(inputs)).cpu()),
            labels=[_label(data, row) for row in at],
            sources=[sources[row] for row in at],
            metadata=[_metadata(data, row, splits[row]) for row in at],
            thumbnails=_thumbnails(data, at),
        )
        done += len(at)
        ticker.update(done)


def _label(data: Dataset, row: int) -> str | None:
    """The name of a point's class, None where that is not known."""
    number = -1 if data.labels is None else int(data.labels[row])
    return data.classes[number] if number >= 0 else None


def _metadata(data: Dataset, row: int, split: str) -> dict[str, Any]:
    """What else is known of a point: its split, its numbers by name, its set of classes, its group."""
    found: dict[str, Any] = {"data": data.name}
    if split != WHOLE:
        found["split"] = split
    if data.targets is not None:
        numbers = [float(value) for value in data.targets[row]]
        names = data.target_names or ([f"target {i}" for i in range(len(numbers))] if len(numbers) > 1 else ["target"])
        found |= dict(zip(names, numbers, strict=True))
    if data.sets is not None:
        found["set"] = [name for name, held in zip(data.classes, data.sets[row].tolist(), strict=True) if held]
    if data.groups is not None:
        found["group"] = int(data.groups[row])
    return found


def _thumbnails(data: Dataset, rows: Sequence[int]) -> list[bytes]:
    if isinstance(data.inputs, Files):
        return [thumbnail.of_file(data.inputs.paths[row]) for row in rows]
    return [thumbnail.of_pixels(image) for image in data.read(data.ids[list(rows)])] if data.kind == "images" else []


def _splits(folder: Path, data: Dataset) -> Sequence[str]:
    """The part of the training each point was in, if these are the data the model was trained on; else as the data say."""
    run, page = folder / "run.json", folder / "split.json"
    if not run.exists() or not page.exists():
        return [str(name) for name in data.split]
    made = json.loads(page.read_text(encoding="utf-8"))
    source = Path(json.loads(run.read_text(encoding="utf-8"))["data"]["source"]).resolve()
    names = np.array(data.split, dtype="<U10")
    within = np.flatnonzero(names == "train") if "cut" in made else np.arange(len(data))
    cut = made.get("cut", made)
    if data.name in (source.name, source.stem) and cut.get("points") == len(within):
        names[names == WHOLE] = "train"  # where nothing was held out
        for name, rows in cut.get("rows", {}).items():
            names[within[rows]] = name
    return [str(name) for name in names]
