"""`nearkin pick`: what to label next, as a table with an empty column for the label."""

import csv
import io
import json
from argparse import Namespace
from typing import Any

from nearkin.cli.clean import carried, output_folder, say_kept, table_of, write
from nearkin.cli.progress import TrainingView
from nearkin.cli.terminal import Terminal
from nearkin.cli.unlearned import Unlearned, place_names, unlearned
from nearkin.data.cells import inert
from nearkin.evaluate import pick

SHOWN = 10
COLUMNS = ("path", "label", "reason", "uncertainty")


def run(arguments: Namespace) -> int:
    """Write picks.csv and picks.json, then print the first rows."""
    out = output_folder(arguments, "pick")
    with TrainingView("pick") as view:
        found = unlearned(arguments, out, view)
        view.message(f"choosing from {len(found.data):,} points by {found.words}")
        rows = picked(found, arguments.budget, arguments.seed)
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, COLUMNS)
    writer.writeheader()
    writer.writerows({name: inert(str(value)) for name, value in row.items()} for row in rows)
    text, kept = carried(out, "picks", file.getvalue(), ("path",))
    write(out / "picks.csv", text)
    write(out / "picks.json", json.dumps({"data": arguments.data, "chosen by": found.words, "picks": rows}, indent=1) + "\n")
    console = Terminal(highlight=False)
    console.print(table_of(("path", "reason"), rows[:SHOWN]))
    console.print(
        f"{len(rows):,} points to label are in {out / 'picks.csv'}. Fill in the column label, then pass the file as --labels to "
        "`nearkin pick` for the next points, or to `nearkin train`.",
        soft_wrap=True,
        markup=False,
    )
    say_kept(kept, out / "picks.csv")
    return 0


def picked(found: Unlearned, budget: int, seed: int) -> list[dict[str, Any]]:
    """The rows of the table."""
    data = found.data
    chosen = pick(found.embeddings, data.labels, budget, found.affinity, seed=seed, classes=data.classes)
    names = place_names(data)
    return [
        {"path": names[row], "label": "", "reason": reason, "uncertainty": round(float(chosen.uncertainty[row]), 4)}
        for row, reason in zip(chosen.rows.tolist(), chosen.reasons, strict=True)
    ]
