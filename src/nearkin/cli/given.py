"""A file of vectors in the place of a model folder: the folder is made beside it, once, and every verb then opens that."""

import os
from argparse import Namespace
from pathlib import Path

from nearkin.cli.early_checks import GIVEN_OPTIONS, GIVEN_ROLES
from nearkin.cli.progress import note
from nearkin.data.corrections import labels_and_corrections
from nearkin.data.sources.vector_tables import VectorColumns
from nearkin.index.given import index_vectors, made_from, made_with, source_of

SUFFIX = ".nearkin"


def folder_of_vectors(arguments: Namespace) -> Path:
    """The folder of the vectors that the arguments name, which is made if it is not there."""
    source = Path(arguments.folder)
    named = getattr(arguments, "out", None) if arguments.verb == "explore" else None
    out = Path(named) if named else _beside(source)
    replace = arguments.verb == "explore" and arguments.replace
    options = [name for name in GIVEN_OPTIONS if getattr(arguments, name) is not None]
    if not options and not replace and made_from(out, source):
        if arguments.verb == "explore":
            note(f"{out} was made from these vectors already, and is used as it is")
        return out
    columns = {role: getattr(arguments, f"{role}_column") for role in GIVEN_ROLES}
    columns |= {"targets": _names(arguments.target_columns), "keep": _names(arguments.columns)}
    labels, corrections = labels_and_corrections(arguments.labels or ())
    index_vectors(
        source,
        out,
        labels=labels,
        corrections=corrections,
        images=arguments.images,
        columns=VectorColumns(**columns),
        metric=arguments.metric,
        on_error="skip",
        replace=replace,
        report=note,
    )
    note(f"{out} holds the vectors and their index; every verb opens it")
    return out


def _beside(source: Path) -> Path:
    """docs.nearkin for docs.parquet; docs.parquet.nearkin if the first is of other data, such as docs.npz."""
    place = source.resolve()
    plain, long = place.with_suffix(SUFFIX), place.with_name(place.name + SUFFIX)
    made_of = {folder: source_of(folder) for folder in (plain, long)}
    for folder in (plain, long):
        if made_of[folder] == os.path.abspath(source):
            return folder
    if made_of[plain] is None:
        return plain
    held = f"the vectors of {made_of[plain]}" if made_of[plain] else "something else"
    note(f"{plain} holds {held}, so these vectors go to {long}")
    return long


def made_already(source: Path) -> Path | None:
    """The folder beside a file of vectors that was made from it as it is now, with any options."""
    place = source.resolve()
    found = (folder for folder in (place.with_suffix(SUFFIX), place.with_name(place.name + SUFFIX)) if made_from(folder, source))
    return next(found, None)


def options_of(folder: Path, without: str) -> list[str] | None:
    """The words of `nearkin explore` that make a folder again, without one table of labels; None if its vectors were in memory."""
    made = made_with(folder)
    if not made:
        return None
    columns = made["columns"] or {}
    named = {f"{role}-column": columns.get(role) for role in GIVEN_ROLES}
    named |= {"target-columns": ",".join(columns.get("targets") or ()), "columns": ",".join(columns.get("keep") or ())}
    named |= {"images": made["images"], "metric": made["metric"]}
    tables = [made["labels"], *made["corrections"]]
    options = [
        *((name, value) for name, value in named.items() if value),
        *(("labels", table) for table in tables if table not in (None, os.path.abspath(without))),
    ]
    return [made["source"], *(word for name, value in options for word in (f"--{name}", value))]


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())
