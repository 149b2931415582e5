"""The three examples run from a fresh process, stay short, and what they print holds."""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@cache
def printed(number: int) -> list[list[float]]:
    """The numbers of every printed line."""
    paths = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    example = EXAMPLES[number - 1]
    done = subprocess.run([sys.executable, "-W", "error", example], capture_output=True, text=True, timeout=120, env=env, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return [[float(word) for word in re.findall(r"\d+\.\d+", line)] for line in done.stdout.splitlines()]


def test_there_are_three_numbered_and_short() -> None:
    assert [path.name[:3] for path in EXAMPLES] == ["01_", "02_", "03_"]
    assert all(len(path.read_text(encoding="utf-8").splitlines()) < 30 for path in EXAMPLES)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_each_says_what_it_shows_in_one_sentence(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith('"""')
    assert first.endswith('."""')


def test_eight_trained_numbers_come_near_to_all_pixels() -> None:
    (raw,), (before,), (after,) = printed(1)
    assert before < 85
    assert after > 95
    assert raw > after  # said in docs/log.md


def test_neighbors_by_outcome_predict_better() -> None:
    for before, after in printed(2):
        assert 40 < after < before - 0.5
        assert before < 50


def test_each_round_without_labels_helps_and_raw_pixels_stay_ahead() -> None:
    (raw,), (untrained,), (instances,), (discovery,) = printed(3)
    assert untrained + 2 < instances < discovery < raw
