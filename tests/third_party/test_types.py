"""Parts of another package pass type checkers under any names of their parameters, and modules are found after `import nearkin`."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from nearkin.compose import Affinity, Criterion, Relation

ROOT = Path(__file__).resolve().parent.parent.parent
SNIPPET = """
import numpy as np
import torch
from torch import Tensor

from nearkin import NeighborhoodObjective, Points
from nearkin.compose import InBatch, Outcome, Related, SameLabel


def manhattan(a: Tensor, b: Tensor) -> Tensor:
    return -(a[:, None] - b).abs().sum(2)


def pull(near: Tensor, wanted: Related) -> Outcome:
    right = (wanted.cost == 0) & wanted.candidate
    return Outcome(-(near * right).sum(1), right.any(1).to(near.dtype), right.sum())


objective = NeighborhoodObjective(InBatch(), manhattan, SameLabel(), pull)
points = Points(np.zeros((3, 2)), np.arange(3), np.arange(3))
embeddings: Tensor = points.embeddings
"""


@pytest.mark.parametrize("protocol", [Affinity, Relation, Criterion])
def test_protocols_leave_the_names_of_parameters_open(protocol: type) -> None:
    own = list(inspect.signature(protocol.__call__).parameters.values())
    assert len(own) == 3 and all(parameter.kind is parameter.POSITIONAL_ONLY for parameter in own)


@pytest.mark.soak
def test_mypy_accepts_parts_with_other_names_and_points_of_arrays(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "theirs.py").write_text(SNIPPET)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(tmp_path / "theirs.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout


def test_modules_are_found_after_importing_the_package_alone() -> None:
    code = (
        "import sys, nearkin; assert 'torch' not in sys.modules;"
        "nearkin.affinity.cosine; nearkin.compose.SameLabel; nearkin.data.PerClass; nearkin.search.nearest"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
