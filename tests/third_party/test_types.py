"""Parts of another package pass type checkers under any names of their parameters, and modules are found after `import nearkin`."""

import inspect
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from nearkin.compose import Affinity, Criterion, Relation

ROOT = Path(__file__).resolve().parent.parent.parent
TYPED = "tests/third_party/typed_parts.py"


@pytest.mark.parametrize("protocol", [Affinity, Relation, Criterion])
def test_protocols_leave_the_names_of_parameters_open(protocol: type) -> None:
    own = list(inspect.signature(protocol.__call__).parameters.values())
    assert len(own) == 3 and all(parameter.kind is parameter.POSITIONAL_ONLY for parameter in own)


def test_mypy_reads_parts_with_other_names_and_points_of_arrays() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    assert TYPED in settings["files"] and settings["strict"], "`make lint` checks the file"
    from tests.third_party import typed_parts as theirs

    labels = torch.tensor([0, 2, 1, 3])
    assert theirs.objective(torch.eye(4), labels) == 0 and theirs.by_parity(torch.eye(4), labels) == 2
    assert isinstance(theirs.embeddings, np.ndarray), "arrays stay arrays until a function of tensors takes them"


@pytest.mark.soak
def test_pyright_accepts_the_same_file() -> None:
    command = shutil.which("pyright")
    if command is None:
        pytest.skip("needs pyright: npm install --global pyright")
    done = subprocess.run([command, "--pythonpath", sys.executable, TYPED], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout


def test_modules_are_found_after_importing_the_package_alone() -> None:
    code = (
        "import sys, nearkin; assert 'torch' not in sys.modules;"
        "nearkin.affinity.cosine; nearkin.compose.SameLabel; nearkin.data.PerClass; nearkin.search.nearest"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
