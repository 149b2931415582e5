"""Checks before training: whether there is enough to learn from, in words for a user with a folder of photos."""

import os
from pathlib import Path
from shlex import quote

import torch
from torch import Tensor

from nearkin.data.dataset import Dataset
from nearkin.data.images import Files
from nearkin.data.progress import Report
from nearkin.data.samplers import Sampler, Shuffled
from nearkin.objectives import Objective, WeightedSum
from nearkin.train.config import Run
from nearkin.train.objective_choice import WITHOUT_LABELS, objective_for

A_HANDFUL = 20  # points: fewer give a warning


def check_enough(run: Run, data: Dataset, report: Report) -> None:
    """Require two points, and two classes if the objective uses them; warn about very few points."""
    source, many = (
        run.data.source,
        f"{len(data):,} { {'images': 'image', 'texts': 'text'}.get(data.kind, 'point') }{'s' if len(data) > 1 else ''}",
    )
    if len(data) < 2:
        raise ValueError(f"{source} holds {many}; training needs at least 2, and better hundreds")
    learns = data.supervision == "classes" and objective_for(data, run.objective.name)[0] not in WITHOUT_LABELS
    if learns and data.labels is not None and not data.partly_labeled and bool((data.labels == data.labels[0]).all()):
        name = data.classes[int(data.labels[0])] if data.classes else int(data.labels[0])
        raise ValueError(f"{source} has one class only ({name}); {_fix(source, data)}")
    if len(data) < A_HANDFUL:
        report(f"{many} are too few to learn much from; give hundreds or more")


LEAST_SHARE = 0.5  # of the queries of a batch that should have a positive


def share_with_positives(labels: Tensor, batch: int) -> float:
    """The expected share of the queries of a shuffled batch that have another point of their class in it."""
    counts = torch.bincount(torch.unique(labels, return_inverse=True)[1]).double()
    missed = (1 - (counts - 1) / max(len(labels) - 1, 1)) ** (batch - 1)
    return float((counts * (1 - missed)).sum() / counts.sum())


def _drawn_share(labels: Tensor, sampler: Sampler) -> float:
    """The share of the queries of the first batch that have a positive in it."""
    _, of, counts = torch.unique(labels[next(iter(sampler.batches(0)))], return_inverse=True, return_counts=True)
    return float((counts[of] > 1).double().mean())


def sampler_warning(objective: Objective | WeightedSum, sampler: Sampler, train: Dataset) -> str | None:
    """What is wrong with this sampler for this objective, in words; None if nothing is."""
    in_batch = getattr(getattr(objective, "references", None), "from_batch", objective.supervision == "classes")
    if not (in_batch and objective.supervision == "classes" and train.labels is not None) or sampler.looks:
        return None
    whole = isinstance(sampler, Shuffled)
    share = share_with_positives(train.labels, sampler.batch) if whole else _drawn_share(train.labels, sampler)
    if share >= LEAST_SHARE:
        return None
    return (
        f"only about {100 * share:.0f}% of the queries of a batch have a positive: {sampler.batch} points are drawn from "
        f"{len(torch.unique(train.labels)):,} classes, and the others are skipped; set sampler.name=per_class with two or more of "
        "a class (sampler.options.per_class), a larger batch_size, or an "
        "objective with class vectors such as arcface"
    )


def _fix(source: str, data: Dataset) -> str:
    """What to do with data of one class."""
    if not (isinstance(data.inputs, Files) and Path(source).expanduser().is_dir()):
        return "give at least two classes, or leave out the labels to learn without them"
    table = "a table with the single column `path` learns without labels from the files it lists"
    homes = {os.path.dirname(path) for path in data.inputs.paths}
    flat = f"`nearkin train {quote(homes.pop())}` learns without labels; " if len(homes) == 1 else ""
    return f"{flat}a folder for each class learns classes; {table}"
