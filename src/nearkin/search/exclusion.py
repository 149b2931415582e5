"""Which references are excluded for a query: the query itself, by id, and members of its group."""

from typing import NamedTuple

import torch
from torch import Tensor


class Exclusion(NamedTuple):
    """References with the id or the group of the query are excluded; None on either side of a pair of fields excludes nothing."""

    ids: Tensor | None = None  # (n,) of the queries
    reference_ids: Tensor | None = None  # (m,)
    groups: Tensor | None = None  # (n,)
    reference_groups: Tensor | None = None  # (m,)

    def mask(self, rows: slice | Tensor, columns: slice | Tensor) -> Tensor | None:
        """(rows, columns), True where a reference is excluded; None if nothing is ever excluded."""
        hidden: Tensor | None = None
        for mine, theirs in ((self.ids, self.reference_ids), (self.groups, self.reference_groups)):
            if mine is not None and theirs is not None:
                same = mine[rows, None] == theirs[None, columns]
                hidden = same if hidden is None else hidden | same
        return hidden

    def of_references(self, columns: slice | Tensor) -> "Exclusion":
        """The exclusion of some of the references."""
        picked = (None if x is None else x[columns] for x in (self.reference_ids, self.reference_groups))
        ids, groups = picked
        return self._replace(reference_ids=ids, reference_groups=groups)

    def of_queries(self, rows: slice | Tensor) -> "Exclusion":
        """The exclusion of some of the queries."""
        ids, groups = (None if x is None else x[rows] for x in (self.ids, self.groups))
        return self._replace(ids=ids, groups=groups)

    @property
    def most(self) -> int:
        """An upper bound on the references excluded for one query."""
        sides = ((self.ids, self.reference_ids), (self.groups, self.reference_groups))
        counts = [
            int(torch.unique(theirs, return_counts=True)[1].max()) for mine, theirs in sides if mine is not None and theirs is not None
        ]
        return sum(counts)
