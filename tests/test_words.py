"""The project speaks plain American English and the field's own words."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

BRITISH = (
    r"neighbour|centre(?!\w*\.org)|centring|colour|behaviour|favour|honour|flavour|normalis|optimis(?!t)|quantis|standardis|regularis|initialis|summaris"
    r"|recognis|organis|minimis|maximis|factoris|generalis|serialis|visualis|synchronis|specialis|parallelis|labelled|labelling|modelled|modelling"
    r"|catalogue|learnt|\bgrey|analyse|licence|artefact|judgement|whilst|per cent\b|centerd|towards"
)
PRIVATE = r"\b(kin|strangers?|mend(?:ed|s|ing)?|whoever|priced|unpriced|rivals?)\b"
TRACES = r"gpu time|this visit|next visit|set up after a look|/tmp/|pypi\.org|registry\.npmjs|files\.pythonhosted"
KEPT = (  # proper names
    "Neighbourhood Components Analysis",
    "Neighbourhood Discovery",
    "Neighbourhood Component",
    "Smoothing the Path Towards",
    "near<span>kin</span>",
)


def texts(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def found(pattern: str, paths: list[Path]) -> list[str]:
    """Where a pattern of lowercase letters occurs; to ignore case while searching takes five times as long as to lower the text."""
    looked, hits = re.compile(pattern), []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        for name in KEPT:
            text = text.replace(name, "")
        text = text.lower()
        hits += [f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, hit.start()) + 1}: {hit.group(0)}" for hit in looked.finditer(text)]
    return hits


def prose() -> list[Path]:
    """What people read: the code, its tests and tools, the pages. Generated bundles and this list itself are left out."""
    left_out = ("tests/test_words.py", "tests/papers/test_saved_results.py", "serve/atlas/page/", "docs/results/", "web/package-lock.json")
    every = texts("*.py", "*.md", "*.ts", "*.css", "*.toml", "*.cff", "Makefile", "*.yml", "*.html", "*.jinja")
    return [path for path in every if not any(part in path.as_posix() for part in left_out)]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="reads the list of files from git")
@pytest.mark.parametrize(("what", "pattern"), [("British spelling", BRITISH), ("private words", PRIVATE), ("traces", TRACES)])
def test_words_that_left_stay_away(what: str, pattern: str) -> None:
    hits = found(pattern, prose())
    assert not hits, f"{len(hits)} of {what}: " + "; ".join(hits[:20])
