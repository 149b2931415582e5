"""Tables as text files: which character separates their columns, how they are encoded, and their rows.

A table of the plain kind has commas (a .tsv has tabs) and UTF-8. It is read so whenever that gives every row as many cells as the header.
"""

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from nearkin.data.progress import Report, few, inform, warn
from nearkin.data.spelled_numbers import decimal_commas, is_missing_text, number_of, with_point

PLAIN_SUFFIXES = (".csv", ".tsv", ".txt", ".data", ".dat")
TEXT_TABLE_SUFFIXES = (*PLAIN_SUFFIXES, *(f"{suffix}.gz" for suffix in PLAIN_SUFFIXES))
TABLE_SUFFIXES = (*TEXT_TABLE_SUFFIXES, ".parquet")
MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "pipes", " ": "spaces"}
GAPS = " "  # any run of spaces and tabs
LONGEST = 2**31 - 1  # characters of a cell: the most that Python's reader takes everywhere
SAMPLE_LINES, SAMPLE_CHARACTERS = 1000, 2**20
BLOCK = 2**20  # bytes
MOST_UNPACKED = 2**28  # bytes from which on a packed file must not be more than so many times smaller:
MOST_RATIO = 100
SEPARATOR = re.compile(r'"?sep=([^"\r\n\\]|\\t)"?[\r\n]*$', re.IGNORECASE)  # the first line that Excel writes and reads
CELL = re.compile(r'"((?:[^"]|"")*)"(?=\s|$)|(\S+)')  # between spaces
GZIP, ZIP, OLD_EXCEL = b"\x1f\x8b", b"PK\x03\x04", b"\xd0\xcf\x11\xe0"


class Dialect(NamedTuple):
    """How a text file holds a table: what separates its columns, its encoding, and whether it is packed by gzip."""

    delimiter: str
    encoding: str = "utf-8-sig"  # Excel begins its CSV with a byte-order mark
    packed: bool = False
    declared: bool = False  # by a first line sep=;
    also: str = ""  # another character that would separate all rows alike


def is_table(name: str) -> bool:
    """Whether a file is named as a table."""
    return name.lower().endswith(TABLE_SUFFIXES)


def dialect_of(path: Path) -> Dialect:
    """How a file holds its table, from its bytes, its suffix and its first lines."""
    packed, encoding = _encoding(path)
    usual = Dialect(_usual(path), encoding, packed)
    with _text(path, usual) as file:
        lines, complete = _sample(file)
    if lines and (declared := SEPARATOR.match(lines[0])):
        return usual._replace(delimiter="\t" if declared[1] == "\\t" else declared[1], declared=True)
    return _chosen(path, usual, lines, complete)


def _chosen(path: Path, usual: Dialect, lines: Sequence[str], complete: bool) -> Dialect:
    """The usual delimiter if it gives every line as many cells as the header, or else the only one that does."""
    widths = {mark: _widths(lines, mark, complete) for mark in MARKS}
    gaps = widths.pop(GAPS)
    alike = [mark for mark, found in widths.items() if len(set(found)) == 1 and found[0] > 1]
    others = [mark for mark in alike if mark != usual.delimiter]
    most = max(map(_header_width, widths.values()))
    one = _has_one_column(lines, usual.delimiter, widths[usual.delimiter])
    if usual.delimiter in alike:
        return usual._replace(also="".join(others[:1]))
    if len(others) > 1 and not one:
        shown = " and ".join(f"{MARKS[mark]} ({widths[mark][0]} columns)" for mark in others)
        raise ValueError(f"{path}: {shown} separate its columns alike; write the right one as its first line, such as sep={others[0]}")
    if (others in ([], ["\t"]) or one) and usual.delimiter == "," and _in_gaps(lines, gaps, more_than=most):
        return usual._replace(delimiter=GAPS)
    if one or most == 1:
        _refuse_words(path, gaps)
        return usual
    if others:
        return usual._replace(delimiter=others[0])
    if _header_width(widths[usual.delimiter]) == 1:  # so that the error names the line that differs
        return usual._replace(delimiter=max(widths, key=lambda mark: widths[mark][0]))
    return usual


Rows = Generator[tuple[int, list[str]], None, None]


def header_and_rows(path: Path, dialect: Dialect) -> tuple[list[str], Rows]:
    """The names of the columns, and the rows, each with the number of its last line; rows may be shorter or longer than the header."""
    lines = _records(path, dialect)
    return [cell.strip() for cell in next(lines, (0, list[str]()))[1]], lines


def _records(path: Path, dialect: Dialect) -> Rows:
    """The header and the rows; blank lines are left out."""
    with _text(path, dialect) as file:
        lines = _without_nul(path, file)
        if dialect.declared:
            next(lines)
        width = 0
        try:
            for number, cells in _parsed(lines, dialect.delimiter):
                if cells and not (width > 1 and len(cells) == 1 and not cells[0].strip()):
                    width = width or len(cells)
                    yield number + dialect.declared, cells
        except csv.Error as error:
            raise ValueError(f"{path} cannot be read as a table ({error}); save it again as CSV, UTF-8") from None


def tell(path: Path, dialect: Dialect, commas: Sequence[str], report: Report | None) -> None:
    """Report in one line what is not plain about a table: its delimiter, decimal commas and encoding."""
    between = MARKS.get(dialect.delimiter, repr(dialect.delimiter))
    said = [f"{between} between its columns"] if dialect.delimiter != _usual(path) else []
    said += [f"commas for decimals and points for thousands in {few(list(commas), 5)}"] if commas else []
    said += ["UTF-16"] if dialect.encoding == "utf-16" else []
    guessed = dialect.encoding == "cp1252"
    said += ["Windows-1252, since it is not UTF-8"] if guessed else []
    if said:
        (warn if guessed else inform)(report, f"{path} is read with {', '.join(said)}")
    if dialect.also:
        other = f"{MARKS[dialect.also]} would separate its columns, too: write sep={dialect.also} as its first line if they do"
        inform(report, f"{path} is read with {between} between its columns; {other}")


def with_points(
    path: Path, dialect: Dialect, header: Sequence[str], rows: Sequence[Sequence[str]], ignored: Sequence[str], report: Report | None
) -> list[Sequence[str]]:
    """The columns of rows that are as wide as the header, with decimal commas as points; what is not plain about the file is reported.

    Where commas separate columns, and in a plain .tsv, nothing is replaced: 1,234 has a comma for thousands there.
    """
    columns: list[Sequence[str]] = list(zip(*rows, strict=True))
    commas = dict[int, str]()
    if dialect.delimiter != "," and not _is_plain_tsv(path, dialect):
        read: list[Sequence[str]] = [() if name in ignored else cells for name, cells in zip(header, columns, strict=True)]
        try:
            commas = decimal_commas(header, read, usual=dialect.delimiter == ";")
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    for at in commas:
        columns[at] = [with_point(cell) for cell in columns[at]]
    tell(path, dialect, [f"{header[at]} ({shown!r})" for at, shown in commas.items()], report)
    return columns


def _is_plain_tsv(path: Path, dialect: Dialect) -> bool:
    """Whether a table is a .tsv of the plain kind."""
    return dialect._replace(also="") == Dialect("\t") and path.name.lower().endswith(".tsv")


def _usual(path: Path) -> str:
    return "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","


def _encoding(path: Path) -> tuple[bool, str]:
    """Whether a file is packed, and its encoding; every byte is read once, so that a byte far below does not stop the reading."""
    with path.open("rb") as file:
        start = file.read(4)
    if start in (ZIP, OLD_EXCEL):
        raise ValueError(f"{path} is a workbook of Excel or a zip archive; save its table as CSV UTF-8, or unpack it")
    packed = start[:2] == GZIP
    with _bytes(path, packed) as stream:
        try:
            start = stream.read(2)
        except (OSError, EOFError, zlib.error) as error:
            raise _damaged(path, error) from None
    found = ("utf-16",) if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else ("utf-8-sig", "cp1252")
    for encoding in found:
        if (wrong := _undecoded(path, packed, encoding)) is None:
            return packed, encoding
    what = "is damaged UTF-16" if len(found) == 1 else "is neither UTF-8 nor Windows-1252"
    raise ValueError(f"{path} {what} ({wrong}); save it again as CSV, UTF-8")


def _undecoded(path: Path, packed: bool, encoding: str) -> str | None:
    """What in a file is not of this encoding; None if all is."""
    decoder, done = codecs.getincrementaldecoder(encoding)(), 0
    with _bytes(path, packed) as stream:
        while True:
            try:
                block = stream.read(BLOCK)
            except (OSError, EOFError, zlib.error) as error:
                raise _damaged(path, error) from None
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                at = error.object[error.start]
                return f"byte 0x{at:02x} near byte {done + error.start:,}"
            if not block:
                return None
            done += len(block)
            if packed and done > MOST_UNPACKED and done > MOST_RATIO * path.stat().st_size:
                raise ValueError(f"{path} unpacks to more than {MOST_RATIO} times its size; unpack it by gunzip, if that is meant")


def _damaged(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path} is damaged ({error}); pack it again by gzip, or unpack it")


def _bytes(path: Path, packed: bool) -> gzip.GzipFile | io.BufferedReader:
    return gzip.open(path, "rb") if packed else path.open("rb")


def _text(path: Path, dialect: Dialect) -> io.TextIOWrapper:
    return io.TextIOWrapper(_bytes(path, dialect.packed), encoding=dialect.encoding, newline="")


def _without_nul(path: Path, lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if "\0" in line:
            raise ValueError(
                f"{path}: line {number:,} holds a NUL byte, which no text has: it is damaged, no table, or UTF-16 without a byte-order "
                "mark; save it again as CSV, UTF-8"
            )
        yield line


def _sample(file: io.TextIOWrapper) -> tuple[list[str], bool]:
    """The first lines, and whether these are all."""
    lines, left = list[str](), SAMPLE_CHARACTERS
    while left > 0 and len(lines) < SAMPLE_LINES:
        line = file.readline(left)
        if not line:
            return lines, True
        lines.append(line)
        left -= len(line)
    return lines, not file.read(1)


def _parsed(lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    if delimiter == GAPS:
        for number, line in enumerate(lines, 1):
            yield number, [(quoted.replace('""', '"') if quoted else plain) for quoted, plain in CELL.findall(line)]
        return
    csv.field_size_limit(LONGEST)
    reader = csv.reader(lines, delimiter=delimiter)
    for cells in reader:
        yield reader.line_num, cells


def _widths(lines: Sequence[str], delimiter: str, complete: bool) -> list[int]:
    """The number of cells of the header and of every row; a last row that may be cut is left out."""
    try:
        rows = [cells for _, cells in _parsed(lines, delimiter) if cells]
    except csv.Error:
        return [1, 0]  # no two alike
    whole = rows if complete or len(rows) < 2 else rows[:-1]
    width = len(whole[0]) if whole else 0
    return [len(cells) for cells in whole if not (width > 1 and len(cells) == 1 and not cells[0].strip())]


def _has_one_column(lines: Sequence[str], delimiter: str, widths: Sequence[int]) -> bool:
    """Whether every line has one cell, and no other delimiter is in the header."""
    header = next((cells for _, cells in _parsed(lines, delimiter) if cells), [""]) if set(widths) == {1} else [";"]
    return not any(mark in header[0].strip() for mark in ";\t|")


def _header_width(widths: Sequence[int]) -> int:
    return widths[0] if widths else 0


def _in_gaps(lines: Sequence[str], widths: Sequence[int], more_than: int) -> bool:
    """Whether spaces separate the columns: as many cells in every line, most of them numbers, and more than by any other character."""
    if not widths or len(set(widths)) > 1 or widths[0] <= max(more_than, 1):
        return False
    rows = islice((cells for _, cells in _parsed(lines, GAPS) if cells), 1, None)
    present = [cell for row in rows for cell in row if not is_missing_text(cell)]
    return 2 * sum(number_of(with_point(cell)) is not None for cell in present) > len(present)


def _refuse_words(path: Path, widths: Sequence[int]) -> None:
    """Refuse a file whose header nothing but spaces separates, unless it is a .csv or .tsv of one column."""
    if not widths or widths[0] == 1 or path.name.lower().removesuffix(".gz").endswith((".csv", ".tsv")):
        return
    at = next((row for row, width in enumerate(widths) if width != widths[0]), None)
    differ = "" if at is None else f" (row {at} has {widths[at]} words, and the header {widths[0]})"
    raise ValueError(
        f"{path}: no comma, semicolon, tab or pipe separates its columns, and its spaces are not clearly between columns{differ}; "
        "save it as CSV with commas"
    )
