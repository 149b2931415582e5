"""A view: one model's census and atlas under a name. The explorer shows one, or two of the same points side by side."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nearkin.data.progress import Report
from nearkin.index.snapshot import Snapshot
from nearkin.report import projection
from nearkin.serve.atlas import store
from nearkin.serve.atlas.census import Census, in_terms_of, shared, take
from nearkin.serve.atlas.draw import Atlas, draw, possible_method, redrawn


class Place(NamedTuple):
    """A model folder and the generation of its index that is looked at."""

    folder: Path
    snapshot: Snapshot


class View(NamedTuple):
    """What the explorer shows of one model."""

    name: str
    census: Census
    atlas: Atlas


def views(places: Sequence[Place], method: projection.Method = "tsne", report: Report | None = None) -> Iterator[list[View]]:
    """The views of one or two models: as soon as neighbors and a map by PCA are there, and once more when t-SNE is.

    What was drawn before for the very same points is taken from the model folder, and what is drawn is left there.
    """
    censuses, keys = _same_points(places), [_key(place, places) for place in places]
    names = [_name(place.folder, places) for place in places]
    methods = [possible_method(census, method) for census in censuses]
    atlases = [store.load(_path(place, places), {**key, "method": way}) for place, key, way in zip(places, keys, methods, strict=True)]
    first = [draw(census, "pca", report) if atlas is None else atlas for census, atlas in zip(censuses, atlases, strict=True)]
    yield [View(*parts) for parts in zip(names, censuses, first, strict=True)]
    last = list(first)
    for at, (atlas, way) in enumerate(zip(atlases, methods, strict=True)):
        if atlas is not None:
            continue
        last[at] = first[at] if way == "pca" else redrawn(first[at], censuses[at], way, report)
        store.save(_path(places[at], places), last[at], {**keys[at], "method": way})
    if any(a is not b for a, b in zip(first, last, strict=True)):
        yield [View(*parts) for parts in zip(names, censuses, last, strict=True)]


def was_drawn(places: Sequence[Place]) -> bool:
    """Whether something was drawn before, so that taking it up costs seconds and not minutes."""
    return all(_path(place, places).exists() for place in places)


def _same_points(places: Sequence[Place]) -> list[Census]:
    taken = [take(place.snapshot) for place in places]
    if len(taken) == 1:
        return taken
    rows = shared(*taken)
    one, other = (census.subset(at) for census, at in zip(taken, rows, strict=True))
    return [one, in_terms_of(other, one)]


def _key(place: Place, places: Sequence[Place]) -> dict[str, Any]:
    """All that an atlas depends on: the indexes, which of them answers, and the map asked for."""
    stands = [[str(one.snapshot.manifest["model"]), int(one.snapshot.manifest["generation"]), len(one.snapshot)] for one in places]
    return {"of": places.index(place), "stands": stands}


def _path(place: Place, places: Sequence[Place]) -> Path:
    return place.folder / "atlas" / ("alone.safetensors" if len(places) == 1 else "beside_another.safetensors")


def _name(folder: Path, places: Sequence[Place]) -> str:
    """The folder's name, with its parent's where both folders are called alike."""
    folder = folder.resolve()
    alike = len({place.folder.resolve().name for place in places}) < len(places)
    return f"{folder.parent.name}/{folder.name}" if alike else folder.name
