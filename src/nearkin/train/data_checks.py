"""Whether data can teach anything, told before anything is trained, in the words of whoever has a folder of photos."""

import os
from pathlib import Path
from shlex import quote

from nearkin.data.dataset import Dataset
from nearkin.data.images import Files
from nearkin.data.progress import Report
from nearkin.train.config import Run
from nearkin.train.objective_choice import WITHOUT_LABELS, objective_for

A_HANDFUL = 20  # points, below which there is next to nothing to learn


def check_enough(run: Run, data: Dataset, report: Report) -> None:
    """Two points at least, and two classes where they are learned from; a line where it is a handful of points."""
    source, many = run.data.source, f"{len(data):,} {'image' if data.kind == 'images' else 'point'}{'s' if len(data) > 1 else ''}"
    if len(data) < 2:
        raise ValueError(f"{source} holds {many}, which has no other to be its neighbor; at least 2 are needed, better hundreds")
    learns = data.supervision == "classes" and objective_for(data, run.objective.name)[0] not in WITHOUT_LABELS
    if learns and data.labels is not None and not data.partly_labeled and bool((data.labels == data.labels[0]).all()):
        name = data.classes[int(data.labels[0])] if data.classes else int(data.labels[0])
        raise ValueError(f"{source} has one class only ({name}), so no neighbor could be wrong; {_mend(source, data)}")
    if len(data) < A_HANDFUL:
        report(f"{many}: so few teach next to nothing; give hundreds or more")


def _mend(source: str, data: Dataset) -> str:
    """How to learn from what there is."""
    if not (isinstance(data.inputs, Files) and Path(source).expanduser().is_dir()):
        return "give at least two classes, or leave the labels out to learn without"
    table = "a table whose one column is `path` learns without labels from the files it lists"
    homes = {os.path.dirname(path) for path in data.inputs.paths}
    flat = f"`nearkin train {quote(homes.pop())}` learns without labels; " if len(homes) == 1 else ""
    return f"{flat}a folder for each class learns classes; {table}"
