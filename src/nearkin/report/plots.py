"""The figures of the report from arrays, one function each: they compute what they show and return a matplotlib figure."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity
from nearkin.compose.points import Points, tensor_of
from nearkin.compose.validation import check_whole
from nearkin.data.progress import few
from nearkin.data.sources.vector_tables import column_values, plain_list
from nearkin.evaluate import pair_curves
from nearkin.evaluate.comparison import class_labels, finite
from nearkin.report.curves import PairCurves, Series, line, pr_roc
from nearkin.report.flow import neighbor_flow
from nearkin.report.image_grids import Hit, gallery
from nearkin.report.maps import Panel, embedding_map
from nearkin.report.measure import NEAR, by_votes, flow_counts, ks_up_to
from nearkin.report.projection import Method, fit
from nearkin.search import nearest


def plot_map(
    embeddings: Any, labels: Any = None, *, classes: Sequence[str] = (), method: Method = "tsne", metric: str = "squared_euclidean"
) -> Any:
    """Plot a map of embeddings in two dimensions, colored by class.

    Parameters
    ----------
    embeddings : Tensor or ndarray (n, d)
        One row for each point.
    labels : Tensor, ndarray or sequence (n,), optional
        Classes as names or whole numbers; None, "" or a negative number for points without a class.
    classes : sequence of str, optional
        Class names by number; of labels that are names, their order.
    method : {"tsne", "pca"}, default="tsne"
        How the map is computed.
    metric : {"squared_euclidean", "cosine"}, default="squared_euclidean"
        How the embeddings are compared.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.report import plot_map
    >>> plot_map(np.eye(6), ["cat", "dog"] * 3, method="pca").axes[0].get_title()
    'embeddings'
    """
    x = finite(tensor_of("embeddings", embeddings), "embeddings")
    placed = fit(x.cpu(), method, metric).points  # type: ignore[arg-type]
    if labels is None:
        return embedding_map([Panel("embeddings", placed)], width=700)
    y, names = _classes(labels, len(x), classes)
    return embedding_map([Panel("embeddings", placed, np.array(_names(y, names)))], width=700)


def plot_accuracy_by_k(embeddings: Any, labels: Any, affinity: Affinity | None = None) -> Any:
    """Plot the accuracy of the vote of k neighbors against k; each point is predicted from the others.

    Parameters
    ----------
    embeddings : Tensor or ndarray (n, d)
        One row for each point.
    labels : Tensor, ndarray or sequence (n,)
        Classes as names or whole numbers; None, "" or a negative number for points without a class.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.report import plot_accuracy_by_k
    >>> plot_accuracy_by_k(np.arange(12.0)[:, None], np.arange(12) // 6).axes[0].get_xlabel()
    'k neighbors'
    """
    points, y, _ = _points(embeddings, labels)
    ks = ks_up_to(len(y) - 1)
    near = y[nearest(points, points, max(ks), affinity, exclude_same_id=True).positions]
    scores = by_votes(near, y, ks, None)
    values, low, high = ([getattr(score, name) for score in scores.values()] for name in ("value", "low", "high"))
    series = Series("accuracy of k-NN", values, low, high)
    chance = scores[ks[0]].chance
    return line(ks, [series], title="Accuracy against k", x_label="k neighbors", y_label="accuracy", chance=chance, share=True)


def plot_pairs(embeddings: Any, labels: Any, affinity: Affinity | None = None) -> Any:
    """Plot precision against recall, and the ROC curve, over all pairs of points.

    Parameters
    ----------
    embeddings : Tensor or ndarray (n, d)
        One row for each point. Take a sample of some thousands of many points: the pairs grow with the square.
    labels : Tensor, ndarray or sequence (n,)
        Classes as names or whole numbers; None, "" or a negative number for points without a class.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.report import plot_pairs
    >>> len(plot_pairs(np.arange(12.0)[:, None], np.arange(12) // 6).axes)
    2
    """
    points, _, _ = _points(embeddings, labels)
    pr, roc = pair_curves(points, None, affinity)
    recall, precision, false, true = (part.cpu().double().numpy() for part in (pr.x, pr.y, roc.x, roc.y))
    curves = PairCurves("embeddings", recall, precision, false, true, pr.area.value, roc.area.value)
    return pr_roc([curves], positive_share=pr.area.chance or 0.0)


def plot_confusions(embeddings: Any, labels: Any, affinity: Affinity | None = None, *, classes: Sequence[str] = ()) -> Any:
    """Plot which classes are wrong neighbors of which, among the 10 nearest of every point.

    Parameters
    ----------
    embeddings : Tensor or ndarray (n, d)
        One row for each point.
    labels : Tensor, ndarray or sequence (n,)
        Classes as names or whole numbers; None, "" or a negative number for points without a class.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default.
    classes : sequence of str, optional
        Class names by number; of labels that are names, their order.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.report import plot_confusions
    >>> type(plot_confusions(np.arange(12.0)[:, None], np.arange(12) // 6)).__name__
    'Figure'
    """
    points, y, names = _points(embeddings, labels, classes)
    rows = torch.nonzero(y >= 0)[:, 0]  # points without a class are left out
    points, y = Points(points.embeddings[rows], y[rows], rows), y[rows]
    found = nearest(points, points, NEAR, affinity, exclude_same_id=True).positions
    count = max(int(y.max()) + 1, len(names))
    counts = flow_counts(y, torch.where(found >= 0, y[found.clamp_min(0)], -1), count)
    return neighbor_flow(counts.cpu().numpy(), _names(torch.arange(count), names))


def plot_neighbors(
    embeddings: Any,
    images: Any,
    labels: Any = None,
    affinity: Affinity | None = None,
    *,
    rows: Sequence[int] = (),
    classes: Sequence[str] = (),
) -> Any:
    """Plot points with the images of their nearest neighbors; wrong ones have a red frame.

    Parameters
    ----------
    embeddings : Tensor or ndarray (n, d)
        One row for each point.
    images : Tensor or ndarray (n, h, w) or (n, c, h, w)
        One image for each point.
    labels : Tensor, ndarray or sequence (n,), optional
        Classes as names or whole numbers; None, "" or a negative number for points without a class.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default.
    rows : sequence of int, optional
        The points to show; eight drawn at random by default.
    classes : sequence of str, optional
        Class names by number; of labels that are names, their order.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.report import plot_neighbors
    >>> images = np.zeros((12, 8, 8), dtype=np.uint8)
    >>> len(plot_neighbors(np.arange(12.0)[:, None], images, np.arange(12) // 6, rows=[0, 11]).axes) > 2
    True
    """
    x = finite(tensor_of("embeddings", embeddings), "embeddings")
    if len(images) != len(x):
        raise ValueError(f"images holds {len(images)} for {len(x)} embeddings; give one for each")
    y, known = (None, classes) if labels is None else _classes(labels, len(x), classes)
    drawn = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:8].sort().values.tolist()
    shown = [check_whole("rows", row, least=0) for row in rows] or drawn
    ids = torch.arange(len(x))
    found = nearest(Points(x[shown], ids=ids[shown]), Points(x, ids=ids), NEAR, affinity, exclude_same_id=True).positions
    names = [""] * len(x) if y is None else _names(y, known)
    lines = [
        (
            Hit(_picture(images[row]), names[row]),
            [Hit(_picture(images[at]), names[at], None if y is None else bool(y[at] == y[row])) for at in near if at >= 0],
        )
        for row, near in zip(shown, found.tolist(), strict=True)
    ]
    return gallery(lines, title="Points and their nearest neighbors")


def _picture(image: Any) -> np.ndarray:
    """(c, h, w)."""
    found = np.asarray(image)
    return found[None] if found.ndim == 2 else found


def _points(embeddings: Any, labels: Any, classes: Sequence[str] = ()) -> tuple[Points, Tensor, Sequence[str]]:
    x = finite(tensor_of("embeddings", embeddings), "embeddings")
    y, names = _classes(labels, len(x), classes)
    return Points(x, y, torch.arange(len(x))), y, names


def _classes(labels: Any, count: int, classes: Sequence[str]) -> tuple[Tensor, Sequence[str]]:
    """Classes as numbers (n,), -1 where unknown, and their names; of labels that are names, numbered in the order of `classes`."""
    held = None if isinstance(labels, Tensor) else column_values(labels)
    if held is None or held.dtype.kind not in "OUS":
        return class_labels(tensor_of("labels", labels if held is None else held), count, "labels"), classes
    cells = plain_list(held)
    missing = [cell is None or cell == "" or (isinstance(cell, float) and math.isnan(cell)) for cell in cells]
    texts = ["" if gone else str(cell) for cell, gone in zip(cells, missing, strict=True)]
    names = list(classes) or sorted(set(texts) - {""})
    other = sorted(set(texts) - {"", *names})
    if other:
        raise ValueError(f"labels name {few(other)}, which classes does not hold ({few(names)}); add them, or leave classes out")
    number = {name: at for at, name in enumerate(names)}
    return class_labels(torch.tensor([number.get(text, -1) for text in texts]), count, "labels"), names


def _names(labels: Tensor, classes: Sequence[str]) -> list[str]:
    named = (str(classes[one]) if one < len(classes) else str(one) for one in labels.clamp_min(0).tolist())
    return ["unknown" if one < 0 else name for one, name in zip(labels.tolist(), named, strict=True)]
