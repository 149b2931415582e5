"""`nearkin predict`: the label of new images, texts or vectors, by the vote of their nearest training points."""

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table
from rich.text import Text

from nearkin import data as sources
from nearkin.cli.clean import csv_of, write
from nearkin.cli.datasets import choice_of, new_points
from nearkin.cli.progress import note
from nearkin.cli.search import image_files_of, rounded, text_of
from nearkin.cli.terminal import Terminal
from nearkin.data.delimited import TABLE_SUFFIXES, is_table
from nearkin.data.images import DamagedImageError
from nearkin.data.sources.vector_tables import VECTOR_SUFFIXES
from nearkin.data.texts import Texts
from nearkin.index.collection import Collection, open_index
from nearkin.models.folder import Inputs, Model, load

TOGETHER = 256  # points predicted at once
SHOWN = 10  # of predictions that go to a file
NONE_OF_THESE = "none of these"
Predict = Callable[[list[str], Inputs, int], Iterator[dict[str, Any]]]


def run(arguments: Namespace) -> int:
    """Predict every query and print a table or JSON."""
    how = {"device": arguments.device, "verify": not arguments.no_verify}
    model = load(arguments.folder, **how)
    if arguments.reject is not None or model.references is None:  # by the index, which has held-out points
        predict: Predict = partial(_by_index, open_index(arguments.folder, **how), arguments.reject)
    else:
        predict = partial(by_references, model)
    found = predicted(arguments, model, predict)
    if arguments.out is not None:
        write(Path(arguments.out), csv_of(found))
    if arguments.json:
        json.dump(found, sys.stdout, indent=1)
        sys.stdout.write("\n")
        return 0
    names = [name for name in found[0] if name != "query"]
    table = Table("query", *names)
    for row in found if arguments.out is None else found[:SHOWN]:
        table.add_row(Text(row["query"]), *(Text(cell_of(row[name])) for name in names))
    console = Terminal(highlight=False, soft_wrap=True, width=1000)
    console.print(table)
    if arguments.out is not None:
        console.print(f"{len(found):,} predictions are in {arguments.out}", markup=False)
    return 0


def predicted(arguments: Namespace, model: Model, predict: Predict) -> list[dict[str, Any]]:
    """What `predict` says of every query."""
    if model.reads_texts:
        column = choice_of(Path(arguments.folder), verify=not arguments.no_verify).text_column or "text"
        found = [row for query in arguments.queries for row in _of_texts(query, column, arguments.k, predict)]
    else:
        found = [row for query in arguments.queries for row in _predictions(model, query, arguments.k, predict)]
    if not found:
        raise ValueError("none of the queries could be read; see the messages above")
    return found


def _predictions(model: Model, query: str, k: int, predict: Predict) -> Iterator[dict[str, Any]]:
    if query.lower().endswith((*VECTOR_SUFFIXES, *TABLE_SUFFIXES)):
        data = new_points(model.about, query, report=note)
        for ids in torch.split(data.ids, TOGETHER):
            names = [data.sources[row] for row in data.rows(ids).tolist()]
            yield from predict(names, data.read(ids).numpy(), k)
        return
    paths = image_files_of(query)
    for start in range(0, len(paths), TOGETHER):
        yield from _files(predict, paths[start : start + TOGETHER], k)


def _of_texts(query: str, column: str, k: int, predict: Predict) -> Iterator[dict[str, Any]]:
    """A sentence, a .txt file, or a table with the same column of texts as the training data."""
    if not is_table(query) or query.lower().endswith(".txt"):
        name, text = text_of(query)
        yield from predict([name], [text], k)
        return
    data = sources.open(
        query, text_column=column, on_error="skip", report=note
    )  # rows without a text are named and skipped, like damaged images
    assert isinstance(data.inputs, Texts)
    for start in range(0, len(data), TOGETHER):
        yield from predict(list(data.sources[start : start + TOGETHER]), list(data.inputs.texts[start : start + TOGETHER]), k)


def _files(predict: Predict, paths: list[str], k: int) -> Iterator[dict[str, Any]]:
    """All at once; if a file is damaged, each half again, until it is found, reported and skipped."""
    try:
        found = list(predict(paths, paths, k))
    except DamagedImageError as error:
        if len(paths) == 1:
            note(f"skipped: {error}")
            return
        found = [*_files(predict, paths[: len(paths) // 2], k), *_files(predict, paths[len(paths) // 2 :], k)]
    yield from found


def by_references(model: Model, names: list[str], inputs: Inputs, k: int) -> Iterator[dict[str, Any]]:
    """One row for each query: the class and the share of its neighbors that agree, or the numbers."""
    answers = np.asarray(model.predict(inputs, k, numbers=True))
    if model.about["supervision"] != "classes":
        targets = model.about["targets"] or [f"target {at}" for at in range(answers.shape[1])]
        for name, values in zip(names, answers.tolist(), strict=True):
            yield {"query": name, **dict(zip(targets, values, strict=True))}
        return
    if model.votes_softly:
        shares = model.shares(inputs).max(1).values.tolist()
        for name, number, share in zip(names, answers.tolist(), shares, strict=True):
            yield {"query": name, "label": model.classes[number], "probability": share}
        return
    assert model.references is not None and model.references.labels is not None
    near = model.references.labels[model.neighbors(inputs, k).positions].cpu().numpy()
    for name, number, voters in zip(names, answers.tolist(), near, strict=True):
        yield {"query": name, "label": model.classes[number], "agreement": float((voters == number).mean())}


def _by_index(collection: Collection, reject: float | None, names: list[str], inputs: Inputs, k: int) -> Iterator[dict[str, Any]]:
    """The same by the labeled points of the index; "none of these" for queries that are rejected."""
    targets = collection.model.about["targets"]
    if targets and reject is None and not collection.index.labels:
        answers = collection.search_vectors(np.asarray(collection.model.encode(inputs)), k)
        for name, answer in zip(names, answers, strict=True):
            yield {"query": name, **{target: float(np.mean([hit.metadata[target] for hit in answer.hits])) for target in targets}}
        return
    for name, vote in zip(names, collection.votes(inputs, k, reject=reject), strict=True):
        yield {"query": name, "label": NONE_OF_THESE if vote.label is None else vote.label, "agreement": vote.agreement}


def cell_of(value: Any) -> str:
    """A value as it is printed."""
    return rounded(value) if isinstance(value, float) else str(value)
