"""Dataset: what `nearkin.data.open` returns, whether the points are images, image files, texts, vectors or rows of shards.

A point keeps its `id`, its number in the data set it came from, in every subset. So two splits of one set never share an id, and a search
can leave out the query itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from nearkin.data.images import DamagedImageError, Files, damaged_file_error
from nearkin.data.sources.sharded import ShardRows
from nearkin.data.table_format import TableFormat
from nearkin.data.texts import Texts, hashed_words

Supervision = Literal["classes", "numbers", "sets", "ids"]
SPLITS = ("train", "validation", "test")
WHOLE = "all"  # the split of data without splits
SYNONYMS: Mapping[str, str] = {"training": "train", "val": "validation", "valid": "validation", "dev": "validation", "testing": "test"}


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """n points with their labels, splits, ids and sources.

    `nearkin.data.open` makes one from files; construct it yourself from tensors.

    Parameters
    ----------
    name : str
        Name of the data set, used in messages and reports.
    inputs : Tensor, Files, Texts or ShardRows
        Images (n, c, h, w) uint8, vectors (n, d) float32, image files that are decoded when needed, texts, or rows of a folder of shards.
    labels : Tensor, optional
        (n,) int64 class numbers, positions in `classes`; -1 where the class of a point is unknown.
    classes : tuple of str, default=()
        Class names in the order of their numbers.
    targets : Tensor, optional
        (n, t) float32 numbers to learn from, such as coordinates.
    target_names : tuple of str, default=()
        Names of the t target columns.
    sets : Tensor, optional
        (n, C) bool; row i marks all classes that point i belongs to.
    split : ndarray, optional
        (n,) split names, usually train, validation and test. By default every point is in the split "all".
    groups : Tensor, optional
        (n,) int64; points with the same group belong together (frames of one film, say) and are never split apart.
    ids : Tensor, optional
        (n,) int64 ids of the points. By default 0..n-1.
    sources : sequence of str, optional
        (n,) path or row of each point, for reports. By default the paths of files, or "NAME row NUMBER".
    by : {"classes", "numbers", "sets", "ids"}, optional
        What to learn from. By default the first that is there of classes, sets and numbers; otherwise "ids", which uses no labels.
    from_folders : bool, default=False
        Whether the classes are folder names, which training then mentions: folders may also be albums.
    columns : mapping of str to sequence, default={}
        Further values of each point (text, numbers, truth values or None), by name: what an index can filter by and the explorer colors by.
    pictures : sequence of str, default=()
        (n,) image files that show what the vectors were computed from; "" where there is none.
    table : TableFormat, optional
        The schema by which `inputs` encodes points that are rows of a table; their cells are in `columns`.

    Raises
    ------
    ValueError
        If there are no points, if an argument has not one entry for each point, if `inputs` has another dtype or shape, or if `by` names
        labels that are missing.

    Examples
    --------
    >>> import torch
    >>> from nearkin.data import Dataset
    >>> data = Dataset("toy", torch.zeros(4, 2), labels=torch.tensor([0, 0, 1, 1]), classes=("cat", "dog"))
    >>> data
    <Dataset toy: 4 vectors of 2 numbers; 2 classes (cat, dog); all 4; to learn from: classes>
    >>> data.with_split(["train", "train", "train", "test"]).parts
    {'train': 3, 'test': 1}
    """

    name: str
    inputs: Tensor | Files | Texts | ShardRows
    labels: Tensor | None = None
    classes: tuple[str, ...] = ()
    targets: Tensor | None = None
    target_names: tuple[str, ...] = ()
    sets: Tensor | None = None
    split: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.str_))
    groups: Tensor | None = None
    ids: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    sources: Sequence[str] = ()
    by: Supervision | None = None
    from_folders: bool = False
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    pictures: Sequence[str] = ()
    table: TableFormat | None = None

    def __post_init__(self) -> None:
        n = len(self.inputs)
        if n == 0:
            raise ValueError(f"{self.name} has no points; give at least one")
        if isinstance(self.inputs, Tensor):
            _check_inputs(self.name, self.inputs)
        if len(self.split) == 0:
            object.__setattr__(self, "split", np.full(n, WHOLE))
        if len(self.ids) == 0:
            object.__setattr__(self, "ids", torch.arange(n))
        if len(self.sources) == 0:
            object.__setattr__(self, "sources", _own_sources(self))
        for name in ("labels", "targets", "sets", "split", "groups", "ids", "sources"):
            values = getattr(self, name)
            if values is not None and len(values) != n:
                raise ValueError(f"{name} has {len(values)} entries for {n} points of {self.name}; give one for each point")
        for name, values in (*self.columns.items(), *([("pictures", self.pictures)] if len(self.pictures) else [])):
            if len(values) != n:
                raise ValueError(f"{name} has {len(values)} entries for {n} points of {self.name}; give one for each point")
        if self.by is not None and self._labels_of(self.by) is None and self.by != "ids":
            raise ValueError(f"supervision {self.by!r} is not in {self.name}, which has {_known(self)}; choose another, or ids")

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def supervision(self) -> Supervision:
        """What to learn from: `by`, else the first that is there of classes, sets and numbers, else "ids"."""
        if self.by is not None:
            return self.by
        known: list[Supervision] = [kind for kind in ("classes", "sets", "numbers") if self._labels_of(kind) is not None]
        return known[0] if known else "ids"

    @property
    def point_labels(self) -> Tensor | None:
        """The labels of `supervision`, as `nearkin.Points` takes them: (n,) classes, (n, t) numbers, (n, C) sets, or None."""
        return self._labels_of(self.supervision)

    @property
    def partly_labeled(self) -> bool:
        """Whether some points, but not all, have no class (label -1)."""
        return self.labels is not None and bool((self.labels < 0).any()) and bool((self.labels >= 0).any())

    @property
    def kind(self) -> Literal["images", "vectors", "texts"]:
        """Whether the points are images, vectors or texts."""
        if isinstance(self.inputs, Texts):
            return "texts"
        return "vectors" if len(self.shape) == 1 else "images"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one point: (c, h, w) or (d,)."""
        return tuple(self.inputs.shape[1:]) if isinstance(self.inputs, Tensor) else self.inputs.shape

    @property
    def nbytes(self) -> int:
        """Bytes of the whole set as one tensor."""
        return len(self) * int(np.prod(self.shape)) * (1 if self.kind == "images" else 4)

    @property
    def parts(self) -> dict[str, int]:
        """Number of points in each split, in the order train, validation, test, others."""
        names, counts = np.unique(self.split, return_counts=True)
        found = dict(zip(names.tolist(), counts.tolist(), strict=True))
        return {name: found[name] for name in (*SPLITS, *sorted(set(found) - set(SPLITS))) if name in found}

    def part(self, name: str) -> "Dataset":
        """Return the points of one split.

        Parameters
        ----------
        name : str
            A split of the data: train, validation or test, or a usual synonym such as val.

        Returns
        -------
        Dataset

        Raises
        ------
        ValueError
            If the data have no such split.
        """
        split = SYNONYMS.get(name, name)
        if split not in self.parts:
            fix = "; make one with nearkin.data.partition" if set(self.parts) == {WHOLE} else ""
            raise ValueError(f"split {name!r} is not in {self.name}, which has {', '.join(self.parts)}{fix}")
        return self.subset(torch.from_numpy(self.split == split))

    def subset(self, which: Tensor | np.ndarray | Sequence[int]) -> "Dataset":
        """Return some of the points; they keep their ids.

        Parameters
        ----------
        which : Tensor, ndarray or sequence of int
            A mask (n,), or row numbers in any order.

        Returns
        -------
        Dataset

        Raises
        ------
        ValueError
            If nothing is selected, a row does not exist, or a mask has not one entry for each point.
        """
        rows = self._selected(which)
        at, listed = torch.from_numpy(rows), rows.tolist()
        inputs = self.inputs[at] if isinstance(self.inputs, Tensor) else self.inputs.take(listed)
        picked: dict[str, Any] = {name: getattr(self, name)[at] for name in ("labels", "targets", "sets", "groups") if self._has(name)}
        picked["columns"] = {name: [values[row] for row in listed] for name, values in self.columns.items()}
        picked["pictures"] = [self.pictures[row] for row in listed] if len(self.pictures) else ()
        return replace(
            self, inputs=inputs, split=self.split[rows], ids=self.ids[at], sources=[self.sources[row] for row in listed], **picked
        )

    def labeled(self) -> "Dataset":
        """Return the points whose class is known; all of them if classes are not what is learned.

        Returns
        -------
        Dataset
        """
        return self.subset(self.labels >= 0) if self.supervision == "classes" and self.labels is not None else self

    def with_split(self, names: Sequence[str] | np.ndarray) -> "Dataset":
        """Return the same points with other splits.

        Parameters
        ----------
        names : sequence of str
            (n,) the split of each point.

        Returns
        -------
        Dataset
        """
        return replace(self, split=np.asarray(names, dtype=np.str_))

    def renumbered(self) -> "Dataset":
        """Return the same points with ids 0..n-1, for state that has one slot for each point (a memory bank, say).

        Returns
        -------
        Dataset
        """
        return replace(self, ids=torch.arange(len(self)))

    def rows(self, ids: Tensor | Sequence[int]) -> Tensor:
        """Return the rows of ids.

        Parameters
        ----------
        ids : Tensor or sequence of int
            (b,) ids of points.

        Returns
        -------
        Tensor
            (b,) int64 row numbers.

        Raises
        ------
        ValueError
            If an id is not in the data.
        """
        given = torch.as_tensor(ids, dtype=torch.int64).cpu()
        table = self.row_of
        inside = (given >= 0) & (given < len(table))
        rows = torch.where(inside, table[given.clamp(0, len(table) - 1)], -1)
        if bool((rows < 0).any()):
            raise ValueError(
                f"ids: {int(given[rows < 0][0])} is not in {self.name}, whose ids run from {self.ids.min()} to {self.ids.max()}"
            )
        return rows

    @cached_property
    def row_of(self) -> Tensor:
        """(largest id + 1,) int64: the row of every id, -1 for ids that are not in the data."""
        table = torch.full((int(self.ids.max()) + 1,), -1)
        table[self.ids] = torch.arange(len(self))
        return table

    def read(self, ids: Tensor | Sequence[int]) -> Tensor:
        """Read points; files are decoded.

        Parameters
        ----------
        ids : Tensor or sequence of int
            (b,) ids of points.

        Returns
        -------
        Tensor
            Images (b, c, h, w) uint8, vectors (b, d) float32, or token numbers (b, length) int32.

        Raises
        ------
        ValueError
            If an id is not in the data.
        DamagedImageError
            If a file cannot be decoded.
        """
        rows = self.rows(ids)
        if isinstance(self.inputs, Tensor):
            return self.inputs[rows]
        if isinstance(self.inputs, ShardRows | Texts):
            return self.inputs.read(rows)
        try:
            return torch.stack([self.inputs.read(row) for row in rows.tolist()])
        except DamagedImageError as error:
            if self.inputs.on_error == "skip":
                raise
            raise damaged_file_error(str(error)) from error

    def plain(self, ids: Tensor | Sequence[int]) -> Tensor:
        """Read points as numbers that mean the same to everyone: images and vectors as they are, texts as hashed word counts.

        Parameters
        ----------
        ids : Tensor or sequence of int
            (b,) ids of points.

        Returns
        -------
        Tensor
            Images (b, c, h, w) uint8, or vectors (b, d) float32.
        """
        if isinstance(self.inputs, Texts):
            return hashed_words([self.inputs.texts[row] for row in self.rows(ids).tolist()])
        return self.read(ids)

    def __repr__(self) -> str:
        return f"<Dataset {self.describe()}>"

    def describe(self) -> str:
        """Return a line of text: size, labels, splits and supervision.

        Returns
        -------
        str
        """
        what = {1: "gray images", 3: "color images"}.get(self.shape[0], "images") if self.kind == "images" else self.kind
        sides = {"images": f" {self.shape[-1]} x {self.shape[-2:][0]}", "vectors": f" of {self.shape[0]:,} numbers", "texts": ""}[self.kind]
        if self.table is not None:
            what, sides = "rows", f" of {len(self.table.schema.columns):,} columns"
        files = " (files, decoded when needed)" if isinstance(self.inputs, Files) else ""
        parts = ", ".join(f"{name} {count:,}" for name, count in self.parts.items())
        taught = "the points without labels" if self.supervision == "ids" else self.supervision
        return f"{self.name}: {len(self):,} {what}{sides}{files}; {_known(self)}; {parts}; to learn from: {taught}"

    def _labels_of(self, kind: Supervision) -> Tensor | None:
        return {"classes": self.labels, "numbers": self.targets, "sets": self.sets, "ids": None}[kind]

    def _has(self, name: str) -> bool:
        return getattr(self, name) is not None

    def _selected(self, which: Tensor | np.ndarray | Sequence[int]) -> np.ndarray:
        chosen = np.asarray(which)
        if chosen.dtype == np.bool_:
            if len(chosen) != len(self):
                raise ValueError(f"which is a mask of {len(chosen)} for {len(self)} points of {self.name}; give one entry for each point")
            chosen = np.flatnonzero(chosen)
        if len(chosen) == 0:
            raise ValueError(f"which selects none of the {len(self)} points of {self.name}; select at least one")
        if chosen.min() < -len(self) or chosen.max() >= len(self):
            raise ValueError(f"which selects row {chosen.max()} of {self.name}, which has {len(self)}; rows count from 0")
        return chosen.astype(np.int64) % len(self)


def _own_sources(data: Dataset) -> Sequence[str]:
    return data.inputs.paths if isinstance(data.inputs, Files) else [f"{data.name} row {row}" for row in range(len(data.inputs))]


def _known(data: Dataset) -> str:
    """'10 classes (cat, dog, ...), 2 numbers (x, y)'."""
    listed = ", ".join(data.classes[:3]) + (", ..." if len(data.classes) > 3 else "")
    by_folder = ", by folder" if data.from_folders else ""
    number = f"{len(data.classes):,} {'class' if len(data.classes) == 1 else 'classes'}{by_folder} ({listed})"
    if data.labels is not None and data.partly_labeled:
        number += f", known for {int((data.labels >= 0).sum()):,}"
    found = [number] if data.labels is not None else [f"sets of {number}"] if data.sets is not None else []
    if data.targets is not None:
        names = f" ({', '.join(data.target_names)})" if data.target_names else ""
        found.append(f"{data.targets.shape[1]} number{'s' if data.targets.shape[1] > 1 else ''}{names}")
    return ", ".join(found) or "no labels"


def _check_inputs(name: str, inputs: Tensor) -> None:
    if inputs.ndim == 4 and inputs.dtype == torch.uint8:
        return
    if inputs.ndim == 2 and inputs.dtype == torch.float32:
        return
    raise ValueError(
        f"inputs of {name} is {inputs.dtype} {tuple(inputs.shape)}; give images as uint8 (n, c, h, w) or vectors as float32 (n, d)"
    )
