"""kill -9 during writes: nothing acknowledged is lost, and the index is never broken."""

import subprocess
import sys
from pathlib import Path

import pytest

WRITER = Path(__file__).with_name("index_writer.py")


def killed(folder: Path, kills: int, seed: int) -> str:
    done = subprocess.run([sys.executable, str(WRITER), str(folder), str(kills), str(seed)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_few_kills(tmp_path) -> None:
    words = killed(tmp_path / "i", 25, 1).split()
    assert words[0] == "25" and int(words[2]) > 12 and int(words[8]) > 25  # or the kills hit nothing


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_kills(tmp_path, seed: int) -> None:
    assert killed(tmp_path / "i", 100, seed).startswith("100 kills")
