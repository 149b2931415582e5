"""The question of a wide table, above it: who is ahead of the champion, who behind, and who cannot be told apart?"""

import math
from collections.abc import Sequence

from papers.cell import Cell
from papers.verdict import Verdict

CHAMPIONS = ("Prec@5 as printed", "Prec@5 as released")
ASKED = ("P@1", "P@5", "MAP@R")
NO_RIVALS = (
    "Prec@",
    "Raw",
    "Untrained",
    "Pretrained",
    "The two best",
)  # beginnings of rows that are variants, floors or more than one model

Rows = Sequence[tuple[Cell, Verdict]]


def contest(rows: Rows) -> list[str]:
    """A line for every champion that was run beside a rival, and an empty one; nothing where there is nothing to compare."""
    lines = []
    for champion in CHAMPIONS:
        for column in ASKED:
            told = _against(champion, column, {cell.row: verdict for cell, verdict in rows if cell.column == column})
            lines += [told] if told else []
    head = ["| against the other losses | its %, ± margin | above it | not told apart from it | below it |", "|---|---|---|---|---|"]
    return [*head, *lines, ""] if lines else []


def _rivals(found: dict[str, Verdict]) -> dict[str, Verdict]:
    return {name: one for name, one in found.items() if one.mean is not None and not name.startswith(NO_RIVALS)}


def _against(champion: str, column: str, found: dict[str, Verdict]) -> str:
    own = found.get(champion)
    rivals = _rivals(found)
    if own is None or own.mean is None or not rivals:
        return ""
    signs = {name: apart(own, one) for name, one in rivals.items()}
    ahead, level, behind = ([name for name, sign in signs.items() if sign == wanted] for wanted in (-1, 0, 1))
    cells = (
        f"{champion}, {column}",
        f"{own.mean:.1f} ± {own.margin:.1f}",
        _listed(ahead),
        _listed(level),
        f"{len(behind)} of {len(rivals)}",
    )
    return f"| {' | '.join(cells)} |"


def apart(one: Verdict, other: Verdict) -> int:
    """1 where the first mean is larger by more than both margins taken together, -1 where smaller, 0 where neither can be said."""
    assert one.mean is not None and other.mean is not None
    gap = one.mean - other.mean
    return 0 if abs(gap) <= math.hypot(one.margin, other.margin) else (1 if gap > 0 else -1)


def _listed(names: Sequence[str]) -> str:
    return f"{len(names)}: {', '.join(names)}" if names else "0"
