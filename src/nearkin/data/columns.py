"""Columns of a feature table: recognize them once, then check and encode every later table by the same schema.

A table is a pandas or polars frame, a table of pyarrow, a NumPy array, a mapping from names to columns, or the path of a text file (CSV
and its relatives) or Parquet file. pandas and polars are never imported here.
"""

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from importlib import import_module
from numbers import Real
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from nearkin.data.delimited import dialect_of, header_and_rows, with_points
from nearkin.data.progress import Report, few
from nearkin.data.spelled_numbers import MISSING, number_of

Kind = Literal["number", "category", "boolean", "date"]
BOOLEANS = {"true": "true", "yes": "true", "t": "true", "false": "false", "no": "false", "f": "false"}
LATER_BOOLEANS = {**BOOLEANS, "1": "true", "0": "false"}  # in a table of its own such a column holds numbers
MOST_CATEGORIES = 1000  # the most frequent ones are kept; the others are one group with the unseen ones
MOST_COLUMNS = 10_000
MOST_CODES = 10  # different numbers among other cells that are taken for codes
ENOUGH = 20  # rows from which on a column with a value of its own in every row is taken for an id
WORDS = 4  # texts of so many words on average are prose
ID_NAME = re.compile(
    r"(^|[_\s.-])(id|index|row|key|uuid|guid)$|^unnamed|(?-i:(?<=[a-z])(Id|ID|Key)$)"
    r"|(row|record|serial|customer|account|order|invoice|employee|passenger)[_\s.-]?(no|nr|num|number)$",
    re.IGNORECASE,
)
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d*$")
POINTS = re.compile(r"[+-]?\d{1,3}(\.\d{3})*(,\d+)?$")  # 1.234.567,89
CERTAIN_POINTS = re.compile(r"[+-]?\d{1,3}((\.\d{3}){2,}|(\.\d{3})+,\d+)")
MONEY = "(?:[$€£¥]|USD|EUR|GBP|CHF|JPY)"
AMOUNT = r"(?:\d{1,3}(?:[\s'\u2019.,]\d{3})+|\d+)(?:[.,]\d*)?"
SIGNED = re.compile(rf"\(?[+-]?\s?(?:{MONEY}\s?)?[+-]?{AMOUNT}\s?(?:{MONEY}|%)?\)?$")  # -$5.50, 1 234, 12 EUR, 3 %, (5.00)
UNIT = re.compile(rf"[+-]?{AMOUNT}\s?([^\W\d_]{{1,12}}|°[CF]?)$")  # 5 kg
DURATIONS = re.compile(  # 1 days 02:00:00, as pandas writes it, 1 day, 2:00:00, 2:00:00, and P1DT2H of ISO 8601
    r"[+-]?(\d+ days?(,? [+-]?\d+:\d\d:\d\d(\.\d+)?)?|\d+:\d\d:\d\d(\.\d+)?"
    r"|P(?=T?\d)(\d+W)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?)$"
)
MOST = 0.8  # share of the cells of a column from which on the others are taken for mistakes
MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?"
    r"|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
OTHER_DATES = re.compile(  # 03/31/2024, 31.3.2024 12:00, 31-03-2024, 3/31/24, 31.03.24, 31-Mar-2024, Mar 31, 2024
    r"(?:[a-z]{3,9},? )?(?:\d{1,2}([/.-])\d{1,2}\1\d{4}|\d{1,2}/\d{1,2}/\d\d|\d\d\.\d\d\.\d\d"
    rf"|\d{{1,2}}[ -/]?{MONTH}[ -/]?(?:\d{{4}}|\d\d)|{MONTH} \d{{1,2}},? \d{{4}})(?:,? \d{{1,2}}:\d{{2}}.*)?$",
    re.IGNORECASE,
)
YEAR_FIRST = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?:[T ](\d{1,2})(:.*?))??(?:\s?(Z|UTC|GMT))?$")
CLOCK = re.compile(r"(?:([+-]?\d+) days?,? ?)?([+-]?)(\d{1,3}):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?(?: ?([ap])m)?$", re.IGNORECASE)
UNNAMED = re.compile(r"Unnamed: \d+$")  # a column without a name, such as one behind a separator at the end of each line
INDEX = re.compile(r"__index_level_\d+__$")  # how pandas calls the index of a frame in a Parquet file


@dataclass(frozen=True)
class Column:
    """One column that is used.

    Parameters
    ----------
    name : str
        Its name.
    kind : {"number", "category", "boolean", "date"}
        What it holds.
    categories : tuple of str, default=()
        The known categories, sorted; code 1 is the first. "" is a missing cell, if there were some.
    missing : bool, default=False
        Whether cells were missing when the schema was learned.
    timed : bool, default=False
        Whether dates have times, or texts of numbers are times (12:30).
    offset : float, default=0
        What is subtracted from numbers, so that 32 bits tell apart those that differ: moments since 1970, say.
    """

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()
    missing: bool = False
    timed: bool = False
    offset: float = 0.0

    def features(self) -> list[str]:
        """Names of the numbers that the column becomes; none for categories."""
        if self.kind == "date":
            found = [f"{self.name} {part}" for part in ("day", "weekday", "day of year", *(("hour",) if self.timed else ()))]
        else:
            found = [self.name] if self.kind == "number" else []
        return [*found, f"{self.name} missing"] if found and self.missing else found


class EncodedRows(NamedTuple):
    """Rows as numbers and codes of categories."""

    numbers: np.ndarray  # (n, p) float64, NaN where missing
    categories: np.ndarray  # (n, q) int64 codes; 0 is unseen or rare


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table: what each holds, and which are left out and why.

    Parameters
    ----------
    columns : tuple of Column
        The columns that are used, in the table's order.
    left_out : Mapping of str to str, default={}
        Name and reason of the columns that are not used.
    names : tuple of str, default=()
        All columns in the table's order.

    Examples
    --------
    >>> from nearkin.data.columns import TableSchema
    >>> schema = TableSchema.learned({"age": [31, 45, None], "job": ["cook", "smith", "cook"], "planet": ["earth"] * 3})
    >>> print(schema.described())
    age     number, some missing
    job     category of 2: cook, smith
    planet  left out: the same value in every row
    >>> schema.encode({"age": [50.0], "job": ["pilot"], "planet": ["mars"]}).categories.tolist()
    [[0]]
    """

    columns: tuple[Column, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    @classmethod
    def learned(cls, table: Any, without: Sequence[str] = (), keep: Sequence[str] = ()) -> Self:
        """Recognize the columns of a table.

        Parameters
        ----------
        table : frame, ndarray, mapping, str or Path
            The training rows.
        without : sequence of str, default=()
            Columns that are not features, such as the label.
        keep : sequence of str, default=()
            Columns that are used although they look like an id.

        Returns
        -------
        TableSchema

        Raises
        ------
        ValueError
            If a column holds free text or numbers mixed with other cells, names are duplicate, or no column is left.
        """
        cells = _features(table, without)
        if len(cells) > MOST_COLUMNS:
            raise ValueError(_too_wide(len(cells)))
        named = not isinstance(table, np.ndarray)
        columns, left_out, refused = list[Column](), dict[str, str](), list[str]()
        for name, column in cells.items():
            found = _recognized(name, column, named and name not in keep)
            if isinstance(found, Column):
                columns.append(found)
            elif found.startswith(REFUSED):
                refused.append(found.removeprefix(REFUSED))
            else:
                left_out[name] = found
        if refused:
            raise ValueError("; ".join(refused))
        if not columns:
            why = few([f"{name} ({reason})" for name, reason in left_out.items()])
            raise ValueError(f"no column is left to learn from: {why or 'the table has none'}; give columns that differ between rows")
        return cls(tuple(columns), left_out, tuple(cells))

    def described(self) -> str:
        """One line for each column, as it is printed.

        Returns
        -------
        str
        """
        kinds = {column.name: _kind_in_words(column) for column in self.columns}
        kinds |= {name: f"left out: {why}" for name, why in self.left_out.items()}
        width = max(map(len, kinds))
        return "\n".join(f"{name:<{width}}  {kinds[name]}" for name in self.names)

    @property
    def category_counts(self) -> tuple[int, ...]:
        """Number of categories of each column of categories or booleans."""
        return tuple(len(column.categories) for column in self.columns if column.categories)

    @property
    def number_names(self) -> tuple[str, ...]:
        """Names of the columns of `EncodedRows.numbers`."""
        return tuple(name for column in self.columns for name in column.features())

    def encode(self, table: Any, without: Sequence[str] = ()) -> EncodedRows:
        """Check a table against the schema and encode its rows.

        Parameters
        ----------
        table : frame, ndarray, mapping, str or Path
            Rows with the columns of the training rows, in their order.
        without : sequence of str, default=()
            Columns that are not features, and may be missing.

        Returns
        -------
        EncodedRows

        Raises
        ------
        ValueError
            If columns are missing, extra, reordered or of another kind; the message names them.
        """
        cells = _features(table, without)
        self._check_names(tuple(name for name in cells if name in self.names or not _is_blank(name, cells[name])))
        numbers, codes, wrong = list[np.ndarray](), list[np.ndarray](), list[str]()
        for column in self.columns:
            try:
                if column.categories:
                    codes.append(_codes(column, cells[column.name]))
                else:
                    numbers += _numbers(column, cells[column.name])
            except ValueError as error:
                wrong.append(str(error))
        if wrong:
            raise ValueError("; ".join(wrong))
        size = len(next(iter(cells.values())).values)
        return EncodedRows(
            np.stack(numbers, 1) if numbers else np.empty((size, 0)),
            np.stack(codes, 1) if codes else np.empty((size, 0), np.int64),
        )

    def _check_names(self, names: tuple[str, ...]) -> None:
        known = tuple(name for name in self.names if name in names or not (UNNAMED.match(name) and self.left_out.get(name) == EMPTY))
        missing, extra = [name for name in known if name not in names], [name for name in names if name not in known]
        said = [f"columns are missing: {few(missing)}"] if missing else []
        said += [f"columns are not in the schema: {few(extra)}"] if extra else []
        if not said and names != known:
            moved = [f"{name} (now {names.index(name) + 1}, was {at + 1})" for at, name in enumerate(known) if names[at] != name]
            said = [f"columns are in another order: {few(moved)}"]
        if said:
            raise ValueError(f"{'; '.join(said)}. Give the columns of the training table, in its order: {few(list(self.names))}")

    def to_json(self) -> str:
        """The schema as JSON text.

        Returns
        -------
        str
        """
        return json.dumps(
            {"columns": [asdict(column) for column in self.columns], "left_out": self.left_out, "names": self.names}, indent=1
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote.

        Parameters
        ----------
        text : str
            JSON.

        Returns
        -------
        TableSchema
        """
        read = json.loads(text)
        columns = tuple(Column(**{**column, "categories": tuple(column["categories"])}) for column in read["columns"])
        return cls(columns, read["left_out"], tuple(read["names"]))


def _kind_in_words(column: Column) -> str:
    known = [name for name in column.categories if name]
    cut = ", the most frequent (all others count as one)" if len(known) == MOST_CATEGORIES else ""
    plain = "number of seconds" if column.kind == "number" and column.timed else column.kind
    told = f"category of {len(known):,}{cut}: {few(known)}" if column.kind == "category" else plain
    return f"{told}, some missing" if column.missing else told


class Cells(NamedTuple):
    """The cells of one column as they were read.

    `values` are float64 with NaN for numbers, booleans (0, 1), dates (seconds since 1970) and durations (seconds), and objects (str or
    None) for texts and categories. `said` is what the type of the column says; text may still hold anything.
    """

    said: Literal["number", "boolean", "date", "duration", "text", "category"]
    values: np.ndarray

    def plain(self) -> np.ndarray:
        """The cells as they are shown: Python numbers, booleans, dates and texts, None where missing."""
        shown = np.empty(len(self.values), dtype=object)
        for at, (cell, gone) in enumerate(zip(self.values.tolist(), _gone(self.values), strict=True)):
            if gone or self.said not in ("boolean", "date"):
                shown[at] = None if gone else cell
            else:
                shown[at] = bool(cell) if self.said == "boolean" else datetime(1970, 1, 1) + timedelta(seconds=cell)
        return shown

    def as_categories(self) -> "Cells":
        """The cells as texts that are names, whatever they spell: as `TableSchema.encode` reads them for a category."""
        cells = self.plain() if self.said == "date" else self.values
        texts = [None if gone else _text(cell) for cell, gone in zip(cells.tolist(), _gone(self.values), strict=True)]
        return Cells("category", np.array([*texts, None], dtype=object)[:-1])


EMPTY = "every cell is missing"
REFUSED = "refused: "
TO_KEEP = "--keep uses it"
TO_SPLIT = "write one such value, or several columns, or leave the column out by --ignore"
TO_FIX = "fix these, leave them empty, read all as names by --category, or leave the column out by --ignore"


def _recognized(name: str, cells: Cells, ids: bool) -> Column | str:
    """The column, or why it is left out (such as looking like one of `ids`), or (after REFUSED) why the table is refused."""
    said, values = cells
    gone = _gone(values)
    missing = bool(gone.any())
    if gone.all():
        return EMPTY
    if said == "text":
        parsed = _parsed(name, values, gone)
        if isinstance(parsed, str):
            return parsed
        said, values = parsed
    present = values[~gone]
    distinct, counts = np.unique(present, return_counts=True)
    if len(distinct) == 1 and not missing:
        return "the same value in every row"
    if said in ("number", "date"):
        if ids and said == "number" and (why := _like_an_id(name, present, distinct, missing)):
            return why
        if said == "number":
            return Column(name, "number", (), missing, offset=_offset(distinct))
        return Column(name, "date", (), missing, bool((present % 86400 != 0).any()))
    if said == "duration":
        return Column(name, "number", (), missing, timed=True, offset=_offset(distinct))
    if said == "boolean":
        return Column(name, "boolean", ("false", "true", *(("",) if missing else ())), missing)
    if said == "text":
        words = float(np.mean([len(cell.split()) for cell in present[:1000]]))
        if words >= WORDS and len(distinct) > len(present) / 2:
            fix = f"learn from it alone by --text {name!r}, or leave it out by --ignore {name!r} (ignore_columns)"
            return f"{REFUSED}column {name!r} holds free text; {fix}"
        if ids and len(present) >= ENOUGH and len(distinct) > 0.95 * len(present):
            return f"a text of its own in almost every row, like an id ({TO_KEEP})"
    kept = np.sort(distinct[np.argsort(-counts, kind="stable")[:MOST_CATEGORIES]])
    return Column(name, "category", (*kept.tolist(), *(("",) if missing else ())), missing)


def _is_blank(name: str, cells: Cells) -> bool:
    """Whether a column has neither a name nor cells; a table may have it or not."""
    return bool(UNNAMED.match(name)) and bool(_gone(cells.values).all())


def _offset(distinct: np.ndarray) -> float:
    """A number in the middle of these, if they are so near each other that a tenth of them are equal in 32 bits; else 0."""
    middle = float(distinct[len(distinct) // 2])
    if np.abs(distinct).max() > np.finfo(np.float32).max:
        return 0.0
    told, moved = (len(np.unique(some.astype(np.float32))) for some in (distinct, distinct - middle))
    return middle if moved > told and 10 * told <= 9 * len(distinct) else 0.0


def _gone(values: np.ndarray) -> np.ndarray:
    return np.isnan(values) if values.dtype.kind == "f" else np.array([cell is None for cell in values], dtype=bool)


def _like_an_id(name: str, present: np.ndarray, distinct: np.ndarray, missing: bool) -> str:
    """Why a column of numbers is taken for an id; "" if it is not.

    Whole numbers of their own in every row are amounts as well (a price, a population), unless they are called an id, have no gap, or
    rise from row to row without a missing cell. A table sorted by an amount is left without it by the last rule, which says so.
    """
    if len(present) < ENOUGH or len(distinct) < len(present) or not bool((present == np.floor(present)).all()):
        return ""
    if ID_NAME.search(name) or float(distinct[-1] - distinct[0]) == len(distinct) - 1:
        return f"a whole number of its own in every row, like an id ({TO_KEEP})"
    steps = np.diff(present)
    if not missing and bool((steps > 0).all() or (steps < 0).all()):
        return f"whole numbers that {'rise' if steps[0] > 0 else 'fall'} from row to row, like an id with gaps ({TO_KEEP})"
    return ""


def _parsed(name: str, values: np.ndarray, gone: np.ndarray) -> Cells | str:
    """Texts as what they spell: numbers, booleans, dates, or categories; or why the table is refused."""
    texts = values[~gone]
    numbers = [number_of(cell) for cell in texts]
    spelled = [number is not None for number in numbers]
    if any(CERTAIN_POINTS.match(cell) for cell in texts) and all(POINTS.match(cell) for cell in texts):
        shown = next(cell for cell in texts if CERTAIN_POINTS.match(cell))
        return f"{REFUSED}column {name!r} holds numbers with points for thousands ({shown!r}); write them without these points"
    if all(spelled):
        _warn_of_thousands(name, texts)
        _warn_of_codes(name, texts)
        return Cells("number", _filled(gone, numbers))
    if sum(spelled) > MOST * len(texts):
        other = [cell for cell, number in zip(texts, numbers, strict=True) if number is None]
        return f"{REFUSED}column {name!r} holds numbers and {len(other):,} other cells ({_distinct(other)}); {TO_FIX} {name!r}"
    if why := _with_decimal_commas(name, texts, spelled):
        return f"{REFUSED}{why}"
    if why := _with_signs(name, texts, spelled):
        return f"{REFUSED}{why}"
    lowered = [cell.lower() for cell in texts]
    if all(cell in BOOLEANS for cell in lowered):
        return Cells("boolean", _filled(gone, [float(BOOLEANS[cell] == "true") for cell in lowered]))
    dates = [_seconds(cell) for cell in texts]
    if all(one is not None for one in dates):
        return Cells("date", _filled(gone, dates))
    if sum(one is not None for one in dates) > MOST * len(texts):
        other = [cell for cell, one in zip(texts, dates, strict=True) if one is None]
        return f"{REFUSED}column {name!r} holds dates and {len(other):,} other cells ({_distinct(other)}); {TO_FIX} {name!r}"
    unclear = [cell for cell in texts if OTHER_DATES.match(cell)]
    if len(unclear) > MOST * len(texts):
        shown = f"write them as 2024-03-31, read them as names by --category {name!r}, or leave the column out by --ignore"
        return f"{REFUSED}column {name!r} holds dates whose day and month may be mistaken ({unclear[0]!r}); {shown} {name!r}"
    lasting = [_lasting(cell) for cell in texts]
    if all(one is not None for one in lasting):
        return Cells("duration", _filled(gone, lasting))
    if sum(spelled) >= len(texts) / 4 and len({number for number in numbers if number is not None}) > MOST_CODES:
        others = few(sorted({repr(cell) for cell, number in zip(texts, numbers, strict=True) if number is None}))
        warnings.warn(
            f"column {name!r} holds numbers in {sum(spelled):,} of {len(texts):,} cells and others ({others}) in the rest, so it is "
            "read as categories: leave the other cells empty to read it as numbers, or drop the column",
            stacklevel=2,
        )
    return Cells("text", values)


def _with_signs(name: str, texts: Sequence[str], spelled: Sequence[bool]) -> str:
    """Why these cells cannot be read as the numbers that they hold: they have signs, spaces or a unit; "" if they hold none."""
    signed = [cell for cell, number in zip(texts, spelled, strict=True) if not number and SIGNED.match(cell)]
    units = [found[1] for cell in texts if (found := UNIT.match(cell))]
    fix = f"write them without it, or read them as names by --category {name!r}"
    if signed and len(signed) + sum(spelled) > MOST * len(texts):
        what = "a sign of money or percent" if re.search(f"{MONEY}|%", signed[0]) else "spaces or other marks"
        return f"column {name!r} holds numbers with {what} ({signed[0]!r}); {fix}"
    if len(units) == len(texts) and len(set(units)) == 1 and len(set(texts)) > MOST_CODES:
        return f"column {name!r} holds numbers with a unit ({texts[0]!r}); {fix}"
    return ""


def moments_in(cells: Cells) -> tuple[str, str] | None:
    """("dates" or "durations", one of them) if a column holds such, as its type says or as its texts spell; else None."""
    present = [cell for cell, gone in zip(cells.plain(), _gone(cells.values), strict=True) if not gone]
    if cells.said == "date" and present:
        return "dates", str(present[0]).removesuffix(" 00:00:00")
    if cells.said == "duration" and present:
        return "durations", str(timedelta(seconds=present[0]))
    if cells.said == "text":
        dates = [cell for cell in present if _seconds(cell) is not None or OTHER_DATES.match(cell)]
        durations = [cell for cell in present if DURATIONS.match(cell)]
        for what, found in (("dates", dates), ("durations", durations)):
            if len(found) > MOST * len(present):
                return what, found[0]
    return None


def _with_decimal_commas(name: str, texts: Sequence[str], spelled: Sequence[bool]) -> str:
    """Why these cells cannot be read as the numbers that they hold: a comma may be a point; "" if they hold no such numbers."""
    commas = [cell for cell, number in zip(texts, spelled, strict=True) if not number]
    if not commas or not all(DECIMAL_COMMA.match(cell) for cell in commas):
        return ""
    return f"column {name!r} holds numbers with decimal commas ({commas[0]!r}); write a point instead"


def misread_numbers(name: str, cells: Cells) -> str:
    """Why the texts of a column cannot be read as the numbers that they hold; "" if they hold none, or can be."""
    found = _parsed(name, cells.values, gone := _gone(cells.values))
    if isinstance(found, Cells) and found.said == "duration":
        shown = f"write them as numbers, such as hours, or read them as names by --category {name!r}"
        return f"column {name!r} holds times ({cells.values[~gone][0]!r}); {shown}"
    return found.removeprefix(REFUSED) if isinstance(found, str) else ""


def _distinct(cells: Sequence[str]) -> str:
    return few([repr(cell) for cell in dict.fromkeys(cells)])


def _warn_of_thousands(name: str, texts: np.ndarray) -> None:
    """Whole numbers beside numbers with exactly three decimals and none with others: the point may separate thousands."""
    decimals = [cell for cell in texts if "." in cell]
    if decimals and len(decimals) < len(texts) and all(POINTS.match(cell) and not cell.lstrip("+-").startswith("0.") for cell in texts):
        warnings.warn(
            f"column {name!r} holds whole numbers, and numbers with exactly three decimals such as {decimals[0]!r}: they are read as "
            "decimals; if the point separates thousands, write them without it",
            stacklevel=2,
        )


def _warn_of_codes(name: str, texts: np.ndarray) -> None:
    """Numbers that begin with a 0 may be names, such as zip codes; 01 to 31 are more often parts of a date."""
    if padded := next((cell for cell in texts if re.match(r"0\d\d+$", cell)), None):
        warnings.warn(
            f"column {name!r} holds numbers that begin with 0 such as {padded!r}: they are read as numbers; if they are names, such as "
            f"zip codes, read them by --category {name!r}, or as a column of categories",
            stacklevel=2,
        )


def _filled(gone: np.ndarray, present: Sequence[float | None]) -> np.ndarray:
    filled = np.full(len(gone), np.nan)
    filled[~gone] = np.asarray(present, dtype=np.float64)
    return filled


def _seconds(cell: str) -> float | None:
    """A date that begins with the year as seconds since 1970; a plain number is none. A zone does not move the time of day."""
    if len(cell) < 8 or not cell[:4].isdigit():
        return None
    if found := YEAR_FIRST.match(cell):  # 2024/3/1 9:05 UTC
        year, _, month, day, hour, rest, _ = found.groups()
        cell = f"{year}-{month:0>2}-{day:0>2}" + (f" {hour:0>2}{rest}" if hour else "")
    try:
        return _since_1970(datetime.fromisoformat(cell)) if "-" in cell else None
    except ValueError:
        return None


def _lasting(cell: str) -> float | None:
    """A time of day, or a duration as pandas writes it, in seconds; a plain number is none."""
    found = CLOCK.match(cell)
    if not found:
        return None
    days, sign, hours, minutes, seconds, half = found.groups()
    hour = int(hours) if half is None else int(hours) % 12 + 12 * (half.lower() == "p")
    return int(days or 0) * 86400 + (-1 if sign == "-" else 1) * (hour * 3600 + int(minutes) * 60 + float(seconds or 0))


def _since_1970(moment: datetime) -> float:
    return (moment - datetime(1970, 1, 1, tzinfo=moment.tzinfo)).total_seconds()


def _numbers(column: Column, cells: Cells) -> list[np.ndarray]:
    """The numbers that a column of numbers or dates becomes."""
    said, values = cells
    gone = _gone(values)
    if said in ("text", "category") and not gone.all():
        read = _seconds if column.kind == "date" else _lasting if column.timed else number_of
        parsed = [read(cell) for cell in values[~gone]]
        wrong = [repr(cell) for cell, one in zip(values[~gone], parsed, strict=True) if one is None]
        if wrong:
            raise ValueError(f"column {column.name!r} was a {column.kind} in training, and now holds {few(list(dict.fromkeys(wrong)))}")
        values = _filled(gone, parsed)
    elif said in ("text", "category"):
        values = np.full(len(gone), np.nan)
    elif not gone.all() and said != column.kind and not (said in ("boolean", "duration") and column.kind == "number"):
        raise ValueError(f"column {column.name!r} was a {column.kind} in training, and is now a {said}")
    found = [values - column.offset if column.offset else values]
    if column.kind == "date":
        days = np.floor(values / 86400)
        year = np.array([np.nan if np.isnan(day) else float(date.fromordinal(int(day) + 719163).timetuple().tm_yday) for day in days])
        found = [days, (days + 3) % 7, year, *([values % 86400 / 3600] if column.timed else [])]
    return [*found, gone.astype(np.float64)] if column.missing else found


def _codes(column: Column, cells: Cells) -> np.ndarray:
    """The codes of categories; 0 for an unseen one."""
    said, values = cells
    gone = _gone(values)
    if column.kind == "boolean" and said in ("text", "category"):
        wrong = [repr(cell) for cell in values[~gone] if cell.lower() not in LATER_BOOLEANS]
        if wrong:
            raise ValueError(f"column {column.name!r} was a boolean in training, and now holds {few(list(dict.fromkeys(wrong)))}")
        texts = [None if cell is None else LATER_BOOLEANS[cell.lower()] for cell in values]
    elif column.kind == "boolean":
        if said == "date" or not np.isin(values[~gone], (0.0, 1.0)).all():
            raise ValueError(f"column {column.name!r} was a boolean in training, and is now a {said}")
        texts = [None if empty else "true" if value else "false" for value, empty in zip(values, gone, strict=True)]
    elif said in ("number", "boolean", "date", "duration"):
        texts = cells.as_categories().values.tolist()
        if not gone.all() and not set(texts) & set(column.categories) and _are_words(column.categories):
            raise ValueError(f"column {column.name!r} was a category in training ({few(list(column.categories))}), and is now a {said}")
    else:
        texts = list(values)
        numbers = not gone.all() and all(number_of(cell) is not None for cell in values[~gone])
        if numbers and _are_words(column.categories):
            raise ValueError(f"column {column.name!r} was a category in training ({few(list(column.categories))}), and now holds numbers")
    codes = {name: code for code, name in enumerate(column.categories, start=1)}
    present = {cell for cell in texts if cell is not None}
    if present and len(texts) >= ENOUGH and not present & set(codes):
        warnings.warn(
            f"column {column.name!r} holds no category of the training ({few([repr(name) for name in column.categories])}), but "
            f"{few([repr(cell) for cell in sorted(present)])}: if these are the same, write them alike",
            stacklevel=2,
        )
    return np.array([codes.get("" if cell is None else cell, 0) for cell in texts], dtype=np.int64)


def _are_words(categories: Sequence[str]) -> bool:
    """Whether no category is written as a number, so that a column of numbers is another column."""
    return not any(number_of(name) is not None for name in categories)


def _features(table: Any, without: Sequence[str]) -> dict[str, Cells]:
    """The columns that are features."""
    return {name: column for name, column in read_columns(table).items() if name not in without}


def read_columns(table: Any, ignored: Sequence[str] = (), report: Report | None = None) -> dict[str, Cells]:
    """Read the columns of a table, each as its type says; those that are ignored may hold anything, and are empty.

    Parameters
    ----------
    table : frame, ndarray, mapping, str or Path
        pandas, polars, pyarrow, NumPy (n, p), names to columns, or a text file (CSV and its relatives) or Parquet file.
    ignored : sequence of str, default=()
        Columns that are not read.
    report : callable, optional
        Called with a line on how a file is read, if it is not UTF-8 with commas.

    Returns
    -------
    dict of str to Cells

    Raises
    ------
    ValueError
        If names are duplicate, columns differ in length, or there are no rows.
    """
    if isinstance(table, str | Path):
        pairs = _file_columns(Path(table), ignored, report)
    elif isinstance(table, np.ndarray):
        if table.ndim != 2:
            raise ValueError(f"a table has shape (n, p), and the array has {table.shape}; give one row per sample")
        pairs = [(f"x{at}", table[:, at]) for at in range(table.shape[1])]
    elif hasattr(table, "column_names") and hasattr(table, "to_pylist"):  # of pyarrow, whose columns are no names
        pairs = _arrow_columns(table)
    elif isinstance(table, Mapping):
        pairs = [(str(name), column) for name, column in table.items()]
    else:  # a frame: pandas and polars both iterate over names
        names = list(table.columns)
        pairs = [(str(name), table.iloc[:, at] if hasattr(table, "iloc") else table[name]) for at, name in enumerate(names)]
    found = dict[str, Cells]()
    for at, (given, column) in enumerate(pairs):
        name = given or f"Unnamed: {at}"  # as pandas calls it: its own CSV has the index in such a column
        if name in found:
            raise ValueError(f"column {name!r} is there twice; give every column a name of its own")
        found[name] = _cells(name, np.full(len(column), None) if name in ignored else column)
    sizes = {name: len(cells.values) for name, cells in found.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"columns differ in length: {few([f'{name} ({size:,})' for name, size in sizes.items()])}")
    if not sizes or not next(iter(sizes.values())):
        raise ValueError("the table has no rows, or no columns; give at least one of each")
    return found


def _cells(name: str, column: Any) -> Cells:
    if isinstance(column, Cells):
        return column
    kind = str(getattr(column, "dtype", "")).lower()
    if getattr(getattr(column, "dtype", None), "time_zone", None):  # polars would give UTC; pandas and Parquet give the time of day there
        column = column.dt.replace_time_zone(None)
    if kind in ("int128", "uint128"):  # of polars, which NumPy has none of
        column = np.array([*column.to_list(), None], dtype=object)[:-1]
    values = column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column, dtype=None if hasattr(column, "dtype") else object)
    if values.ndim != 1:
        raise TypeError(f"column {name!r} holds several values in a cell (its shape is {values.shape}); {TO_SPLIT} {name!r}")
    if kind.startswith(("category", "categorical", "enum")):
        return Cells("category", _texts(name, values))
    if values.dtype.kind == "b":
        return Cells("boolean", values.astype(np.float64))
    if values.dtype.kind in "iuf":
        numbers = values.astype(np.float64)
        if np.isinf(numbers).any():
            raise ValueError(
                f"column {name!r} holds infinity in {int(np.isinf(numbers).sum()):,} rows; leave these cells empty, or clip them"
            )
        return Cells("number", numbers)
    if values.dtype.kind == "M":
        seconds = values.astype("datetime64[ms]").astype(np.int64) / 1000
        return Cells("date", np.where(np.isnat(values), np.nan, seconds))
    if values.dtype.kind == "m":
        return Cells("duration", np.where(np.isnat(values), np.nan, values.astype("timedelta64[ms]").astype(np.int64) / 1000))
    if values.dtype.kind == "c":
        raise ValueError(f"column {name!r}: complex data not supported; give its real and imaginary part as two columns")
    return _object_cells(name, values)


def _object_cells(name: str, values: np.ndarray) -> Cells:
    """Cells of Python's own types: numbers with None, booleans, dates, durations, or texts."""
    values = np.array([*map(_of_plain_type, values.tolist()), None], dtype=object)[:-1]
    lasting = [isinstance(cell, timedelta) for cell in values.tolist()]
    if any(lasting) and all(is_one or _is_missing(cell) for is_one, cell in zip(lasting, values.tolist(), strict=True)):
        return Cells("duration", np.array([np.nan if _is_missing(cell) else cell.total_seconds() for cell in values.tolist()]))
    values = np.array([*map(_as_real, values.tolist()), None], dtype=object)[:-1]
    present = [cell for cell in values.tolist() if not _is_missing(cell)]
    if present and all(isinstance(cell, bool | np.bool_) for cell in present):
        return Cells("boolean", np.array([np.nan if _is_missing(cell) else float(cell) for cell in values.tolist()]))
    if present and all(isinstance(cell, Real) and not isinstance(cell, bool | np.bool_) for cell in present):
        return _cells(name, np.array([np.nan if _is_missing(cell) else float(cell) for cell in values.tolist()]))
    if present and all(isinstance(cell, date) for cell in present):  # a datetime is one, too
        moments = [
            None if _is_missing(cell) else cell if isinstance(cell, datetime) else datetime(cell.year, cell.month, cell.day)
            for cell in values.tolist()
        ]
        return Cells("date", np.array([np.nan if moment is None else _since_1970(moment) for moment in moments]))
    return Cells("text", _texts(name, values))


def _of_plain_type(cell: Any) -> Any:
    """A time of day as a duration, and what pandas makes of bins (intervals) and calendars (periods) as a text and a date."""
    if isinstance(cell, time):
        return timedelta(hours=cell.hour, minutes=cell.minute, seconds=cell.second, microseconds=cell.microsecond)
    kind = type(cell).__name__
    return str(cell) if kind == "Interval" else cell.to_timestamp() if kind == "Period" else cell


def _as_real(cell: Any) -> Any:
    """Decimals as floats, and durations as seconds."""
    return float(cell) if isinstance(cell, Decimal) else cell.total_seconds() if isinstance(cell, timedelta) else cell


def _is_missing(cell: Any) -> bool:
    """Also what differs from itself (NaN, NaT), and pandas' NA, which is neither equal nor different."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return cell.strip().lower() in MISSING if isinstance(cell, str) else isinstance(cell, Real) and cell != cell  # noqa: PLR0124


def _texts(name: str, values: np.ndarray) -> np.ndarray:
    found = np.empty(len(values), dtype=object)
    for at, cell in enumerate(map(_of_plain_type, values.tolist())):
        if not _is_missing(cell) and not isinstance(cell, str | Real | date | timedelta):
            raise TypeError(
                f"column {name!r}, row {at}: every argument must be a string, a number, a boolean or a date, not {type(cell).__name__}; "
                f"{TO_SPLIT} {name!r}"
            )
        found[at] = None if _is_missing(cell) else _text(cell)
    return found


def _text(cell: Any) -> str:
    """1.0 and 1 are one category: a column of whole numbers becomes one of floats when a cell is missing."""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell).strip()


def _file_columns(path: Path, ignored: Sequence[str], report: Report | None) -> list[tuple[str, Any]]:
    if path.suffix.lower() == ".parquet":
        try:
            parquet = import_module("pyarrow.parquet")
        except ImportError:
            raise ImportError(f"{path}: Parquet needs pyarrow; pip install 'nearkin[table]', or save the table as CSV") from None
        names = parquet.read_schema(path).names
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise ValueError(f"{path}: column {twice[0]!r} is there twice; give every column a name of its own")
        return _arrow_columns(parquet.read_table(path))
    dialect = dialect_of(path)
    header, lines = header_and_rows(path, dialect)
    check_header(path, header)
    if len(header) > 2 * MOST_COLUMNS:  # before the rows are read; a few more may be the label and what is ignored
        raise ValueError(_too_wide(len(header)))
    rows = list[list[str]]()
    for number, row in lines:
        if len(row) != len(header):
            raise ValueError(
                f"{path}: line {number} has {len(row)} cells, and the header ({few(header, 5)}) has {len(header)}; "
                f"fix that line{', or the header' if len(header) == 1 else ''}"
            )
        rows.append(row)
    if header and sum(number_of(cell) is not None for cell in header) > len(header) / 2:
        raise ValueError(f"{path} has no header: its first row holds numbers; add a first row with the names of the columns")
    if not rows:
        raise ValueError(f"{path} has no rows below its header; give at least one")
    read = with_points(path, dialect, header, rows, ignored, report)
    return [(name, np.array([*cells, None], dtype=object)[:-1]) for name, cells in zip(header, read, strict=True)]


def _arrow_columns(table: Any) -> list[tuple[str, Any]]:
    named = [(at, name) for at, name in enumerate(table.column_names) if not INDEX.match(name)]
    return [(name, np.array([*table.column(at).to_pylist(), None], dtype=object)[:-1]) for at, name in named]


def _too_wide(count: int) -> str:
    return f"the table has {count:,} columns, and at most {MOST_COLUMNS:,} are supported; select some, or reduce them"


def check_header(path: Path, header: list[str]) -> None:
    """Refuse notes before the header."""
    if header and header[0].startswith("#"):
        raise ValueError(f"{path} begins with a comment ({header[0][:60]}); remove the lines before the header")
