"""The routes of the explorer's page: the map, exact neighbors, uploaded images, and refusals."""

import base64
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from nearkin.index.collection import Collection
from nearkin.index.contract import Entries
from nearkin.serve.app import make_app
from tests.serve.small_model import SIDE, D, encoded, make_collection, picture

HERE = "http://127.0.0.1"
TOKEN = "a-secret-of-sixteen-or-more"


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    return make_collection(tmp_path)


@pytest.fixture
def client(collection: Collection) -> Iterator[TestClient]:
    with TestClient(make_app(collection, method="pca"), base_url=HERE) as client:
        yield client


def ready(client: TestClient, other_than: str = "") -> dict[str, Any]:
    for _ in range(400):
        page = client.get("/atlas").json()
        if page["state"] == "ready" and page["atlas"]["version"] != other_than and not page["building"]:
            return page["atlas"]
        time.sleep(0.05)
    raise AssertionError(page)


def error(answer: Any) -> str:
    return f"{answer.status_code} {answer.json()['error']['code']}"


def test_neighbors_are_exact_whatever_the_backend(client: TestClient, collection: Collection) -> None:
    version = ready(client)["version"]
    for row in (0, 33):
        page = client.get(f"/atlas/near/{row}?k=7&version={version}").json()
        hits = collection.search(row, 7).hits
        (model,) = page["models"]
        assert model["rows"] == [hit.id for hit in hits] and model["affinity"] == pytest.approx([hit.affinity for hit in hits], rel=1e-4)
        assert model["right"] == [int(hit.label == collection.index.entries([row])[0].label) for hit in hits]
        assert page["source"] == collection.index.entries([row])[0].source and model["sources"] == [hit.source for hit in hits]


def test_an_uploaded_image_is_placed_among_its_neighbors(client: TestClient) -> None:
    atlas = ready(client)
    address = f"/atlas/drop?k=5&version={atlas['version']}"
    page = client.post(address, content=encoded(picture("green", 88)), headers={"Content-Type": "image/png"}).json()
    (model,) = page["models"]
    labels = np.frombuffer(base64.b64decode(atlas["labels"]), "<i4")
    assert {atlas["classes"][labels[row]] for row in model["rows"]} == {"green"} and set(model["right"]) == {-1}
    assert len(model["at"]) == 2 and max(map(abs, model["at"])) < 2
    assert error(client.post(address, content=b"no picture", headers={"Content-Type": "image/png"})) == "422 no_picture"


def test_an_image_like_none_is_told_as_the_search_tells_it(client: TestClient, collection: Collection) -> None:
    address = f"/atlas/drop?k=2&version={ready(client)['version']}"
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8))
    found = []
    for one in (picture("green", 88), noise):
        (model,) = client.post(address, content=encoded(one), headers={"Content-Type": "image/png"}).json()["models"]
        answer = collection.search(one, k=2, reject=0.05)
        assert model["p_value"] == pytest.approx(answer.p_value) and model["none_of_these"] == answer.rejected and len(model["rows"]) == 2
        found.append(model["p_value"])
    assert found[0] > found[1]


def test_a_slash_at_the_end_leads_to_the_page(client: TestClient, collection: Collection) -> None:
    answer = client.get("/explore/")
    assert answer.status_code == 200 and answer.url.path == "/explore" and answer.headers["content-type"].startswith("text/html")
    assert error(client.get("/explore/more")) == "404 not_found"
    with TestClient(make_app(collection, method="pca", token=TOKEN), base_url=HERE) as guarded:
        assert error(guarded.get("/explore/")) == "401 no_token"
        admitted = guarded.get(f"/explore/?token={TOKEN}")
        assert admitted.status_code == 200 and admitted.url.path == "/explore" and not admitted.url.query


def test_what_is_not_on_the_map_is_refused(client: TestClient) -> None:
    assert error(client.get("/atlas/near/0?version=1")) == "409 not_ready"
    version = ready(client)["version"]
    assert error(client.get(f"/atlas/near/60?version={version}")) == "404 no_such_point"
    assert error(client.get(f"/atlas/near/-1?version={version}")) == "422 invalid"
    assert error(client.get(f"/atlas/near/0?k=101&version={version}")) == "422 invalid"
    assert error(client.get("/atlas/near/0?version=other")) == "409 outdated"
    assert error(client.get("/explorer.html")) == "422 invalid"


def test_a_changed_index_gets_a_new_map_and_old_rows_are_refused(client: TestClient, collection: Collection) -> None:
    before = ready(client)
    collection.index.add(Entries(np.ones((2, D), np.float32), labels=["red", "red"]))
    after = ready(client, before["version"])
    assert (before["count"], after["count"]) == (60, 62)
    assert error(client.get(f"/atlas/near/0?version={before['version']}")) == "409 outdated"


def test_a_stored_map_is_loaded_before_the_first_request(client: TestClient, collection: Collection) -> None:
    again = make_app(collection, method="pca").state.explorer
    again.restore()
    assert again.state([collection.index])["state"] == "building"  # nothing is stored
    version = ready(client)["version"]
    again = make_app(collection, method="pca").state.explorer
    again.restore()
    assert again.state([collection.index])["atlas"]["version"] == version


def test_the_page_runs_its_own_script_only_and_the_token_opens_it(client: TestClient, collection: Collection) -> None:
    page = client.get("/explore")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "http" not in policy and "unsafe" not in policy
    nonce = re.search(r"'nonce-([\w-]{20,})'", policy)
    assert nonce and f'nonce="{nonce[1]}"' in page.text and nonce[1] not in client.get("/explore").text  # another for each page
    assert "<script>" not in page.text and "://" not in page.text.replace("http://www.w3.org/2000/svg", "")
    assert client.get("/explorer.js").headers["content-type"].startswith("text/javascript")
    assert client.get("/explorer.css").headers["content-type"].startswith("text/css")
    with TestClient(make_app(collection, token=TOKEN), base_url="http://photos.example", follow_redirects=False) as closed:
        for path in ("/explore", "/explorer.js", "/atlas", "/atlas/near/0"):
            assert error(closed.get(path)) == "401 no_token"
        welcome = closed.get(f"/explore?token={TOKEN}")
        assert welcome.status_code == 303 and welcome.headers["location"] == "/explore"
        assert closed.get("/explore").status_code == 200  # by the cookie


def test_an_error_while_building_is_reported(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from nearkin.serve.atlas import model_maps

    def fail(*_: object) -> None:
        raise ValueError("this index cannot be shown")

    monkeypatch.setattr(model_maps, "read_table", fail)
    for _ in range(200):
        page = client.get("/atlas").json()
        if page["state"] == "failed":
            break
        time.sleep(0.05)
    assert page == {"state": "failed", "message": "this index cannot be shown"}


def test_of_very_many_points_some_are_shown(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from nearkin.serve.atlas import table

    monkeypatch.setattr(table, "MOST", 10)
    assert ready(client)["count"] == 10


def test_an_export_needs_something_to_write(collection: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from nearkin import cli

    assert cli.main(["export", str(collection.folder)]) == 1
    assert "nothing to write: pass --onnx FILE.onnx for the network, or --page OUT for the explorer" in capsys.readouterr().err
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters/mine.txt").write_text("dear")
    assert cli.main(["export", str(collection.folder), "--page", str(tmp_path / "letters")]) == 1
    assert "letters holds other files" in capsys.readouterr().err
