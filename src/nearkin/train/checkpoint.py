"""Checkpoints that survive a power cut: written to a temporary folder, synced, then renamed.

A checkpoint is a folder `step-00000123` with `tensors.safetensors` and `state.json`, which holds checksums of both files. The
folder gets its name only when it is complete. Nothing in it is a pickle. Checkpoints that are kept for good carry a name:
`step-00000123-round-0`.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as serialized
from torch import Tensor

from nearkin.data.disk import created, digest, renamed, sync
from nearkin.train.saved_run import read_state

NAME = re.compile(r"step-\d{8,}(-round-\d+)?")
UNFINISHED = re.compile(r"\.writing-step-\d{8,}(-round-\d+)?-\d+")
KEEP = 2  # the newest, and one to fall back on
Report = Callable[[str], None]


class Checkpoint(NamedTuple):
    """The state of a training after a step."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]


def save(folder: Path, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any], *, stays: str = "") -> Path:
    """Write a checkpoint, then remove all but the newest two; a checkpoint with a name in `stays` is never removed."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "-".join(["step", f"{step:08d}", *([stays] if stays else [])])
    temporary = folder / f".writing-{target.name}-{os.getpid()}"
    _remove(temporary)
    temporary.mkdir()
    try:
        content = serialized({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})
        with created(temporary / "tensors.safetensors") as file:
            file.write(content)
        body = json.dumps({"step": step, "tensors_sha256": hashlib.sha256(content).hexdigest(), "state": dict(state)}, sort_keys=True)
        with created(temporary / "state.json") as file:
            file.write(json.dumps({"sha256": hashlib.sha256(body.encode()).hexdigest(), "body": body}).encode())
        sync(temporary)
        if target.exists():  # written by a training that was killed and resumed from the one before, which is still there
            _remove(target)
        renamed(temporary, target)
    except BaseException:
        _remove(temporary)  # a part of a checkpoint would only fill the disk
        raise
    tidy(folder)
    return target


def name_of_newest(folder: Path) -> str | None:
    """The name of the newest checkpoint, complete or not; None if there is none."""
    found = _saved(folder)
    return found[-1].name if found else None


def newest(folder: Path, report: Report | None = None) -> Checkpoint | None:
    """The newest checkpoint whose checksums match, or None; damaged ones are reported and skipped."""
    found = _saved(folder)[::-1]
    for path, before in zip_longest(found, found[1:]):
        try:
            return _load(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:  # of a damaged or edited file
            if report is not None:
                then = "there is no earlier one, so training starts over" if before is None else f"using {before.name}"
                report(f"checkpoint {path.name} is damaged ({error}); {then}")
    return None


def _saved(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("step-*") if NAME.fullmatch(path.name))


def _load(path: Path) -> Checkpoint:
    body = read_state(path)
    data = path / "tensors.safetensors"
    if digest(data) != body["tensors_sha256"]:
        raise ValueError("tensors.safetensors does not match its checksum")
    return Checkpoint(body["step"], load_file(data), body["state"])


def tidy(folder: Path, keep: int = KEEP) -> None:
    """Remove all but the newest checkpoints, except those with a name, and what was not written to its end."""
    unnamed = [path for path in _saved(folder) if path.name.count("-") == 1]
    for old in unnamed[:-keep]:
        _remove(old)
    for unfinished in folder.glob(".writing-*"):
        _remove(unfinished)


def _remove(path: Path) -> None:
    """Remove a checkpoint, complete or not: only a real folder with a name of ours, and nothing but the two files of a checkpoint."""
    ours = (NAME.fullmatch(path.name) or UNFINISHED.fullmatch(path.name)) and path.is_dir() and not path.is_symlink()
    if ours and {inside.name for inside in path.iterdir()} <= {"tensors.safetensors", "state.json"}:
        shutil.rmtree(path, ignore_errors=True)
