"""`nearkin evaluate --shards`: the references are a folder of shards, which may be larger than memory."""

import json
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from nearkin.cli.evaluate import about, asked_of, finite, put, watch
from nearkin.cluster.evaluate import judge
from nearkin.collection import model_version
from nearkin.data.corrections import points_of
from nearkin.evaluate import Score
from nearkin.explore import words
from nearkin.explore.subject import embedded, in_classes_of
from nearkin.model import load
from nearkin.shards import open_shards

NOTE = "Of shards only what the nearest few decide is measured; rankings of everything, curves and pictures need the references in memory."


def run(arguments: Namespace) -> int:
    """Search the shards for every query, print and write evaluation.json."""
    began, folder = time.perf_counter(), Path(arguments.folder)
    _check(arguments, folder)
    shards = open_shards(arguments.shards)
    shards.check_model(model_version(folder))
    model = load(folder, device=arguments.device)
    with watch() as report:
        asked = asked_of(arguments, folder, report)
        side = embedded(model, asked.data, "queries", report)
        side, classes = in_classes_of(side, shards.about.classes)
        report(f"searching {len(shards):,} points in {len(shards.records):,} shards")
        judged = judge(
            side.points,
            points_of(side.data),
            shards,
            model.affinity,
            split=asked.split,
            engine=arguments.engine,
            address=arguments.address,
        )
    console = Console(highlight=False)
    console.print(f"{len(side):,} queries ({asked.split}) answered by {len(shards):,} points of {shards.folder}.", markup=False)
    console.print(_table(judged.scores))
    page: dict[str, Any] = {
        **about(arguments, folder, model, time.perf_counter() - began),
        "metric": shards.about.metric,
        "supervision": shards.about.supervision,
        "classes": list(classes),
        "queries": {"part": asked.split, "points": len(side), "left_out": side.left_out},
        "references": {"shards": str(shards.folder), "points": len(shards), "files": len(shards.records), "data": shards.about.data},
        "scores": {"prediction from neighbours": {name: score.as_dict() for name, score in judged.scores.items()}},
        "notes": [NOTE, *asked.notes],
    }
    out = Path(arguments.out or folder)
    out.mkdir(parents=True, exist_ok=True)
    put(out / "evaluation.json", json.dumps(finite(page), indent=2, allow_nan=False) + "\n")
    console.print(f"evaluation.json in {out}. {NOTE}", markup=False, soft_wrap=True)
    return 0


def _check(arguments: Namespace, folder: Path) -> None:
    for flag in ("compare", "probes", "figures"):
        if getattr(arguments, flag):
            raise ValueError(f"--{flag} needs the references in memory; leave --shards or --{flag} out")
    if arguments.weights == "last" and (folder / "best.safetensors").exists():
        raise ValueError("--weights last: shards are embedded by the best weights; leave one of the two out")
    if arguments.address and arguments.engine != "ray":
        raise ValueError("--address is of a Ray cluster; give --engine ray, too")


def _table(scores: dict[str, Score]) -> Table:
    table = Table("figure", "value", "95 % interval", "chance", "left out")
    for column in table.columns[1:4]:
        column.justify = "right"
    for name, score in scores.items():
        value, chance = words.number(score.value, name), words.number(score.chance, name)
        table.add_row(name, value, words.interval(score), chance, words.left_out(score) or "0")
    return table
