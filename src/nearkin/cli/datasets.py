"""Data for a model, for the commands that embed."""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nearkin import data as sources
from nearkin.cli.progress import note
from nearkin.data.corrections import corrected
from nearkin.data.dataset import Dataset
from nearkin.data.images import OnError
from nearkin.data.opener import DATA_ROOT, same_set
from nearkin.data.sources.local_files import MissingFileError
from nearkin.data.sources.vectors import open_vectors
from nearkin.models.folder import about_of, readable, reading
from nearkin.train.config import DataChoice, Run
from nearkin.train.saved_run import read_run


def choice_of(folder: Path, *, verify: bool = True) -> DataChoice:
    """The data settings of the run that trained a model; the defaults if its folder has no run.json."""
    return read_run(folder, verify=verify).data if (folder / "run.json").exists() else Run().data


def own_data(what: str, choice: DataChoice) -> bool:
    """Whether these are the data that the model was trained on: the same known set or the same path, in any spelling."""
    return (
        what == choice.source
        or same_set(what, choice.source)
        or (Path(what).exists() and Path(choice.source).exists() and Path(what).samefile(choice.source))
    )


def open_for(arguments: Namespace, choice: DataChoice, what: str, **options: Any) -> Dataset:
    """`nearkin.data.open`, with known sets from --data-root; without it the model's own set is read from where training found it."""
    remembered = choice.root if own_data(what, choice) else ""
    try:
        return sources.open(what, data_root=arguments.data_root or remembered or DATA_ROOT, **options)
    except MissingFileError as error:
        if not remembered:
            raise
        found = f"{arguments.folder} was trained on {choice.source} from the data root {remembered}"
        fix = (
            f"leave out --data-root {arguments.data_root} to read it there"
            if arguments.data_root
            else "if it was moved, pass --data-root FOLDER"
        )
        raise MissingFileError(f"{error}. {found}; {fix}") from error


def new_points(about: Mapping[str, Any], what: str, **options: Any) -> Dataset:
    """Queries or new points for a model: vectors where its vectors were given, otherwise data as for training."""
    if "given" in about:
        return open_vectors(what, on_error=options.get("on_error", "raise"), report=options.get("report"))
    asked: dict[str, Any] = {"supervision": "ids"} if "table" in about else {}  # rows without a class are kept
    return sources.open(what, **reading(dict(about)), **asked, **options)


def opened(arguments: Namespace, what: str, on_error: OnError) -> Dataset:
    """Open data, with images converted to the model's shape; its own training data get the corrected labels of the run."""
    folder = Path(arguments.folder)
    about, choice = about_of(folder), choice_of(folder, verify=not arguments.no_verify)
    own = own_data(what, choice)
    columns: dict[str, Any] = dict(choice.columns()) if own else {"text_column": choice.text_column or None}
    columns["keep_unlabeled"] = "table" in about or bool(columns.get("keep_unlabeled"))  # an embedding needs no label
    if "given" in about:
        data = new_points(about, what, on_error=on_error, report=note)
    else:
        data = readable(folder, about, open_for(arguments, choice, what, **reading(about), **columns, on_error=on_error, report=note))
    if tuple(data.shape) != tuple(about["shape"]):
        raise ValueError(
            f"{what} has points of shape {tuple(data.shape)}, and this model reads {tuple(about['shape'])}; give data of that shape"
        )
    return corrected(data, choice.corrections if own else "", note)
