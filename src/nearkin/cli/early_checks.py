"""Checks before torch is imported, which takes seconds: missing folders and data, unknown settings."""

import os
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

from nearkin.models.paths import model_page, run_page
from nearkin.train.config import Run, override

VECTOR_SUFFIXES = (".parquet", ".npz", ".npy")  # as in nearkin.data, which imports torch
GIVEN_ROLES = ("vector", "label", "id", "text", "image", "split")
GIVEN_OPTIONS = ("labels", "images", "metric", *(f"{role}_column" for role in GIVEN_ROLES), "target_columns", "columns")
READS_MODEL = ("evaluate", "embed", "explore", "search", "predict", "explain", "serve", "export")


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


def open_given(arguments: Namespace) -> None:
    """Put the folder that is made of a file of vectors in the place of the file; for a model folder nothing is done."""
    if not hasattr(arguments, "image_column"):
        return
    path = Path(arguments.folder)
    sharded = (path / "shards.json").exists() and not (path / "model.json").exists()
    if path.suffix.lower() in VECTOR_SUFFIXES or sharded:
        from nearkin.cli.given import folder_of_vectors

        arguments.folder = str(folder_of_vectors(arguments))
        return
    given = [name for name in GIVEN_OPTIONS if getattr(arguments, name) is not None]
    if given:
        option = "--" + given[0].replace("_", "-")
        raise ValueError(f"{option} is for a file of vectors, and {path} is none ({', '.join(VECTOR_SUFFIXES)}, or shards); leave it out")


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
