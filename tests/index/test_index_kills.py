"""kill -9 during writes: nothing acknowledged is lost, and the index is never broken."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak_results import counted

WRITER = Path(__file__).with_name("index_writer.py")


def killed(folder: Path, kills: int, seed: int) -> str:
    done = subprocess.run([sys.executable, str(WRITER), str(folder), str(kills), str(seed)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_few_kills(tmp_path) -> None:
    words = killed(tmp_path / "i", 25, 1).split()
    assert words[0] == "25" and int(words[2]) > 12 and int(words[8]) > 25  # or the kills hit nothing


@pytest.mark.soak
def test_many_kills(tmp_path) -> None:
    with counted("kills of a writer of an index at random moments") as found:
        for seed in range(2, 7):
            assert killed(tmp_path / str(seed), 100, seed).startswith("100 kills")
            found.count += 100
        found.outcome = "nothing acknowledged lost, of the change under way all or nothing"
