"""What a training reads and leaves: its data, and the files of its model folder."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from nearkin import data as sources
from nearkin.data.corrections import corrected
from nearkin.data.dataset import Dataset
from nearkin.data.disk import set_default_permissions
from nearkin.data.images import DamagedImageError
from nearkin.data.loader import without_damaged
from nearkin.data.opener import DATA_ROOT, absolute_root, absolute_source
from nearkin.models.paths import run_page
from nearkin.train.config import Run
from nearkin.train.data_checks import check_enough
from nearkin.train.reporter import Reporter


def rooted(run: Run, data_root: str | Path | None) -> Run:
    """The run with the absolute data root of its known set: `data_root`, else the one it remembers, else the folder data."""
    return replace(run, data=replace(run.data, root=absolute_root(run.data.source, data_root or run.data.root or DATA_ROOT)))


def opened(run: Run, data: Dataset | None, log: Reporter) -> Dataset:
    """The data that were handed in, or those that the run names."""
    if data is not None:
        return data
    choice = run.data
    found = sources.open(
        choice.source,
        data_root=choice.root or DATA_ROOT,
        size=choice.size,
        **choice.columns(),
        on_error=choice.on_error,
        report=log.message,
    )
    found = corrected(without_damaged(found, log.message), choice.corrections, log.message)
    check_enough(run, found, log.message)
    return found


def write_run(folder: Path, run: Run) -> None:
    """run.json, with whole paths: whoever resumes or evaluates may stand in another folder than whoever trained."""
    choice = replace(run.data, source=absolute_source(run.data.source), corrections=absolute_source(run.data.corrections))
    write_json(folder / "run.json", json.loads(replace(run, data=choice).to_json()))


@contextmanager
def resuming(resume: bool) -> Iterator[None]:
    """A damaged file can be neither left out nor removed while a training is resumed: the points would not be those of its checkpoint."""
    try:
        yield
    except DamagedImageError as error:
        if not resume:
            raise
        mend = "put the file back as it was and resume, or train anew into another folder, with --set data.on_error=skip"
        raise DamagedImageError(error.reason, mend) from error


WRITTEN = ("README.md", "metrics.json", "model.json", "split.json", "weights.safetensors")


def check_folder(folder: Path, resume: bool) -> None:
    """A new training wants a folder of its own, a resumed one the folder it was begun in."""
    made = (folder / "run.json").exists()
    if made and not resume:
        again = f"`nearkin train --resume {quote(str(folder))}`"
        raise FileExistsError(f"{folder} holds a training already; choose another folder, or go on: {again}")
    if resume:
        run_page(folder)
    others = [] if made else [name for name in WRITTEN if (folder / name).exists()]
    if others:
        raise FileExistsError(
            f"{folder} holds {', '.join(others)} of something else, which a training would overwrite; choose another folder"
        )


def device_name(device: torch.device) -> str:
    """For the figures: the GPU's name, or how many threads."""
    threads = torch.get_num_threads()
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu, {threads} thread{'s' if threads > 1 else ''}"


def save_weights(path: Path, tensors: dict[str, Tensor]) -> None:
    """Tensors under another name first, so that a file that is there is whole."""
    aside = path.with_suffix(".writing")
    save_file({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}, aside)
    set_default_permissions(aside)
    os.replace(aside, path)


def write_json(path: Path, content: Any) -> None:
    """The same for JSON."""
    aside = path.with_suffix(".writing")
    aside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(aside, path)
