"""What a model's tables look like, and the cells of rows that are shown."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

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
    """

    schema: TableSchema
    label: str = ""
    targets: tuple[str, ...] = ()
    split: str = ""
    group: str = ""

    @property
    def besides(self) -> tuple[str, ...]:
        """The columns that are no features; later tables need not have them."""
        return tuple(name for name in (self.label, *self.targets, self.split, self.group) if name)

    def as_dict(self) -> dict[str, Any]:
        """For model.json."""
        named = {"label": self.label, "targets": list(self.targets), "split": self.split, "group": self.group}
        return {"schema": json.loads(self.schema.to_json()), **named}

    @classmethod
    def from_dict(cls, read: Mapping[str, Any]) -> Self:
        """Read what `as_dict` wrote."""
        schema = TableSchema.from_json(json.dumps(read["schema"]))
        return cls(schema, read["label"], tuple(read["targets"]), read["split"], read["group"])


class TableCells(NamedTuple):
    """The rows of a table beside their encoded inputs.

    Parameters
    ----------
    format : TableFormat
        Which columns there are.
    cells : Mapping of str to ndarray
        The cells of the features by column, as they are shown.
    """

    format: TableFormat
    cells: Mapping[str, np.ndarray]

    def take(self, rows: Sequence[int] | np.ndarray) -> "TableCells":
        """Some of the rows."""
        return TableCells(self.format, {name: column[np.asarray(rows)] for name, column in self.cells.items()})

    def row(self, at: int) -> dict[str, Any]:
        """One row as JSON holds it: dates as text, missing cells as None."""
        found = {name: column[at] for name, column in self.cells.items()}
        return {name: cell if isinstance(cell, bool | int | float | str | None) else str(cell) for name, cell in found.items()}
