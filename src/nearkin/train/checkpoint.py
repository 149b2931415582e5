"""Checkpoints that survive a power cut: safetensors and JSON, checksummed, written aside, synced, then renamed.

A checkpoint is a folder `step-00000123` with `tensors.safetensors` and `state.json`, which holds the checksum of the
tensors and of itself. It appears under its name only when it is whole. Nothing in it is a pickle. Those that are to stay
are called after what they stand for, too: `step-00000123-round-0`.
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
    """Where a training stands."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]


def save(folder: Path, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any], *, stays: str = "") -> Path:
    """Write a checkpoint; older ones beyond the last two are removed only after it stands, but those that `stay` by a name."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "-".join(["step", f"{step:08d}", *([stays] if stays else [])])
    aside = folder / f".writing-{target.name}-{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    data = aside / "tensors.safetensors"
    save_file({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}, data)
    set_default_permissions(data)
    sync(data)
    body = json.dumps({"step": step, "tensors_sha256": digest(data), "state": dict(state)}, sort_keys=True)
    page = aside / "state.json"
    page.write_text(json.dumps({"sha256": hashlib.sha256(body.encode()).hexdigest(), "body": body}), encoding="utf-8")
    sync(page)
    sync(aside)
    if target.exists():
        shutil.rmtree(target)
    aside.rename(target)
    sync(folder)
    _tidy(folder)
    return target


def name_of_newest(folder: Path) -> str | None:
    """What the newest checkpoint is called, whole or not; None when there is none."""
    found = _saved(folder)
    return found[-1].name if found else None


def newest(folder: Path, report: Report | None = None) -> Checkpoint | None:
    """The newest checkpoint that is whole; a damaged one is passed over with a word. None when there is none."""
    found = _saved(folder)[::-1]
    for path, before in zip_longest(found, found[1:]):
        try:
            return _load(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # whatever an edited page may hold
            if report is not None:
                then = "beginning anew: there is none before it" if before is None else f"going back to {before.name}"
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
    passing = [path for path in _saved(folder) if path.name.count("-") == 1]
    for old in passing[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)
    for unfinished in folder.glob(".writing-*"):
        shutil.rmtree(unfinished, ignore_errors=True)
