"""`nearkin search`: the nearest neighbors of images, texts, points or vectors."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from nearkin.cli.datasets import new_points
from nearkin.cli.printed import visible
from nearkin.cli.progress import note
from nearkin.cli.terminal import Terminal
from nearkin.data.delimited import TABLE_SUFFIXES, is_table
from nearkin.data.files import listing
from nearkin.data.images import DamagedImageError
from nearkin.data.progress import few
from nearkin.data.sources.arrays import ARRAY_SUFFIXES, read_arrays
from nearkin.data.sources.folder import report_unread
from nearkin.data.sources.vector_tables import VECTOR_SUFFIXES
from nearkin.index.collection import Collection, open_index
from nearkin.index.contract import Answer, Hit, Where
from nearkin.index.given import is_given

TOGETHER = 256  # images encoded and searched at once
AFFINITY = {
    "squared_euclidean": "minus the squared distance, so 0 for the same point and negative for all others",
    "cosine": "the cosine of the angle, from -1 to 1",
    "inner_product": "the inner product",
    "hamming": "minus the number of bits that differ, so 0 for the same code",
}
RESCALED = {
    "csls": "CSLS: less near to points that are near to many others",
    "local_scaling": "local scaling: distances relative to how far a point's own neighbors are",
}
SHOWN = 4  # columns for metadata


class Result(NamedTuple):
    """A query and its answer."""

    query: str
    answer: Answer


def run(arguments: Namespace) -> int:
    """Search every query and print tables or JSON."""
    where = Where(labels=tuple(arguments.label), metadata=dict(_pair(text) for text in arguments.where))
    collection = open_index(arguments.folder, device=arguments.device, uri=arguments.uri, verify=not arguments.no_verify)
    found = list(_results(collection, arguments, where))
    if not found and arguments.queries:
        raise ValueError("none of the queries could be read; see the messages above")
    if not found:
        raise ValueError("nothing to search for: pass image files, folders, arrays or texts, or --id or --vector")
    known = list(collection.index.labels)
    for label in where.labels:
        if known and label not in known:
            note(f"no point has the label {label!r}; the labels are {few(known)}")
    if where.metadata and not any(result.answer.hits for result in found):
        asked = ", ".join(f"{name}={value}" for name, value in where.metadata.items())
        fix = "classes are chosen by --label" if "label" in where.metadata else "check the name and the value"
        note(f"no point passed --where {asked}; {fix}")
    if arguments.json:
        json.dump([_json(result, arguments.rescale) for result in found], sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        _show(collection, found, arguments.k, arguments.rescale)
    return 0


def _results(collection: Collection, arguments: Namespace, where: Where) -> Iterator[Result]:
    how = {"k": arguments.k, "where": where, "reject": arguments.reject, "rescale": arguments.rescale}
    suffixes = VECTOR_SUFFIXES if collection.model.reads_texts else (*VECTOR_SUFFIXES, *TABLE_SUFFIXES)
    arrays = [query for query in arguments.queries if query.lower().endswith(suffixes)]
    others = [query for query in arguments.queries if query not in arrays]
    if collection.model.reads_texts:
        for name, text in map(text_of, others):
            yield Result(name, collection.search(text, **how))
        others = []
    paths = [path for query in others for path in image_files_of(query)]
    for start in range(0, len(paths), TOGETHER):
        yield from _images(collection, paths[start : start + TOGETHER], how)
    for query in arrays:
        yield from _rows(collection, query, how)
    for point in arguments.id:
        try:
            yield Result(f"id {point}", collection.search(collection.number_of(point), **how))
        except KeyError as error:
            raise ValueError(f"--id: {error.args[0]}") from None
    for name, vector in _vectors(arguments.vector, collection.index.dimension):
        yield Result(name, collection.search(vector, **how))


def _images(collection: Collection, paths: list[str], how: Mapping[str, Any]) -> Iterator[Result]:
    """All at once. If a file is damaged, each half again, until the damaged file is found, reported and skipped."""
    try:
        answers = collection.search_files(paths, **how)
    except DamagedImageError as error:
        if len(paths) == 1:
            note(f"skipped: {error}")
        else:
            yield from _images(collection, paths[: len(paths) // 2], how)
            yield from _images(collection, paths[len(paths) // 2 :], how)
        return
    yield from map(Result, paths, answers)


def _rows(collection: Collection, query: str, how: Mapping[str, Any]) -> Iterator[Result]:
    """New points from an array file, vectors or images like the training data: encoded, then searched."""
    about = collection.model.about
    data = new_points(about, query, report=note)
    if tuple(data.shape) != tuple(about["shape"]):
        fix = "; pass embeddings with --vector" if data.shape == (collection.index.dimension,) else ""
        raise ValueError(f"{query} has points of shape {tuple(data.shape)}, and this model reads {tuple(about['shape'])}{fix}")
    for ids in torch.split(data.ids, TOGETHER):
        answers = collection.search_vectors(np.asarray(collection.model.encode(data.read(ids).numpy())), **how)
        yield from map(Result, (data.sources[row] for row in data.rows(ids).tolist()), answers)


def text_of(query: str) -> tuple[str, str]:
    """A name and a text: the query itself, or the content of a .txt file."""
    if not query.strip():
        raise ValueError("a query is an empty text; pass a sentence, or a .txt file")
    if query.lower().endswith(".txt") and Path(query).is_file():
        return query, Path(query).read_text(encoding="utf-8-sig")
    if is_table(query) and Path(query).is_file():
        raise ValueError(f"{query} is a table, and queries are sentences or .txt files; `nearkin predict` takes tables")
    return query, query


def image_files_of(query: str) -> list[str]:
    """The file itself, or all images of a folder."""
    if not Path(query).is_dir():
        return [query]
    report_unread(query, note)
    found = listing(query)
    if not found:
        raise ValueError(f"{query} holds no images")
    return found


def _vectors(text: str | None, dimension: int) -> list[tuple[str, np.ndarray]]:
    """Embeddings (d,) by name, from '1,2,3', a .npy file, or the .npz that `nearkin embed` writes."""
    if text is None:
        return []
    wanted = f"this index holds embeddings of {dimension} numbers"
    if text.lower().endswith(ARRAY_SUFFIXES):
        held = read_arrays(Path(text))
        if not {"embeddings", "x"} & set(held):
            raise ValueError(f"--vector {text} holds {few(sorted(held))}, and no embeddings; pass a file that `nearkin embed` wrote")
        vectors = np.atleast_2d(held["embeddings"] if "embeddings" in held else held["x"])
        if vectors.ndim != 2 or vectors.dtype.kind not in "fiu" or not vectors.size:
            raise ValueError(
                f"--vector {text} holds {vectors.dtype} {vectors.shape}; {wanted}: pass numbers (n, {dimension}), at least one row"
            )
        if vectors.shape[1] != dimension:
            raise ValueError(f"--vector {text} has shape {vectors.shape}; {wanted}: pass ({dimension},) or (n, {dimension})")
        names = held["sources"].tolist() if len(held.get("sources", ())) == len(vectors) else [f"vector {n}" for n in range(len(vectors))]
        return list(zip(names, vectors, strict=True))
    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        raise ValueError(f"--vector {text!r} must be numbers such as 0.1,-2,0.5, or a file that ends in .npy or .npz") from None
    if len(numbers) != dimension:
        raise ValueError(f"--vector has {len(numbers):,} numbers; {wanted}: pass as many, or a file (n, {dimension})")
    return [("vector 0", np.array(numbers, dtype=np.float32))]


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--where {text!r} must read key=value, such as split=test")
    return key, value


def _json(result: Result, rescale: str | None) -> dict[str, object]:
    answer = result.answer
    ranked = {"ranked_by": f"affinities rescaled by {rescale}"} if rescale else {}
    judged = {} if answer.rejected is None else {"none_of_these": answer.rejected, "p_value": answer.p_value}
    return {"query": result.query, "exact": answer.exact, **ranked, **judged, "neighbors": [hit._asdict() for hit in answer.hits]}


def _metadata(hits: Sequence[Hit]) -> list[tuple[str, list[str]]]:
    """The first few columns of metadata: numbers by name, sets of classes. --json prints all."""
    names = [name for name in dict.fromkeys(name for hit in hits for name in hit.metadata) if name not in ("data", "split", "group")]
    return [(name, [_cell(hit.metadata.get(name)) for hit in hits]) for name in names[:SHOWN]]


def rounded(value: float) -> str:
    """Four digits, and all of those before the point: 0.1235, 138600, 1.2e-07."""
    whole = value.is_integer() or abs(value) >= 1000
    return f"{value:.0f}" if whole and abs(value) < 1e15 else f"{value:.4g}"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return rounded(value)
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else "" if value is None else str(value)


def _show(collection: Collection, found: list[Result], k: int, rescale: str | None) -> None:
    console = Terminal(highlight=False, soft_wrap=True, width=1000)  # paths are not wrapped, so that they can be copied
    given = is_given(collection.folder)  # whose points are called by the ids of their table
    for query, answer in found:
        title = f"{query}: the {len(answer.hits)} nearest{'' if answer.exact else ' (approximate: a nearer one may be missing)'}"
        columns = [
            ("", [str(rank) for rank in range(1, len(answer.hits) + 1)]),
            ("affinity", [f"{hit.affinity:.4g}" for hit in answer.hits]),
            ("label", [hit.label or "" for hit in answer.hits]),
            *_metadata(answer.hits),
            ("same class", [{True: "likely", False: "unsure", None: ""}[hit.same_kind] for hit in answer.hits]),
            ("number" if given else "id", [str(hit.id) for hit in answer.hits]),
            ("id" if given else "path", [hit.source for hit in answer.hits]),
        ]
        shown = [column for column in columns if any(column[1]) or not answer.hits]  # without columns of blanks
        table = Table(*(escape(visible(name)) for name, _ in shown), title=Text(visible(title)), title_justify="left", title_style="bold")
        for row in zip(*(cells for _, cells in shown), strict=True):
            table.add_row(*(Text(visible(cell)) for cell in row))
        console.print(table)
        if answer.rejected is not None:
            verdict = "none of these: like no known class" if answer.rejected else "like the known ones"
            console.print(f"{verdict} (p = {answer.p_value:.3g}: share of known points that are no nearer to theirs)")
        if len(answer.hits) < k:
            console.print(f"{k} were requested; there are no more")
    console.print(f"affinity: {AFFINITY[collection.model.about['metric']]}; larger is nearer")
    if rescale:
        console.print(f"ranked by rescaled affinities ({RESCALED[rescale]}); the table shows the plain ones, so their order differs")
    rule = collection.index.calibration
    if rule is not None:
        console.print(f"same class: likely from affinity {rule['threshold']:.4g}, accuracy {rule['accuracy']:.1%} on {rule['fitted_on']}")
