"""The pieces of a self-contained HTML page: nothing is fetched from anywhere, and it reads in light and in dark."""

import base64
import html
from collections.abc import Sequence

STYLE = """
:root { color-scheme: light dark; --paper: #fdfdfc; --ink: #1d1d1f; --quiet: #5d5d63; --line: #dcdce0; --card: #f3f3f1;
  --fine: #0a7f5a; --look: #9a5b00; --wrong: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --paper: #17181a; --ink: #e8e8ea; --quiet: #a8a8b0; --line: #393a3e; --card: #222326;
  --fine: #4cc79a; --look: #e0a24a; --wrong: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 60rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .2rem; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .6rem; padding-top: .6rem; border-top: 1px solid var(--line); }
p { margin: .5rem 0; } .quiet, figcaption, caption { color: var(--quiet); font-size: .9rem; }
nav a { margin-right: .9rem; white-space: nowrap; } a { color: inherit; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; margin: .6rem 0; }
table.large { min-width: 50rem; }
caption { text-align: left; caption-side: bottom; padding-top: .4rem; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th.right, td.right { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.family { padding-top: .9rem; font-weight: 600; }
figure { margin: 1rem 0; }
figure img { max-width: 100%; height: auto; background: #fff; border: 1px solid var(--line); border-radius: 6px; padding: 6px; }
.headline { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1rem 0; }
.headline div { background: var(--card); border-radius: 8px; padding: .7rem 1rem; flex: 1 1 10rem; }
.headline b { display: block; font-size: 1.6rem; line-height: 1.2; } .headline small { color: var(--quiet); }
li.finding { margin: .45rem 0; list-style: none; } ul.findings { padding: 0; }
.badge { display: inline-block; min-width: 4.2rem; text-align: center; border: 1px solid currentColor; border-radius: 5px; font-size: .8rem;
  font-weight: 600; margin-right: .6rem; } .fine { color: var(--fine); } .look { color: var(--look); } .wrong { color: var(--wrong); }
details { margin: .6rem 0; } summary { cursor: pointer; }
"""
SIGNS = {"fine": "✓ fine", "look": "! look", "wrong": "✗ wrong"}


def escaped(text: object) -> str:
    """Text as HTML shows it."""
    return html.escape(str(text), quote=True)


def paragraph(text: object, quiet: bool = False) -> str:
    """A paragraph of plain text."""
    return f'<p class="quiet">{escaped(text)}</p>' if quiet else f"<p>{escaped(text)}</p>"


def table(head: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[int] = (), caption: str = "") -> str:
    """A table; columns in `right` hold numbers. A row of one cell is the name of the family below it."""
    top = "".join(f'<th scope="col"{_side(i, right)}>{escaped(name)}</th>' for i, name in enumerate(head))
    body = []
    for row in rows:
        if len(row) == 1:
            body.append(f'<tr><td class="family" colspan="{len(head)}">{escaped(row[0])}</td></tr>')
        else:
            body.append("<tr>" + "".join(f"<td{_side(i, right)}>{escaped(cell)}</td>" for i, cell in enumerate(row)) + "</tr>")
    large = ' class="large"' if len(head) > 5 else ""  # scrolls sideways on a narrow screen rather than folding its words
    below = f"<caption>{escaped(caption)}</caption>" if caption else ""
    return f'<div class="wide"><table{large}>{below}<thead><tr>{top}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


def picture(png: bytes, says: str, caption: str) -> str:
    """A figure held in the page itself; `says` is for those who cannot see it."""
    data = base64.b64encode(png).decode("ascii")
    return f'<figure><img src="data:image/png;base64,{data}" alt="{escaped(says)}"><figcaption>{escaped(caption)}</figcaption></figure>'


def headline(cards: Sequence[tuple[str, str, str]]) -> str:
    """(value, name, small print) in large letters."""
    return '<div class="headline">' + "".join(_card(*card) for card in cards) + "</div>"


def findings(rows: Sequence[tuple[str, str, str, str]]) -> str:
    """(level, check, what was found, mend): a sign and a word beside the color."""
    listed = "".join(
        f'<li class="finding"><span class="badge {level}">{SIGNS[level]}</span><b>{escaped(check)}.</b> {escaped(found)}'
        + (f" <i>{escaped(mend)}</i>" if mend else "")
        + "</li>"
        for level, check, found, mend in rows
    )
    return f'<ul class="findings">{listed}</ul>'


def folded(summary: str, inside: str) -> str:
    """Something long that opens on a click, without a script."""
    return f"<details><summary>{escaped(summary)}</summary>{inside}</details>"


def document(title: str, below: str, sections: Sequence[tuple[str, str]]) -> str:
    """The whole page: sections are (heading, HTML), those without content are left out."""
    kept = [(f"s{i}", heading, inside) for i, (heading, inside) in enumerate(sections) if inside]
    links = " ".join(f'<a href="#{name}">{escaped(heading)}</a>' for name, heading, _ in kept)
    body = "".join(f'<section id="{name}"><h2>{escaped(heading)}</h2>{inside}</section>' for name, heading, inside in kept)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escaped(title)}</title><style>{STYLE}</style></head><body><header><h1>{escaped(title)}</h1>{below}</header>"
        f"<nav>{links}</nav><main>{body}</main></body></html>\n"
    )


def _side(column: int, right: Sequence[int]) -> str:
    return ' class="right"' if column in right else ""


def _card(value: str, name: str, small: str) -> str:
    return f"<div><b>{escaped(value)}</b>{escaped(name)}<br><small>{escaped(small)}</small></div>"
