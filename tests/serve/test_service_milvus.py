"""The service and the explorer over a model folder whose index is in Milvus, by HTTP and by `nearkin serve`."""

import json
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest

if find_spec("pymilvus") is None:
    pytest.skip("needs nearkin[milvus]", allow_module_level=True)

from starlette.testclient import TestClient

from nearkin import cli
from nearkin.index.collection import Collection, build_index, open_index
from nearkin.index.contract import Entries
from nearkin.index.milvus_client import IndexUnreachableError
from nearkin.serve import Limits, make_app
from tests.serve.browsing import served
from tests.serve.small_model import D, encoded, make_model, make_pictures, opened, picture

HERE = "http://127.0.0.1"


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    folder = tmp_path_factory.mktemp("milvus")
    model = make_model(folder / "model")
    build_index(model, opened(make_pictures(folder / "pictures")), backend="milvus", uri=str(folder / "points.db"), device="cpu")
    return open_index(model, device="cpu")


@pytest.fixture
def client(collection: Collection) -> Iterator[TestClient]:
    with TestClient(make_app(collection, method="pca", limits=Limits(reload_seconds=0.05)), base_url=HERE) as client:
        yield client


def ready(client: TestClient) -> dict[str, Any]:
    for _ in range(400):
        page = client.get("/atlas").json()
        if page["state"] == "ready" and page["building"] is None:
            return page["atlas"]
        time.sleep(0.05)
    raise AssertionError(page)


def test_search_points_and_health(client: TestClient, collection: Collection) -> None:
    page = client.post("/search?k=4", content=encoded(picture("green", 77)), headers={"Content-Type": "image/png"}).json()
    assert page["exact"] is True and [hit["label"] for hit in page["neighbors"]] == ["green"] * 4
    assert page["neighbors"][0]["same_kind"] is True and page["neighbors"][0]["image"] is None
    by_id = client.post("/search?k=3", json={"id": 5}).json()["neighbors"]
    vector = collection.index.vectors([5])[0].tolist()
    by_vector = client.post("/search?k=4", json={"vector": vector}).json()["neighbors"]
    assert by_vector[0]["id"] == 5 and [hit["id"] for hit in by_vector[1:]] == [hit["id"] for hit in by_id]
    red = client.post("/search?k=3&label=red&where=data=pictures", json={"id": 5}).json()["neighbors"]
    assert [hit["label"] for hit in red] == ["red"] * 3
    assert client.post("/search", json={"id": 12345}).status_code == 404
    points = client.get("/points?offset=58&limit=5").json()
    assert points["total"] == 60 and [point["id"] for point in points["points"]] == [58, 59]
    assert client.get("/points?label=blue").json()["total"] == 20
    assert client.get("/points?offset=16380&limit=10").json()["points"] == []
    assert client.get("/image/3").status_code == client.get("/image/999").status_code == 404
    health = client.get("/health").json()
    assert health["points"] == 60 and health["backend"] == "milvus FLAT" and health["labels"] == ["blue", "green", "red"]


def test_the_explorer_shows_exact_neighbors_without_thumbnails(client: TestClient, collection: Collection) -> None:
    atlas = ready(client)
    assert atlas["count"] == 60 and atlas["classes"] == ["blue", "green", "red"] and atlas["pictured"] is False and atlas["images"] is True
    page = client.get(f"/atlas/near/33?k=7&version={atlas['version']}").json()
    hits = collection.search(33, 7).hits
    assert page["models"][0]["rows"] == [hit.id for hit in hits] and page["source"] == collection.index.entries([33])[0].source
    body = encoded(picture("red", 3))
    found = client.post(f"/atlas/drop?version={atlas['version']}&k=3", content=body, headers={"Content-Type": "image/png"}).json()
    assert len(found["models"][0]["rows"]) == 3 and len(found["models"][0]["at"]) == 2


def test_changes_are_served_and_a_server_that_is_down_is_reported(client: TestClient, collection: Collection, monkeypatch) -> None:
    def until(test: Any) -> None:
        for _ in range(200):
            if test(client.get("/health").json()):
                return
            time.sleep(0.05)
        raise AssertionError(client.get("/health").json())

    writer = open_index(collection.folder, device="cpu").index
    ids = writer.add(Entries(np.full((10, D), 1e4), labels=["far"] * 10))
    until(lambda page: page["points"] == 70 and "far" in page["labels"])
    found = client.post("/search", json={"vector": [1e4] * D}).json()["neighbors"]
    assert [hit["label"] for hit in found] == ["far"] * 10
    writer.delete(ids.tolist())
    until(lambda page: page["points"] == 60)

    def unreachable(*_: Any, **__: Any) -> None:
        raise IndexUnreachableError("no server responds at http://secret:19530")

    with monkeypatch.context() as down:
        down.setattr(collection.index.client, "call", unreachable)
        until(lambda page: page["stale"] is not None)
        answer = client.post("/search", json={"id": 5})
        assert answer.status_code == 503 and answer.json()["error"]["code"] == "index_unreachable" and "secret" not in answer.text
        assert client.get("/metrics").status_code == 200
    until(lambda page: page["stale"] is None)
    assert client.post("/search", json={"id": 5}).status_code == 200


def test_a_running_service_over_http_and_the_page_from_disk(collection: Collection, tmp_path: Path) -> None:
    address = served(collection, method="pca")
    request = Request(f"{address}/search?k=2", data=json.dumps({"id": 5}).encode(), headers={"Content-Type": "application/json"})
    with urlopen(request, timeout=30) as answer:
        found = [hit["id"] for hit in json.load(answer)["neighbors"]]
    assert found == [hit.id for hit in collection.search(5, 2).hits]
    with urlopen(f"{address}/explore", timeout=30) as answer:
        assert answer.status == 200
    assert cli.main(["export", str(collection.folder), "--page", str(tmp_path / "out"), "--map", "pca", "--device", "cpu"]) == 0
    assert (tmp_path / "out/index.html").exists() and not any((tmp_path / "out/pictures").iterdir())


def test_more_points_than_the_explorer_shows(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from nearkin.serve.atlas import table

    monkeypatch.setattr(table, "MOST", 10)
    for _ in range(200):
        page = client.get("/atlas").json()
        if page["state"] != "building":
            break
        time.sleep(0.05)
    message = "the index holds 60 points, and 10 of them cannot be drawn from Milvus; index a part of the data"
    assert page == {"state": "failed", "message": message}
