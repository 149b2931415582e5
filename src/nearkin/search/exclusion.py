"""Exclusion: which references a query must not choose, because they are the query itself or of its group."""

from typing import NamedTuple

import torch
from torch import Tensor


class Exclusion(NamedTuple):
    """Equal ids, and equal groups, are passed over; None on either side of a pair of fields means nobody is."""

    ids: Tensor | None = None  # (n,) of the queries
    reference_ids: Tensor | None = None  # (m,)
    groups: Tensor | None = None  # (n,)
    reference_groups: Tensor | None = None  # (m,)

    def mask(self, rows: slice | Tensor, columns: slice | Tensor) -> Tensor | None:
        """(rows, columns), True where a reference is passed over; None if none ever is."""
        hidden: Tensor | None = None
        for mine, theirs in ((self.ids, self.reference_ids), (self.groups, self.reference_groups)):
            if mine is not None and theirs is not None:
                same = mine[rows, None] == theirs[None, columns]
                hidden = same if hidden is None else hidden | same
        return hidden

    def of_references(self, columns: slice | Tensor) -> "Exclusion":
        """The same for some of the references."""
        picked = (None if x is None else x[columns] for x in (self.reference_ids, self.reference_groups))
        ids, groups = picked
        return self._replace(reference_ids=ids, reference_groups=groups)

    def of_queries(self, rows: slice | Tensor) -> "Exclusion":
        """The same for some of the queries."""
        ids, groups = (None if x is None else x[rows] for x in (self.ids, self.groups))
        return self._replace(ids=ids, groups=groups)

    @property
    def most(self) -> int:
        """The most references that any query can lose."""
        sides = ((self.ids, self.reference_ids), (self.groups, self.reference_groups))
        counts = [
            int(torch.unique(theirs, return_counts=True)[1].max()) for mine, theirs in sides if mine is not None and theirs is not None
        ]
        return sum(counts)
