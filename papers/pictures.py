"""The figures of the papers, drawn from saved arrays or from the figures of the runs; each is shown below its table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nearkin.report.curves import Series, line
from nearkin.report.drawing import save
from nearkin.report.image_grids import Hit, attention_by_stage, filters
from nearkin.report.maps import Panel, embedding_map
from papers import lu2019_pictures
from papers.cell import AFTER_TEST, Cell
from papers.huang2019_trials import LONG
from papers.tables import TABLES, verdicts
from papers.verdict import Verdict, comparable_margins

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Picture:
    """One figure: its table, its caption, the trials whose arrays it needs, each with its name, and the function that draws it."""

    name: str
    table: str
    caption: str
    trials: Mapping[str, str]  # trial -> its name in the picture
    draw: Callable[[Mapping[str, Arrays]], Any]


@dataclass(frozen=True)
class Curve:
    """One figure whose points are the cells of a table: rows named "k = 1" are the x axis, and every column is a line."""

    name: str
    table: str
    caption: str
    across: str
    up: str

    def draw(self, found: Sequence[tuple[Cell, Verdict]]) -> Any:
        """From the cells of the table, all of which have runs; bands are the margins of shares."""
        share = found[0][0].unit.endswith("%")
        scale = 100 if share else 1
        at = list(dict.fromkeys(float(cell.row.partition(" = ")[2]) for cell, _ in found))
        series = []
        for column in dict.fromkeys(cell.column for cell, _ in found):
            mine = [verdict for cell, verdict in found if cell.column == column]
            means, margins = (np.array(values) / scale for values in ([one.mean for one in mine], comparable_margins(mine)))
            band = (means - margins, means + margins) if share else (None, None)
            series.append(Series(column or self.up, means, *band))
        title = self.table.partition("] ")[2]
        return line(at, series, title=title[0].upper() + title[1:], x_label=self.across, y_label=self.up, share=share)


def _panels(found: Mapping[str, Arrays]) -> list[Panel]:
    return [Panel(name, kept["embeddings"], kept["labels"], anchors=kept.get("anchors")) for name, kept in found.items()]


def maps(found: Mapping[str, Arrays]) -> Any:
    """2-D embeddings of the test part side by side, with anchors where there are any."""
    return embedding_map(_panels(found), width=max(1200, 330 * len(found)))


def flat(found: Mapping[str, Arrays]) -> Any:
    """`maps` of losses with and without anchors; a collapsed one is drawn around the origin, in a frame that holds all anchors."""
    half = 1.12 * max(float(np.abs(kept["anchors"]).max()) for kept in found.values() if "anchors" in kept)
    panels = [one._replace(anchors=None, half=half, named=False) if one.title == COLLAPSED else one for one in _panels(found)]
    return embedding_map(panels, width=330 * len(panels))


def first_filters(found: Mapping[str, Arrays]) -> Any:
    """The first layer of one network next to images."""
    (kept,) = found.values()
    return filters(kept["filters"].astype(np.float32), kept["images"])


def convergence(found: Mapping[str, Arrays]) -> Any:
    """Error on the validation part after every epoch."""
    series = [Series(name, 1 - kept["class vectors"]) for name, kept in found.items()]
    epochs = np.arange(1, 1 + len(next(iter(found.values()))["class vectors"]))
    return line(epochs, series, title="Validation part of MNIST", x_label="epoch", y_label="error", min_span=0.0)


def attention(found: Mapping[str, Arrays]) -> Any:
    """Attention of the networks of successive rounds; the frame shows whether the class of the nearest training point is right."""
    (kept,) = found.values()
    names = [f"round {number}" for number in range(len(kept["heat"]))]
    rows = [
        (Hit(image, "test image"), list(zip(names, kept["heat"][:, i].astype(np.float32), kept["right"][:, i].tolist(), strict=True)))
        for i, image in enumerate(kept["images"])
    ]
    return attention_by_stage(rows)


MNIST_2D = {
    **{f"ren2014-mnist-{method}-2d": method.upper() for method in ("pca", "ppca", "lda", "lmnn")},
    "ren2014-mnist-linear_nca-2d": "linear NCA",
    "ren2014-mnist-nca-2d": "NCA on the convnet",
}
COLLAPSED = "center loss alone"
FLAT = {
    f"hao2018-mnist-2d-{loss}": name
    for loss, name in (
        ("softmax", "SoftMax"),
        ("center", "SoftMax and center loss"),
        ("c-ncm", "C-NCM"),
        ("e-ncm", "E-NCM"),
        ("pull", COLLAPSED),
    )
}
CURVES = {f"hao2018-mnist-curve-{loss}": name for loss, name in (("softmax", "SoftMax"), ("c-ncm", "C-NCM"), ("e-ncm", "E-NCM"))}
PICTURES = (
    Picture(
        "ren2014-figure-3",
        "[ren2014convolutional] figure 3, MNIST in 2-D",
        "3,000 points of the test part in two dimensions.",
        MNIST_2D,
        maps,
    ),
    Picture(
        "ren2014-figure-2-mnist",
        "[ren2014convolutional] table I, MNIST",
        "Figure 2: first-layer filters of the NCA network.",
        {"ren2014-mnist-nca-log": "MNIST"},
        first_filters,
    ),
    Picture(
        "ren2014-figure-2-cifar",
        "[ren2014convolutional] table II, CIFAR-10",
        "Figure 2: first-layer filters of the NCA network trained with crop and flip.",
        {"ren2014-cifar-nca-log-crop": "CIFAR-10"},
        first_filters,
    ),
    Picture(
        "hao2018-figure-2",
        "[hao2018anchor] figure 2, MNIST in 2-D",
        "3,000 points of the test part, each panel at its own scale. Stars are the anchors, at distance 1 from the origin; E-NCM hides "
        "them below the numbers of the classes. The center loss alone is drawn in a frame of the size of E-NCM's, with the origin in its "
        "center: all classes lie on one spot.",
        FLAT,
        flat,
    ),
    Picture(
        "hao2018-figure-3",
        "[hao2018anchor] figure 3, convergence on MNIST",
        "Error of the nearest class vector on a tenth of the training part. Our rate falls to zero over these ten "
        "epochs, so all curves flatten at the end.",
        CURVES,
        convergence,
    ),
    Picture(
        "huang2019-figure-7",
        "[huang2019and] figure 6: trusted neighborhoods of round r",
        "Figure 7: attention of the network for the nearest training point, after the instance round and each round of discovery.",
        {"and-base": "AND"},
        attention,
    ),
)
_BAND = "the band is the margin of the test part or, if wider, of seeds"


def _at_lengths(number: int, title: str, caption: str, axis: str) -> tuple[Curve, ...]:
    """A figure of the compared rows, at both lengths."""
    return tuple(
        Curve(
            f"huang2019-figure-{number}{ending}",
            f"[huang2019and] figure {number}{where}: {title}",
            f"Figure {number}: CIFAR-10, {caption.format(where)}.",
            axis,
            "weighted kNN accuracy",
        )
        for ending, where in (("", ""), ("-longer", f" at {LONG} epochs per round"))
    )


CELL_CURVES: tuple[Curve, ...] = (
    Curve(
        "huang2019-discovery-adds",
        "[huang2019and] beyond the paper: what discovery adds",
        "CIFAR-10, one recipe with neighbors and without, by the number of training images processed; bands as in figure 4.",
        "million images",
        "weighted kNN accuracy",
    ),
    *_at_lengths(4, "size k of a neighborhood", f"every k at the same epochs{{}}; {_BAND}", "k, on a logarithmic axis"),
    *_at_lengths(
        5,
        "rounds R",
        "the same epochs in all divided between R rounds and the first one{}; bands as in figure 4",
        "rounds of discovery",
    ),
    Curve(
        "huang2019-figure-6",
        "[huang2019and] figure 6: trusted neighborhoods of round r",
        "Figure 6: trusted points of CIFAR-10 whose neighbor is of their class, or is not.",
        "round",
        "trusted points",
    ),
    Curve(
        "huang2019-figure-6-longer",
        "[huang2019and] figure 6 at 50 epochs per round",
        "Figure 6 after rounds of 50 epochs, with the released recipe and with ours.",
        "round",
        "trusted points",
    ),
)


def draw(results: Path) -> list[Path]:
    """Draw every picture whose arrays, or whose runs, are all there, as PNG next to them."""
    drawn, cells = [], [cell for _, some in TABLES.values() for cell in some]
    for curve in CELL_CURVES:
        points = verdicts([cell for cell in cells if cell.table == curve.table], results)
        if all(verdict.mean is not None for _, verdict in points):
            drawn.append(save(curve.draw(points), results / f"{curve.name}.png"))
    for picture in PICTURES:
        kept = {trial: results / f"{trial}.npz" for trial in picture.trials}
        if all(path.exists() for path in kept.values()):
            found = {picture.trials[trial]: dict(np.load(path)) for trial, path in kept.items()}
            drawn.append(save(picture.draw(found), results / f"{picture.name}.png"))
    return drawn


def picture_lines(results: Path) -> dict[str, list[str]]:
    """Lines of Markdown for every table, for the pictures that have been drawn; links are relative to a folder next to the results."""
    lines: dict[str, list[str]] = lu2019_pictures.picture_lines(results)
    cells = [cell for _, some in TABLES.values() for cell in some]
    pictured: tuple[Curve | Picture, ...] = (*CELL_CURVES, *PICTURES)
    for picture in pictured:
        if (results / f"{picture.name}.png").exists():
            trials = picture.trials if isinstance(picture, Picture) else {cell.trial for cell in cells if cell.table == picture.table}
            marked = any(cell.after_test for cell in cells if cell.trial in trials)
            link = f"![{picture.caption}](../{results.name}/{picture.name}.png)"
            caption = f"{picture.caption} {AFTER_TEST}" if marked else picture.caption
            lines.setdefault(picture.table, []).extend([link, "", caption, ""])
    return lines
