"""Files of a model folder, and the error if they are missing. Free of torch, since the command line checks them first."""

from pathlib import Path
from shlex import quote


def run_page(folder: Path) -> Path:
    """run.json of a folder whose training is to resume, or an error if there is none."""
    page = folder / "run.json"
    if not page.exists() and not any((folder / "checkpoints").glob("step-*")):  # a checkpoint holds the settings, too
        begin = f"`nearkin train DATA --out {quote(str(folder))}` starts one"
        raise FileNotFoundError(f"{folder} holds no training to resume (no run.json); {begin}")
    return page


def model_page(folder: Path) -> Path:
    """model.json of a model folder, or an error if it is none."""
    page = folder / "model.json"
    if not page.exists():
        make = (
            f"`nearkin train {quote(str(folder))}` makes one of a table"
            if folder.is_file()
            else f"`nearkin train DATA --out {quote(str(folder))}` makes one"
        )
        raise FileNotFoundError(f"{folder} is no model folder: it has no model.json; {make}")
    return page
