"""One hypothesis profile for the whole suite: the same examples on every machine, and no stopwatch on a shared core.

What one test does to the process must not make the others slow: see the hooks and fixtures below.
"""

import gc
import os
import sys
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: as `make test`, and what the contests set

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "nearkin", derandomize=True, database=None, deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("nearkin")


gc.disable()  # nothing that is imported and collected is garbage, and looking for it takes a quarter of the time


def pytest_collection_finish() -> None:
    """From now on garbage is collected, but not among modules and tests, which stay."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """At the end all is garbage again: what stays frozen is reported as leaked by some extension modules."""
    gc.unfreeze()
    gc.enable()


def _one_thread() -> None:
    """A forked process has none of the threads of OpenMP that its parent started, and would wait for them for ever."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


os.register_at_fork(after_in_child=_one_thread)


@pytest.fixture(autouse=True)
def _threads_stay() -> Iterator[None]:
    """Nothing leaves torch with another number of threads than it found."""
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch is not None else 0
    yield
    if torch is not None and torch.get_num_threads() != before:
        left = torch.get_num_threads()
        torch.set_num_threads(before)
        pytest.fail(f"torch had {before} threads before the test, and has {left} after it")


@pytest.fixture(autouse=True)
def _one_dnn_stays_on() -> Iterator[None]:
    """Turn oneDNN on again after a test in bfloat16.

    Where the CPU has no product in bfloat16, torch turns oneDNN off for the rest of the process at the first one that fails, and
    convolutions are three to eight times slower from then on.
    """
    yield
    torch = sys.modules.get("torch")
    if torch is not None and not torch.backends.mkldnn.enabled and torch.backends.mkldnn.is_available():
        torch.backends.mkldnn.enabled = True


@pytest.fixture(autouse=True, scope="session")
def _settings_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What nearkin remembers for its user must not be what it remembers for the person who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield
