"""Metrics: the affinities that kernels, search and index know by name.

An affinity declares one of these names as its `metric`; its value is then that metric's score over its `temperature`. What is declared can
be streamed without the matrix, searched exactly, and deployed in an index. `FORMS` says how each score is made of products of rows, and
`METRICS` holds those an index can be searched with.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from nearkin.compose.affinity import Affinity, Hamming, InnerProduct, SquaredEuclidean, cosine


class ProductForm(NamedTuple):
    """A score made of products of rows: minus the squared distance or the inner product, of rows that may be set to length 1 first."""

    squared: bool  # -|q - r|^2, otherwise q . r
    root: bool = False  # -|q - r|: the root of the first
    unit_queries: bool = False
    unit_references: bool = False

    @property
    def deployed(self) -> str:
        """The metric of an index that ranks alike; a bank whose rows have nearly unit length is searched by cosine."""
        if self.unit_queries:
            return "cosine"
        return "squared_euclidean" if self.squared else "inner_product"

    def temperature(self, value: float) -> float | None:
        """The temperature of the deployed metric in a softmax that was trained at `value`; None where no such number exists."""
        if self.root:
            return None
        return value / 2 if self.squared and self.unit_queries else value  # between unit vectors -|q - r|^2 = 2 cos - 2


FORMS: Mapping[str, ProductForm] = {
    "squared_euclidean": ProductForm(True),
    "euclidean": ProductForm(True, True),
    "inner_product": ProductForm(False),
    "unit_squared_euclidean": ProductForm(True, False, True, True),
    "unit_euclidean": ProductForm(True, True, True, True),
    "cosine": ProductForm(False, False, True, True),
    "query_unit_squared_euclidean": ProductForm(True, False, True, False),
    "query_unit_euclidean": ProductForm(True, True, True, False),
    "query_unit_inner_product": ProductForm(False, False, True, False),
}

METRICS: Mapping[str, Affinity] = {
    "squared_euclidean": SquaredEuclidean(),
    "cosine": cosine(),
    "inner_product": InnerProduct(),
    "hamming": Hamming(),
}


def product_form(affinity: Any) -> ProductForm | None:
    """The product form of an affinity, by the metric it declares; None for one that declares none, or none that is known here."""
    return FORMS.get(getattr(affinity, "metric", None) or "")
