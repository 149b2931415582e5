"""`nearkin explain`: the training points that speak for a prediction, with their shares of the vote."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from nearkin.cli.evaluation_data import whole_data
from nearkin.cli.predict import by_references, cell_of, predicted
from nearkin.cli.printed import visible
from nearkin.cli.progress import note
from nearkin.cli.terminal import Terminal
from nearkin.data.dataset import Dataset
from nearkin.models.folder import Inputs, Model, load

SHOWN = 6  # columns of a training row; --json prints all


def run(arguments: Namespace) -> int:
    """Explain every query and print tables or JSON."""
    model = load(arguments.folder, device=arguments.device, verify=not arguments.no_verify)
    known = whole_data(arguments, Path(arguments.folder), note).part("train")
    known = known if known.table is None else known.labeled()  # all that a table's model keeps
    if model.references is None or model.references.labels is None or len(model.references.labels) != len(known):
        raise ValueError(f"{arguments.folder} does not keep its {len(known):,} training points with their labels, so that nothing can vote")
    found = predicted(arguments, model, partial(_explained, model, known))
    if arguments.json:
        json.dump(found, sys.stdout, indent=1)
        sys.stdout.write("\n")
        return 0
    console = Terminal(highlight=False, soft_wrap=True, width=1000)
    for row in found:
        console.print(_table(row))
    return 0


def _explained(model: Model, known: Dataset, names: list[str], inputs: Inputs, k: int) -> Iterator[dict[str, Any]]:
    """The prediction of each query, and the training points that vote for it."""
    positions, shares = (part.tolist() for part in model.voters(inputs, k))
    for row, near, parts in zip(by_references(model, names, inputs, k), positions, shares, strict=True):
        yield {**row, "voters": [_voter(model, known, at, share) for at, share in zip(near, parts, strict=True)]}


def _voter(model: Model, known: Dataset, at: int, share: float) -> dict[str, Any]:
    assert model.references is not None and model.references.labels is not None
    target: Any = model.references.labels[at].tolist()
    cells = {name: values[at] for name, values in known.columns.items() if values[at] is not None}
    if model.about["supervision"] == "classes":
        voted: Any = model.classes[target] if target >= 0 else None
    else:
        voted = [round(value, 6) for value in target]
    return {"share": share, "votes for": voted, "row": cells, "source": known.sources[at]}


def _table(row: dict[str, Any]) -> Table:
    said = ", ".join(f"{name} {cell_of(value)}" for name, value in row.items() if name not in ("query", "voters"))
    names = list(dict.fromkeys(name for one in row["voters"] for name in one["row"]))[:SHOWN]
    table = Table("share", "votes for", *map(visible, names), "source", title_justify="left", title_style="bold")
    table.title = Text(visible(f"{row['query']}: {said}"))
    for one in row["voters"]:
        voted = one["votes for"]
        shown = ", ".join(map(cell_of, voted)) if isinstance(voted, list) else voted or ""
        cells = (f"{one['share']:.3f}", shown, *(cell_of(one["row"].get(name, "")) for name in names), one["source"])
        table.add_row(*(Text(visible(cell)) for cell in cells))
    return table
