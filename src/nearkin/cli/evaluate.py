"""`nearkin evaluate`: are a model's neighbors right? A table, evaluation.json and report.html."""

import json
import math
import os
import platform
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from nearkin import __version__
from nearkin.cli.datasets import choice_of, open_for, own_data
from nearkin.data import Dataset, Partition
from nearkin.data.corrections import corrected
from nearkin.data.dataset import WHOLE
from nearkin.data.loader import without_damaged
from nearkin.data.progress import Progress as Line
from nearkin.data.progress import Report
from nearkin.models.folder import Model, about_of, channels_and_size, load
from nearkin.report import descriptions as words
from nearkin.report.checks import inspect
from nearkin.report.comparisons import beside_raw, check_comparable, compare
from nearkin.report.drawing import save
from nearkin.report.html import Findings, as_html, as_json, table_rows
from nearkin.report.illustrate import Illustration, illustrate
from nearkin.report.measure import GEOMETRY, PROBES, Measured, measure
from nearkin.report.probing import check_probed, probe
from nearkin.report.sanity import write_suspects
from nearkin.report.subject import Subject, embedded, in_classes_of, strangers_to

SIGNS = {"fine": "[green]✓ fine [/]", "look": "[yellow]! look [/]", "wrong": "[red]✗ wrong[/]"}
NOTHING_HELD_OUT = "Without labels the run held nothing out: the points it learned from ask one another."
NOBODY_KNOWS = "The points that the run learned from have no labels: the queries ask one another."


class Asked(NamedTuple):
    """The queries, which part they are, all parts of the data, and what was left out of them."""

    data: Dataset
    split: str
    parts: dict[str, Dataset]
    notes: tuple[str, ...]


def run(arguments: Namespace) -> int:
    """Evaluate, print, write."""
    if arguments.shards:
        from nearkin.cli.evaluate_shards import run as run_over_shards

        return run_over_shards(arguments)
    began = time.perf_counter()
    folder = Path(arguments.folder)
    out = place_of(arguments, folder)
    model = load(folder, which=arguments.weights, device=arguments.device)
    console = Console(highlight=False)
    with watch() as report:
        subject = _subject(arguments, folder, model, report)
        if arguments.compare:
            check_comparable(subject)
        if arguments.probes:
            check_probed(subject)
        measured = measure(subject, report)
        assert measured.found is not None
        sanity = inspect(subject, measured.found, float(measured.scores[GEOMETRY]["effective_rank"]), report)
        if arguments.probes:
            measured.scores[PROBES] = probe(subject, report)
        rivals = list(compare(subject, report)) if arguments.compare else []
        sanity.findings += [beside_raw(measured, rivals)] if rivals else []
        pictures = [] if arguments.no_pictures else _pictures(console, subject, measured, sanity, folder, report)
    findings = Findings(subject, measured, sanity, rivals, about(arguments, folder, model, time.perf_counter() - began))
    written = _write(out, findings, pictures, arguments.figures)  # first: whoever reads what is printed may have gone
    _print(console, findings)
    console.print(written, soft_wrap=True, markup=False)
    return 0


def place_of(arguments: Namespace, folder: Path) -> Path:
    """Where to write. The model folder keeps the report of the run's own test part; other queries or weights get a folder in it."""
    if arguments.out:
        return Path(arguments.out)
    given = None if arguments.data is None else Path(arguments.data).resolve()
    told = [] if given is None else [given.name if given.is_dir() else given.stem]
    told += [arguments.part] if arguments.part != "test" else []
    told += [arguments.weights] if arguments.weights != "best" else []
    return folder / "-".join(["evaluation", *told]) if told else folder


def asked_of(arguments: Namespace, folder: Path, report: Report) -> Asked:
    """Who asks: the part that the run held out, or DATA."""
    parts, notes = _parts(folder, arguments, report)
    wanted = arguments.part
    if arguments.data is None:
        if wanted not in parts and set(parts) == {"train"} and parts["train"].supervision == "ids":
            return Asked(parts["train"], "train", parts, (*notes, NOTHING_HELD_OUT))
        if wanted not in parts:
            raise ValueError(f"the run held out no {wanted} part (it has {', '.join(parts)}); name other data, or --part one of these")
        return Asked(parts[wanted], wanted, parts, notes)
    given = _opened(arguments, folder, arguments.data, report)
    parts = parts or {name: given.part(name) for name in given.parts}
    asked, split = (given.part(wanted), wanted) if wanted in given.parts else (given, f"all of {given.name}")
    return Asked(asked, split, parts, notes)


def _subject(arguments: Namespace, folder: Path, model: Model, report: Report) -> Subject:
    """Queries and gallery, as the run cut its data, or as DATA bring them."""
    wanted = arguments.part
    asked, split, parts, notes = asked_of(arguments, folder, report)
    if "train" not in parts:
        raise ValueError("there is no training part to answer the queries: the run names no data; give DATA with train and test parts")
    queries, classes = in_classes_of(embedded(model, asked, f"{split} part" if split == wanted else "queries", report), model.classes)
    if asked is parts["train"]:
        return Subject(model, queries, None, classes, "ids", split, notes)
    if asked.supervision == "classes" and parts["train"].labels is None:
        return Subject(model, queries, None, classes, "classes", split, (*notes, NOBODY_KNOWS))
    gallery, classes = in_classes_of(embedded(model, parts["train"], "training part", report), classes)
    if arguments.data is not None:
        queries = strangers_to(queries, gallery)
    supervision = queries.data.supervision if queries.data.supervision == gallery.data.supervision else "ids"
    alone = supervision == "classes" and _unseen(queries.points.labels, gallery.points.labels)
    return Subject(model, queries, None if alone else gallery, classes, supervision, split, notes)


def _unseen(asked: torch.Tensor | None, known: torch.Tensor | None) -> bool:
    """Whether no query's class was trained on: then the queries must be one another's gallery."""
    assert asked is not None and known is not None
    return not bool(torch.isin(asked, known).any())


def _parts(folder: Path, arguments: Namespace, report: Report) -> tuple[dict[str, Dataset], tuple[str, ...]]:
    """The run's data, split as split.json says, and a word on what was left out; nothing when the run names none."""
    choice = choice_of(folder)
    source = choice.source
    if not source:
        return {}, ()
    try:
        found = _opened(arguments, folder, source, report)
    except FileNotFoundError as error:
        fix = "" if choice.root else "; put them back there, or pass --data-root for a known set"
        raise FileNotFoundError(f"the training part is needed as references, and its data cannot be opened: {error}{fix}") from error
    data = without_damaged(found, report)  # as the training did before it cut them
    gone = len(found) - len(data)
    data = resplit(data, json.loads((folder / "split.json").read_text(encoding="utf-8")))
    notes = (f"{gone:,} of {len(found):,} files of {found.name} are damaged and were left out.",) if gone else ()
    return {name: data.part(name) for name in data.parts}, notes


def resplit(data: Dataset, written: dict[str, object]) -> Dataset:
    """The data as split.json cut them; data that have changed in number since are refused."""
    cut = written.get("cut", written)
    assert isinstance(cut, dict)
    if "rows" not in cut:
        return data if set(data.parts) != {WHOLE} else data.with_split(["train"] * len(data))
    made = Partition.from_dict(cut)
    rows = data.split == "train" if "cut" in written else np.ones(len(data), dtype=np.bool_)
    if int(rows.sum()) != len(made.names):
        raise ValueError(
            f"{data.name} has {int(rows.sum()):,} points where the training cut {len(made.names):,}: the data have changed since; "
            "train again, or evaluate on the data as they were"
        )
    names = data.split.astype("<U10")
    names[rows] = made.names
    return data.with_split(names)


def _opened(arguments: Namespace, folder: Path, what: str, report: Report) -> Dataset:
    """Data as the run would open them, brought to the model's shape where they are images."""
    about = about_of(folder)
    choice = choice_of(folder)
    channels, size = (None, choice.size) if own_data(what, choice) else channels_and_size(about)
    data = open_for(
        arguments,
        choice,
        what,
        size=size,
        channels=channels,
        **choice.columns(),
        on_error=choice.on_error,
        report=report,
    )
    data = corrected(data, choice.corrections if own_data(what, choice) else "", report)
    known = {"classes": data.labels, "numbers": data.targets, "sets": data.sets}.get(about["supervision"])
    return replace(data, by=about["supervision"]) if known is not None else data


def _pictures(console: Console, *what: object) -> list[Illustration]:
    """All pictures, or a word on why there are none."""
    try:
        return list(illustrate(*what))  # type: ignore[arg-type]
    except ImportError as error:
        console.print(f"No pictures: {error}", markup=False)
        return []


@contextmanager
def watch() -> Iterator[Report]:
    """A live line on a terminal, plain lines otherwise."""
    console = Console(stderr=True, highlight=False)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def told(line: str) -> None:
            if not console.is_terminal:
                console.print(line, markup=False, soft_wrap=True)
            elif isinstance(line, Line):
                bar.update(task, description=line.what, total=line.total, completed=line.done)
            else:
                bar.update(task, description=line, total=None)

        yield told


def about(arguments: Namespace, folder: Path, model: Model, seconds: float) -> dict[str, object]:
    """What was run, on what, and for how long."""
    command = ["nearkin evaluate", str(folder), *([arguments.data] if arguments.data else [])]
    command += ["--part", arguments.part] if arguments.part != "test" else []
    command += ["--weights", arguments.weights] if arguments.weights != "best" else []
    command += [f"--{flag}" for flag in ("compare", "probes") if getattr(arguments, flag)]
    best = arguments.weights == "best" and (folder / "best.safetensors").exists()
    return {
        "model": str(folder),
        "command": " ".join(command),
        "weights": "those that did best on the validation part" if best else "the last",
        "seconds": round(seconds, 2),
        "device": _device(model),
        "versions": {"nearkin": __version__, "python": platform.python_version(), "torch": version("torch")},
    }


def _device(model: Model) -> str:
    if model.device.type == "cuda":
        return torch.cuda.get_device_name(model.device)
    return f"cpu ({platform.machine()}), threads: {torch.get_num_threads()}"


def _print(console: Console, findings: Findings) -> None:
    subject = findings.subject
    answered = "one another" if subject.gallery is None else f"{len(subject.gallery):,} references ({subject.gallery.name})"
    console.print(f"{len(subject.queries):,} queries ({subject.split}) answered by {answered}.", markup=False)
    for note in findings.measured.notes:
        console.print(note, markup=False)
    console.print(score_table(findings.measured))
    if findings.rivals:
        console.print(_rival_table(findings))
    for one in findings.sanity.findings:
        console.print(f"{SIGNS[one.level]} {one.check}: {escape(one.found)} {one.mend}".rstrip())


def score_table(measured: Measured) -> Table:
    """Every figure, by family."""
    table = Table("figure", "value", "95 % interval", "chance", "left out")
    for column in table.columns[1:4]:
        column.justify = "right"
    family = None
    for name, score in table_rows(measured):
        if name != family:
            table.add_section()
            table.add_row(f"[bold]{name}[/]")
            family = name
        value, chance = words.number(score.value, score.name), words.number(score.chance, score.name)
        table.add_row(score.name, value, words.interval(score), chance, words.left_out(score) or "0")
    return table


def _rival_table(findings: Findings) -> Table:
    ours = {score.name: score for _, score in table_rows(findings.measured)}
    names = [name for name in ("1-nn", "10-nn", "map@r", "mae", "r2") if name in findings.rivals[0].scores]
    notes = [f"{rival.name}: {rival.note}." for rival in findings.rivals if rival.note]
    table = Table("embedding", "dimensions", *names, "seconds to fit", caption="\n".join(notes), caption_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    dimension = findings.subject.queries.points.embeddings.shape[1]
    table.add_row("this model", str(dimension), *(words.number(float(ours[name]) if name in ours else math.nan, name) for name in names))
    for rival in findings.rivals:
        if rival.scores:
            values = (words.number(float(rival.scores[name]), name) for name in names)
            table.add_row(rival.name, str(rival.dimension), *values, f"{rival.seconds:.1f}")
    return table


def _write(out: Path, findings: Findings, pictures: list[Illustration], figures: bool) -> str:
    """What was written, in words."""
    out.mkdir(parents=True, exist_ok=True)
    put(out / "evaluation.json", json.dumps(finite(as_json(findings)), indent=2, allow_nan=False) + "\n")
    put(out / "report.html", as_html(findings, pictures))
    written = ["evaluation.json", "report.html"]
    if findings.subject.supervision == "classes":
        written.append(write_suspects(out / "suspected_labels.csv", findings.sanity.suspects, findings.subject.classes).name)
    if figures:
        for one in pictures:
            for suffix in (".png", ".svg"):
                save(one.figure, out / "figures" / f"{one.name}{suffix}")
        written.append("figures/")
    return f"{', '.join(written)} in {out}; open {out / 'report.html'} in a browser"


def put(path: Path, text: str) -> None:
    """Written aside and then put in its place, so that nobody reads half a file."""
    aside = path.with_suffix(".writing")
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, path)


def finite(value: object) -> object:
    """NaN and infinity as None, which JSON can say."""
    if isinstance(value, dict):
        return {key: finite(inside) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inside) for inside in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
