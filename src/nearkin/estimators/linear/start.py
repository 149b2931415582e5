"""The start of a linear fit: principal or discriminant directions, the first features, random numbers, or an array."""

from typing import Any

import numpy as np
from sklearn.utils import check_array, check_random_state

from nearkin.compose.validation import check_choice, check_whole
from nearkin.estimators.linear.scaling import CHUNK, covariance

INITS = ("auto", "pca", "lda", "identity", "random")
TOLERANCE = 1e-4  # directions below this share of the largest deviation are rounding


def checked_components(n_components: Any, features: int) -> int:
    """The number of rows of the map; None means the number of features."""
    if n_components is None:
        return features
    check_whole("n_components", n_components)
    if n_components > features:
        raise ValueError(f"n_components ({n_components}) is above the number of features ({features}); use {features} or fewer")
    return int(n_components)


def starting_point(init: Any, x: np.ndarray, classes: np.ndarray | None, n_components: int, given: bool, random_state: Any) -> np.ndarray:
    """The map (p, d) to start from, float64.

    `classes` are codes (n,) 0..C-1, or None if the targets are numbers. `given` is whether the user set n_components: then an
    array with another number of rows is refused.
    """
    if isinstance(init, np.ndarray):
        return _given(init, x.shape[1], n_components if given else None)
    check_choice("init", init, INITS)
    if init == "auto":
        init = _chosen(x, classes, n_components)
        if init == "lda" and classes is not None:
            found = _directions(x, classes)[:n_components]
            if len(found) == n_components:
                return found
            # Constant, collinear or one-hot columns leave fewer directions than there are classes.
            init = "pca" if n_components <= min(x.shape) else "identity"
    if init == "identity":
        return np.eye(n_components, x.shape[1])
    if init == "random":
        drawn: np.ndarray = check_random_state(random_state).standard_normal((n_components, x.shape[1]))
        return drawn
    if init == "pca":
        return _principal(x, n_components, random_state)
    if classes is None:
        raise ValueError("init 'lda' needs classes, and y holds numbers; choose pca, identity or random")
    return _discriminant(x, classes, n_components)


def _chosen(x: np.ndarray, classes: np.ndarray | None, n_components: int) -> str:
    """scikit-learn's rule: LDA if it has enough directions, PCA if some directions are dropped, the identity otherwise."""
    n, d = x.shape
    if classes is not None and n_components <= min(d, int(classes.max())):
        return "lda"
    return "pca" if n_components < min(n, d) else "identity"


def _given(init: np.ndarray, features: int, n_components: int | None) -> np.ndarray:
    start: np.ndarray = check_array(init, dtype=np.float64)
    if start.shape[1] != features:
        raise ValueError(f"init has {start.shape[1]} columns and the data {features} features; it must be (n_components, {features})")
    if start.shape[0] > features:
        raise ValueError(f"init has {start.shape[0]} rows for {features} features; give at most {features} rows")
    if n_components is not None and start.shape[0] != n_components:
        raise ValueError(f"init has {start.shape[0]} rows and n_components is {n_components}; make them equal, or omit n_components")
    return start


def _principal(x: np.ndarray, n_components: int, random_state: Any) -> np.ndarray:
    from sklearn.decomposition import PCA

    if n_components > min(x.shape):
        raise ValueError(f"init 'pca' finds {min(x.shape)} directions in {x.shape[0]} points; lower n_components ({n_components})")
    if len(x) > x.shape[1]:  # scikit-learn would copy the data
        return np.linalg.eigh(covariance(x, x.mean(0, dtype=np.float64)))[1].T[::-1][:n_components].copy()
    found: np.ndarray = PCA(n_components, random_state=random_state).fit(x).components_
    return found.astype(np.float64)


def _discriminant(x: np.ndarray, classes: np.ndarray, n_components: int) -> np.ndarray:
    found = _directions(x, classes)
    if len(found) < n_components:
        raise ValueError(f"init 'lda' finds {len(found)} directions; lower n_components ({n_components}) or choose pca")
    return found[:n_components]


def _directions(x: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """(p, d) discriminant directions, scaled to unit variance within classes, as many as there are.

    With more points than features they come from (d, d) sums: scikit-learn copies the data three times for the same result.
    """
    if len(x) <= x.shape[1]:
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

        found = LinearDiscriminantAnalysis().fit(x, classes).scalings_.T
    else:
        found = _discriminant_from_sums(x, classes)
    return np.asarray(found, dtype=np.float64)


def _discriminant_from_sums(x: np.ndarray, classes: np.ndarray) -> np.ndarray:
    n, count = len(x), int(classes.max()) + 1
    sizes = np.bincount(classes, minlength=count)
    sums = np.zeros((count, x.shape[1]))
    squares = np.zeros((x.shape[1], x.shape[1]))
    middle = x.mean(0, dtype=np.float64)
    for start in range(0, n, CHUNK):
        part, codes = x[start : start + CHUNK] - middle, classes[start : start + CHUNK]
        np.add.at(sums, codes, part)
        squares += part.T @ part
    means = sums / sizes[:, None]
    within = squares - (means * sizes[:, None]).T @ means
    spread = np.sqrt(np.maximum(np.diag(within) / n, 0))
    spread[spread == 0] = 1.0
    values, vectors = np.linalg.eigh(within / np.outer(spread, spread) / n)
    deviations = np.sqrt(np.maximum(values[::-1], 0))
    rank = int((deviations > TOLERANCE).sum())
    scalings = vectors[:, ::-1][:, :rank] / spread[:, None] / deviations[:rank]  # (d, rank)
    overall = means * np.sqrt(sizes / (count - 1))[:, None]
    _, lengths, turned = np.linalg.svd(overall @ scalings, full_matrices=False)
    kept = int((lengths > TOLERANCE * lengths[0]).sum())
    found: np.ndarray = (scalings @ turned[:kept].T).T
    return found
