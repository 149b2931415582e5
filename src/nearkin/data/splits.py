"""Splits for data that bring none: stratified by class, by group, or by unseen classes; seeded, and kept with the model.

Which one is a question about the use. Stratified: new images of the same classes. By group: new subjects, films or days, so that
images that belong together never stand on both sides. By unseen classes: new classes altogether, as in retrieval.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from torch import Tensor

from nearkin.data.dataset import SPLITS, Dataset

How = Literal["stratified", "group", "unseen classes", "random"]
FRACTIONS: Mapping[str, float] = {"train": 0.8, "validation": 0.1, "test": 0.1}


@dataclass(frozen=True, eq=False)
class Partition:
    """Which split every point is in, and how that came about."""

    names: np.ndarray  # (n,) train, validation or test
    how: How
    fractions: Mapping[str, float]
    seed: int | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON: the rows of every split."""
        rows = {name: np.flatnonzero(self.names == name).tolist() for name in np.unique(self.names).tolist()}
        return {"how": self.how, "seed": self.seed, "fractions": dict(self.fractions), "points": len(self.names), "rows": rows}

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> "Partition":
        names = np.full(int(written["points"]), "", dtype="<U10")
        for name, rows in written["rows"].items():
            names[rows] = name
        if (names == "").any():
            raise ValueError(f"rows of the saved split leave out row {int(np.flatnonzero(names == '')[0])}; the file was edited or cut")
        return cls(names, written["how"], dict(written["fractions"]), written["seed"])


def partition(data: Dataset, how: How | None = None, fractions: Mapping[str, float] = FRACTIONS, seed: int = 0) -> Partition:
    """A split of a data set; `data.with_split(partition(data).names)` applies it.

    Unless told: by group if there are groups, stratified if there are classes, and at random otherwise. Stratified, points of unknown
    class (-1) are all in the first split: on another nothing could be measured by them.
    """
    if how is not None and how not in get_args(How):
        raise ValueError(f"how {how!r} is unknown; choose one of {', '.join(get_args(How))}")
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
    """A part of the training points set aside as validation, for data that bring train and test only; the rest stays as it is."""
    if "validation" in data.parts:
        raise ValueError(f"{data.name} brings a validation split of {data.parts['validation']:,} points already; use that")
    train = data.part("train")
    made = partition(train, how, {"train": 1 - fraction, "validation": fraction}, seed)
    names = data.split.astype("<U10")
    names[data.split == "train"] = made.names
    return Partition(names, made.how, made.fractions, seed)


def stratified(
    labels: Tensor | np.ndarray, fractions: Mapping[str, float] = FRACTIONS, seed: int = 0, *, how: How = "stratified"
) -> Partition:
    """Every class in the same proportions, as nearly as whole points allow, and at least one point of it in the first split.

    What rounding denies one class is owed to the next, so that classes of three points still fill a split of a tenth.
    """
    values, shares = _checked(labels, fractions)
    generator = np.random.default_rng(seed)
    names = np.full(len(values), "", dtype="<U10")
    owed = np.zeros(len(shares))
    _, sizes = np.unique(values, return_counts=True)
    classes = np.split(np.argsort(values, kind="stable"), np.cumsum(sizes)[:-1])  # the rows of each
    for at in generator.permutation(len(classes)):
        members = generator.permutation(classes[at])
        counts = _rounded(len(members) * shares + owed, len(members))
        owed += len(members) * shares - counts
        names[members] = np.repeat(list(fractions), counts)
    return Partition(names, how, dict(fractions), seed)


def by_group(groups: Tensor | np.ndarray, fractions: Mapping[str, float] = FRACTIONS, seed: int = 0) -> Partition:
    """Whole groups, each to the split that is furthest behind its share of points; large groups first."""
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
    """Whole classes, the fractions being of classes. With seed None the first classes train, as is the custom for CUB and Cars."""
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


def _rounded(wanted: np.ndarray, total: int, least: int = 0) -> np.ndarray:
    """Whole numbers that add up to `total`, nearest to what is wanted; the first is at least 1, all at least `least`."""
    floor = np.full(len(wanted), least)
    floor[0] = max(least, 1)
    counts: np.ndarray = np.maximum(np.floor(wanted).astype(np.int64), floor)
    while (missing := total - int(counts.sum())) != 0:
        short = wanted - counts
        at = np.argmax(short) if missing > 0 else np.argmin(np.where(counts > floor, short, np.inf))
        counts[at] += np.sign(missing)
    return counts
