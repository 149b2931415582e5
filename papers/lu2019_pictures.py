"""Figures 4, 5 and 6 of [lu2019sampling] from runs that were followed and the embeddings they saved: nothing is trained here.

Figure 4: P@1 of the test classes against iterations and against the pairs or triplets that contributed to the loss so far (for Prec@k
the misplaced ones), seed 0; precision against recall, and ROC, of pairs. Figure 5: queries and their neighbors. Figure 6: t-SNE.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nearkin.compose.affinity import cosine
from nearkin.compose.points import Points
from nearkin.evaluate import pair_curves
from nearkin.report.curves import PairCurves, Series, line, pr_roc
from nearkin.report.drawing import save
from nearkin.report.image_grids import Hit, gallery
from nearkin.report.maps import Panel, embedding_map
from nearkin.report.projection import Method, fit
from nearkin.search import nearest
from papers.cell import AFTER_TEST
from papers.lu2019 import AFTER_TEST as CHANGED
from papers.lu2019 import table_name
from papers.lu2019_trials import OTHERS, OURS, SETS, TABLE_1
from papers.unseen import parts_of

CURVE = 500  # points of a curve
ROWS, FOUND = 5, 8  # queries of the gallery, and neighbors of each
MAPPED = 20  # classes of the map
SHOWN = ("prec5-printed", "triplet-semi")  # in gallery and map
PHOTOGRAPHS = ("cub", "cars", "products")  # copyrighted by others, so no gallery is published
NO_GALLERY = "Figure 5 is left out: the photographs are copyrighted by others."
CAPTIONS: Mapping[str, str] = {
    "iterations": "Figure 4: P@1 of the test classes while training, seed 0. For this picture only; nothing was selected by it.",
    "active": "Figure 4: the same against the pairs or triplets that have contributed to the loss; for Prec@k, the misplaced ones.",
    "pairs": "Figure 4: precision and recall, and ROC, of pairs of test images.",
    "gallery": "Figure 5: queries drawn at random and their nearest; a green frame with a tick marks the class of the query.",
    "map": "Figure 6: t-SNE of the first twenty test classes.",
}


def draw(data: str, results: Path, out: Path, data_root: Path, projection: Method = "tsne") -> Iterator[Path]:
    """Every picture of a data set, saved as lu2019-DATA-NAME.png."""
    runs = followed(data, results)
    if not runs:
        raise ValueError(f"{results} holds no followed run of lu2019-{data}-11; run `python -m papers lu2019-{data}-11` first")
    yield save(by_iteration(runs, SETS[data].title), out / f"lu2019-{data}-iterations.png")
    yield save(by_active(runs, SETS[data].title), out / f"lu2019-{data}-active.png")
    kept = {name: points for name in runs if (points := embeddings(data, name, results)) is not None}
    if kept:
        yield save(trade_offs(kept), out / f"lu2019-{data}-pairs.png")
        if data not in PHOTOGRAPHS:
            yield save(neighbors_of_queries(data, kept, data_root), out / f"lu2019-{data}-gallery.png")
        yield save(mapped(kept, projection), out / f"lu2019-{data}-map.png")


def picture_lines(results: Path) -> dict[str, list[str]]:
    """Lines of Markdown for every table, for the pictures that have been drawn; links are relative to a folder next to the results."""
    lines: dict[str, list[str]] = {}
    for data in SETS:
        for name, caption in CAPTIONS.items():
            if (results / f"lu2019-{data}-{name}.png").exists():
                shown = f"{caption} {AFTER_TEST}" if data in CHANGED else caption
                link = f"![{caption}](../{results.name}/lu2019-{data}-{name}.png)"
                lines.setdefault(table_name(data, "11"), []).extend([link, "", shown, ""])
        if data in PHOTOGRAPHS and table_name(data, "11") in lines:
            lines[table_name(data, "11")] += [NO_GALLERY, ""]
    return lines


def title_of(name: str) -> str:
    """The label of a row."""
    return {**TABLE_1, **OURS, **OTHERS}[name].row


def followed(data: str, results: Path) -> dict[str, list[dict[str, float]]]:
    """The curve of every followed trial by its name."""
    found = {}
    for path in sorted(results.glob(f"lu2019-{data}-11-*.json")):
        curves = [run["curve"] for run in json.loads(path.read_text(encoding="utf-8"))["runs"] if "curve" in run]
        if curves:
            found[path.stem.removeprefix(f"lu2019-{data}-11-")] = curves[0]
    return found


def by_iteration(runs: Mapping[str, list[dict[str, float]]], title: str) -> Any:
    """Figure 4, left: P@1 against iterations."""
    at = [point["iteration"] for point in next(iter(runs.values()))]
    series = [Series(title_of(name), [point["precision@1"] for point in curve]) for name, curve in runs.items()]
    return line(at, series, title=f"Unseen classes while training: {title}", x_label="iteration", y_label="P@1")


def by_active(runs: Mapping[str, list[dict[str, float]]], title: str) -> Any:
    """Figure 4, middle: P@1 against the number of pairs or triplets that contributed to the loss."""
    series = []
    for name, curve in runs.items():
        seen = [point for point in curve if point["active"] > 0]
        series.append(Series(title_of(name), [point["precision@1"] for point in seen], x=[point["active"] for point in seen]))
    ends = [value for one in series for value in np.asarray(one.x)]
    ticks = [10.0**power for power in range(math.floor(math.log10(min(ends))), math.ceil(math.log10(max(ends))) + 1)]
    names = [f"{tick:.0f}" if tick < 1e3 else f"{tick / 1e3:.0f}k" if tick < 1e6 else f"{tick / 1e6:.0f}M" for tick in ticks]
    across = "pairs or triplets that contributed to the loss"
    return line(ticks, series, title=f"Unseen classes while training: {title}", x_label=across, y_label="P@1", ticks=names)


def embeddings(data: str, name: str, results: Path) -> Points | None:
    """The unit embeddings of the test classes that a followed run saved; None if there are none."""
    path = results / "embeddings" / f"lu2019-{data}-11-{name}.npz"
    if not path.exists():
        return None
    held = np.load(path)
    labels = torch.from_numpy(held["labels"])
    return Points(torch.from_numpy(held["embeddings"].astype(np.float32)), labels, torch.arange(len(labels)))


def trade_offs(kept: Mapping[str, Points]) -> Any:
    """Figure 4, right: precision and recall, and ROC, of pairs."""
    trades, share = [], 0.0
    for name, points in kept.items():
        pr, roc = pair_curves(points, affinity=cosine(), draws=0)
        share = pr.area.chance or 0.0
        curves = [_thinned(curve.x.numpy(), curve.y.numpy()) for curve in (pr, roc)]
        trades.append(PairCurves(title_of(name), *curves[0], *curves[1], pr.area.value, roc.area.value))
    return pr_roc(trades, positive_share=share)


def _thinned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = np.unique(np.linspace(0, len(x) - 1, CURVE).round().astype(int))
    return x[rows], y[rows]


def neighbors_of_queries(data: str, kept: Mapping[str, Points], data_root: Path) -> Any:
    """Figure 5: the same queries, drawn at random, and their nearest by two losses."""
    images = parts_of(data, str(data_root), False)[1]
    assert isinstance(images.inputs, torch.Tensor)
    drawn = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:ROWS].tolist()
    shown = {name: points for name, points in kept.items() if name in SHOWN} or dict(list(kept.items())[:1])
    rows = []
    for query in drawn:
        for name, points in shown.items():
            assert points.labels is not None
            near = nearest(points.embeddings[query : query + 1], points.embeddings, FOUND + 1, cosine()).positions[0]
            others = near[near != query][:FOUND].tolist()
            hits = [Hit(images.inputs[row].numpy(), "", bool(points.labels[row] == points.labels[query])) for row in others]
            rows.append((Hit(images.inputs[query].numpy(), title_of(name).replace(" ", "\n", 1)), hits))
    return gallery(rows, title="Unseen classes: queries drawn at random and their nearest")


def mapped(kept: Mapping[str, Points], projection: Method = "tsne") -> Any:
    """Figure 6: t-SNE of the first twenty test classes by two losses."""
    shown = {name: points for name, points in kept.items() if name in SHOWN} or dict(list(kept.items())[:1])
    panels = []
    for name, points in shown.items():
        assert points.labels is not None
        some = points.labels < MAPPED
        at = fit(points.embeddings[some], projection, "cosine").points
        panels.append(Panel(title_of(name), at, points.labels[some].numpy()))
    return embedding_map(panels)
