"""The rows of results that the README shows."""

from pathlib import Path

from papers.cell import AFTER_TEST, LEGEND, Cell
from papers.claim import line
from papers.lu2019_summary import readme_summary
from papers.tables import TABLES, verdicts
from papers.verdict import Verdict

HEADLINE = (  # trial, figure, and what it is
    ("ren2014-mnist-nca-log", "1-nn", "NCA network, MNIST, 1-NN error % (Ren et al., 2014)"),
    ("ren2014-cifar-nca-log", "10-nn", "NCA network, CIFAR-10, 10-NN accuracy % (the same)"),
    ("hao2018-cifar10plus-e-ncm-p0.1", "class vectors", "fixed anchors, CIFAR-10 with crop and flip, error % (Hao et al., 2018)"),
    ("hao2018-cifar100-e-ncm-p0.1", "class vectors", "fixed anchors, CIFAR-100, error % (the same)"),
    ("and-goal25", "weighted-nn", "no labels, CIFAR-10, our recipe, 25 M images, weighted kNN accuracy %"),
    ("and-alone25", "weighted-nn", "the same without neighbors (instance discrimination alone)"),
)
HEADS = ("what", "printed", "ours", "seeds", "verdict")


def readme_rows(results: Path, link: str = "docs/papers") -> str:
    """A table of a few rows, marked like those of the pages, and the result on unseen classes."""
    cells = [cell for _, some in TABLES.values() for cell in some]
    shown = [next(cell for cell in cells if (cell.trial, cell.figure) == (trial, figure)) for trial, figure, _ in HEADLINE]
    found = [(*one, what) for one, (*_, what) in zip(verdicts(shown, results), HEADLINE, strict=True) if one[1].mean is not None]
    lines = [line(HEADS), "|---|---:|---:|---:|---|", *(line(_row(*one)) for one in found)]
    marks = f" {LEGEND}." if any(cell.after_test for cell, *_ in found) else ""
    lines += ["", f"± is the standard deviation over trainings.{marks} [One page per paper]({link}/index.md) has every figure and claim."]
    if words := readme_summary(verdicts(TABLES["lu2019"][1], results)):
        lines += ["", f"Unseen classes (Lu et al., 2019, table 1): {words} [The evidence]({link}/lu2019.md)."]
    return "\n".join(lines)


def _row(cell: Cell, verdict: Verdict, what: str) -> list[str]:
    ours = cell.text(verdict.mean) + ("" if verdict.spread is None else f" ± {cell.text(verdict.spread)}")
    mark = f" {AFTER_TEST}" if cell.after_test else ""
    extra = "" if verdict.extra is None else f"; by 1-NN: {cell.text(verdict.extra)}"
    state = verdict.word if cell.printed is None else verdict.state(cell)
    return [what + mark, cell.text(cell.printed), ours + extra, verdict.count, state]
