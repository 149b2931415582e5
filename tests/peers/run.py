"""Run the peers' own tests of NCA, MLKR, LMNN and losses against nearkin: `make peers`.

Nothing of the peers is kept here. scikit-learn's tests come with its installation; metric-learn's come from its source distribution,
which is downloaded. A copy with our estimators under their names is written to a temporary folder and run there. DIFFERENCES lists every
test that does not pass, with the error and the reason; a test that starts to pass, or fails otherwise, is an error. The distributions of
pytorch-metric-learning hold no tests: its repository is downloaded, or PML_SOURCE names a folder that holds it. Its tests of losses,
samplers and metrics run against tests/peers/pml_shims.py, in float32, then in float64 (in half precision our losses are float32, theirs
half). They run against pytorch-metric-learning itself first: what fails there as well says nothing of ours and is left out. NOT_RUN names
the files that test what has no counterpart here; all others run.

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

WORDS = "decision: errors name the argument, the value, what is allowed and the fix, in words of our own"
FEWER = "decision: init='lda' with fewer directions than n_components is an error; scikit-learn silently returns a map with fewer rows"
LINES = "decision: the first line of the progress names the columns, and no times are printed"
PRIVATE = "reads a private method of scikit-learn's class; tests/estimators/test_linear_losses.py has the same check of ours"
ONE_BETA = "decision: one threshold beta for all classes; theirs can learn one for each"
IN_BATCH = "decision: Angular weighs triplets of the batch and takes no references"
UP_TO_FOUR = "decision: m is 1, 2, 3 or 4, as published; theirs takes any"
Expected = dict[str, tuple[str, str]]  # the name of a test, with its file where several have it: its errors and the reason
FAILS = "AssertionError"
DIFFERENCES: dict[str, Expected] = {
    "sklearn": {
        "test_toy_example_collapse_points": ("AttributeError", PRIVATE),
        "test_finite_differences": ("AttributeError", PRIVATE),
        "test_params_validation": (FAILS, WORDS),
        "test_n_components": (FAILS, WORDS),
        "test_init_transformation": (FAILS, WORDS),
        "test_warm_start_validation": (FAILS, WORDS),
        "test_convergence_warning": ("BaseException", WORDS),
        "test_verbose": (FAILS, LINES),
        **{
            f"test_auto_init[{case}]": ("ValueError", FEWER)
            for case in ("3-5-3-7", "3-5-5-7", "3-5-7-7", "3-5-11-7", "5-7-5-11", "5-7-7-11", "5-7-11-11")
        },
    },
    "metric-learn": {"test_lmnn": ("TypeError", "decision: L-BFGS has no learning rate, so LMNN has no `learn_rate`")},
    "pml": {
        "test_angular_loss_with_ref": ("NotImplementedError", IN_BATCH),
        "test_histogram_loss::test_assertion_raises": (
            "NotImplementedError",
            "decision: bins only; their width `delta` says the same twice",
        ),
        "test_large_margin_softmax_loss::test_backward": ("ValueError", UP_TO_FOUR),
        "test_large_margin_softmax_and_sphereface_loss": ("ValueError", UP_TO_FOUR),
        "test_margin_loss": ("NotImplementedError", ONE_BETA),
        "test_margin_loss_with_ref": ("NotImplementedError", ONE_BETA),
        "test_beta_datatype": ("NotImplementedError", ONE_BETA),
        "test_npairs_loss": (FAILS, "decision: every further point of a class is one more query; theirs takes two points of each class"),
        "test_proxy_nca_loss": ("NotImplementedError", "decision: an affinity is larger when nearer; their `get_logits` returns distances"),
        "test_ranked_list_loss::test_assertion_raises": ("ValueError", WORDS),
        "test_signal_to_noise_ratio_losses::test_with_no_valid_pairs": (
            FAILS,
            "decision: a penalty belongs to the queries that count; a batch without any has loss 0",
        ),
        "test_smooth_ap_loss": (f"{FAILS} RuntimeError", "decision: the query is no candidate of its own; theirs ranks it, as a positive"),
        "test_inference_subcenter_arcface": ("NotImplementedError", "decision: label errors are found by neighbors: `nearkin clean`"),
        "test_mperclass_sampler_with_batch_size": ("ValueError", "decision: a batch of one class is refused"),
        "test_accuracy_calculator_and_faiss_with_torch_and_numpy": (
            "NotImplementedError",
            "decision: a positive has the same class; what two labels have in common is a relation of training, not of metrics",
        ),
    },
}
SKIPPED_LOSS = "a loss without an equal counterpart; the table of losses in docs/migration.md says why"
PAIRS = "hands pairs of a miner to losses; mining is part of an objective here"
NOT_RUN = {
    "losses/test_cross_batch_memory": "reads the queue and its pairs; the value is compared by tests/peers/test_migration.py",
    "losses/test_dynamic_soft_margin_loss": SKIPPED_LOSS,
    "losses/test_instance_loss": SKIPPED_LOSS,
    "losses/test_intra_pair_variance_loss": SKIPPED_LOSS,
    "losses/test_losses_without_labels": PAIRS,
    "losses/test_manifold_loss": SKIPPED_LOSS,
    "losses/test_multiple_losses": PAIRS + "; the sum is compared by tests/peers/test_migration.py",
    "losses/test_p2s_grad_loss": SKIPPED_LOSS,
    "losses/test_pnp_loss": SKIPPED_LOSS,
    "losses/test_self_supervised_loss": "wraps their losses; the value is compared by tests/peers/test_migration.py",
    "losses/test_tcm_loss": SKIPPED_LOSS,
    "samplers/test_fixed_set_of_triplets": "labels of their own for every triplet do the same",
    "samplers/test_tuples_to_weights_sampler": "downloads a data set, and draws by weights of single points",
    "utils/test_calculate_accuracies_large_k": "takes many minutes; the metrics are compared by tests/peers/test_migration.py",
}
PML_FOLDERS = ("losses", "samplers")
PML_METRICS = "tests/utils/test_calculate_accuracies.py"

CONFTEST = """
import builtins

import pytest

DIFFERENCES = GIVEN


def pytest_collection_modifyitems(items):
    for item in items:
        plain = item.name.partition("[")[0]
        found = next((DIFFERENCES[name] for name in (item.name, f"{item.path.stem}::{plain}", plain) if name in DIFFERENCES), None)
        if found:
            errors = tuple(getattr(builtins, name) for name in found[0].split())
            item.add_marker(pytest.mark.xfail(reason=found[1], raises=errors, strict=True))


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
        conftest.write(
            "\nimport os\n\nif 'THEIRS' in os.environ:\n    DIFFERENCES = {}\nelse:\n    import pml_shims\n\n    pml_shims.install()\n"
        )
    return folder


def pml_files(folder: Path) -> list[str]:
    """The files of pytorch-metric-learning that have counterparts here."""
    there = sorted(
        path.relative_to(folder / "tests").with_suffix("").as_posix()
        for room in PML_FOLDERS
        for path in (folder / "tests" / room).glob("test_*.py")
    )
    return [*(f"tests/{name}.py" for name in there if name not in NOT_RUN), PML_METRICS]


TESTS = {"sklearn": sklearn_tests, "metric-learn": metric_learn_tests, "pml": pml_tests}
SELECTED = {"metric-learn": ["-k", "nca or mlkr or lmnn"], "sklearn": []}
ALONE = {"TEST_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # no GPU, no plugins of ours


def tried(folder: Path, arguments: list[str], **settings: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder and print what it says."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    run = subprocess.run(command, cwd=folder, check=False, env={**os.environ, **ALONE, **settings}, stdout=subprocess.PIPE, text=True)
    print(run.stdout)
    return run


def of_pml(folder: Path, more: tuple[str, ...]) -> int:
    """Run the tests of pytorch-metric-learning that pass with pytorch-metric-learning itself, in both precisions."""
    files, status = pml_files(folder), 0
    for dtype in ("float32", "float64"):
        theirs = tried(folder, [*files, "-rf", "--tb=no", *more], TEST_DTYPES=dtype, THEIRS="1")
        failing = [line.split()[1] for line in theirs.stdout.splitlines() if line.startswith("FAILED ")]
        print(f"{len(failing)} of these fail with pytorch-metric-learning itself and are left out")
        left_out = [argument for name in failing for argument in ("--deselect", name)]
        status = tried(folder, [*files, *left_out, "-rx", *more], TEST_DTYPES=dtype).returncode or status
    return status


def main(names: list[str], more: tuple[str, ...] = ()) -> int:
    """Run the tests of the named peers, all by default, with more arguments of pytest; the exit status of the last that failed."""
    status = 0
    with tempfile.TemporaryDirectory() as place:
        for name in names or list(TESTS):
            folder = TESTS[name](Path(place))
            status = (of_pml(folder, more) if name == "pml" else tried(folder, [*SELECTED[name], *more, str(folder)]).returncode) or status
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
