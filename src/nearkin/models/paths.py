"""The files of a model folder: where they are, and an error in words where they are not."""

from pathlib import Path
from shlex import quote


def run_page(folder: Path) -> Path:
    """run.json of a folder whose training goes on, or an error where nothing was begun."""
    page = folder / "run.json"
    if not page.exists():
        begin = f"`nearkin train DATA --out {quote(str(folder))}` begins one"
        raise FileNotFoundError(f"{folder} holds no training to resume (no run.json); {begin}")
    return page


def model_page(folder: Path) -> Path:
    """model.json of a model folder, or an error where it is none."""
    page = folder / "model.json"
    if not page.exists():
        make = f"`nearkin train DATA --out {quote(str(folder))}` makes one"
        raise FileNotFoundError(f"{folder} is no model folder: it has no model.json; {make}")
    return page
