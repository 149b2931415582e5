"""Run the peers' own tests of NCA, MLKR, LMNN and losses against nearkin: `make peers`.

Nothing of the peers is kept here. scikit-learn's tests come with its installation; metric-learn's come from its source distribution,
which is downloaded. A copy with our estimators under their names is written to a temporary folder and run there. DIFFERENCES lists every
test that does not pass, with the reason; a test that starts to pass, or a new failure, is an error. The distributions of
pytorch-metric-learning hold no tests: its losses, called on random batches, are the other side of tests/peers/test_migration.py.

python -m tests.peers.run [sklearn] [metric-learn]
"""

import importlib.util
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

METRIC_LEARN = "metric-learn==0.7.0"

WORDS = "decision: errors name the argument, the value, what is allowed and the fix, in words of our own"
FEWER = "decision: init='lda' with fewer directions than n_components is an error; scikit-learn silently returns a map with fewer rows"
LINES = "decision: the first line of the progress names the columns, and no times are printed"
PRIVATE = "reads a private method of scikit-learn's class; tests/estimators/test_linear_losses.py has the same check of ours"
DIFFERENCES = {
    "sklearn": {
        "test_toy_example_collapse_points": PRIVATE,
        "test_finite_differences": PRIVATE,
        "test_params_validation": WORDS,
        "test_n_components": WORDS,
        "test_init_transformation": WORDS,
        "test_warm_start_validation": WORDS,
        "test_convergence_warning": WORDS,
        "test_verbose": LINES,
        **{f"test_auto_init[{case}]": FEWER for case in ("3-5-3-7", "3-5-5-7", "3-5-7-7", "3-5-11-7", "5-7-5-11", "5-7-7-11", "5-7-11-11")},
    },
    "metric-learn": {"test_lmnn": "decision: L-BFGS has no learning rate, so LMNN has no `learn_rate`"},
}

CONFTEST = """
import pytest

DIFFERENCES = GIVEN


def pytest_collection_modifyitems(items):
    for item in items:
        reason = DIFFERENCES.get(item.name) or DIFFERENCES.get(item.name.partition("[")[0])
        if reason:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture
def global_random_seed():
    return 42
"""

MAPPED = """
from nearkin.estimators import LMNN, MLKR
from nearkin.estimators import LinearNCA as NCA
"""


def folder_for(name: str, place: Path) -> Path:
    """A folder with the conftest of a peer."""
    folder = place / name
    folder.mkdir(parents=True)
    (folder / "conftest.py").write_text(CONFTEST.replace("GIVEN", repr(DIFFERENCES[name])))
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = ignore\n")
    return folder


def sklearn_tests(place: Path) -> Path:
    """scikit-learn's test_nca.py, with LinearNCA as NeighborhoodComponentsAnalysis."""
    folder = folder_for("sklearn", place)
    spec = importlib.util.find_spec("sklearn.neighbors.tests.test_nca")
    assert spec is not None and spec.origin is not None, "scikit-learn was installed without its tests"
    text = Path(spec.origin).read_text()
    theirs = "from sklearn.neighbors import NeighborhoodComponentsAnalysis"
    ours = "from nearkin.estimators import LinearNCA as NeighborhoodComponentsAnalysis"
    assert theirs in text
    (folder / "test_nca.py").write_text(text.replace(theirs, ours))
    return folder


def metric_learn_tests(place: Path) -> Path:
    """metric-learn's tests of fit_transform for NCA, MLKR and LMNN, with ours under their names."""
    folder = folder_for("metric-learn", place)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "-d", str(place), METRIC_LEARN]
    subprocess.run(command, check=True)
    (archive,) = place.glob("metric*learn-*.tar.gz")
    with tarfile.open(archive) as content:
        content.extractall(place / "sdist", filter="data")
    (source,) = (place / "sdist").glob("*/test/test_fit_transform.py")
    text = source.read_text()
    start = text.index("from metric_learn import")
    end = text.index(")", start) + 1 if "(" in text[start : text.index("\n", start)] else text.index("\n", start)
    text = text[:start] + MAPPED + text[end:]
    (folder / "test_fit_transform.py").write_text(text)
    return folder


TESTS = {"sklearn": sklearn_tests, "metric-learn": metric_learn_tests}
SELECTED = {"metric-learn": ["-k", "nca or mlkr or lmnn"], "sklearn": []}


def main(names: list[str], more: tuple[str, ...] = ()) -> int:
    """Run the tests of the named peers, all by default, with more arguments of pytest; the exit status of the last that failed."""
    status = 0
    with tempfile.TemporaryDirectory() as place:
        for name in names or list(TESTS):
            folder = TESTS[name](Path(place))
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SELECTED[name], *more, str(folder)]
            run = subprocess.run(command, cwd=folder, check=False)
            status = run.returncode or status
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
