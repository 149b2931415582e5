"""The tables of docs/how-to/clean-and-pick.md from what the benchmarks wrote: `python docs/clean_page.py`."""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE / "how-to" / "clean-and-pick.md"
sys.path.insert(0, str(HERE))

from bench_tables import table  # noqa: E402


def page() -> str:
    """The page with its tables filled in."""
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in (("label errors", label_errors()), ("pick", picks())):
        mark, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(mark)
        after = rest.partition(end)[2] if end in rest else rest
        text = "\n".join([before + mark, "", *lines, end]) + after
    return text


def label_errors() -> list[str]:
    rows = _read("bench-label-errors.json")["rows"]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = []
    for name, kind, share in dict.fromkeys((row["set"], row["noise"], row["share"]) for row in rows):
        own = {row["method"]: row for row in rows if (row["set"], row["noise"], row["share"]) == (name, kind, share)}
        figures = [f"{own[method]['average_precision']:.3f}" if method in own else "" for method in methods]
        listed = own["nearkin"]
        lines.append((name, kind, f"{share:.0%}", *figures, f"{listed['precision']:.0%} / {listed['recall']:.0%}"))
    return table(("set", "errors", "share", *methods, "list: precision / recall"), lines)


def picks() -> list[str]:
    found = _read("bench-pick.json")["summary"]
    labels = found[0]["labels"]
    lines = [
        (
            one["set"],
            one["method"],
            *(f"{value:.3f}" for value in one["accuracy"]),
            "more" if one["share"] is None else f"{one['share']:.0%}",
        )
        for one in found
    ]
    return table(("set", "method", *(f"{count} labels" for count in labels), "labels needed"), lines)


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / name).read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
