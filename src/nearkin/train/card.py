"""The model card: what a stranger should know of a model before using it."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nearkin.train.config import Run

MOST_ROWS = 20  # of the table of epochs


def write_card(folder: Path, run: Run, about: dict[str, Any], metrics: dict[str, Any], counts: dict[str, int]) -> None:
    """README.md of the model folder, from what was done and measured."""
    (folder / "README.md").write_text(_text(folder, run, about, metrics, counts), encoding="utf-8")


def _text(folder: Path, run: Run, about: dict[str, Any], metrics: dict[str, Any], counts: dict[str, int]) -> str:
    network = about["network"]
    shape = " x ".join(map(str, about["shape"]))
    lines = [
        f"# {folder.name}",
        "",
        f"An embedding of {about['kind']} ({shape}) into {network['dimension']} dimensions, to be searched by {_metric(about['metric'])}.",
        "",
        f"- **Objective**: {about['objective']}, because {about['why']}.",
        f"- **Network**: {network['name']}" + (", unit length" if network["normalize"] else "") + ".",
        f"- **Data**: {run.data.source or 'handed in'}; " + ", ".join(f"{name} {count:,}" for name, count in counts.items()) + ".",
        f"- **Training**: {metrics['epochs']} epochs, {metrics['steps']:,} steps, {metrics['seconds']:.1f} s on {metrics['device']}, "
        f"seed {run.seed}.",
        "",
        "## Figures",
        "",
        *_figures(metrics),
        "",
        "## Curves",
        "",
        *_curves(metrics["curve"]),
        "",
        "## Settings",
        "",
        *_settings(run),
        "",
        "## Use",
        "",
        "```python",
        "import nearkin",
        "",
        f'model = nearkin.load("{folder.name}")',
        "model.encode(images)         # embeddings",
        "model.neighbors(images, 5)  # the nearest training points",
        "```",
        "",
    ]
    return "\n".join(lines)


def _curves(curve: list[dict[str, Any]]) -> list[str]:
    """A table of epochs, evenly chosen where there are many; log.jsonl has them all, and `nearkin evaluate` draws them."""
    if not curve:
        return ["No epoch was trained."]
    last = len(curve) - 1
    rows = min(MOST_ROWS, len(curve))
    chosen = [curve[round(i * last / max(rows - 1, 1))] for i in range(rows)]
    names = list(dict.fromkeys(name for figures in curve for name in figures))
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    lines += [f"| {' | '.join(_cell(figures.get(name)) for name in names)} |" for figures in chosen]
    return [*lines, "", f"{rows} of {len(curve)} epochs; metrics.json and log.jsonl have all of them."]


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4f}" if isinstance(value, float) else f"{value:,}"


def _settings(run: Run) -> list[str]:
    """Every leaf that is not as it would be by default."""
    usual = dict(_leaves(dataclasses.asdict(Run())))
    changed = [(name, value) for name, value in _leaves(dataclasses.asdict(run)) if usual.get(name, ...) != value]
    lines = [f"| {name} | `{json.dumps(value)}` |" for name, value in changed]
    return ["| setting | value |", "|---|---|", *lines, "", "All others are nearkin's defaults; run.json holds every one."]


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _metric(metric: str) -> str:
    return {"cosine": "cosine", "squared_euclidean": "Euclidean distance", "hamming": "Hamming distance"}[metric]


MEASURED_ON = {"dimensions used": "training", "test, against the bank": "test, as released"}  # of the curve; all else: validation


def _figures(metrics: dict[str, Any]) -> list[str]:
    rows = [f"| test | {name} | {value:.4f} |" for name, value in metrics.get("test", {}).items()]
    last = metrics["curve"][-1] if metrics["curve"] else {}
    told = {name: value for name, value in last.items() if name not in ("epoch", "loss", "steps", "points_per_second")}
    rows += [f"| {MEASURED_ON.get(name, 'validation')}, last epoch | {name} | {value:.4f} |" for name, value in told.items()]
    said = [f"The test part was looked at once, after the last epoch, with the {metrics['weights']} weights."] if "test" in metrics else []
    if "released protocol" in metrics:
        said.append(f"As released, it was looked at after every epoch of the last round: {metrics['released protocol']:.4f} at best.")
    if not set(told) - set(MEASURED_ON) and "test" not in metrics:
        said.append("No part of the data was held out, or they have no labels: whether neighbors are right was not measured.")
    return [*(["| part | figure | value |", "|---|---|---|", *rows, ""] if rows else []), " ".join(said)]
