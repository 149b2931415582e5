"""Checkpoints that survive a power cut: written to a temporary folder, synced, then renamed.

A checkpoint is a folder `step-00000123` with `tensors.safetensors` and `state.json`, which holds checksums of both files. The
folder gets its name only when it is complete. Nothing in it is a pickle. Checkpoints that are kept for good carry a name:
`step-00000123-round-0`.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load_file, save_file
from torch import Tensor

from nearkin.data.disk import digest, set_default_permissions, sync

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
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    data = temporary / "tensors.safetensors"
    save_file({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}, data)
    set_default_permissions(data)
    sync(data)
    body = json.dumps({"step": step, "tensors_sha256": digest(data), "state": dict(state)}, sort_keys=True)
    state_file = temporary / "state.json"
    state_file.write_text(json.dumps({"sha256": hashlib.sha256(body.encode()).hexdigest(), "body": body}), encoding="utf-8")
    sync(state_file)
    sync(temporary)
    if target.exists():
        shutil.rmtree(target)
    temporary.rename(target)
    sync(folder)
    _tidy(folder)
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
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # a damaged or edited file may raise any of these
            if report is not None:
                then = "there is no earlier one, so training starts over" if before is None else f"using {before.name}"
                report(f"checkpoint {path.name} is damaged ({error}); {then}")
    return None


def _saved(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"))


def _load(path: Path) -> Checkpoint:
    page = json.loads((path / "state.json").read_text(encoding="utf-8"))
    if hashlib.sha256(page["body"].encode()).hexdigest() != page["sha256"]:
        raise ValueError("state.json does not match its checksum")
    body = json.loads(page["body"])
    data = path / "tensors.safetensors"
    if digest(data) != body["tensors_sha256"]:
        raise ValueError("tensors.safetensors does not match its checksum")
    return Checkpoint(body["step"], load_file(data), body["state"])


def _tidy(folder: Path) -> None:
    unnamed = [path for path in _saved(folder) if path.name.count("-") == 1]
    for old in unnamed[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)
    for unfinished in folder.glob(".writing-*"):
        shutil.rmtree(unfinished, ignore_errors=True)
