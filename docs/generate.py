"""Write docs/objectives.md, docs/papers/*.md and the generated parts of README.md; `--check` only says whether they are up to date.

python docs/generate.py [--check]
"""

import argparse
import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

from papers.page import pages
from papers.pictures import draw
from papers.readme_rows import readme_rows

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs"))
from objectives_page import first_sentence, overview, page  # noqa: E402

PAGE, PAPERS, README, SOURCE = ROOT / "docs/objectives.md", ROOT / "docs/papers", ROOT / "README.md", ROOT / "src/nearkin"
DEMO, PICTURE = ROOT / "docs/demo.json", ROOT / "docs/demo.png"  # copies of what `make demo` leaves in runs/demo

FIRST = ("points", "references", "affinity", "relation", "criterion", "objectives", "kernels", "search", "evaluate")  # read in this order


def modules() -> dict[str, tuple[str, str]]:
    """Every module of the package that says what it is: its name, and its first sentence."""
    found = {}
    for path in sorted(SOURCE.iterdir()):
        module = path / "__init__.py" if path.is_dir() else path
        if module.suffix == ".py" and module.exists() and not path.name.startswith("__"):
            about = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))
            if about:
                found[path.stem] = (path.stem + ("/" if path.is_dir() else ".py"), first_sentence(about))
    order = sorted(found, key=lambda stem: (FIRST.index(stem) if stem in FIRST else len(FIRST), stem))
    return {stem: found[stem] for stem in order}


def layout() -> str:
    """What is where."""
    return "```text\nsrc/nearkin/\n" + "\n".join(f"  {name:<16}{about}" for name, about in modules().values()) + "\n```"


def demo() -> str | None:
    """The demo's table from docs/demo.json, a copy of runs/demo/metrics.json; None as long as there is none."""
    if not DEMO.exists():
        return None
    run = json.loads(DEMO.read_text(encoding="utf-8"))
    lines = ["| embedding | dimensions | 1-NN | 10-NN | seconds |", "|---|---:|---:|---:|---:|"]
    for row in run["rows"]:
        seconds = sum(row["seconds"]) / len(row["seconds"])
        lines.append(f"| {row['method']} | {row['dimension']} | {percent(row['1-nn'])} | {percent(row['10-nn'])} | {seconds:.1f} |")
    versions = ", ".join(f"{name} {number}" for name, number in run["versions"].items())
    count = len(run["seeds"])
    spread = f"± is the standard deviation over {count} seeds, a row without it has nothing random" if count > 1 else "one seed"
    stopped = f"Linear NCA is scikit-learn's, stopped after {run['settings']['iterations']} iterations."
    lines += ["", f"Digits moved about on a larger canvas; test accuracy in percent; {spread}. {stopped}"]
    lines += [f"The whole run took {run['seconds']:.0f} s on {run['device']}; {versions}."]
    if PICTURE.exists():
        lines += ["", f"![The test digits in two dimensions]({PICTURE.parent.name}/{PICTURE.name})"]
    return "\n".join(lines)


def percent(figure: dict[str, Any]) -> str:
    """Mean and, where there is one, standard deviation."""
    spread = "" if figure["sd"] is None else f" ± {100 * figure['sd']:.1f}"
    return f"{100 * figure['mean']:.1f}{spread}"


def readme() -> str:
    """README.md with its generated parts renewed."""
    text = README.read_text(encoding="utf-8")
    parts = {
        "objectives": overview("docs/objectives.md"),
        "layout": layout(),
        "demo": demo(),
        "results": readme_rows(ROOT / "docs/results"),
    }
    for name, part in parts.items():
        if part is not None:
            text = between(text, name, part)
    return text


def between(text: str, name: str, part: str) -> str:
    """The text with the part between `<!-- name -->` and `<!-- /name -->` replaced."""
    pattern = re.compile(rf"(<!-- {name}\b[^>]*-->\n).*?(<!-- /{name} -->)", flags=re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"README.md has no markers <!-- {name} --> and <!-- /{name} -->; put them back")
    return pattern.sub(lambda found: found[1] + part + "\n" + found[2], text)


def main() -> int:
    """Write the pages, or with --check say which are out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is out of date")
    check = parser.parse_args().check
    if not check:
        draw(ROOT / "docs/results")
    stale = []
    papers = {PAPERS / name: text for name, text in pages(ROOT / "docs/results").items()}
    for path, text in {PAGE: page(), **papers, README: readme()}.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    for path in stale:
        print(f"{path} is out of date; run `make docs`" if check else f"wrote {path}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
