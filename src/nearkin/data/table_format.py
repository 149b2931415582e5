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
        known = np.ma.masked_invalid(by[:, :p].astype(np.float64))
        mean, spread = np.ma.filled(known.mean(0), 0.0), np.ma.filled(known.std(0), 0.0)
        numbers = (rows[:, :p] - mean) / np.where(spread > 0, spread, 1.0)
        hot = [rows[:, [p + at]] == np.arange(1, count + 1) for at, count in enumerate(self.schema.category_counts)]
        return np.concatenate([np.nan_to_num(numbers, nan=0.0), *hot], 1).astype(np.float32)

    def as_dict(self) -> dict[str, Any]:
        """For model.json."""
        named = {"label": self.label, "targets": list(self.targets), "split": self.split, "group": self.group}
        return {"schema": json.loads(self.schema.to_json()), **named, "ignored": list(self.ignored)}

    @classmethod
    def from_dict(cls, read: Mapping[str, Any]) -> Self:
        """Read what `as_dict` wrote."""
        schema = TableSchema.from_json(json.dumps(read["schema"]))
        return cls(schema, read["label"], tuple(read["targets"]), read["split"], read["group"], tuple(read.get("ignored", ())))
