"""What a model's tables look like."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

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
