"""Ray nodes on loopback, started and stopped by a test; a node can be killed as a power cut would."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

STORE = 200 * 2**20  # bytes of shared memory a node may use
SOON = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3}  # a dead node is given up after seconds
PATIENCE = 180  # seconds for a node to join
ONE_CORE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": STORE, "include_log_monitor": False}

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")


class Loopback:
    """A head and one more node, with one core each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.cluster: Any = Cluster()
        self.other: Any = None

    def start(self) -> None:
        """The head and the other."""
        self.cluster.add_node(wait=False, include_dashboard=False, _system_config=SOON, **ONE_CORE)
        self.join()

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def join(self) -> None:
        """One more node; on a busy machine it takes its time."""
        self.other = self.cluster.add_node(wait=False, **ONE_CORE)
        self.cluster.wait_for_nodes(timeout=PATIENCE)

    def kill(self) -> None:
        """End the other node with SIGKILL, in the middle of whatever it does."""
        self.cluster.remove_node(self.other, allow_graceful=False)
        self.other = None


@contextmanager
def loopback() -> Iterator[Loopback]:
    """Two nodes, stopped at the end whatever happened, a start that failed included."""
    place = tempfile.mkdtemp(prefix="nk-")  # short: Ray's sockets live below it, and their paths may have 107 characters
    os.mkdir(os.path.join(place, "ray"))  # a cluster of tests writes its address there and does not make the folder
    nodes = Loopback()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RAY_TMPDIR", place)
            nodes.start()
            yield nodes
    finally:
        nodes.cluster.shutdown()
        shutil.rmtree(place, ignore_errors=True)
