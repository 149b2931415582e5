"""Numbers as texts spell them: with separators of thousands, a typographic minus sign, or a decimal comma."""

import re
from collections.abc import Callable, Sequence

MISSING = ("", "na", "n/a", "nan", "null", "none", "?", "<na>", "#n/a", "#na")  # cells of text that hold nothing, in lower case
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?$")
MINUS = "\u2212"  # what word processors and R's formatters write for -
GAP = "[ \u00a0\u2009\u202f'\u2019]"  # separates thousands in French, Swiss and SI style
SPACED = re.compile(rf"[+-]?[1-9]\d{{0,2}}({GAP})\d{{3}}(\1\d{{3}})*(\.\d+)?$")
GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+$")  # 1.234: a number with three decimals, or with a point for thousands
WITH_COMMA = re.compile(rf"[+-]?(?=,?\d)(?:[1-9]\d{{0,2}}(?:(\.|{GAP})\d{{3}}(?:\1\d{{3}})*)|\d*)(?:,\d*)?(?:[eE][+-]?\d+)?$")


def number_of(cell: str) -> float | None:
    """The finite number that a text spells, also with commas, spaces or apostrophes for thousands; None if it spells none."""
    try:
        number = float(cell)
    except ValueError:
        text = cell.replace(MINUS, "-", 1) if cell.startswith(MINUS) else cell
        text = text.replace(",", "") if THOUSANDS.match(text) else re.sub(GAP, "", text) if SPACED.match(text) else text
        if text == cell:
            return None
        try:
            number = float(text)
        except ValueError:
            return None
    return number if abs(number) < float("inf") and "_" not in cell else None


def decimal_commas(names: Sequence[str], columns: Sequence[Sequence[str]], *, usual: bool) -> dict[int, str]:
    """The columns of a text table that are numbers with decimal commas, each with a cell that shows it.

    Every cell of such a column is a number or missing. 3,14 has a decimal comma, and 1,234 may have one, or one for thousands: the other
    columns of the table decide. If they have neither decimal commas nor decimal points, a comma is decimal where that is `usual`.

    Parameters
    ----------
    names : sequence of str
        Names of the columns.
    columns : sequence of sequence of str
        Their cells.
    usual : bool
        Whether such tables have decimal commas, as those with semicolons between their columns.

    Returns
    -------
    dict of int to str
        By position. Points for thousands in other columns of such a table are found, too.

    Raises
    ------
    ValueError
        If the commas of a column may be either; the message names it.
    """
    commas = {at: shown for at, cells in enumerate(columns) if (shown := _first(cells, _is_marked)) and _all_fit(cells)}
    if not commas:
        return {}
    sure = {at: shown for at in commas if (shown := _first(columns[at], lambda cell: _is_marked(cell) and not THOUSANDS.match(cell)))}
    others = [cells for at, cells in enumerate(columns) if at not in commas]
    points = (len(sure) < len(commas) or bool(sure)) and any(_has_points(cells) for cells in others)
    if points and not sure:
        return {}
    unsure = [at for at in commas if at not in sure] if points or not (sure or usual) else []
    if unsure:
        raise ValueError(
            f"column {names[unsure[0]]!r} holds numbers whose comma may separate decimals or thousands ({commas[unsure[0]]!r}); write "
            f"them with a decimal point, or leave the column out by --ignore {names[unsure[0]]!r}"
        )
    if points:
        return sure
    grouped = {at: shown for at, cells in enumerate(columns) if (shown := _first(cells, _is_grouped)) and _all_fit(cells)}
    return dict(sorted({**grouped, **commas, **sure}.items()))


def with_point(cell: str) -> str:
    """A number with a decimal comma, as Python writes it; a missing cell as it is."""
    text = cell.strip().replace(MINUS, "-")
    return re.sub(rf"\.|{GAP}", "", text).replace(",", ".") if text and WITH_COMMA.match(text) else cell


def _first(cells: Sequence[str], of_interest: Callable[[str], object]) -> str:
    return next((cell.strip() for cell in cells if of_interest(cell.strip())), "")


def _is_marked(cell: str) -> bool:
    """Whether a number has a comma, or several points, which then separate thousands."""
    return "," in cell or (cell.count(".") > 1 and bool(GROUPED.match(cell)))


def _is_grouped(cell: str) -> bool:
    return bool(GROUPED.match(cell) or SPACED.match(cell))


def is_missing_text(cell: str) -> bool:
    """Whether a cell of text holds nothing."""
    return cell.strip().lower() in MISSING


def _all_fit(cells: Sequence[str]) -> bool:
    return all(WITH_COMMA.match(cell.strip().replace(MINUS, "-")) or is_missing_text(cell) for cell in cells)


def _has_points(cells: Sequence[str]) -> bool:
    """Whether these are numbers with decimal points, or with several commas for thousands."""
    found = _first(cells, lambda cell: cell.count(",") > 1 or ("." in cell and not GROUPED.match(cell)))
    return bool(found) and all(number_of(cell.strip()) is not None or is_missing_text(cell) for cell in cells)
