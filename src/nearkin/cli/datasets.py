"""Data as a model reads them, for the verbs that embed."""

from argparse import Namespace
from pathlib import Path

from nearkin import data as sources
from nearkin.cli.progress import note
from nearkin.data.corrections import corrected
from nearkin.data.dataset import Dataset
from nearkin.data.images import OnError
from nearkin.models.folder import about_of, brought_to
from nearkin.train.config import DataChoice, Run


def choice_of(folder: Path) -> DataChoice:
    """The data that a model was trained on, if its folder tells."""
    page = folder / "run.json"
    return Run.from_json(page.read_text(encoding="utf-8")).data if page.exists() else Run().data


def own_data(what: str, choice: DataChoice) -> bool:
    """Whether these are the data that a model was trained on, however their path is written."""
    return what == choice.source or (Path(what).exists() and Path(choice.source).exists() and Path(what).samefile(choice.source))


def opened(arguments: Namespace, what: str, on_error: OnError) -> Dataset:
    """Images are brought to the model's shape; the data it was trained on have the labels it was trained with, corrected ones included."""
    folder = Path(arguments.folder)
    about, choice = about_of(folder), choice_of(folder)
    channels, size = brought_to(about)
    own = own_data(what, choice)
    columns = choice.columns() if own else {}
    data = sources.open(what, data_root=arguments.data_root, size=size, channels=channels, **columns, on_error=on_error, report=note)
    if tuple(data.shape) != tuple(about["shape"]):
        raise ValueError(f"{what} has points of shape {tuple(data.shape)}, and this model reads {tuple(about['shape'])}")
    return corrected(data, choice.corrections if own else "", note)
