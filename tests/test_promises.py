"""The page of promises is what its script makes of the counts, and names tests that exist."""

import json
from pathlib import Path

from tests.test_docs import ROOT, script


def test_the_page_is_up_to_date() -> None:
    promises = script("promises")
    lines = json.loads((ROOT / "docs/soak.json").read_text(encoding="utf-8"))
    assert (ROOT / "docs/promises.md").read_text(encoding="utf-8") == promises.page(lines), "python docs/promises.py"
    assert all(set(one) == {"name", "count", "outcome", "seconds", "date"} for one in lines)


def test_every_promise_names_its_tests() -> None:
    missing = [path for _, paths in script("promises").PROMISES for path in paths.split(", ") if not (ROOT / path).exists()]
    assert not missing


def test_lines_of_a_run_replace_older_ones(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"name": "kills", "count": 1000, "outcome": "nothing | lost", "seconds": 90}\n')
    known = [
        {"name": "kills", "count": 5, "outcome": "", "seconds": 1, "date": "2020-01-01"},
        {"name": "flips", "count": 7, "outcome": "all noticed", "seconds": 1, "date": "2020-01-01"},
    ]
    promises = script("promises")
    found = promises.collected(tmp_path, known, "2026-01-02")
    assert [(one["name"], one["count"], one["date"]) for one in found] == [("flips", 7, "2020-01-01"), ("kills", 1000, "2026-01-02")]
    assert "| kills | 1,000 | nothing \\| lost | 1.5 min | 2026-01-02 |" in promises.page(found)
