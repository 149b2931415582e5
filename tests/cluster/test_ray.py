"""Two Ray nodes on loopback, one killed in the middle of an embedding: every row is there, once, and searched as one machine would."""

import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from nearkin import cli
from nearkin import data as sources
from nearkin.cluster.embedding import Embedded, embed
from nearkin.cluster.evaluate import Compute, Queries, judge
from nearkin.cluster.search import discover_over, nearest_over
from nearkin.cluster.session import check_address, session, workers
from nearkin.compose.affinity import cosine
from nearkin.compose.points import Points
from nearkin.data.corrections import source_names
from nearkin.data.dataset import Dataset
from nearkin.data.shards import ShardDamagedError, open_shards
from nearkin.report.html import figures
from nearkin.search import nearest
from nearkin.train.discovery import discover
from tests.cluster.loopback import Loopback, loopback
from tests.cluster.model_folder import model_folder

pytest.importorskip("pyarrow")
pytest.importorskip("ray")


def points(n: int, d: int = 64) -> Dataset:
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(3))
    return Dataset("points", x, labels=torch.arange(n) % 3, classes=("a", "b", "c"))


class Killer:
    """Listens to the progress and kills the other node when some of the points are done; `left` says how many shards were not."""

    def __init__(self, nodes: Loopback, out: Path, after: int, shards: int) -> None:
        self.nodes, self.out, self.after, self.shards = nodes, out, after, shards
        self.left = 0

    def __call__(self, line: str) -> None:
        if getattr(line, "done", -1) >= self.after and not self.left and self.nodes.other is not None:
            self.nodes.kill()
            self.left = self.shards - len(list(self.out.glob("shard-*")))


def same_shards(a: Path, b: Path) -> None:
    """Both folders hold the same points in the same places; vectors may differ by the rounding of other thread counts."""
    ours, theirs = open_shards(a, verify=True), open_shards(b, verify=True)
    assert ours.about == theirs.about and ours.starts() == theirs.starts()
    for one, other in zip(ours, theirs, strict=True):
        assert np.array_equal(one.ids, other.ids) and np.allclose(one.vectors, other.vectors, atol=1e-5)
        assert one.labels is not None and other.labels is not None and one.labels.tolist() == other.labels.tolist()


def each_once(folder: Path, n: int) -> None:
    assert np.array_equal(np.sort(np.concatenate([shard.ids for shard in open_shards(folder)])), np.arange(n))


@pytest.mark.filterwarnings("ignore")  # Ray's own
@pytest.mark.soak
def test_a_node_killed_in_the_middle_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearkin.data.progress.PAUSE", 0.0)
    n, out = 10_000, tmp_path / "ray"
    model = model_folder(tmp_path / "model", (64,), 16, hidden=(2048, 2048))  # slow enough to be in the middle of
    with loopback() as nodes, session(nodes.address):  # one session: every new one starts new workers
        killer = Killer(nodes, out, 2_000, 40)
        assert embed(model, points(n), out, engine="ray", rows=250, report=killer) == Embedded(n, 40, 0, 0)
        assert killer.left > 0  # when the node died
        each_once(out, n)
        found = open_shards(out, verify=True)
        # The node that is left answers, shard by shard, what one process says of everything at once.
        whole = torch.from_numpy(np.concatenate([shard.vectors for shard in found]))
        for affinity in (None, cosine()):
            ours = nearest(whole[:50], whole, 30, affinity)
            theirs = nearest_over(whole[:50], found, 30, affinity, engine="ray")
            assert torch.equal(ours.positions, theirs.positions) and torch.equal(ours.affinity, theirs.affinity)
        few = found.of(range(4))
        alone, together = discover(few, 2), discover_over(few, 2, engine="ray")
        assert torch.equal(alone.table, together.table) and torch.equal(alone.entropy, together.entropy)
        labels = torch.arange(50) % 3
        asked = Queries(Points(whole[:50], labels), source_names(points(50)), "classes", ("a", "b", "c"))
        here, there = (judge(asked, found, cosine(), Compute(how)) for how in ("local", "ray"))
        assert here.found is not None and there.found is not None and torch.equal(here.found.positions, there.found.positions)
        assert bool(here.found.positions[:, 0].ne(torch.arange(50)).all())
        assert figures(here, asked.classes) == figures(there, asked.classes) and "map@r" in there.scores["retrieval"]
        _damaged_pictures(tmp_path)
        (out / "shard-00007.parquet").write_bytes(b"half")
        with pytest.raises(ShardDamagedError, match="shard-00007.parquet cannot be read"):
            nearest_over(whole[:5], found, 3, engine="ray")
    assert embed(model, points(n), out, rows=250) == Embedded(n, 1, 39, 0)  # either engine replaces what the other wrote
    embed(model, points(n), tmp_path / "local", rows=250)
    same_shards(out, tmp_path / "local")


def _damaged_pictures(folder: Path) -> None:
    """Files that cannot be decoded are named and counted by whichever node meets them."""
    (folder / "photos").mkdir()
    for i in range(12):
        Image.fromarray(np.full((8, 8), 20 * i, np.uint8)).save(folder / "photos" / f"{i:02d}.png")
    (folder / "photos" / "05.png").write_bytes(b"no picture")
    data, lines = sources.open(folder / "photos", on_error="skip", size=8, channels=1), list[str]()
    model = model_folder(folder / "pictures", (1, 8, 8))
    assert embed(model, data, folder / "s", engine="ray", rows=4, report=lines.append) == Embedded(11, 3, 0, 1)
    assert any("05.png cannot be decoded" in line for line in lines) and any("1 of 12 points were skipped" in line for line in lines)


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")
def test_twenty_nodes_are_killed_during_an_embedding_of_200_000_rows_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node joins, is killed at another moment of the work, and the next one joins: every row is there once, each time."""
    monkeypatch.setattr("nearkin.data.progress.PAUSE", 0.0)
    n, model = 200_000, model_folder(tmp_path / "model", (64,), 16, hidden=(1024,))
    data = points(n)
    with loopback() as nodes, session(nodes.address):
        for kill in range(20):
            out = tmp_path / f"ray-{kill}"
            killer = Killer(nodes, out, n * (kill + 1) // 25, 100)
            assert embed(model, data, out, engine="ray", rows=2_000, report=killer).points == n
            assert killer.left > 0
            each_once(out, n)
            nodes.join()


def test_an_address_without_a_server_is_an_error_within_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, so that nobody else listens there, and not listening
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        began = time.monotonic()
        model = model_folder(tmp_path / "model", (1, 8, 8))
        command = ["embed", str(model), "digits", "--out", str(tmp_path / "s"), "--engine", "ray", "--address", address]
        assert cli.main(command) == 1
    assert time.monotonic() - began < 20 and not (tmp_path / "s").exists()
    message = capsys.readouterr().err
    assert f"--address {address}: no server responds there" in message and "start one with `ray start --head`" in message


def test_somebody_else_who_listens_is_no_cluster() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            line, _ = server.accept()
            with line:
                line.recv(1000)
                line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        speaker = threading.Thread(target=answer)
        speaker.start()
        with pytest.raises(ConnectionError, match="a server listens there, but it is not a Ray cluster"):
            check_address(f"127.0.0.1:{server.getsockname()[1]}")
        speaker.join()


def test_one_worker_for_each_gpu_or_core() -> None:
    class Cluster:
        def cluster_resources(self) -> dict[str, float]:
            return {"GPU": 3.0, "CPU": 48.0}

    assert workers(Cluster()) == (3, {"num_gpus": 1, "num_cpus": 0})
    assert workers(Cluster(), "cpu") == (48, {"num_cpus": 1})


@pytest.mark.parametrize("address", ["somewhere", "host:port", "host:0", "host:99999"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(ValueError, match="must be host:port, such as 10.0.0.1:6379, or auto"):
        check_address(address)
