"""Texts of others in a CSV: a spreadsheet would run a cell that begins like a formula, so such a cell is written as text."""

FORMULA = ("=", "+", "-", "@", "\t", "\r")
TEXT = "'"  # before a cell, tells a spreadsheet that it is text


def inert(cell: str) -> str:
    """The cell as a spreadsheet shows it and does not run it; a number stays a number."""
    return f"{TEXT}{cell}" if cell.startswith(FORMULA) and not _is_number(cell) else cell


def restored(cell: str) -> str:
    """The text that `inert` got."""
    return cell[1:] if cell.startswith(tuple(TEXT + first for first in FORMULA)) else cell


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
