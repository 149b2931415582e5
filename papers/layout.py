"""Running text of the generated pages."""

import textwrap
from collections.abc import Sequence

WIDTH = 140  # of a line of running text


def paragraphs(texts: Sequence[str]) -> list[str]:
    """Wrapped texts, each followed by an empty line; items of a list and lines of a table follow each other without one."""
    lines = list[str]()
    for text in texts:
        item, row = text.startswith("- "), text.startswith("|")
        if len(lines) > 1 and lines[-2].startswith(("- ", "  ") if item else "|" if row else "\n"):
            lines.pop()
        wrapped = textwrap.wrap(" ".join(text.split()), WIDTH, subsequent_indent="  " if item else "", break_on_hyphens=False)
        lines += [*([text] if row else wrapped), ""]
    return lines


def heading(table: str) -> str:
    """The name of a table without its citation key, as a heading."""
    name = table.partition("] ")[2] or table
    return name[0].upper() + name[1:]
