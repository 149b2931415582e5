"""The report of a model folder, as a result that a notebook shows."""

import json
from dataclasses import dataclass
from html import escape
from pathlib import Path
from shlex import quote
from typing import Any

HEIGHT = 720  # pixels of the frame


@dataclass(frozen=True)
class SavedReport:
    """The report that `nearkin evaluate` wrote; `Model.report` returns it, and a notebook shows it as a page in a frame.

    Parameters
    ----------
    path : Path
        The page, report.html.
    figures : dict
        Everything in it as plain data, the content of evaluation.json.

    Examples
    --------
    >>> from pathlib import Path
    >>> from nearkin.models import SavedReport
    >>> SavedReport(Path("runs/photos/report.html"), {"split": "test"})
    <SavedReport runs/photos/report.html>
    """

    path: Path
    figures: dict[str, Any]

    def __repr__(self) -> str:
        return f"<SavedReport {self.path}>"

    def _repr_html_(self) -> str:
        page = escape(self.path.read_text(encoding="utf-8"), quote=True)
        return f'<iframe title="report" sandbox srcdoc="{page}" style="width:100%;height:{HEIGHT}px;border:0"></iframe>'


def saved_report(folder: Path | None) -> SavedReport:
    """The report in a model folder, or an error that says how to write it."""
    if folder is None:
        raise FileNotFoundError("this model was not loaded from a folder, so it has no report; nearkin.load(FOLDER).report() shows one")
    path, figures = folder / "report.html", folder / "evaluation.json"
    if not path.is_file() or not figures.is_file():
        raise FileNotFoundError(f"{folder} has no report yet; `nearkin evaluate {quote(str(folder))}` writes it")
    return SavedReport(path, json.loads(figures.read_text(encoding="utf-8")))
