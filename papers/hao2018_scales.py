"""Which scale of the distances serves both the nearest anchor and the nearest neighbor: held-out images of 10, 100 and 200 classes."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from papers.cell import Cell, Settings, Trial
from papers.hao2018_trials import COMMON, DATA
from papers.omniglot_classes import CLASSES, NAME

TABLE = "Scale of NCM for classification and search (ours)"


class _Set(NamedTuple):
    title: str
    source: str
    classes: int
    settings: Settings
    seeds: int


_SHORT = {"epochs": "20", "network.options.dropout": "0.1"}
SETS: Mapping[str, _Set] = {
    "10": _Set("C = 10", "cifar10", 10, {**COMMON, **DATA["cifar10"][1], **_SHORT}, 2),
    "100": _Set("C = 100", "cifar100", 100, {**COMMON, **DATA["cifar100"][1], **_SHORT}, 2),
    "200": _Set(
        "C = 200",
        NAME,
        CLASSES,
        {
            **COMMON,
            **DATA["mnist"][1],
            **_SHORT,
            "epochs": "60",
            "batch_size": "128",
            "augment.name": "affine",
            "data.validation": "0.25",  # a tenth would be two images of each class
        },
        3,
    ),
}
_NCM = {"objective.name": "nearest_class_mean"}
_SCALE, _LENGTH = "objective.options.scale", "objective.options.length"
SOFTMAX, DEFAULT = "softmax", "length"
ROWS = {
    SOFTMAX: "SoftMax",
    "printed": "E-NCM, scale 1 as printed",
    "half": "E-NCM, half the clear scale",
    "clear": "E-NCM, the clear scale",
    "double": "E-NCM, twice the clear scale",
    DEFAULT: "E-NCM, scale 1, anchors as long as the clear scale",
    "unit": "E-NCM, the clear scale, embeddings of unit length",
    "cosine": "C-NCM, the clear scale",
}


def _settings(row: str, classes: int) -> Settings:
    clear = math.log(99 * (classes - 1)) / math.sqrt(2)  # of orthonormal anchors
    return {
        SOFTMAX: {"objective.name": "softmax"},
        "printed": {**_NCM, _SCALE: "1.0"},
        "half": {**_NCM, _SCALE: f"{clear / 2:.3f}"},
        "clear": {**_NCM, _LENGTH: "1.0"},
        "double": {**_NCM, _SCALE: f"{2 * clear:.3f}"},
        DEFAULT: {**_NCM, _SCALE: "1.0", _LENGTH: f"{clear:.3f}"},
        "unit": {**_NCM, "network.normalize": "true"},
        "cosine": {**_NCM, "objective.options.metric": "cosine"},
    }[row]


def trial_name(data: str, row: str) -> str:
    """The name of a trial of this table."""
    return f"hao2018-scale-{data}-{row}"


TRIALS = tuple(
    Trial(trial_name(data, row), one.source, {**one.settings, **_settings(row, one.classes)}, figure="1-nn", seeds=one.seeds, held_out=True)
    for row in ROWS
    for data, one in SETS.items()
)
CELLS = tuple(
    Cell(TABLE, label, None, "error %", trial_name(data, row), "class vectors", one.title, extra="1-nn")
    for data, one in SETS.items()
    for row, label in ROWS.items()
)
