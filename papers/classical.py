"""The classical rows: raw pixels and linear maps of them, measured by their nearest neighbors."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nearkin.compose.points import Points
from nearkin.compose.validation import check_choice
from nearkin.data import open as open_data
from nearkin.estimators.linear import LMNN, LinearNCA, ProbabilisticPCA
from nearkin.evaluate import knn_accuracy
from papers.cell import Settings, Trial
from papers.picture_data import map_arrays

FITTED = 60_000


def perform(trial: Trial, seed: int, chosen: Settings, data_root: Path, device: str) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """1-NN, 3-NN and 10-NN accuracy on the test part, and its map for a picture; recall@1 where the test part has classes of its own.

    Settings: `deskew`, whether images are deskewed first; `data.size`, of images that may be of any; `dimension`; `first`, the dimension of
    a PCA before the map; `fitted`, the number of points it is fitted on; `iterations`.
    """
    settings = {**trial.settings, **chosen}
    data = open_data(trial.data, data_root=data_root, size=int(settings["data.size"]) if "data.size" in settings else None)
    train, test = (data.part(name) for name in ("train", "test"))
    images = [part.read(part.ids).numpy().astype(np.float32) / 255 for part in (train, test)]
    rows = [(deskewed(some) if settings.get("deskew") == "true" else some).reshape(len(some), -1) for some in images]
    assert train.labels is not None and test.labels is not None
    method = _method(trial.method, settings, seed)
    if method is not None:
        some = np.random.default_rng(seed).permutation(len(rows[0]))[: int(settings.get("fitted", FITTED))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the number of iterations is part of the setting
            method.fit(rows[0][some], train.labels.numpy()[some])
        rows = [np.asarray(method.transform(part)) for part in rows]
    there = [torch.from_numpy(part).float().to(device) for part in rows]
    references, queries = Points(there[0], train.labels.to(device)), Points(there[1], test.labels.to(device))
    shown = map_arrays(rows[1], test.labels.numpy())
    if not bool(torch.isin(test.labels, train.labels).any()):
        own = Points(there[1], queries.labels, torch.arange(len(there[1]), device=device))
        return {"recall@1": knn_accuracy(own, own, 1, exclude_same_id=True)}, shown
    return {f"{k}-nn": knn_accuracy(queries, references, k) for k in (1, 3, 10)}, shown


def deskewed(images: np.ndarray) -> np.ndarray:
    """Deskewed images (n, 1, h, w): the rows of each image are shifted until their centers lie on a vertical line through its center.

    The slope of that line before is the covariance of row and column over the variance of the rows, weighted by intensity.
    """
    from scipy.ndimage import affine_transform

    height, width = images.shape[2:]
    row, column = np.mgrid[:height, :width]
    middle, done = np.array([height - 1, width - 1]) / 2, images.copy()
    for image, out in zip(images[:, 0], done[:, 0], strict=True):
        ink = image.sum()
        if ink == 0:
            continue
        at = np.array([(image * row).sum(), (image * column).sum()]) / ink
        spread = (image * (row - at[0]) ** 2).sum()
        slope = (image * (row - at[0]) * (column - at[1])).sum() / spread if spread else 0.0
        slide = np.array([[1.0, 0.0], [slope, 1.0]])
        affine_transform(image, slide, at - slide @ middle, output=out, order=1)
    return done


def _method(name: str, settings: Settings, seed: int) -> Any:
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.pipeline import make_pipeline

    dimension = int(settings.get("dimension", 2))
    iterations = int(settings.get("iterations", 50))
    makers: dict[str, Callable[[], Any]] = {
        "raw": lambda: None,
        "pca": lambda: PCA(dimension, random_state=seed),
        "ppca": lambda: ProbabilisticPCA(dimension),
        "lda": lambda: LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto", n_components=dimension),
        "linear_nca": lambda: LinearNCA(dimension, max_iter=iterations, random_state=seed),
        "lmnn": lambda: LMNN(dimension, max_iter=iterations, random_state=seed),
    }
    made = makers[check_choice("method", name, makers)]()
    if made is None or "first" not in settings:
        return made
    return make_pipeline(PCA(int(settings["first"]), random_state=seed), made)
