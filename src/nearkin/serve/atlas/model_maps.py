"""The maps that the explorer shows: one model, or two models of the same points side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nearkin.data.progress import Report, inform
from nearkin.index.contract import VectorIndex
from nearkin.models.folder import about_of
from nearkin.report import projection
from nearkin.serve.atlas import store
from nearkin.serve.atlas import table as table_size
from nearkin.serve.atlas.atlas import Atlas, build_atlas, judged, possible_method, with_map
from nearkin.serve.atlas.table import PointTable, read_table, shared_rows, with_labels_of


@dataclass(frozen=True)
class Indexed:
    """A model folder and its index, frozen at the generation that is shown."""

    folder: Path
    index: VectorIndex


class ModelMap(NamedTuple):
    """What the explorer shows of one model."""

    name: str
    table: PointTable
    atlas: Atlas


def build_maps(indexes: Sequence[Indexed], method: projection.Method = "tsne", report: Report | None = None) -> Iterator[list[ModelMap]]:
    """The maps of one or two models: first by PCA, which takes seconds, then with suspected labels, then by t-SNE if that is the method.

    An atlas that is stored in the model folder for the same points is reused. A new one is stored there.
    """
    for one in indexes:
        if one.index.count > table_size.MOST:
            inform(
                report, f"the map shows {table_size.MOST:,} of {one.index.count:,} points, drawn at random; searches compare all of them"
            )
    tables, keys = _same_points(indexes), [_key(at, indexes) for at in range(len(indexes))]
    names = [_name(one.folder, indexes) for one in indexes]
    paths = [_path(one, indexes) for one in indexes]
    methods = [possible_method(table, method) for table in tables]
    stored = [store.load(path, {**key, "method": way}) for path, key, way in zip(paths, keys, methods, strict=True)]
    first = [build_atlas(table, "pca", report) if atlas is None else atlas for table, atlas in zip(tables, stored, strict=True)]
    yield [ModelMap(*parts) for parts in zip(names, tables, first, strict=True)]
    if all(atlas is not None for atlas in stored):
        return
    named = list(zip(indexes, tables, first, strict=True))
    last = [judged(atlas, table, _written(one), report) for one, table, atlas in named]
    if any(a is not b for a, b in zip(first, last, strict=True)):
        yield [ModelMap(*parts) for parts in zip(names, tables, last, strict=True)]
    for at, (atlas, way) in enumerate(zip(stored, methods, strict=True)):
        if atlas is not None:
            continue
        last[at] = last[at] if way == "pca" else with_map(last[at], tables[at], way, report)
        try:
            store.save(paths[at], last[at], {**keys[at], "method": way})
        except OSError as error:  # a folder that may only be read, or a full disk: the map is complete without
            inform(report, f"the map is not kept for next time ({error.strerror or error})")
    if any(way != "pca" for way in methods):
        yield [ModelMap(*parts) for parts in zip(names, tables, last, strict=True)]


def _written(one: Indexed) -> Path | None:
    """The suspected labels that `nearkin evaluate` wrote for a model that was trained on its labels."""
    page = one.folder / "suspected_labels.csv"
    given = (one.folder / "model.json").exists() and "given" in about_of(one.folder)
    return page if page.exists() and not given else None


def are_stored(indexes: Sequence[Indexed]) -> bool:
    """Whether there are stored maps, which are loaded in seconds."""
    return all(_path(one, indexes).exists() for one in indexes)


def _same_points(indexes: Sequence[Indexed]) -> list[PointTable]:
    tables = [read_table(one.index, _targets(one.folder)) for one in indexes]
    if len(tables) == 1:
        return tables
    one, other = (table.subset(rows) for table, rows in zip(tables, shared_rows(*tables), strict=True))
    return [one, with_labels_of(other, one)]


def _targets(folder: Path) -> list[str] | None:
    """The metadata that are targets of given vectors or of a table's rows, whose other numbers are not; None for other models."""
    about = about_of(folder) if (folder / "model.json").exists() else {}
    return list(about["targets"]) if "given" in about or "table" in about else None


def _key(at: int, indexes: Sequence[Indexed]) -> dict[str, Any]:
    """All that an atlas depends on, apart from its method: the indexes, and which of them it shows."""
    return {"of": at, "indexes": [one.index.identity for one in indexes]}


def _path(one: Indexed, indexes: Sequence[Indexed]) -> Path:
    return one.folder / "atlas" / ("single.safetensors" if len(indexes) == 1 else "compared.safetensors")


def _name(folder: Path, indexes: Sequence[Indexed]) -> str:
    """The name of the folder, with its parent's name if both folders have the same name."""
    folder = folder.resolve()
    alike = len({one.folder.resolve().name for one in indexes}) < len(indexes)
    return f"{folder.parent.name}/{folder.name}" if alike else folder.name
