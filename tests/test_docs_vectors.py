"""The page on your own vectors does what it says, from the file to the served index, in the order of its blocks."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from nearkin.cli import main

PAGE = Path(__file__).resolve().parent.parent / "docs/how-to/vectors.md"
EXTRA = {
    "explore": ["--no-serve", "--no-evaluation"],
    "evaluate": ["--no-pictures"],
    "export": ["--map", "pca"],
}  # what the test does without
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


@pytest.mark.soak
def test_the_page_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    ran = []
    for kind, code in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "python":
            exec(compile(code, str(PAGE), "exec"), space)
            rows = np.asarray(space["inputs"])[:2]
            np.save("new.npy", rows)
            space["pd"].DataFrame({"id": ["more 0", "more 1"], "embedding": list(rows)}).to_parquet("more.parquet")  # type: ignore[attr-defined]
            continue
        for line in code.splitlines():
            _, verb, *rest = shlex.split(line)
            if verb == "serve":
                continue  # until stopped; tested with the service
            rest += EXTRA.get(verb, [])
            assert main([verb, *rest]) == 0, line
            ran.append(verb)
    assert set(ran) == {"explore", "evaluate", "search", "export", "clean", "predict", "index"}
