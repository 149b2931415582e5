"""`nearkin pick`: what to label next, as a table with an empty column for the label."""

import json
from argparse import Namespace
from typing import Any

from nearkin.cli.clean import carried, csv_of, next_commands, output_folder, say_kept, table_of, with_texts, write
from nearkin.cli.progress import TrainingView
from nearkin.cli.terminal import Terminal
from nearkin.cli.unlearned import Unlearned, place_names, unlearned
from nearkin.data import Dataset
from nearkin.evaluate import pick

SHOWN = 10


def run(arguments: Namespace) -> int:
    """Write picks.csv and picks.json, then print the first rows."""
    out = output_folder(arguments, "pick")
    with TrainingView("pick") as view:
        found = unlearned(arguments, out, view, _check_left)
        view.message(f"choosing from {len(found.data):,} points by {found.words}")
        rows = picked(found, arguments.budget, arguments.seed)
    text, kept = carried(out, "picks", csv_of(rows), ("path",))
    write(out / "picks.csv", text)
    write(out / "picks.json", json.dumps({"data": arguments.data, "chosen by": found.words, "picks": rows}, indent=1) + "\n")
    console = Terminal(highlight=False)
    shown = [name for name in ("path", "text", "reason") if name in rows[0]]
    console.print(table_of(shown, rows[:SHOWN], arguments.data))
    console.print(
        f"{len(rows):,} points to label are in {out / 'picks.csv'}. Fill in the column label, then pass the file as --labels to "
        "`nearkin pick` for the next points, or run:\n"
        + "\n".join(f"  nearkin {command}" for command in next_commands(arguments, str(out / "picks.csv"))),
        soft_wrap=True,
        markup=False,
    )
    say_kept(kept, out / "picks.csv")
    return 0


def _check_left(data: Dataset) -> None:
    if data.labels is not None and len(data) and bool((data.labels >= 0).all()):
        fix = "put images without a label into one folder without subfolders, or leave cells of the label column empty"
        raise ValueError(f"{data.name}: all {len(data):,} points have a label, so there is nothing to choose; {fix}")


def picked(found: Unlearned, budget: int, seed: int) -> list[dict[str, Any]]:
    """The rows of the table."""
    data = found.data
    chosen = pick(found.embeddings, data.labels, budget, found.affinity, seed=seed, classes=data.classes)
    names = place_names(data)
    rows = [
        {"path": names[row], "label": "", "reason": reason, "uncertainty": round(float(chosen.uncertainty[row]), 4)}
        for row, reason in zip(chosen.rows.tolist(), chosen.reasons, strict=True)
    ]
    return with_texts(rows, chosen.rows.tolist(), data)
