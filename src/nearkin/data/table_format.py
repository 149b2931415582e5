"""What a model's tables look like."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from nearkin.data.columns import TableSchema


@dataclass(frozen=True)
class TableFormat:
    """What a model's tables look like: the schema of the features, and the columns that are none.

    Parameters
    ----------
    schema : TableSchema
        The features.
    label : str, default=""
        Column of the classes.
    targets : tuple of str, default=()
        Columns of the numbers to predict.
    split : str, default=""
        Column of the parts.
    group : str, default=""
        Column of the groups.
    ignored : tuple of str, default=()
        Columns that are not read.
    """

    schema: TableSchema
    label: str = ""
    targets: tuple[str, ...] = ()
    split: str = ""
    group: str = ""
    ignored: tuple[str, ...] = ()

    @property
    def besides(self) -> tuple[str, ...]:
        """The columns that are no features; later tables need not have them."""
        return tuple(name for name in (self.label, *self.targets, self.split, self.group, *self.ignored) if name)

    @property
    def width(self) -> int:
        """The number of columns of `standardized`."""
        return len(self.schema.number_names) + sum(self.schema.category_counts)

    def standardized(self, rows: np.ndarray, by: np.ndarray) -> np.ndarray:
        """Encoded rows as distances and linear maps can use them.

        What is 0 or 1 stays so, in a column that marks missing cells as in one of a category: standardized, a rare mark would be far from
        all rows without it, and rows that have nothing in common but what they lack would be neighbors.

        Parameters
        ----------
        rows : ndarray of shape (n, p + q)
            Numbers, NaN where missing, then the codes of categories.
        by : ndarray of shape (m, p + q)
            Rows whose mean and standard deviation are used; a missing number is put at the mean.

        Returns
        -------
        ndarray of shape (n, width)
            The numbers, then one-hot categories; all zeros for one that the schema does not know.
        """
        p = len(self.schema.number_names)
        counts = [(len(column.features()), column.missing) for column in self.schema.columns if not column.categories]
        marks = np.array([missing and at == count - 1 for count, missing in counts for at in range(count)], dtype=bool)
        known = np.ma.masked_invalid(by[:, :p].astype(np.float64))
        mean, spread = np.ma.filled(known.mean(0), 0.0), np.ma.filled(known.std(0), 0.0)
        numbers = np.where(marks, rows[:, :p], (rows[:, :p] - mean) / np.where(spread > 0, spread, 1.0))
        hot = [rows[:, [p + at]] == np.arange(1, count + 1) for at, count in enumerate(self.schema.category_counts)]
        return np.concatenate([np.nan_to_num(numbers, nan=0.0), *hot], 1).astype(np.float32)

    def mostly_missing(self, rows: np.ndarray) -> np.ndarray:
        """Which encoded rows say too little for their label to be judged by them.

        Parameters
        ----------
        rows : ndarray of shape (n, p + q)
            Numbers, NaN where missing, then the codes of categories.

        Returns
        -------
        ndarray of shape (n,), bool
            True where more than half of the cells are missing.
        """
        number, category = 0, len(self.schema.number_names)
        missing = np.zeros(len(rows), dtype=np.int64)
        for column in self.schema.columns:
            if column.categories:
                missing += (rows[:, category] == column.categories.index("") + 1) if "" in column.categories else False
                category += 1
            else:
                missing += np.isnan(rows[:, number])
                number += len(column.features())
        return 2 * missing > len(self.schema.columns)

    def as_dict(self) -> dict[str, Any]:
        """For model.json."""
        named = {"label": self.label, "targets": list(self.targets), "split": self.split, "group": self.group}
        return {"schema": json.loads(self.schema.to_json()), **named, "ignored": list(self.ignored)}

    @classmethod
    def from_dict(cls, read: Mapping[str, Any]) -> Self:
        """Read what `as_dict` wrote."""
        schema = TableSchema.from_json(json.dumps(read["schema"]))
        return cls(schema, read["label"], tuple(read["targets"]), read["split"], read["group"], tuple(read.get("ignored", ())))
