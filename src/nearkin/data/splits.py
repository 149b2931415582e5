"""Splits for data without any: stratified by class, by group, or by unseen classes.

Choose by what the model will meet in use. Stratified: new images of the same classes. By group: new subjects, films or days, so images
that belong together stay in one split. By unseen classes: new classes, as in retrieval.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from torch import Tensor

from nearkin.compose.validation import check_choice
from nearkin.data.dataset import SPLITS, Dataset

How = Literal["stratified", "group", "unseen classes", "random"]
FRACTIONS: Mapping[str, float] = {"train": 0.8, "validation": 0.1, "test": 0.1}


@dataclass(frozen=True, eq=False)
class Partition:
    """The split of every point, and how it was made.

    `partition` and its relatives make one; `data.with_split(made.names)` applies it.

    Parameters
    ----------
    names : ndarray
        (n,) the split of each point: train, validation or test.
    how : {"stratified", "group", "unseen classes", "random"}
        Method of the split.
    fractions : mapping of str to float
        Requested share of each split.
    seed : int or None
        Seed of the random choice.

    Examples
    --------
    >>> from nearkin.data import Partition, stratified
    >>> made = stratified([0] * 8 + [1] * 8, {"train": 0.75, "test": 0.25})
    >>> made.names.tolist().count("test")
    4
    >>> bool((Partition.from_dict(made.as_dict()).names == made.names).all())
    True
    """

    names: np.ndarray
    how: How
    fractions: Mapping[str, float]
    seed: int | None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, with the rows of every split.

        Returns
        -------
        dict
        """
        rows = {name: np.flatnonzero(self.names == name).tolist() for name in np.unique(self.names).tolist()}
        return {"how": self.how, "seed": self.seed, "fractions": dict(self.fractions), "points": len(self.names), "rows": rows}

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> "Partition":
        """Restore a partition from what `as_dict` returned.

        Parameters
        ----------
        written : mapping
            As of `as_dict`.

        Returns
        -------
        Partition

        Raises
        ------
        ValueError
            If a point is in no split.
        """
        names = np.full(int(written["points"]), "", dtype="<U10")
        for name, rows in written["rows"].items():
            names[rows] = name
        if (names == "").any():
            raise ValueError(f"rows of the saved split leave out row {int(np.flatnonzero(names == '')[0])}; the file was edited or cut")
        return cls(names, written["how"], dict(written["fractions"]), written["seed"])


def partition(data: Dataset, how: How | None = None, fractions: Mapping[str, float] = FRACTIONS, seed: int = 0) -> Partition:
    """Split a data set.

    Apply the result with `data.with_split(partition(data).names)`.

    Parameters
    ----------
    data : Dataset
        Data to split; splits that it has are ignored.
    how : {"stratified", "group", "unseen classes", "random"}, optional
        By default "group" if there are groups, "stratified" if there are classes, else "random". "stratified" puts all points of unknown
        class (-1) into the first split, since nothing can be measured on them.
    fractions : mapping of str to float, default={"train": 0.8, "validation": 0.1, "test": 0.1}
        Share of each split; at least two, adding up to 1.
    seed : int, default=0
        Seed of the random choice.

    Returns
    -------
    Partition

    Raises
    ------
    ValueError
        If `how` needs groups or classes that the data do not have, or `fractions` are wrong.

    Examples
    --------
    >>> from nearkin import data
    >>> digits = data.open("digits")
    >>> digits.with_split(data.partition(digits).names).parts
    {'train': 1437, 'validation': 180, 'test': 180}
    """
    if how is not None:
        check_choice("how", how, get_args(How))
    chosen = how or ("group" if data.groups is not None else "stratified" if data.labels is not None else "random")
    if chosen == "random":
        return stratified(np.zeros(len(data), dtype=np.int64), fractions, seed, how="random")
    known = data.groups if chosen == "group" else data.labels
    if known is None:
        raise ValueError(
            f"how={chosen!r} needs {'groups' if chosen == 'group' else 'classes'}, and {data.name} has none; choose how='random'"
        )
    if chosen == "stratified" and data.partly_labeled:
        return _stratified_where_known(np.asarray(known), fractions, seed)
    if chosen == "stratified":
        return stratified(known, fractions, seed)
    return by_group(known, fractions, seed) if chosen == "group" else unseen_classes(known, fractions, seed)


def _stratified_where_known(labels: np.ndarray, fractions: Mapping[str, float], seed: int) -> Partition:
    made = stratified(labels[labels >= 0], fractions, seed)
    names = np.full(len(labels), next(iter(fractions)), dtype=made.names.dtype)
    names[labels >= 0] = made.names
    return replace(made, names=names)


def set_aside(data: Dataset, fraction: float = 0.1, how: How | None = None, seed: int = 0) -> Partition:
    """Move some training points to a validation split, for data with train and test only.

    Parameters
    ----------
    data : Dataset
        Data with a train split.
    fraction : float, default=0.1
        Share of the training points to move.
    how : {"stratified", "group", "unseen classes", "random"}, optional
        As of `partition`.
    seed : int, default=0
        Seed of the random choice.

    Returns
    -------
    Partition
        Of all points; those outside of train keep their split.

    Raises
    ------
    ValueError
        If the data have a validation split already, or no train split.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data import Dataset, set_aside
    >>> data = Dataset("toy", torch.zeros(20, 2)).with_split(["train"] * 10 + ["test"] * 10)
    >>> data.with_split(set_aside(data, 0.2).names).parts
    {'train': 8, 'validation': 2, 'test': 10}
    """
    if "validation" in data.parts:
        raise ValueError(f"{data.name} has a validation split of {data.parts['validation']:,} points already; use that")
    train = data.part("train")
    made = partition(train, how, {"train": 1 - fraction, "validation": fraction}, seed)
    names = data.split.astype("<U10")
    names[data.split == "train"] = made.names
    return Partition(names, made.how, made.fractions, seed)


def stratified(
    labels: Tensor | np.ndarray, fractions: Mapping[str, float] = FRACTIONS, seed: int = 0, *, how: How = "stratified"
) -> Partition:
    """Split every class in the same proportions, as nearly as whole points allow.

    Each class has at least one point in the first split. Rounding errors are carried over to the next class, so that many small classes
    still fill a small split.

    Parameters
    ----------
    labels : Tensor or ndarray
        (n,) class of each point.
    fractions : mapping of str to float, default={"train": 0.8, "validation": 0.1, "test": 0.1}
        Share of each split; at least two, adding up to 1.
    seed : int, default=0
        Seed of the random choice.
    how : str, default="stratified"
        Method to note in the result.

    Returns
    -------
    Partition

    Raises
    ------
    ValueError
        If `fractions` are wrong, or there are fewer points than splits.

    Examples
    --------
    >>> from nearkin.data import stratified
    >>> names = stratified([0] * 4 + [1] * 4, {"train": 0.5, "test": 0.5}).names
    >>> names[:4].tolist().count("train"), names[4:].tolist().count("train")
    (2, 2)
    """
    values, shares = _checked(labels, fractions)
    generator = np.random.default_rng(seed)
    names = np.full(len(values), "", dtype="<U10")
    carried = np.zeros(len(shares))
    _, sizes = np.unique(values, return_counts=True)
    classes = np.split(np.argsort(values, kind="stable"), np.cumsum(sizes)[:-1])  # the rows of each
    for at in generator.permutation(len(classes)):
        members = generator.permutation(classes[at])
        counts = _rounded(len(members) * shares + carried, len(members))
        carried += len(members) * shares - counts
        names[members] = np.repeat(list(fractions), counts)
    return Partition(names, how, dict(fractions), seed)


def by_group(groups: Tensor | np.ndarray, fractions: Mapping[str, float] = FRACTIONS, seed: int = 0) -> Partition:
    """Split by group: all points of a group are in the same split.

    Groups are assigned from the largest to the smallest, each to the split that is furthest behind its share of points.

    Parameters
    ----------
    groups : Tensor or ndarray
        (n,) group of each point.
    fractions : mapping of str to float, default={"train": 0.8, "validation": 0.1, "test": 0.1}
        Share of the points in each split; at least two, adding up to 1.
    seed : int, default=0
        Seed of the random choice.

    Returns
    -------
    Partition

    Raises
    ------
    ValueError
        If `fractions` are wrong, or there are fewer groups than splits.

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.data import by_group
    >>> groups = np.repeat([0, 1, 2, 3], 5)
    >>> names = by_group(groups, {"train": 0.5, "test": 0.5}).names
    >>> [len(set(names[groups == group])) for group in range(4)]
    [1, 1, 1, 1]
    """
    values, shares = _checked(groups, fractions)
    found, where, sizes = np.unique(values, return_inverse=True, return_counts=True)
    if len(found) < len(shares):
        raise ValueError(f"groups has {len(found)} different ones for {len(shares)} splits; give fewer fractions, or split by class")
    order = np.random.default_rng(seed).permutation(len(found))
    order = order[np.argsort(-sizes[order], kind="stable")]
    filled, home = np.zeros(len(shares)), np.empty(len(found), dtype=np.int64)
    for at, group in enumerate(order):
        left = len(order) - at
        empty = np.flatnonzero(filled == 0)
        behind = shares * len(values) - filled
        open_to = empty if len(empty) == left else np.arange(len(shares))  # the last groups fill the splits that have none yet
        home[group] = open_to[np.argmax(behind[open_to])]
        filled[home[group]] += sizes[group]
    return Partition(np.asarray(list(fractions))[home][where], "group", dict(fractions), seed)


def unseen_classes(labels: Tensor | np.ndarray, fractions: Mapping[str, float] = FRACTIONS, seed: int | None = 0) -> Partition:
    """Split by class: the classes of one split are in no other, for retrieval of classes that training has not met.

    Parameters
    ----------
    labels : Tensor or ndarray
        (n,) class of each point.
    fractions : mapping of str to float, default={"train": 0.8, "validation": 0.1, "test": 0.1}
        Share of the classes in each split; at least two, adding up to 1.
    seed : int or None, default=0
        Seed of the random choice. None takes the classes in order, the first for training, as is the custom for CUB and Cars.

    Returns
    -------
    Partition

    Raises
    ------
    ValueError
        If `fractions` are wrong, or there are fewer classes than splits.

    Examples
    --------
    >>> from nearkin.data import unseen_classes
    >>> unseen_classes([0, 0, 1, 1], {"train": 0.5, "test": 0.5}, seed=None).names.tolist()
    ['train', 'train', 'test', 'test']
    """
    values, shares = _checked(labels, fractions)
    found, where = np.unique(values, return_inverse=True)
    if len(found) < len(shares):
        raise ValueError(f"labels has {len(found)} classes for {len(shares)} splits; unseen classes need at least one class in each split")
    counts = _rounded(len(found) * shares, len(found), least=1)
    order = np.arange(len(found)) if seed is None else np.random.default_rng(seed).permutation(len(found))
    home = np.empty(len(found), dtype="<U10")
    home[order] = np.repeat(list(fractions), counts)
    return Partition(home[where], "unseen classes", dict(fractions), seed)


def _checked(values: Tensor | np.ndarray, fractions: Mapping[str, float]) -> tuple[np.ndarray, np.ndarray]:
    unknown = [name for name in fractions if name not in SPLITS]
    if unknown or len(fractions) < 2:
        raise ValueError(f"fractions names {', '.join(fractions) or 'nothing'}; name at least two of {', '.join(SPLITS)}")
    shares = np.asarray(list(fractions.values()), dtype=np.float64)
    if (shares <= 0).any() or abs(shares.sum() - 1) > 1e-6:
        raise ValueError(f"fractions ({dict(fractions)}) must be above 0 and add up to 1, not {shares.sum():g}")
    array = np.asarray(values)
    if len(array) < len(shares):
        raise ValueError(f"{len(array)} points cannot fill {len(shares)} splits; give fewer fractions")
    return array, shares


def _rounded(exact: np.ndarray, total: int, least: int = 0) -> np.ndarray:
    """Whole numbers that add up to `total`, nearest to the exact ones; the first is at least 1, all at least `least`."""
    floor = np.full(len(exact), least)
    floor[0] = max(least, 1)
    counts: np.ndarray = np.maximum(np.floor(exact).astype(np.int64), floor)
    while (missing := total - int(counts.sum())) != 0:
        short = exact - counts
        at = np.argmax(short) if missing > 0 else np.argmin(np.where(counts > floor, short, np.inf))
        counts[at] += np.sign(missing)
    return counts
