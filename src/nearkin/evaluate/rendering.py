"""Results as HTML, for notebooks."""

from collections.abc import Sequence
from html import escape

MOST_ROWS = 20
LINE = "text-align:left;max-width:40em;overflow-wrap:anywhere"


def html_table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of texts with a caption; only the first rows, with the number of the others."""
    head = "".join(f"<th style='{LINE}'>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td style={LINE!r}>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows[:MOST_ROWS])
    more = f"<p>and {len(rows) - MOST_ROWS:,} more rows</p>" if len(rows) > MOST_ROWS else ""
    return f"<p>{escape(caption)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
