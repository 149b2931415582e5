"""Milvus beyond the contract: a server that is down, one that dies and comes back, wrong addresses, other models, ties."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

if find_spec("pymilvus") is None:
    pytest.skip("needs nearkin[milvus]", allow_module_level=True)

from nearkin.index import milvus_client
from nearkin.index.contract import Entries, Where
from nearkin.index.milvus import MilvusIndex
from nearkin.index.milvus_client import IndexUnreachableError, Milvus, expression

ABOUT = {"model": "m" * 20, "metric": "squared_euclidean", "dimension": 4}


def draw(n: int) -> np.ndarray:
    return np.random.default_rng(n).normal(size=(n, 4)).astype(np.float32)


class Server:
    """milvus-lite behind a port, in a process that can be killed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, _free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "milvus_lite", "server", "--data-dir", str(self.folder), "--port", str(self.port)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while time.monotonic() < until and process.poll() is None:
            with socket.socket() as asking:
                if asking.connect_ex(("127.0.0.1", self.port)) == 0:
                    return process
            time.sleep(0.1)
        raise AssertionError("the server does not come up")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        self.process = self._started()


def _free_port() -> int:
    with socket.socket() as asking:
        asking.bind(("127.0.0.1", 0))
        return int(asking.getsockname()[1])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "data")
    yield made
    made.kill()


@pytest.mark.soak
def test_a_server_that_dies_is_reported_and_keeps_acknowledged_points(server: Server) -> None:
    x = draw(50)
    index = MilvusIndex.create(server.uri, **ABOUT, timeout=5)
    index.add(Entries(x[:30], labels=["a"] * 30))
    server.kill()
    with pytest.raises(
        IndexUnreachableError, match=rf"no server responds at {server.uri}; start Milvus there.*points written before are kept"
    ):
        index.add(Entries(x[30:40]))
    with pytest.raises(IndexUnreachableError, match=r"4 tries of at most 5 s"):
        index.search(x[:1], 1)
    server.restart()
    assert index.count == 30  # the same object finds its way back
    assert index.search(x[7:8], 1)[0].hits[0].id == 7 and index.search(x[7:8], 1)[0].exact
    again = MilvusIndex.open(server.uri, model=ABOUT["model"], timeout=5)
    first = int(again.add(Entries(x[30:]))[0])
    assert first >= 30 and again.count == 50 and again.entries([29])[0].label == "a"
    again.delete([29])
    assert again.count == 49


def test_an_address_without_a_server() -> None:
    uri = f"http://127.0.0.1:{_free_port()}"
    started = time.monotonic()
    with pytest.raises(
        IndexUnreachableError, match=rf"no server responds at {uri}; start Milvus there, or pass the right address with --uri"
    ):
        MilvusIndex.open(uri, timeout=1, tries=2)
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("uri", ["index", "folder/file.sqlite"])
def test_a_path_must_end_in_db(uri: str) -> None:
    with pytest.raises(ValueError, match=rf"uri '{uri}' must be a path that ends in .db \(milvus-lite\), or the address of a server"):
        Milvus(uri)


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    uri = str(tmp_path / "i.db")
    for wrong, message in (
        ({"metric": "manhattan"}, "metric 'manhattan' is unknown"),
        ({"dimension": 0}, r"dimension \(0\) must be a whole number of at least 1"),
        ({"kind": "MAGIC"}, "kind 'MAGIC' is unknown; choose one of FLAT, HNSW, IVF_FLAT"),
        ({"timeout": 0.0}, r"timeout \(0.0\) must be above 0"),
        ({"tries": 0}, r"tries \(0\) at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            MilvusIndex.create(uri, **{**ABOUT, **wrong})
    with pytest.raises(
        FileNotFoundError, match=r"holds no index named 'nearkin'; create one with `nearkin index DIR DATA --backend milvus --uri"
    ):
        MilvusIndex.open(uri)


def test_another_model_is_refused_and_an_index_is_not_made_twice(tmp_path: Path) -> None:
    uri = str(tmp_path / "i.db")
    index = MilvusIndex.create(uri, **ABOUT)
    with pytest.raises(ValueError, match=r"was made by another model \(version mmmmmmmmmmmm, and this is other\)"):
        MilvusIndex.open(uri, model="other")
    with pytest.raises(FileExistsError, match="already holds an index named 'nearkin'; add to it, or replace it"):
        MilvusIndex.create(uri, **ABOUT)
    second = MilvusIndex.create(uri, **ABOUT, name="second")
    second.add(Entries(draw(3)))
    assert (index.count, second.count) == (0, 3)
    second.drop()
    assert MilvusIndex.open(uri, model=ABOUT["model"]).dimension == 4


def test_a_collection_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    uri = str(tmp_path / "i.db")
    Milvus(uri).create("theirs", [("id", "INT64", {"is_primary": True}), ("v", "FLOAT_VECTOR", {"dim": 2})], ("v", "FLAT", "L2"), {})
    with pytest.raises(ValueError, match="is a collection that nearkin did not make"):
        MilvusIndex.open(uri, name="theirs")


def test_a_file_that_another_process_holds(tmp_path: Path) -> None:
    uri = str(tmp_path / "i.db")
    index = MilvusIndex.create(uri, **ABOUT)
    code = f"from nearkin.index.milvus import MilvusIndex\nMilvusIndex.open({uri!r}, timeout=2, tries=1)"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "cannot be opened; another process may use it" in done.stderr, done.stderr[-500:]
    assert index.add(Entries(draw(2))).tolist() == [0, 1]


def test_ties_end_where_they_end_and_k_has_a_limit(tmp_path: Path) -> None:
    index = MilvusIndex.create(str(tmp_path / "i.db"), **ABOUT)
    index.add(Entries(np.zeros((200, 4))))
    index.add(Entries(np.ones((20, 4))))
    for k in (1, 5, 120):
        assert [hit.id for hit in index.search(np.zeros((1, 4)), k)[0].hits] == list(range(k))
    assert [hit.id for hit in index.search(np.zeros((1, 4)), 3, exclude=[1])[0].hits] == [0, 2, 3]
    assert len(index.search(np.ones((70, 4)), 2)) == 70
    with pytest.raises(ValueError, match=r"k \(20000\) must be below 16,384, which is Milvus's limit"):
        index.search(np.zeros((1, 4)), 20000)


def test_approximate_structures_say_so(tmp_path: Path) -> None:
    index = MilvusIndex.create(str(tmp_path / "i.db"), **ABOUT, kind="HNSW")
    index.add(Entries(draw(100)))
    answer = index.search(draw(100)[:1], 3)[0]
    assert not answer.exact and answer.hits[0].id == 0 and index.backend == "milvus HNSW"


def test_words_with_quotes_and_other_letters_are_filtered_by(tmp_path: Path) -> None:
    index = MilvusIndex.create(str(tmp_path / "i.db"), **ABOUT)
    label, key, value = 'it"s \\ é', 'ke"y', 'va"l\\é'
    index.add(
        Entries(draw(4), labels=[label, "b", None, "b"], sources=['s"1', "s2", "s3", "s4"], metadata=[{key: value}, {}, {"n": [1, 2]}, {}])
    )
    assert [hit.id for hit in index.search(draw(4)[:1], 4, where=Where(labels=(label,)))[0].hits] == [0]
    assert [hit.id for hit in index.search(draw(4)[:1], 4, where=Where(metadata={key: value}))[0].hits] == [0]
    assert [hit.id for hit in index.search(draw(4)[:1], 4, where=Where(metadata={"n": [1, 2]}))[0].hits] == [2]
    assert index.known_sources(['s"1', "s4", "never"]) == {'s"1': 0, "s4": 3}
    with pytest.raises(ValueError, match="cannot be written as JSON"):
        index.add(Entries(draw(1), metadata=[{"x": float("nan")}]))
    with pytest.raises(ValueError, match="has more than 4,096 bytes; shorten it"):
        index.add(Entries(draw(1), labels=["x" * 5000]))


def test_expressions() -> None:
    where = Where(labels=("a", "b"), metadata={"film": 2}, ids=(3, 4))
    assert expression(where) == 'label in ["a", "b"] and row["texts"]["film"] == "2" and id in [3, 4]' and expression(Where()) == ""


def test_without_the_extra_a_message_names_it(monkeypatch) -> None:
    monkeypatch.setattr(milvus_client, "find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"pip install 'nearkin\[milvus\]'"):
        MilvusIndex.open("http://127.0.0.1:1")


def test_a_refusal_is_not_tried_again(tmp_path: Path) -> None:
    client = Milvus(str(tmp_path / "i.db"))
    with pytest.raises(ValueError, match="refuses describe_collection"):
        client.call("describe_collection", "nobody")
    assert json.dumps(client.call("list_collections")) == "[]"
    client.close()
    assert client.call("list_collections") == []


def test_a_full_disk_is_reported_with_its_fix(tmp_path: Path, monkeypatch) -> None:
    client = Milvus(str(tmp_path / "i.db"))

    def full(*given: object, **options: object) -> None:
        raise ValueError("[Errno 28] No space left on device")

    monkeypatch.setattr(client._connected(), "upsert", full)
    with pytest.raises(
        ValueError, match=r"refuses upsert: .*No space left on device; free some space on its disk and run the same command"
    ):
        client.call("upsert", "nobody", [])
    client.close()
