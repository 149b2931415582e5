"""The tables of docs/how-to/clean-and-pick.md and vectors.md from what the benchmarks wrote: `python docs/clean_page.py`."""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CLEAN, VECTORS = HERE / "how-to" / "clean-and-pick.md", HERE / "how-to" / "vectors.md"
sys.path.insert(0, str(HERE))

from bench_tables import table  # noqa: E402


def page() -> str:
    """The page of cleaning with its tables filled in."""
    return filled_in(CLEAN, {"label errors": label_errors(), "pick": picks()})


def vectors_page() -> str:
    """The page of vectors with its tables filled in."""
    return filled_in(VECTORS, {"rejection": rejections(), "seconds": seconds()})


def filled_in(path: Path, tables: dict[str, list[str]]) -> str:
    """A page whose tables, between their marks, are these."""
    text = path.read_text(encoding="utf-8")
    for name, lines in tables.items():
        mark, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(mark)
        after = rest.partition(end)[2] if end in rest else rest
        text = "\n".join([before + mark, "", *lines, end]) + after
    return text


def rejections() -> list[str]:
    lines = []
    for row in _read("bench-rejection.json")["rows"]:
        rules = [f"{rule['auroc']:.3f}, {rule['fpr at 95 %']:.0%}" for rule in row["rules"].values()]
        known = f"{row['points']:,} points of {row['classes']} classes"
        lines.append((row["set"], known, str(row["neighbors"]), f"{row['falsely rejected']:.1%} ± {row['spread']:.1%}", *rules))
    names = list(_read("bench-rejection.json")["rows"][0]["rules"])
    return table(("set", "of which half unseen", "neighbors", "falsely rejected", *names), lines)


def seconds() -> list[str]:
    lines = []
    for row in _read("bench-vectors.json")["rows"]:
        steps = [f"{value:.0f} s" for value in row["processor seconds by step"].values()]
        size = f"{row['points']:,} x {row['dimensions']}"
        all_of_it = f"{row['processor seconds']:.0f} s", f"{row['page ready']:.0f} s"
        lines.append((size, *steps, *all_of_it, f"{row['peak gigabytes']:.1f} GB"))
    names = list(_read("bench-vectors.json")["rows"][0]["processor seconds by step"])
    return table(("vectors", *names, "in all", "wall time, two processors", "memory"), lines)


def label_errors() -> list[str]:
    rows = _read("bench-label-errors.json")["rows"]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = []
    for name, kind, share in dict.fromkeys((row["set"], row["noise"], row["share"]) for row in rows):
        draws = [row for row in rows if (row["set"], row["noise"], row["share"]) == (name, kind, share)]
        figures = [_mean(draws, method, "average_precision", ".3f") for method in methods]
        count = len({row["seed"] for row in draws if row["method"] == "nearkin"})
        listed = " / ".join(_mean(draws, "nearkin", figure, ".0%") for figure in ("precision", "recall"))
        lines.append((name, kind, f"{share:.0%}", str(count), *figures, listed))
    return table(("set", "errors", "share", "draws", *methods, "list: precision / recall"), lines)


def _mean(rows: list[dict[str, Any]], method: str, figure: str, form: str) -> str:
    """The mean over the draws of the errors; empty where a method was not run."""
    values = [row[figure] for row in rows if row["method"] == method]
    return format(sum(values) / len(values), form) if values else ""


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
    CLEAN.write_text(page(), encoding="utf-8")
    VECTORS.write_text(vectors_page(), encoding="utf-8")
