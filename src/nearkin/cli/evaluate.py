"""`nearkin evaluate`: measure whether a model's neighbors are right; prints a table, writes evaluation.json and report.html."""

import json
import math
import time
from argparse import Namespace
from pathlib import Path

import torch
from rich.markup import escape
from rich.table import Table

from nearkin.cli.evaluation_data import queries_for
from nearkin.cli.evaluation_output import json_safe, output_folder, progress, provenance, score_table, write_result
from nearkin.cli.terminal import Terminal
from nearkin.data.disk import replacing
from nearkin.data.progress import Report
from nearkin.models.folder import Model, load
from nearkin.report import descriptions
from nearkin.report.baselines import check_comparable, compare, compare_with_raw_inputs, frozen_rows
from nearkin.report.html import Findings, as_html, as_json, table_rows
from nearkin.report.illustrate import Illustration, illustrate
from nearkin.report.inspection import inspect
from nearkin.report.measure import GEOMETRY, PROBES, measure, measure_rescaled
from nearkin.report.probes import check_probed, probe
from nearkin.report.sanity import suspects_table
from nearkin.report.subject import Subject, embedded, in_classes_of, with_distinct_ids

SIGNS = {"fine": "[green]✓ fine [/]", "look": "[yellow]! look [/]", "wrong": "[red]✗ wrong[/]"}
UNLABELED_TRAINING_PART = "The training data have no labels, so each query is compared with the other queries."


def run(arguments: Namespace) -> int:
    """Evaluate, write the files, print the table."""
    if arguments.shards:
        from nearkin.cli.evaluate_shards import run_over_shards

        return run_over_shards(arguments)
    began = time.perf_counter()
    folder = Path(arguments.folder)
    out = output_folder(arguments, folder)
    model = load(folder, which=arguments.weights, device=arguments.device, verify=not arguments.no_verify)
    console = Terminal(highlight=False)
    with progress() as report:
        subject = _subject(arguments, folder, model, report)
        if arguments.compare:
            check_comparable(subject)
        if arguments.probes:
            check_probed(subject)
        measured = measure(subject, report, pairs=arguments.pairs)
        if arguments.rescale:
            measure_rescaled(subject, measured, arguments.rescale, report)
        sanity = inspect(subject, float(measured.scores[GEOMETRY]["effective_rank"]), report, labels=not arguments.no_label_check)
        if arguments.probes:
            measured.scores[PROBES] = probe(subject, report)
        baselines = list(frozen_rows(subject, report))
        pictures = [] if arguments.no_pictures else _pictures(console, subject, measured, sanity, folder, report)
        if arguments.compare:  # the report first: fitting may take long, and what was measured is kept if it is interrupted
            about = provenance(arguments, folder, model, time.perf_counter() - began)
            _write(out, folder, Findings(subject, measured, sanity, baselines, about), pictures, arguments.figures)
            baselines = list(compare(subject, report))
        sanity.findings += [compare_with_raw_inputs(measured, baselines)] if baselines else []
    findings = Findings(subject, measured, sanity, baselines, provenance(arguments, folder, model, time.perf_counter() - began))
    written = _write(out, folder, findings, pictures, arguments.figures)  # before printing, which fails if the reader of a pipe has left
    _print(console, findings)
    console.print(written, soft_wrap=True, markup=False)
    return 0


def _subject(arguments: Namespace, folder: Path, model: Model, report: Report) -> Subject:
    """Embed the queries and the references: the held-out part against the training part, or DATA."""
    data, split, parts, notes = queries_for(arguments, folder, report)
    if "train" not in parts:
        raise ValueError("there is no training part to compare the queries with: give DATA with train and test parts")
    name = f"{split} part" if split == arguments.part else "queries"
    queries, classes = in_classes_of(embedded(model, data, name, report), model.classes)
    if data is parts["train"]:
        return Subject(model, queries, None, classes, data.supervision, split, notes)
    if data.supervision == "classes" and parts["train"].labels is None:
        return Subject(model, queries, None, classes, "classes", split, (*notes, UNLABELED_TRAINING_PART))
    gallery, classes = in_classes_of(embedded(model, parts["train"], "training part", report), classes)
    if arguments.data is not None:
        queries = with_distinct_ids(queries, gallery)
    supervision = queries.data.supervision if queries.data.supervision == gallery.data.supervision else "ids"
    alone = supervision == "classes" and _unseen(queries.points.labels, gallery.points.labels)
    others = []
    for name in [] if arguments.data is not None or supervision != "classes" else sorted(set(parts) - {"train", split}):
        side, classes = in_classes_of(embedded(model, parts[name], f"{name} part", report), classes)
        others.append(side)
    return Subject(model, queries, None if alone else gallery, classes, supervision, split, notes, tuple(others))


def _unseen(labels: torch.Tensor | None, known: torch.Tensor | None) -> bool:
    """Whether no query's class was trained on, so that the queries must be their own references."""
    assert labels is not None and known is not None
    return not bool(torch.isin(labels, known).any())


def _pictures(console: Terminal, *arguments: object) -> list[Illustration]:
    """All pictures, or a printed line on why there are none."""
    try:
        return list(illustrate(*arguments))  # type: ignore[arg-type]
    except ImportError as error:
        console.print(f"No pictures: {error}", markup=False)
        return []


def _print(console: Terminal, findings: Findings) -> None:
    subject = findings.subject
    references = "one another" if subject.gallery is None else f"{len(subject.gallery):,} references ({subject.gallery.name})"
    console.print(f"{len(subject.queries):,} queries ({subject.split}) compared with {references}.", markup=False)
    for note in findings.measured.notes:
        console.print(note, markup=False)
    console.print(score_table(findings.measured))
    if findings.baselines:
        console.print(_baseline_table(findings))
    for one in findings.sanity.findings:
        console.print(f"{SIGNS[one.level]} {one.check}: {escape(one.found)} {one.fix}".rstrip())


def _baseline_table(findings: Findings) -> Table:
    ours = {score.name: score for _, score in table_rows(findings.measured)}
    names = [name for name in ("1-nn", "10-nn", "map@r", "mae", "r2") if name in findings.baselines[0].scores]
    notes = [f"{baseline.name}: {baseline.note}." for baseline in findings.baselines if baseline.note]
    table = Table("embedding", "dimensions", *names, "seconds to fit", caption="\n".join(notes), caption_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    dimension = findings.subject.queries.points.embeddings.shape[1]
    values = (descriptions.number(float(ours[name]) if name in ours else math.nan, name) for name in names)
    table.add_row("this model", str(dimension), *values)
    for baseline in findings.baselines:
        if baseline.scores:
            values = (descriptions.number(float(baseline.scores[name]), name) for name in names)
            table.add_row(baseline.name, str(baseline.dimension), *values, f"{baseline.seconds:.1f}")
    return table


def _write(out: Path, folder: Path, findings: Findings, pictures: list[Illustration], figures: bool) -> str:
    """Write all files; return a line that names them."""
    out.mkdir(parents=True, exist_ok=True)
    write_result(out / "evaluation.json", json.dumps(json_safe(as_json(findings)), indent=2, allow_nan=False) + "\n", folder)
    write_result(out / "report.html", as_html(findings, pictures), folder)
    written = ["evaluation.json", "report.html"]
    if findings.subject.supervision == "classes" and findings.sanity.judged_labels:
        write_result(out / "suspected_labels.csv", suspects_table(findings.sanity.suspects, findings.subject.classes), folder)
        written.append("suspected_labels.csv")
    if figures:
        (out / "figures").mkdir(exist_ok=True)
        for one in pictures:
            for suffix, content in ((".png", one.png), (".svg", one.svg)):
                with replacing(out / "figures" / f"{one.name}{suffix}") as file:
                    file.write(content)
        written.append("figures/")
    return f"Wrote {', '.join(written)} to {out}. Open {out / 'report.html'} in a browser."
