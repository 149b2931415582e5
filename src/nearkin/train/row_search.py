"""Search for settings of a table's training: random ones, compared on the validation part."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from nearkin.compose.validation import check_whole
from nearkin.train.assemble import Cut
from nearkin.train.config import Run, override
from nearkin.train.reporter import Reporter
from nearkin.train.rows import check_run, validation_loss

RANGES: Mapping[str, tuple[float, float]] = {  # on a log scale
    "optimizer.learning_rate": (0.0005, 0.01),
    "optimizer.weight_decay": (1e-5, 0.1),
    "network.options.frequency_scale": (0.02, 0.5),
}
CHOICES: Mapping[str, Sequence[Any]] = {
    "network.options.number_embedding": ("periodic", "periodic", "piecewise", "none"),
    "network.options.blocks": (0, 1, 1, 2),
    "network.options.hidden": (128, 256, 512),
    "network.options.dropout": (0.0, 0.1, 0.3),
}


class Trial(NamedTuple):
    """Settings and their loss on the validation part."""

    settings: dict[str, Any]
    loss: float


def search(run: Run, data: Cut, trials: int, device: torch.device, log: Reporter) -> tuple[Run, list[Trial]]:
    """The run with the best of some settings, and all trials; the first has the settings of the run itself.

    Every trial trains one encoder on the training part; the test part is not read.
    """
    check_whole("trials", trials)
    check_run(run)
    if data.validation is None:
        raise ValueError("settings are compared on the validation part, and there is none; set data.validation above 0")
    generator = np.random.default_rng(run.seed)
    found = list[Trial]()
    for number in range(trials):
        settings = _drawn(generator) if number else {}
        found.append(Trial(settings, validation_loss(_with(run, {**settings, "network.options.members": 1}), data, device)))
        best = min(found, key=lambda one: one.loss)
        log.message(f"trial {number + 1} of {trials}: validation loss {found[-1].loss:.4g}, best so far {best.loss:.4g}")
    return _with(run, min(found, key=lambda one: one.loss).settings), found


def _drawn(generator: np.random.Generator) -> dict[str, Any]:
    ranges = {name: float(np.exp(generator.uniform(*np.log(ends)))) for name, ends in RANGES.items()}
    return ranges | {name: among[int(generator.integers(len(among)))] for name, among in CHOICES.items()}


def _with(run: Run, settings: Mapping[str, Any]) -> Run:
    options = {name.removeprefix("network.options."): value for name, value in settings.items() if name.startswith("network.options.")}
    others = {name: str(value) for name, value in settings.items() if not name.startswith("network.options.")}
    return override(replace(run, network=replace(run.network, options={**run.network.options, **options})), others)
