"""The service in this process: responses, refusals and errors."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from nearkin.index.collection import Collection
from nearkin.index.contract import Entries
from nearkin.serve.app import make_app
from nearkin.serve.errors import Refusal
from nearkin.serve.limits import Limits
from nearkin.serve.listen import checked_token
from tests.serve.small_model import D, encoded, make_collection, picture

HERE = "http://127.0.0.1"
TOKEN = "a secret of sixteen or more".replace(" ", "-")


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    return make_collection(tmp_path_factory.mktemp("service"))


@pytest.fixture(scope="module")
def client(collection: Collection) -> Iterator[TestClient]:
    with TestClient(make_app(collection), base_url=HERE) as client:
        yield client


def error(answer: httpx.Response) -> str:
    assert set(answer.json()) == {"error"} and set(answer.json()["error"]) == {"code", "message"}
    return f"{answer.status_code} {answer.json()['error']['code']}"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
@pytest.mark.parametrize("form", [True, False])
def test_a_picture_finds_its_kind(client: TestClient, kind: str, form: bool) -> None:
    content = encoded(picture("green", 77), kind)
    if form:
        answer = client.post("/search?k=4", files={"image": ("../../etc/passwd", content)})
    else:
        answer = client.post("/search?k=4", content=content, headers={"Content-Type": f"image/{kind.lower()}"})
    page = answer.json()
    assert answer.status_code == 200 and page["exact"] is True and page["seconds"]["encode"] > 0
    assert [hit["label"] for hit in page["neighbors"]] == ["green"] * 4
    assert page["neighbors"][0]["same_kind"] is True
    assert all(first["affinity"] >= second["affinity"] for first, second in zip(page["neighbors"], page["neighbors"][1:], strict=False))


def test_by_id_and_by_vector(client: TestClient, collection: Collection) -> None:
    by_id = client.post("/search?k=3", json={"id": 5}).json()["neighbors"]
    assert 5 not in [hit["id"] for hit in by_id]
    vector = collection.index.vectors([5])[0].tolist()
    by_vector = client.post("/search?k=4", json={"vector": vector}).json()["neighbors"]
    assert by_vector[0]["id"] == 5 and [hit["id"] for hit in by_vector[1:]] == [hit["id"] for hit in by_id]
    red = client.post("/search?k=3&label=red&where=data=pictures", json={"id": 5}).json()["neighbors"]
    assert [hit["label"] for hit in red] == ["red"] * 3
    assert client.post("/search?where=data=other", json={"id": 5}).json()["neighbors"] == []


def test_points_and_their_pictures(client: TestClient) -> None:
    page = client.get("/points?offset=58&limit=5").json()
    assert page["total"] == 60 and [point["id"] for point in page["points"]] == [58, 59]
    assert client.get("/points?label=blue").json()["total"] == 20
    image = client.get(page["points"][0]["image"])
    assert image.status_code == 200 and image.headers["content-type"] == "image/png" and image.content.startswith(b"\x89PNG")
    assert image.headers["x-content-type-options"] == "nosniff"


def test_health_metrics_and_description(client: TestClient) -> None:
    health = client.get("/health").json()
    assert health["status"] == "ok" and health["points"] == 60 and health["labels"] == ["blue", "green", "red"] and health["stale"] is None
    client.get("/no/such/route"), client.get("/another")
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = [sample for family in text_string_to_metric_families(answer.text) for sample in family.samples]
    requests = [sample for sample in samples if sample.name == "nearkin_requests_total"]
    assert {"route": "/health", "method": "GET", "status": "200"} in [sample.labels for sample in requests]
    other = [sample for sample in requests if sample.labels["route"] == "other"]
    assert [(sample.labels["method"], sample.labels["status"], sample.value) for sample in other] == [("GET", "404", 2)]
    values = {sample.name: sample.value for sample in samples}
    assert values["nearkin_points"] == 60 and values["nearkin_queue_jobs"] == 0 and values["nearkin_generation"] >= 1
    assert all(values[f"nearkin_{name}_seconds_count"] >= 0 for name in ("request", "encode", "search"))
    reloads = {sample.labels["outcome"]: sample.value for sample in samples if sample.name == "nearkin_reloads_total"}
    assert reloads == {"done": 0, "failed": 0}
    vector = client.get("/openapi.json").json()["paths"]["/search"]["post"]["requestBody"]["content"]["application/json"]
    assert vector["schema"]["oneOf"][1]["properties"]["vector"]["minItems"] == D


def test_the_page_needs_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    assert "http://" not in page.text.replace("http://www.w3.org/2000/svg", "") and "https://" not in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy


FORM = b'--x\r\nContent-Disposition: form-data; name="image"\r\n\r\nhello\r\n--x--\r\n'
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("/search", {"json": {"id": 12345}}, "404 no_such_point"),
    ("/search", {"json": {"id": -1}}, "422 invalid"),
    ("/search", {"json": {"id": 2**63}}, "422 invalid"),
    ("/search", {"json": {"id": "5"}}, "422 invalid"),
    ("/search", {"json": {"id": 5, "vector": [0.0] * D}}, "422 invalid"),
    ("/search", {"json": {}}, "422 invalid"),
    ("/search", {"json": {"path": "/etc/passwd"}}, "422 invalid"),
    ("/search", {"json": {"vector": [0.0] * (D + 1)}}, "422 invalid"),
    ("/search", {"json": {"vector": [1e16] * D}}, "422 invalid"),
    ("/search", {"content": b'{"vector": [NaN, 0, 0, 0, 0, 0, 0, 0]}', "headers": {"Content-Type": "application/json"}}, "422 invalid"),
    ("/search", {"content": b"[" * 4000, "headers": {"Content-Type": "application/json"}}, "422 invalid"),
    ("/search", {"content": b"[" * 100_000, "headers": {"Content-Type": "application/json"}}, "413 too_large"),
    ("/search", {"json": {"id": None}}, "422 invalid"),
    ("/search", {"json": {"vector": None}}, "422 invalid"),
    ("/search?where=a=1&where=a=2", {"json": {"id": 5}}, "422 invalid"),
    ("/search", {"content": b"\xff\xfe{", "headers": {"Content-Type": "application/json"}}, "422 invalid"),
    ("/search?k=0", {"json": {"id": 5}}, "422 invalid"),
    ("/search?k=101", {"json": {"id": 5}}, "422 invalid"),
    ("/search?k=many", {"json": {"id": 5}}, "422 invalid"),
    ("/search?where=nothing", {"json": {"id": 5}}, "422 invalid"),
    ("/search", {"content": b"hello", "headers": {"Content-Type": "text/plain"}}, "415 wrong_type"),
    ("/search", {"content": b"hello"}, "415 wrong_type"),
    ("/search", {"content": b"hello", "headers": {"Content-Type": "image/png"}}, "422 no_picture"),
    ("/search", {"content": b"", "headers": {"Content-Type": "image/png"}}, "422 no_picture"),
    ("/search", {"files": {"file": b"hello"}}, "422 invalid"),
    ("/search", {"data": {"image": "/etc/passwd"}, "files": {"x": b""}}, "422 invalid"),
    ("/search", {"files": [("image", b"a"), ("image", b"b")]}, "400 bad_request"),
    ("/search", {"content": b"--x", "headers": {"Content-Type": "multipart/form-data"}}, "400 bad_request"),
    ("/search", {"content": b"rubbish", "headers": {"Content-Type": "multipart/form-data; boundary=x"}}, "400 bad_request"),
    ("/search", {"content": b"--x\r\nrubbish", "headers": {"Content-Type": "multipart/form-data; boundary=x"}}, "422 invalid"),
    ("/search", {"content": FORM, "headers": {"Content-Type": "multipart/form-data; boundary=x; charset=klingon"}}, "422 invalid"),
]


@pytest.mark.parametrize(("path", "sent", "output"), WRONG)
def test_wrong_requests_are_refused_in_one_form(client: TestClient, path: str, sent: dict[str, Any], output: str) -> None:
    assert error(client.post(path, **sent)) == output


@pytest.mark.parametrize(
    "path",
    [
        "/image/..%2f..%2f..%2fetc%2fpasswd",
        "/image/../../etc/passwd",
        "/image/%2e%2e/%2e%2e/etc/passwd",
        "/image//etc/passwd",
        "/image/5%00.png",
        "/image/5/",
        "/image/-1",
        "/image/99999999999999999999999",
        "//etc/passwd",
        "/..%5c..%5cwindows",
        "/static/page.html",
        "/image/12345",
    ],
)
def test_no_path_leads_to_a_file(client: TestClient, path: str) -> None:
    answer = client.get(httpx.URL(HERE, raw_path=path.encode()))
    assert answer.status_code in (404, 422) and "root:" not in answer.text
    error(answer)


@pytest.mark.parametrize(
    ("headers", "output"),
    [
        ({"Host": "evil.example"}, "400 wrong_host"),
        ({"Host": "127.0.0.1.evil.example"}, "400 wrong_host"),
        ({"Host": "evil.example:80@127.0.0.1"}, "400 wrong_host"),
        ({"Host": ""}, "400 wrong_host"),
        ({"Host": "192.0.2.7"}, "400 wrong_host"),
        ({"Origin": "http://evil.example"}, "403 wrong_origin"),
        ({"Origin": "null"}, "403 wrong_origin"),
        ({"Origin": "http://127.0.0.1:9999"}, "403 wrong_origin"),
        ({"Origin": "http://["}, "403 wrong_origin"),
        ({"Origin": ""}, "403 wrong_origin"),
        ({"Content-Length": "999999999999"}, "413 too_large"),
        ({"Content-Length": "9" * 5000}, "413 too_large"),
        ({"Content-Length": "-5"}, "413 too_large"),
        ({"Content-Length": "5", "Transfer-Encoding": "chunked"}, "400 bad_request"),
        ({"X-Long": "x" * 20_000}, "431 headers_too_large"),
        ({f"X-{number}": "x" for number in range(100)}, "431 headers_too_large"),
    ],
)
def test_header_tricks_are_refused(client: TestClient, headers: dict[str, str], output: str) -> None:
    assert error(client.get("/points", headers=headers)) == output


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000", "127.0.0.2:80"])
def test_this_machine_has_several_names(client: TestClient, host: str) -> None:
    assert client.get("/points", headers={"Host": host, "Origin": f"http://{host}"}).status_code == 200
    tricks = {"X-Forwarded-Host": "evil.example", "X-HTTP-Method-Override": "DELETE", "X-Original-URL": "/metrics"}
    assert client.get("/points", headers={"Host": host, **tricks}).json()["total"] == 60


def test_other_methods_are_refused(client: TestClient) -> None:
    answer = client.delete("/points")
    assert error(answer) == "405 wrong_method" and answer.headers["allow"] == "GET"


def test_too_large_is_noticed_with_and_without_a_length(collection: Collection) -> None:
    with TestClient(make_app(collection, limits=Limits(body_bytes=1000)), base_url=HERE) as client:
        sent = {"headers": {"Content-Type": "image/png"}}
        assert error(client.post("/search", content=b"x" * 1001, **sent)) == "413 too_large"
        assert error(client.post("/search", content=(b"x" * 100 for _ in range(11)), **sent)) == "413 too_large"
        assert error(client.post("/search", files={"image": b"x" * 1001})) == "413 too_large"
        assert error(client.post("/search", content=(b"x" * 100 for _ in range(9)), **sent)) == "422 no_picture"


def test_a_token_is_required_everywhere_but_at_health(collection: Collection) -> None:
    app = make_app(collection, token=TOKEN, limits=Limits(wrong_token_seconds=0.01))
    with TestClient(app, base_url="http://photos.example", follow_redirects=False) as client:
        assert client.head("/health").status_code == 200  # as load balancers ask
        assert client.get("/health").json() == {"status": "ok"}  # a word for probes; names of classes are nobody's business
        assert client.get("/health", headers={"Authorization": f"Bearer {TOKEN}"}).json()["labels"] == ["blue", "green", "red"]
        for path in ("/", "/points", "/metrics", "/openapi.json", "/image/3", "/nothing", f"/points?token={TOKEN}"):
            assert error(client.get(path)) == "401 no_token"
        assert error(client.get("/points", headers={"Authorization": f"Bearer {TOKEN}x"})) == "401 no_token"
        assert error(client.get("/points", headers={"Cookie": "nearkin_token=no; \x01=;;"})) == "401 no_token"
        assert error(client.get("/?token=wrong")) == "401 no_token"
        assert client.get("/points", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        welcome = client.get(f"/?token={TOKEN}")
        assert welcome.status_code == 303 and welcome.headers["location"] == "/" and "HttpOnly" in welcome.headers["set-cookie"]
        assert TOKEN not in welcome.headers["set-cookie"]
        assert client.get("/").status_code == 200 and client.get("/image/3").status_code == 200
        assert error(client.get("/points", headers={"Origin": "http://evil.example"})) == "403 wrong_origin"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "photos.example"])
def test_others_are_let_in_with_a_token_only(host: str) -> None:
    with pytest.raises(ValueError, match=f"host {host} opens the service to other machines; set NEARKIN_TOKEN"):
        checked_token(host, None)
    assert checked_token(host, TOKEN) == TOKEN


@pytest.mark.parametrize("token", ["short", "with spaces in the middle", "ümläüts-are-not-plain"])
def test_weak_tokens_are_refused(token: str) -> None:
    with pytest.raises(ValueError, match="token must be at least 16 plain characters"):
        checked_token("127.0.0.1", token)
    assert checked_token("::1", None) is None


def test_a_full_queue_answers_429_and_late_answers_504(collection: Collection) -> None:
    app = make_app(collection, limits=Limits(queue=2, threads=1, job_seconds=0.7))
    service, answer = app.state.service, app.state.service.answer

    def slow(*question: Any) -> Any:
        time.sleep(0.4)
        return answer(*question)

    service.answer = slow

    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=HERE) as client:
            several = await asyncio.gather(*(client.post("/search", json={"id": 5}) for _ in range(6)))
            await asyncio.sleep(0.6)
            return [*several, await client.post("/search", json={"id": 5})]

    answers = asyncio.run(ask())
    output = [error(one) if one.is_error else "200" for one in answers]
    assert output[:6].count("429 busy") == 4 and "504 timeout" in output and output[6] == "200"
    assert all(one.headers["retry-after"] == "1" for one in answers if one.status_code == 429)
    assert service.workers.pending == 0


def test_a_body_that_does_not_arrive_is_refused(collection: Collection) -> None:
    app = make_app(collection, limits=Limits(body_seconds=0.1))
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/search",
        "raw_path": b"/search",
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
    }
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"image/png"), (b"content-length", b"100")]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not sent:
            await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app({**scope, "headers": headers, "http_version": "1.1"}, receive, send))
    assert sent[0]["status"] == 408 and json.loads(sent[1]["body"])["error"]["code"] == "too_slow"


def test_an_internal_error_does_not_leak_its_message(collection: Collection) -> None:
    app = make_app(collection)

    def fails(*_: Any) -> None:
        raise RuntimeError("/home/me/secret")

    app.state.service.answer = fails
    with TestClient(app, base_url=HERE, raise_server_exceptions=False) as client:
        answer = client.post("/search", json={"id": 5})
        assert error(answer) == "500 failed" and "secret" not in answer.text
        assert 'status="500"' in client.get("/metrics").text


def test_a_newer_index_is_taken_over_and_a_broken_one_is_not(tmp_path: Path) -> None:
    collection = make_collection(tmp_path)
    with TestClient(make_app(collection, limits=Limits(reload_seconds=0.02)), base_url=HERE) as client:

        def until(test: Any) -> dict[str, Any]:
            for _ in range(200):
                page = client.get("/health").json()
                if test(page):
                    return page
                time.sleep(0.02)
            raise AssertionError(page)

        from nearkin.index.local import LocalIndex

        writer = LocalIndex.open(tmp_path / "model/index")
        writer.add(Entries(np.full((10, D), 1e6), labels=["far"] * 10))
        page = until(lambda page: page["points"] == 70)
        assert "far" in page["labels"]
        found = client.post("/search", json={"vector": [1e6] * D}).json()
        assert [hit["label"] for hit in found["neighbors"]] == ["far"] * 10 and found["neighbors"][0]["image"] is None
        manifest = tmp_path / "model/index/manifest.json"
        good = manifest.read_text()
        manifest.write_text(good[:-5])
        page = until(lambda page: page["stale"])
        assert "does not match its own checksum" in page["stale"] and page["points"] == 70
        assert client.post("/search", json={"id": 5}).status_code == 200
        manifest.write_text(good)
        writer.delete(range(60, 70))
        assert until(lambda page: page["points"] == 60)["stale"] is None
        assert 'nearkin_reloads_total{outcome="failed"} 0.0' not in client.get("/metrics").text


def test_refusals_carry_their_code() -> None:
    assert Refusal(429, "busy", "later").code == "busy"
