"""`nearkin evaluate --shards`: the references are a folder of shards, which may be larger than memory."""

import json
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from rich.console import Console

from nearkin.cli.evaluate import about, asked_of, finite, place_of, put, score_table, watch
from nearkin.cluster.evaluate import Asked, Where, judge
from nearkin.cluster.session import check_address
from nearkin.data.corrections import source_names
from nearkin.data.shards import open_shards
from nearkin.index.collection import model_version
from nearkin.models.folder import load
from nearkin.report.html import figures
from nearkin.report.subject import embedded, in_classes_of

NOTE = (
    "Over shards only what ranks decide is measured. Sums over all references or pairs (nearest class mean, soft neighbors, curves, "
    "geometry), figures of the queries alone (clustering, their own neighborhoods), suspected labels and pictures take `nearkin "
    "evaluate` without --shards."
)


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
        known = side.data.classes if side.data.supervision == "sets" else classes
        given = Asked(side.points, source_names(side.data), side.data.supervision, known, asked.split)
        measured = judge(given, shards, model.affinity, Where(arguments.engine, arguments.address), report)
    measured.notes += [*asked.notes, NOTE]
    console = Console(highlight=False)
    console.print(f"{len(side):,} queries ({asked.split}) answered by {len(shards):,} points of {shards.folder}.", markup=False)
    console.print(score_table(measured))
    page: dict[str, Any] = {
        **about(arguments, folder, model, time.perf_counter() - began),
        "objective": model.about["objective"],
        "metric": shards.about.metric,
        "supervision": shards.about.supervision,
        "queries": {"part": asked.split, "points": len(side), "left_out": side.left_out},
        "references": {"shards": str(shards.folder), "points": len(shards), "files": len(shards.records), "data": shards.about.data},
        **figures(measured, known),
    }
    out = place_of(arguments, folder)
    out.mkdir(parents=True, exist_ok=True)
    put(out / "evaluation.json", json.dumps(finite(page), indent=2, allow_nan=False) + "\n")
    for line in (*measured.notes, f"evaluation.json in {out}"):
        console.print(line, markup=False, soft_wrap=True)
    return 0


def _check(arguments: Namespace, folder: Path) -> None:
    for flag in ("compare", "probes", "figures"):
        if getattr(arguments, flag):
            raise ValueError(f"--{flag} needs the references in memory; leave --shards or --{flag} out")
    if arguments.weights == "last" and (folder / "best.safetensors").exists():
        raise ValueError("--weights last: shards are embedded by the best weights; leave one of the two out")
    if arguments.address and arguments.engine != "ray":
        raise ValueError("--address is of a Ray cluster; give --engine ray, too")
    if arguments.address:
        check_address(arguments.address)  # before anything is embedded
