"""Dataset: what every source yields, whether images, image files or vectors, and whatever is known of each point.

A point keeps its `id`, its number in the data set it came from, through every subset: two splits of one set then
never share an id, and "is this reference the query itself?" stays answerable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from nearkin.data.images import DamagedImageError, Files, must_be_whole
from nearkin.data.sources.sharded import ShardRows

Supervision = Literal["classes", "numbers", "sets", "ids"]
SPLITS = ("train", "validation", "test")
WHOLE = "all"  # the split of data that bring none
SYNONYMS: Mapping[str, str] = {"training": "train", "val": "validation", "valid": "validation", "dev": "validation", "testing": "test"}


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """n points: `inputs`, what is known of them (any of `labels`, `targets`, `sets`), and where each one came from."""

    name: str
    inputs: Tensor | Files | ShardRows  # images (n, c, h, w) uint8, vectors (n, d) float32, files that decode to images, rows of shards
    labels: Tensor | None = None  # (n,) int64, the class numbers of `classes`; -1 where a point's class is not known
    classes: tuple[str, ...] = ()
    targets: Tensor | None = None  # (n, t) float32
    target_names: tuple[str, ...] = ()
    sets: Tensor | None = None  # (n, C) bool: several of `classes` at once
    split: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.str_))  # (n,) names; one `WHOLE` if not given
    groups: Tensor | None = None  # (n,) int64: points that belong together, such as frames of one film
    ids: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))  # (n,) 0..n-1 if not given
    sources: Sequence[str] = ()  # (n,) the path or row of each, for reports
    by: Supervision | None = None  # what to learn from, if not the first that is known
    from_folders: bool = False  # whether folders' names were taken for the classes, which may be albums

    def __post_init__(self) -> None:
        n = len(self.inputs)
        if n == 0:
            raise ValueError(f"{self.name} has no points; nothing can be learned from it")
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
        if self.by is not None and self._answers(self.by) is None and self.by != "ids":
            raise ValueError(f"supervision {self.by!r}: {self.name} brings none of it; it has {_known(self)}")

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def supervision(self) -> Supervision:
        """What to learn from: the first known of classes, sets and numbers unless told; else only who each point is."""
        if self.by is not None:
            return self.by
        known: list[Supervision] = [kind for kind in ("classes", "sets", "numbers") if self._answers(kind) is not None]
        return known[0] if known else "ids"

    @property
    def answers(self) -> Tensor | None:
        """The tensor of `supervision`, as `Points.labels` wants it: (n,) classes, (n, t) numbers, (n, C) sets, or None."""
        return self._answers(self.supervision)

    @property
    def partly_labeled(self) -> bool:
        """Whether the classes of some points, but not of all, are unknown: their label is -1."""
        return self.labels is not None and bool((self.labels < 0).any()) and bool((self.labels >= 0).any())

    @property
    def kind(self) -> Literal["images", "vectors"]:
        return "vectors" if len(self.shape) == 1 else "images"

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one point: (c, h, w) or (d,)."""
        return tuple(self.inputs.shape[1:]) if isinstance(self.inputs, Tensor) else self.inputs.shape

    @property
    def nbytes(self) -> int:
        """What the whole set takes when it is held as one tensor."""
        return len(self) * int(np.prod(self.shape)) * (4 if self.kind == "vectors" else 1)

    @property
    def parts(self) -> dict[str, int]:
        """The splits and how many points each has, in the order train, validation, test, others."""
        names, counts = np.unique(self.split, return_counts=True)
        found = dict(zip(names.tolist(), counts.tolist(), strict=True))
        return {name: found[name] for name in (*SPLITS, *sorted(set(found) - set(SPLITS))) if name in found}

    def part(self, name: str) -> "Dataset":
        """The points of one split."""
        wanted = SYNONYMS.get(name, name)
        if wanted not in self.parts:
            mend = "; make one with nearkin.data.partition" if set(self.parts) == {WHOLE} else ""
            raise ValueError(f"split {name!r} is not in {self.name}, which has {', '.join(self.parts)}{mend}")
        return self.subset(torch.from_numpy(self.split == wanted))

    def subset(self, which: Tensor | np.ndarray | Sequence[int]) -> "Dataset":
        """The points of a mask (n,) or of row numbers, in that order. They keep their ids."""
        rows = self._selected(which)
        at, listed = torch.from_numpy(rows), rows.tolist()
        inputs = self.inputs[at] if isinstance(self.inputs, Tensor) else self.inputs.take(listed)
        picked: dict[str, Any] = {name: getattr(self, name)[at] for name in ("labels", "targets", "sets", "groups") if self._has(name)}
        return replace(
            self, inputs=inputs, split=self.split[rows], ids=self.ids[at], sources=[self.sources[row] for row in listed], **picked
        )

    def with_split(self, names: Sequence[str] | np.ndarray) -> "Dataset":
        """The same points, split anew: one name for each point."""
        return replace(self, split=np.asarray(names, dtype=np.str_))

    def renumbered(self) -> "Dataset":
        """The same points with ids 0..n-1 again, for state that has one slot for each point of a part."""
        return replace(self, ids=torch.arange(len(self)))

    def rows(self, ids: Tensor | Sequence[int]) -> Tensor:
        """Where the points with these ids stand, (b,) int64."""
        asked = torch.as_tensor(ids, dtype=torch.int64).cpu()
        table = self.row_of
        inside = (asked >= 0) & (asked < len(table))
        rows = torch.where(inside, table[asked.clamp(0, len(table) - 1)], -1)
        if bool((rows < 0).any()):
            raise ValueError(
                f"ids: {int(asked[rows < 0][0])} is not in {self.name}, whose ids run from {self.ids.min()} to {self.ids.max()}"
            )
        return rows

    @cached_property
    def row_of(self) -> Tensor:
        """(largest id + 1,) the row of every id, -1 where there is no such point."""
        table = torch.full((int(self.ids.max()) + 1,), -1)
        table[self.ids] = torch.arange(len(self))
        return table

    def read(self, ids: Tensor | Sequence[int]) -> Tensor:
        """The points with these ids: uint8 (b, c, h, w), decoded if they are files, or vectors (b, d)."""
        rows = self.rows(ids)
        if isinstance(self.inputs, Tensor):
            return self.inputs[rows]
        if isinstance(self.inputs, ShardRows):
            return self.inputs.read(rows)
        try:
            return torch.stack([self.inputs.read(row) for row in rows.tolist()])
        except DamagedImageError as error:
            if self.inputs.on_error == "skip":
                raise
            raise must_be_whole(str(error)) from error

    def __repr__(self) -> str:
        return f"<Dataset {self.describe()}>"  # thousands of paths would be no answer

    def describe(self) -> str:
        """A line or two for people."""
        what = {1: "gray images", 3: "color images"}.get(self.shape[0], "images") if self.kind == "images" else "vectors"
        sides = f"{self.shape[2]} x {self.shape[1]}" if self.kind == "images" else f"of {self.shape[0]:,} numbers"
        files = " (files, decoded when needed)" if isinstance(self.inputs, Files) else ""
        parts = ", ".join(f"{name} {count:,}" for name, count in self.parts.items())
        taught = "the points alone" if self.supervision == "ids" else self.supervision
        return f"{self.name}: {len(self):,} {what} {sides}{files}; {_known(self)}; {parts}; to learn from: {taught}"

    def _answers(self, kind: Supervision) -> Tensor | None:
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
            raise ValueError(f"which selects none of the {len(self)} points of {self.name}")
        if chosen.min() < -len(self) or chosen.max() >= len(self):
            raise ValueError(f"which asks for row {chosen.max()} of {self.name}, which has {len(self)}")
        return chosen.astype(np.int64) % len(self)


def _own_sources(data: Dataset) -> Sequence[str]:
    return data.inputs.paths if isinstance(data.inputs, Files) else [f"{data.name} row {row}" for row in range(len(data.inputs))]


def _known(data: Dataset) -> str:
    """'10 classes (cat, dog, ...), 2 numbers (x, y)'."""
    listed = ", ".join(data.classes[:3]) + (", ..." if len(data.classes) > 3 else "")
    by_folder = ", by folder" if data.from_folders else ""
    number = f"{len(data.classes):,} {'class' if len(data.classes) == 1 else 'classes'}{by_folder} ({listed})"
    if data.labels is not None and data.partly_labeled:
        number += f", known of {int((data.labels >= 0).sum()):,}"
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
