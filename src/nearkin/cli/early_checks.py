"""Checks before torch is imported, which takes seconds: missing folders and data, unknown settings."""

import os
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

from nearkin.models.paths import model_page, run_page
from nearkin.train.config import Run, override

READS_MODEL = ("evaluate", "embed", "search", "predict", "serve", "export")


def check_arguments(arguments: Namespace) -> None:
    """Raise now what the verb itself would raise later, with the same message."""
    sources = [getattr(arguments, name, None) for name in ("data", "add")]
    if arguments.verb in READS_MODEL or (arguments.verb == "index" and any(sources)):
        model_page(Path(arguments.folder))
    if arguments.verb == "train":
        if arguments.resume is not None:
            _check_data_of(run_page(Path(arguments.resume)), arguments.data_root)
        override(Run(), parse_settings(arguments.set))
    for source in filter(None, sources):
        _check_exists(source)


def parse_settings(items: Iterable[str]) -> dict[str, str]:
    """The values of --set by setting."""
    settings = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals:
            raise ValueError(f"--set {item!r} must read SETTING=VALUE, such as optimizer.learning_rate=0.05")
        settings[name] = value
    return settings


def _check_data_of(page: Path, data_root: str | None) -> None:
    """Raise if the data of a training to resume have been moved or deleted."""
    from nearkin.train.saved_run import run_to_resume

    choice = run_to_resume(page.parent)[0].data
    if data_root is None and choice.root and not os.path.isdir(choice.root):
        fix = "move it back, or pass its new path as --data-root FOLDER"
        raise FileNotFoundError(f"{page.parent} read {choice.source} from the data root {choice.root}, which no longer exists; {fix}")
    for name, path in (("source", choice.source), ("corrections", choice.corrections)):
        if _is_missing(path):
            fix = f"put it back, or write its new path into {page} (data, {name}), and resume"
            raise FileNotFoundError(f"{page.parent} was trained on {path}, which no longer exists; {fix}")


def _is_missing(path: str) -> bool:
    """Whether a path does not exist; a bare name may be a known data set, and reading the list of those imports torch."""
    return os.path.basename(path) != path and not os.path.exists(os.path.expanduser(path))


def _check_exists(path: str) -> None:
    if _is_missing(path):
        raise FileNotFoundError(f"DATA {path!r} is neither a file or folder nor a known data set; fix the path")
