"""Run the peers' own tests of NCA, MLKR, LMNN and losses against nearkin: `make peers`.

Nothing of the peers is kept here. scikit-learn's tests come with its installation; metric-learn's come from its source distribution,
which is downloaded. A copy with our estimators under their names is written to a temporary folder and run there. DIFFERENCES lists every
test that does not pass, with the reason; a test that starts to pass, or a new failure, is an error. The distributions of
pytorch-metric-learning hold no tests: its repository is downloaded, or PML_SOURCE names a folder that holds it. Tests of four losses run
against tests/peers/pml_shims.py, in float32 and float64 (in half precision our losses are float32, theirs half); all other losses that both
have are compared by tests/peers/test_migration.py.

python -m tests.peers.run [sklearn] [metric-learn] [pml]
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path

METRIC_LEARN = "metric-learn==0.7.0"
PML = "https://github.com/KevinMusgrave/pytorch-metric-learning/archive/refs/tags/v2.9.0.tar.gz"
PML_TESTS = ("arcface", "circle", "multi_similarity", "supcon")

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
    "pml": {
        "test_arcface_loss": "decision: beyond an angle of pi - margin a larger angle does not cost less; theirs is cos(theta + margin)"
    },
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


def pml_tests(place: Path) -> Path:
    """pytorch-metric-learning's tests of losses, with the shims under their names."""
    folder = folder_for("pml", place)
    source = os.environ.get("PML_SOURCE")
    if source is None:
        try:
            archive, _ = urllib.request.urlretrieve(PML, place / "pml.tar.gz")
        except OSError as error:
            raise SystemExit(f"{PML} cannot be fetched ({error}); set PML_SOURCE to a folder that holds the repository") from error
        with tarfile.open(archive) as content:
            content.extractall(place / "pml-source", filter="data")
        (source,) = (place / "pml-source").iterdir()
    shutil.copytree(Path(source) / "tests", folder / "tests")
    shutil.copy(Path(__file__).with_name("pml_shims.py"), folder)
    with (folder / "conftest.py").open("a") as conftest:
        conftest.write("\nimport pml_shims\n\npml_shims.install()\n")
    return folder


TESTS = {"sklearn": sklearn_tests, "metric-learn": metric_learn_tests, "pml": pml_tests}
SELECTED = {
    "metric-learn": ["-k", "nca or mlkr or lmnn"],
    "sklearn": [],
    "pml": [f"tests/losses/test_{name}_loss.py" for name in PML_TESTS],
}


def main(names: list[str], more: tuple[str, ...] = ()) -> int:
    """Run the tests of the named peers, all by default, with more arguments of pytest; the exit status of the last that failed."""
    status = 0
    with tempfile.TemporaryDirectory() as place:
        for name in names or list(TESTS):
            folder = TESTS[name](Path(place))
            where = [] if name == "pml" else [str(folder)]
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SELECTED[name], *more, *where]
            kinds = {"TEST_DTYPES": "float32,float64", "TEST_DEVICE": "cpu", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
            run = subprocess.run(command, cwd=folder, check=False, env={**os.environ, **kinds})
            status = run.returncode or status
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
