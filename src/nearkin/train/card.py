"""The model card: README.md of a model folder, what a new user should know before using the model."""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from nearkin.data.checksums import write_recorded
from nearkin.train.config import Run

MOST_ROWS = 20  # of the table of epochs
METRICS = {"cosine": "cosine similarity", "squared_euclidean": "Euclidean distance", "hamming": "Hamming distance"}
MEASURED_ON = {"dimensions used": "training", "test, against the bank": "test, as released"}  # of the curve; all else: validation
NOT_FIGURES = ("epoch", "loss", "steps", "points_per_second", "validation points")  # columns of the curve


def write_card(folder: Path, run: Run, about: dict[str, Any], metrics: dict[str, Any], counts: dict[str, int]) -> None:
    """Write README.md of the model folder from the run's settings and results."""
    environment = Environment(
        loader=PackageLoader("nearkin.train"), autoescape=False, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {"text": _text, "code": _code, "cell": _cell}
    card = environment.get_template("README.md.jinja").render(_context(folder, run, about, metrics, counts))
    write_recorded(folder / "README.md", card, folder)


def _context(folder: Path, run: Run, about: dict[str, Any], metrics: dict[str, Any], counts: dict[str, int]) -> dict[str, Any]:
    """The variables of the template."""
    curve = metrics["curve"]
    last = {name: value for name, value in (curve[-1] if curve else {}).items() if name not in NOT_FIGURES}
    columns = list(dict.fromkeys(name for row in curve for name in row))
    figures = [{"part": "test", "name": name, "value": value} for name, value in metrics.get("test", {}).items()]
    figures += [
        {"part": f"{MEASURED_ON.get(name, 'validation')}, last epoch", "name": name, "value": value} for name, value in last.items()
    ]
    return {
        "title": folder.name,
        "folder": json.dumps(str(folder), ensure_ascii=False),
        "kind": about["kind"],
        "shape": " x ".join(map(str, about["shape"])),
        "metric": METRICS[about["metric"]],
        "objective": about["objective"],
        "why": about["why"],
        "network": about["network"],
        "source": run.data.source,
        "seed": run.seed,
        "counts": counts,
        "metrics": metrics,
        "figures": figures,
        "measured": bool(set(last) - set(MEASURED_ON)) or "test" in metrics,
        "columns": columns,
        "epochs": [[_number(row.get(name)) for name in columns] for row in _evenly(curve)],
        "settings": _changed(run),
    }


def _evenly(curve: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most MOST_ROWS epochs, evenly spaced, the first and the last included."""
    rows = min(MOST_ROWS, len(curve))
    return [curve[round(i * (len(curve) - 1) / max(rows - 1, 1))] for i in range(rows)]


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.4f}" if isinstance(value, float) else f"{value:,}"


def _changed(run: Run) -> list[tuple[str, str]]:
    """Every setting that differs from its default, its value as JSON."""
    defaults = dict(_leaves(dataclasses.asdict(Run())))
    leaves = _leaves(dataclasses.asdict(run))
    return [(name, json.dumps(value, ensure_ascii=False)) for name, value in leaves if defaults.get(name, ...) != value]


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _text(value: object) -> str:
    """Text in Markdown that adds no HTML and no new line."""
    return escape(" ".join(str(value).split()), quote=False)


def _code(value: object) -> str:
    """An inline code span, in which Markdown renders HTML as text; its fence is longer than any run of backticks inside."""
    text = " ".join(str(value).split())
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


def _cell(value: object) -> str:
    """Text in a cell of a Markdown table, where a bar would end the cell."""
    return str(value).replace("|", "\\|")
