"""The model card: what a stranger should know of a model before using it."""

from pathlib import Path
from typing import Any

from nearkin.run import Run


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
        f"- **Network**: {network['name']}" + (", unit length" if network["normalise"] else "") + ".",
        f"- **Data**: {run.data.source or 'handed in'}; " + ", ".join(f"{name} {count:,}" for name, count in counts.items()) + ".",
        f"- **Training**: {metrics['epochs']} epochs, {metrics['steps']:,} steps, {metrics['seconds']:.1f} s on {metrics['device']}, "
        f"seed {run.seed}.",
        "",
        "## Figures",
        "",
        *_figures(metrics),
        "",
        "## Use",
        "",
        "```python",
        "import nearkin",
        "",
        f'model = nearkin.load("{folder.name}")',
        "model.encode(images)         # embeddings",
        "model.neighbours(images, 5)  # the nearest training points",
        "```",
        "",
        "All settings are in run.json; `nearkin train --help` explains them.",
        "",
    ]
    return "\n".join(lines)


def _metric(metric: str) -> str:
    return {"cosine": "cosine", "squared_euclidean": "Euclidean distance", "hamming": "Hamming distance"}[metric]


def _figures(metrics: dict[str, Any]) -> list[str]:
    rows = [f"| test | {name} | {value:.4f} |" for name, value in metrics.get("test", {}).items()]
    last = metrics["curve"][-1] if metrics["curve"] else {}
    told = ("epoch", "loss", "steps", "points_per_second")
    rows += [f"| validation, last epoch | {name} | {value:.4f} |" for name, value in last.items() if name not in told]
    if not rows:
        return ["No part of the data was held out, or they have no labels: nothing was measured."]
    said = f"The test part was looked at once, after the last epoch, with the {metrics['weights']} weights."
    return ["| part | figure | value |", "|---|---|---|", *rows, "", said]
