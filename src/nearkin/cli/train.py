"""`nearkin train`: from data to a model folder."""

import shlex
from argparse import Namespace
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from nearkin.cli.datasets import own_data
from nearkin.cli.early_checks import set_leaves
from nearkin.cli.progress import TrainingView
from nearkin.data.shards import is_sharded
from nearkin.models.paths import run_page
from nearkin.report.curves import Series, line
from nearkin.report.drawing import save
from nearkin.train import ranks
from nearkin.train.assemble import cut
from nearkin.train.checkpoint import name_of_newest
from nearkin.train.config import Run, override
from nearkin.train.folder import check_folder, opened, rooted
from nearkin.train.rate_finder import find_rate
from nearkin.train.recipes import RECIPES, settings_for, suited
from nearkin.train.training import TrainingStopped, train

FOR_A_GPU = ("discovery",)  # purposes whose networks are too large for a CPU


def run_train(arguments: Namespace) -> int:
    """Train, or go on training."""
    resume = arguments.resume is not None
    folder = Path(arguments.resume if resume else arguments.out)
    given = None if resume else _settings(arguments)
    run = _resumed(folder, arguments) if given is None else override(Run(), given)
    if arguments.find_rate:
        if given is None:
            raise ValueError("--find-rate is for new trainings; a resumed one keeps its rate")
        check_folder(folder, resume)
        run, given = _with_found_rate(run, given, folder, arguments), None
    with TrainingView() as view:
        if arguments.purpose and not resume:
            view.message(_purpose(arguments.purpose, given or {}))
            if arguments.purpose in FOR_A_GPU and _device(arguments).type == "cpu":
                view.message(_without_a_gpu(arguments.data))
        try:
            metrics = train(run, folder, data_root=arguments.data_root, reporter=view, device=arguments.device, resume=resume, given=given)
        except TrainingStopped as error:
            raise ValueError(str(error)) from error
        except KeyboardInterrupt:
            if ranks.is_first() and (folder / "run.json").exists():
                view.message(_interrupted(folder))
            raise
    if ranks.is_first():
        _tell(folder, metrics, _next(folder, run.data.source))
    ranks.stop()
    return 0


def _next(folder: Path, source: str) -> str:
    """What to do with the model, in commands that run as they are printed."""
    if is_sharded(source):  # of which no local index is made
        return f"next: `{shlex.join(['nearkin', 'evaluate', str(folder)])}` measures whether its neighbors are right"
    index = ["nearkin", "index", str(folder), source, *(["--replace"] if (folder / "index" / "manifest.json").exists() else [])]
    shown = "shows every point with its neighbors, in a browser"
    return f"next: `{shlex.join(index)}`, then `{shlex.join(['nearkin', 'serve', str(folder)])}` {shown}"


def _interrupted(folder: Path) -> str:
    """How a training that was stopped goes on, and from where."""
    saved = name_of_newest(folder / "checkpoints")
    again = f"`{shlex.join(['nearkin', 'train', '--resume', str(folder)])}`"
    return f"{again} goes on from {saved}" if saved else f"{again} begins anew: no checkpoint was written yet"


def _purpose(name: str, given: Mapping[str, str]) -> str:
    """A recipe in words, and which of its leaves are others here."""
    recipe = RECIPES[name]
    others = [f"{leaf}={given[leaf]}" for leaf, value in recipe.settings.items() if given.get(leaf, value) != value]
    return f"for {name}: {recipe.words} ({recipe.source})" + (f"; here with {', '.join(others)}" if others else "")


def _without_a_gpu(data: str) -> str:
    ordinary = f"`{shlex.join(['nearkin', 'train', data])}` trains a small network instead"
    return f"this purpose is meant for a GPU, and without one may take hours; {ordinary}"


def _device(arguments: Namespace) -> torch.device:
    return torch.device(arguments.device or ("cuda" if torch.cuda.is_available() else "cpu"))


def _with_found_rate(run: Run, given: Mapping[str, str], folder: Path, arguments: Namespace) -> Run:
    """The run with the finder's rate; the curve is kept in the model folder."""
    device = _device(arguments)
    with TrainingView("finding the rate") as view:
        learned_from = cut(run, opened(rooted(run, arguments.data_root), None, view)).train
        run = suited(run, learned_from, given)
        sweep = find_rate(run, learned_from, device, view)
    sweep.save(folder / "learning_rate.json")
    if find_spec("matplotlib"):
        title = f"The objective while the learning rate grew; {sweep.rate:.2g} is taken"
        falling = Series("objective", sweep.objectives)
        save(line(sweep.rates, [falling], title=title, across="learning rate", up="objective", share=False), folder / "learning_rate.png")
    view.message(f"learning rate {sweep.rate:.2g}: the largest at which the objective falls steadily ({folder}/learning_rate.json)")
    return override(run, {"optimizer.learning_rate": repr(sweep.rate)})


def _resumed(folder: Path, arguments: Namespace) -> Run:
    """The run of a folder as it was begun; whatever else was asked for is refused rather than forgotten."""
    page = run_page(folder)
    run = Run.from_json(page.read_text(encoding="utf-8"))
    named = ("objective", "purpose", "network", "dimension", "codes", "epochs", "seed", "set", "labels")
    changed = [f"--{'for' if name == 'purpose' else name}" for name in named if getattr(arguments, name) not in (None, False, [])]
    if changed:
        raise ValueError(f"a resumed training keeps its settings ({page}); leave out {', '.join(changed)}, or train into another folder")
    if arguments.data is not None and not own_data(arguments.data, run.data):
        raise ValueError(f"{folder} was begun with {run.data.source}, not {arguments.data}; leave DATA out to resume it")
    return run


def _settings(arguments: Namespace) -> dict[str, str]:
    """The run's leaves that the command line sets."""
    if not arguments.data:
        raise ValueError("DATA is missing: name a folder, a table, an .npz file or a known set (or --resume a folder)")
    settings = {"data.source": arguments.data} | ({"data.corrections": arguments.labels} if arguments.labels else {})
    short = {"objective": "objective.name", "network": "network.name", "epochs": "epochs", "seed": "seed", "dimension": "network.dimension"}
    settings |= {"codes.learn": "true"} if arguments.codes else {}
    settings |= {leaf: str(value) for name, leaf in short.items() if (value := getattr(arguments, name)) is not None}
    settings |= set_leaves(arguments.set)
    return {**(settings_for(arguments.purpose, arguments.data, settings) if arguments.purpose else {}), **settings}


def _tell(folder: Path, metrics: dict[str, Any], what_next: str) -> None:
    console = Console(highlight=False)
    if metrics.get("test"):
        table = Table(f"figure of the test part, {metrics['test points']:,} points", "value")
        for name, value in metrics["test"].items():
            table.add_row(name, f"{value:.4f}")
        console.print(table)
    console.print(f"the model is in {folder}: README.md tells about it; in Python, nearkin.load('{folder}')", soft_wrap=True, markup=False)
    console.print(what_next, soft_wrap=True, markup=False)
