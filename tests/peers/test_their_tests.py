"""scikit-learn's own tests of NCA pass with LinearNCA in its place, but for the decisions that tests/peers/run.py lists."""

import pytest

from tests.peers import run


def test_scikit_learns_tests_of_nca() -> None:
    pytest.importorskip("sklearn.neighbors.tests.test_nca")
    assert run.main(["sklearn"], ("-k", "not auto_init")) == 0, "see the output; `make peers` runs all of them"
