"""What both forms of `nearkin evaluate` show and write: progress, the table of figures, and files."""

import math
import platform
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import torch
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from nearkin import __version__
from nearkin.cli.printed import visible
from nearkin.cli.terminal import Terminal
from nearkin.data.checksums import write_recorded
from nearkin.data.disk import explain_full_disk, replacing
from nearkin.data.progress import Progress as ProgressLine
from nearkin.data.progress import Report
from nearkin.models.folder import Model
from nearkin.report import descriptions
from nearkin.report.html import table_rows
from nearkin.report.measure import Measured


def output_folder(arguments: Namespace, folder: Path) -> Path:
    """--out, or the model folder for the run's own test part, or a folder in it named after other queries or weights."""
    if arguments.out:
        return Path(arguments.out)
    source = None if arguments.data is None else Path(arguments.data).resolve()
    names = [] if source is None else [source.name if source.is_dir() else source.stem]
    names += [arguments.part] if arguments.part != "test" else []
    names += [arguments.weights] if arguments.weights != "best" else []
    return folder / "-".join(["evaluation", *names]) if names else folder


@contextmanager
def progress() -> Iterator[Report]:
    """Yield a function that shows each message: one live line on a terminal, plain lines otherwise."""
    console = Terminal(stderr=True, highlight=False)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def show(line: str) -> None:
            if not console.is_terminal:
                console.print(line, markup=False, soft_wrap=True)
            elif isinstance(line, ProgressLine):
                bar.update(task, description=visible(line.what), total=line.total, completed=line.done)
            else:
                bar.update(task, description=visible(line), total=None)

        yield show


def provenance(arguments: Namespace, folder: Path, model: Model, seconds: float) -> dict[str, object]:
    """The command, the weights, the device, the versions and the seconds it took."""
    command = ["nearkin evaluate", str(folder), *([arguments.data] if arguments.data else [])]
    command += ["--part", arguments.part] if arguments.part != "test" else []
    command += ["--weights", arguments.weights] if arguments.weights != "best" else []
    command += [f"--{flag}" for flag in ("compare", "probes") if getattr(arguments, flag)]
    best = arguments.weights == "best" and (folder / "best.safetensors").exists()
    return {
        "model": str(folder),
        "command": " ".join(command),
        "weights": "best on the validation part" if best else "last",
        "seconds": round(seconds, 2),
        "device": _device(model),
        "versions": {"nearkin": __version__, "python": platform.python_version(), "torch": version("torch")},
    }


def _device(model: Model) -> str:
    if model.device.type == "cuda":
        return torch.cuda.get_device_name(model.device)
    return f"cpu ({platform.machine()}), threads: {torch.get_num_threads()}"


def score_table(measured: Measured) -> Table:
    """All figures, one section for each family."""
    table = Table("figure", "value", "interval", "chance", "left out")
    table.caption, table.caption_justify = "intervals are of 95 %; those of clusters are the range over restarts of k-means", "left"
    for column in table.columns[1:4]:
        column.justify = "right"
    family = None
    for name, score in table_rows(measured):
        if name != family:
            table.add_section()
            table.add_row(f"[bold]{name}[/]")
            family = name
        value, chance = descriptions.number(score.value, score.name), descriptions.number(score.chance, score.name)
        table.add_row(score.name, value, descriptions.interval(score), chance, descriptions.left_out(score) or "0")
    return table


def write_result(path: Path, text: str, folder: Path) -> None:
    """Write a file that is always whole; in the model folder its checksum is recorded, too."""
    with explain_full_disk(path.parent, "run the same command again; the previous file is unchanged"):
        if path.resolve().is_relative_to(folder.resolve()):
            write_recorded(path, text, folder)
        else:
            with replacing(path) as file:
                file.write(text.encode())


def json_safe(value: object) -> object:
    """Replace NaN and infinity, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {key: json_safe(inside) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(inside) for inside in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
