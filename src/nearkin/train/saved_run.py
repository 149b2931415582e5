"""The settings of a training in its folder: run.json, or the copy in the newest whole checkpoint. Free of torch."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from nearkin.data.checksums import EDITED, check
from nearkin.data.disk import FileDamagedError
from nearkin.train.config import Run


def read_run(folder: Path, *, verify: bool = True) -> Run:
    """Read run.json; if it is damaged, the error names it and the fix."""
    page = folder / "run.json"
    saved = (folder / "checkpoints").is_dir()
    again = f"`nearkin train --resume {quote(str(folder))}` writes it again from the newest checkpoint; " if saved else ""
    fix = f"{again}restore it from a copy; {EDITED}"
    if verify:
        check(page, folder, fix)
    try:
        return Run.from_json(page.read_text(encoding="utf-8"))
    except (ValueError, TypeError, AttributeError) as error:
        raise FileDamagedError(f"{page} is damaged, or of another version ({error}); {fix}") from error


def run_to_resume(folder: Path) -> tuple[Run, str]:
    """The settings of a training to resume; if run.json is missing or damaged, those of the newest whole checkpoint and a line on it."""
    try:
        return read_run(folder), ""
    except (FileDamagedError, FileNotFoundError) as error:
        for path in sorted((folder / "checkpoints").glob("step-*"), reverse=True):
            try:
                run = Run.from_json(read_state(path)["state"]["run"])
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                continue
            edited = _edited(folder, run)
            return (edited, "") if edited is not None else (run, f"{error}. The settings are those of {path.name}")
        raise


def _edited(folder: Path, run: Run) -> Run | None:
    """What run.json says, if it differs from the checkpoint's in where the data are, and in nothing else: the user has moved them."""
    try:
        found = read_run(folder, verify=False)
    except (FileDamagedError, FileNotFoundError):
        return None
    places = {name: getattr(run.data, name) for name in ("source", "root", "corrections")}
    return found if replace(found, data=replace(found.data, **places)) == run else None


def read_state(path: Path) -> dict[str, Any]:
    """Read state.json of a checkpoint, if it matches its checksum."""
    page = json.loads((path / "state.json").read_text(encoding="utf-8"))
    if hashlib.sha256(page["body"].encode()).hexdigest() != page["sha256"]:
        raise ValueError("state.json does not match its checksum")
    body: dict[str, Any] = json.loads(page["body"])
    return body
