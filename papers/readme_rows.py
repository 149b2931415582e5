"""The rows of results that the README shows."""

import re
from pathlib import Path

from papers.cell import LEGEND, Cell
from papers.claim import line
from papers.lu2019_summary import readme_summary
from papers.page import PAPERS
from papers.tables import TABLES, verdicts
from papers.verdict import Verdict

HEADLINE = (  # trial, figure
    ("ren2014-mnist-nca-log", "1-nn"),
    ("ren2014-mnist-nca-log", "10-nn"),
    ("ren2014-cifar-nca-log", "10-nn"),
    ("ren2014-cifar-nca-smaller", "10-nn"),
    ("ren2014-cifar-nca-log-crop", "10-nn"),
    ("ren2014-cifar-nca-settled", "10-nn"),
    ("hao2018-cifar10-e-ncm-p0.1", "class vectors"),
    ("hao2018-cifar10plus-e-ncm-p0.1", "class vectors"),
    ("hao2018-cifar100-e-ncm-p0.0", "class vectors"),
    ("hao2018-cifar100-e-ncm-p0.1", "class vectors"),
    ("and-goal12", "weighted-nn"),
    ("and-alone12", "weighted-nn"),
    ("and-goal25", "weighted-nn"),
)
HEADS = ("table", "row", "unit", "printed", "ours", "seeds", "verdict")


def readme_rows(results: Path, link: str = "docs/papers") -> str:
    """A table of a few rows, marked like those of the pages, and the result on unseen classes."""
    cells = [cell for _, some in TABLES.values() for cell in some]
    shown = [next(cell for cell in cells if (cell.trial, cell.figure) == one) for one in HEADLINE]
    found = [(cell, verdict) for cell, verdict in verdicts(shown, results) if verdict.mean is not None]
    lines = [line(HEADS), "|---|---|---|---:|---:|---:|---|", *(line(_row(cell, verdict)) for cell, verdict in found)]
    marks = f" {LEGEND}." if any(cell.after_test for cell, _ in found) else ""
    lines += ["", f"± is the standard deviation over trainings.{marks} [One page per paper]({link}/index.md) has every figure and claim."]
    if words := readme_summary(verdicts(TABLES["lu2019"][1], results)):
        lines += ["", f"Unseen classes (Lu et al., 2019, table 1): {words} [The evidence]({link}/lu2019.md)."]
    return "\n".join(lines)


def _row(cell: Cell, verdict: Verdict) -> list[str]:
    ours = cell.text(verdict.mean) + ("" if verdict.spread is None else f" ± {cell.text(verdict.spread)}")
    paper = next(page.name for page in PAPERS.values() if any(cell in TABLES[table][1] for table in page.tables))
    where = ", ".join(text for text in (paper, re.sub(r"\[(\w+)\] ", "", cell.table), cell.column) if text)
    extra = "" if verdict.extra is None else f" (by 1-NN: {cell.text(verdict.extra)})"
    return [
        where,
        cell.label + extra,
        cell.unit,
        cell.text(cell.printed),
        ours,
        verdict.count,
        verdict.word if cell.printed is None else verdict.state(cell),
    ]
