"""`nearkin evaluate --shards`: the references are a folder of shards, which may be larger than memory."""

import json
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from nearkin.cli.evaluation_data import queries_for
from nearkin.cli.evaluation_output import json_safe, output_folder, progress, provenance, score_table, write_result
from nearkin.cli.terminal import Terminal
from nearkin.cluster.evaluate import Compute, Queries, judge
from nearkin.cluster.session import check_address
from nearkin.data.corrections import source_names
from nearkin.data.shards import open_shards
from nearkin.index.collection import model_version
from nearkin.models.folder import load
from nearkin.report.html import figures
from nearkin.report.subject import embedded, in_classes_of

NOTE = (
    "With --shards only figures that follow from ranks are measured. For the others (nearest class mean, soft neighbors, curves, geometry, "
    "clustering, consistency), suspected labels and pictures, run `nearkin evaluate` without --shards."
)


def run_over_shards(arguments: Namespace) -> int:
    """Search the shards for every query, print the table, write evaluation.json."""
    began, folder = time.perf_counter(), Path(arguments.folder)
    _check(arguments, folder)
    shards = open_shards(arguments.shards)
    shards.check_model(model_version(folder))
    model = load(folder, device=arguments.device, verify=not arguments.no_verify)
    with progress() as report:
        queries = queries_for(arguments, folder, report)
        side = embedded(model, queries.data, "queries", report)
        side, classes = in_classes_of(side, shards.about.classes)
        known = side.data.classes if side.data.supervision == "sets" else classes
        given = Queries(side.points, source_names(side.data), side.data.supervision, known, queries.split)
        measured = judge(given, shards, model.affinity, Compute(arguments.engine, arguments.address), report)
    measured.notes += [*queries.notes, NOTE]
    console = Terminal(highlight=False)
    console.print(f"{len(side):,} queries ({queries.split}) compared with {len(shards):,} points of {shards.folder}.", markup=False)
    console.print(score_table(measured))
    page: dict[str, Any] = {
        **provenance(arguments, folder, model, time.perf_counter() - began),
        "objective": model.about["objective"],
        "metric": shards.about.metric,
        "supervision": shards.about.supervision,
        "queries": {"part": queries.split, "points": len(side), "left_out": side.left_out},
        "references": {"shards": str(shards.folder), "points": len(shards), "files": len(shards.records), "data": shards.about.data},
        **figures(measured, known),
    }
    out = output_folder(arguments, folder)
    out.mkdir(parents=True, exist_ok=True)
    write_result(out / "evaluation.json", json.dumps(json_safe(page), indent=2, allow_nan=False) + "\n", folder)
    for line in (*measured.notes, f"Wrote evaluation.json to {out}."):
        console.print(line, markup=False, soft_wrap=True)
    return 0


def _check(arguments: Namespace, folder: Path) -> None:
    for flag in ("compare", "probes", "figures"):
        if getattr(arguments, flag):
            raise ValueError(f"--{flag} needs the references in memory; leave out --shards or --{flag}")
    if arguments.weights == "last" and (folder / "best.safetensors").exists():
        raise ValueError("--weights last: shards hold embeddings by the best weights; leave out --shards or --weights")
    if arguments.address and arguments.engine != "ray":
        raise ValueError("--address names a Ray cluster; add --engine ray")
    if arguments.address:
        check_address(arguments.address)  # before anything is embedded
