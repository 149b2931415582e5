"""`nearkin train`: from data to a model folder."""

import shlex
import sys
from argparse import Namespace
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from nearkin.cli.datasets import own_data
from nearkin.cli.early_checks import parse_settings
from nearkin.cli.progress import TrainingView, note
from nearkin.cli.terminal import Terminal
from nearkin.data.images import DamagedImageError
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
from nearkin.train.saved_run import run_to_resume
from nearkin.train.trackers import tracker
from nearkin.train.training import TrainingStopped, train

FOR_A_GPU = ("discovery",)  # purposes whose networks are too large for a CPU


def run_train(arguments: Namespace) -> int:
    """Train, or resume a training."""
    resume = arguments.resume is not None
    folder = Path(arguments.resume if resume else arguments.out)
    given = None if resume else _settings(arguments)
    run = _resumed(folder, arguments) if given is None else override(Run(), given)
    if arguments.find_rate:
        if given is None:
            raise ValueError("--find-rate is for new trainings, and a resumed one keeps its learning rate; leave it out")
        check_folder(folder, resume)
        run, given = _with_found_rate(run, given, folder, arguments), None
    with TrainingView() as view:
        if arguments.purpose and not resume:
            view.message(_purpose(arguments.purpose, given or {}))
            if arguments.purpose in FOR_A_GPU and _device(arguments).type == "cpu":
                view.message(_without_a_gpu(arguments.data))
        try:
            metrics = _trained(run, folder, arguments, view, given)
        except TrainingStopped as error:
            raise ValueError(str(error)) from error
        except KeyboardInterrupt:
            if ranks.is_first() and (folder / "run.json").exists():
                view.message(_interrupted(folder))
            raise
    if ranks.is_first():
        print_results(folder, metrics, next_commands(folder, run.data.source))
    ranks.stop()
    return 0


def _trained(run: Run, folder: Path, arguments: Namespace, view: TrainingView, given: Mapping[str, str] | None) -> dict[str, Any]:
    """Train; on a terminal, damaged files are left out after one question."""
    written = None if arguments.track is None or not ranks.is_first() else tracker(arguments.track, folder / arguments.track, run, view)
    try:
        return _answered(run, folder, arguments, view, {"reporter": written or view, "given": given})
    finally:
        if written is not None:
            written.close()


def _answered(run: Run, folder: Path, arguments: Namespace, view: TrainingView, more: dict[str, Any]) -> dict[str, Any]:
    how: dict[str, Any] = {"data_root": arguments.data_root, "device": arguments.device, **more}
    try:
        return train(run, folder, resume=arguments.resume is not None, **how)
    except DamagedImageError as error:
        if arguments.resume is not None or run.data.on_error == "skip" or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        view.message(error.reason)
        if not view.confirm("leave these files out and go on?"):
            raise
        return train(override(run, {"data.on_error": "skip"}), folder, **how)


def next_commands(folder: Path, source: str) -> str:
    """Commands to try next, ready to paste."""
    if is_sharded(source):  # a local index cannot be built from shards
        return f"next: `{shlex.join(['nearkin', 'evaluate', str(folder)])}` measures whether its neighbors are right"
    index = ["nearkin", "index", str(folder), source, *(["--replace"] if (folder / "index" / "manifest.json").exists() else [])]
    evaluate, serve = (shlex.join(["nearkin", verb, str(folder)]) for verb in ("evaluate", "serve"))
    measures = f"next: `{evaluate}` measures whether its neighbors are right"
    return f"{measures}; `{shlex.join(index)}`, then `{serve}` shows every point with its neighbors in a browser"


def _interrupted(folder: Path) -> str:
    """How to resume a training that was stopped, and from which checkpoint."""
    saved = name_of_newest(folder / "checkpoints")
    command = f"`{shlex.join(['nearkin', 'train', '--resume', str(folder)])}`"
    return f"{command} continues from {saved}" if saved else f"{command} starts over: no checkpoint was written yet"


def _purpose(name: str, given: Mapping[str, str]) -> str:
    """Describe a recipe, and list the settings that differ from it."""
    recipe = RECIPES[name]
    changed = [f"{name}={given[name]}" for name, value in recipe.settings.items() if given.get(name, value) != value]
    return f"for {name}: {recipe.words} ({recipe.source})" + (f"; here with {', '.join(changed)}" if changed else "")


def _without_a_gpu(data: str) -> str:
    small = f"`{shlex.join(['nearkin', 'train', data])}` trains a small network instead"
    return f"these settings are for a GPU and may take hours on a CPU; {small}"


def _device(arguments: Namespace) -> torch.device:
    return torch.device(arguments.device or ("cuda" if torch.cuda.is_available() else "cpu"))


def _with_found_rate(run: Run, given: Mapping[str, str], folder: Path, arguments: Namespace) -> Run:
    """The run with the measured learning rate; the curve is saved in the model folder."""
    device = _device(arguments)
    with TrainingView("finding the learning rate") as view:
        run, source = opened(rooted(run, arguments.data_root), None, view, given)
        if source.kind == "texts":
            raise ValueError("--find-rate is not for texts, whose head starts from a linear map; leave it out")
        train_part = cut(run, source).train
        run = suited(run, train_part, given)
        sweep = find_rate(run, train_part, device, view)
    sweep.save(folder / "learning_rate.json")
    if find_spec("matplotlib"):
        title = f"Loss while the learning rate grows; {sweep.rate:.2g} is used"
        falling = Series("loss", sweep.objectives)
        save(line(sweep.rates, [falling], title=title, x_label="learning rate", y_label="loss", share=False), folder / "learning_rate.png")
    view.message(f"learning rate {sweep.rate:.2g}: the largest at which the loss falls steadily ({folder}/learning_rate.json)")
    return override(run, {"optimizer.learning_rate": repr(sweep.rate)})


def _resumed(folder: Path, arguments: Namespace) -> Run:
    """The run of a folder; raise if the command line asks for other settings."""
    page = run_page(folder)
    run, why = run_to_resume(folder)
    if why:
        note(why)
    named = (
        "objective",
        "purpose",
        "network",
        "dimension",
        "codes",
        "epochs",
        "seed",
        "set",
        "labels",
        "size",
        "skip_damaged",
        "text",
        "label",
    )
    given = [name for name in (*named, "encoder", "weights", "download", "tune", "from_scratch") if getattr(arguments, name)]
    changed = [f"--{'for' if name == 'purpose' else name.replace('_', '-')}" for name in given]
    if changed:
        raise ValueError(f"a resumed training keeps its settings ({page}); leave out {', '.join(changed)}, or pass another folder as --out")
    if arguments.data is not None and not own_data(arguments.data, run.data):
        raise ValueError(f"{folder} was trained on {run.data.source}, not on {arguments.data}; leave out DATA to resume it")
    return run


def _settings(arguments: Namespace) -> dict[str, str]:
    """The settings that the command line changes."""
    if not arguments.data:
        raise ValueError(
            "DATA is missing: name a folder, a table, an .npz file or a known data set, or resume a training with --resume FOLDER"
        )
    settings = {"data.source": arguments.data} | ({"data.corrections": arguments.labels} if arguments.labels else {})
    short = {
        "objective": "objective.name",
        "network": "network.name",
        "epochs": "epochs",
        "seed": "seed",
        "dimension": "network.dimension",
        "size": "data.size",
        "encoder": "network.name",
        "weights": "network.weights",
        "tune": "network.tune",
        "text": "data.text_column",
        "label": "data.label_column",
        "ignore": "data.ignore_columns",
        "keep": "data.keep_columns",
        "category": "data.category_columns",
    }
    if arguments.encoder is not None and arguments.network is not None:
        raise ValueError("--encoder starts from a pretrained network and --network trains one from scratch; pass one of them")
    if arguments.encoder is None and (arguments.weights or arguments.download):
        raise ValueError("--weights and --download belong to --encoder; name the encoder, such as --encoder mobilenet-v2")
    settings |= {"network.pretrained": "true"} if arguments.encoder else {}
    settings |= {"network.download": "true"} if arguments.download else {}
    settings |= {"network.scratch": "true"} if arguments.from_scratch else {}
    settings |= {"data.on_error": "skip"} if arguments.skip_damaged else {}
    settings |= {"codes.learn": "true"} if arguments.codes else {}
    settings |= {setting: str(value) for name, setting in short.items() if (value := getattr(arguments, name)) is not None}
    settings |= parse_settings(arguments.set)
    return {**(settings_for(arguments.purpose, arguments.data, settings) if arguments.purpose else {}), **settings}


def print_results(folder: Path, metrics: dict[str, Any], commands: str) -> None:
    """The figures of the test part, where the model is, and what to try next."""
    console = Terminal(highlight=False)
    if metrics.get("test"):
        table = Table(f"test part, {metrics['test points']:,} points", "value")
        for name, value in metrics["test"].items():
            table.add_row(name, f"{value:.4f}")
        console.print(table)
    console.print(
        f"the model is in {folder}: README.md describes it; in Python, nearkin.load('{folder}') loads it", soft_wrap=True, markup=False
    )
    console.print(commands, soft_wrap=True, markup=False)
