"""scikit-learn's own checks, all of them, on every estimator."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.estimators.estimator_checks import SETTINGS

ROOT = Path(__file__).resolve().parents[2]


@cache
def results() -> dict[str, Any]:
    """The results of a separate process, which sets what one of the checks needs."""
    env = {**os.environ, "SCIPY_ARRAY_API": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, str(ROOT / "tests/estimators/estimator_checks.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=600, check=False)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", SETTINGS)
def test_every_check_passes_and_none_is_skipped(name: str) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    found = results()[name]
    assert not found["failed"] and not found["skipped"]
    assert len(found["passed"]) > 35
