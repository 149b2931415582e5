"""The figures of the report from arrays, one function each: they compute what they show and return a matplotlib figure."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity
from nearkin.compose.points import Points, tensor_of
from nearkin.compose.validation import check_whole
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
    labels : Tensor or ndarray (n,), optional
        Classes as whole numbers.
    classes : sequence of str, optional
        Class names by number.
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
    >>> plot_map(np.eye(6), np.arange(6) % 2, method="pca").axes[0].get_title()
    'embeddings'
    """
    x = finite(tensor_of("embeddings", embeddings), "embeddings")
    placed = fit(x.cpu(), method, metric).points  # type: ignore[arg-type]
    if labels is None:
        return embedding_map([Panel("embeddings", placed)], width=700)
    y = class_labels(tensor_of("labels", labels), len(x), "labels")
    return embedding_map([Panel("embeddings", placed, np.array(_names(y, classes)))], width=700)


def plot_accuracy_by_k(embeddings: Any, labels: Any, affinity: Affinity | None = None) -> Any:
    """Plot the accuracy of the vote of k neighbors against k; each point is predicted from the others.

    Parameters
    ----------
    embeddings : Tensor or ndarray (n, d)
        One row for each point.
    labels : Tensor or ndarray (n,)
        Classes as whole numbers.
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
    points, y = _points(embeddings, labels)
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
    labels : Tensor or ndarray (n,)
        Classes as whole numbers.
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
    points, _ = _points(embeddings, labels)
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
    labels : Tensor or ndarray (n,)
        Classes as whole numbers.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default.
    classes : sequence of str, optional
        Class names by number.

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
    points, y = _points(embeddings, labels)
    rows = torch.nonzero(y >= 0)[:, 0]  # points without a class are left out
    points, y = Points(points.embeddings[rows], y[rows], rows), y[rows]
    found = nearest(points, points, NEAR, affinity, exclude_same_id=True).positions
    count = max(int(y.max()) + 1, len(classes))
    counts = flow_counts(y, torch.where(found >= 0, y[found.clamp_min(0)], -1), count)
    return neighbor_flow(counts.cpu().numpy(), [classes[at] if at < len(classes) else str(at) for at in range(count)])


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
    labels : Tensor or ndarray (n,), optional
        Classes as whole numbers.
    affinity : Affinity, optional
        Minus the squared Euclidean distance by default.
    rows : sequence of int, optional
        The points to show; eight drawn at random by default.
    classes : sequence of str, optional
        Class names by number.

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
    y = None if labels is None else class_labels(tensor_of("labels", labels), len(x), "labels")
    drawn = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:8].sort().values.tolist()
    shown = [check_whole("rows", row, least=0) for row in rows] or drawn
    ids = torch.arange(len(x))
    found = nearest(Points(x[shown], ids=ids[shown]), Points(x, ids=ids), NEAR, affinity, exclude_same_id=True).positions
    names = [""] * len(x) if y is None else _names(y, classes)
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


def _points(embeddings: Any, labels: Any) -> tuple[Points, Tensor]:
    x = finite(tensor_of("embeddings", embeddings), "embeddings")
    y = class_labels(tensor_of("labels", labels), len(x), "labels")
    return Points(x, y, torch.arange(len(x))), y


def _names(labels: Tensor, classes: Sequence[str]) -> list[str]:
    return [str(classes[one]) if 0 <= one < len(classes) else str(one) for one in labels.tolist()]
