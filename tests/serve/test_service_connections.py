"""What slow, silent and greedy clients can do on real sockets: nothing that others notice, and every refusal is JSON."""

import http.client
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from nearkin.index.collection import Collection
from nearkin.serve import connection as connections
from nearkin.serve.connection import HEAD_BYTES, network
from nearkin.serve.limits import Limits
from nearkin.serve.service import Service
from tests.serve.browsing import served
from tests.serve.small_model import make_collection

TOKEN = "a-secret-of-a-good-length"
QUICK = Limits(
    body_seconds=0.4, idle_seconds=0.4, send_seconds=0.6, connections=12, connections_per_address=6, wrong_token_seconds=0.6, job_seconds=5
)
GET = b"GET /points?limit=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\n\r\n"
PATIENCE = 10  # seconds that a test waits for what should take less than one


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    return make_collection(tmp_path_factory.mktemp("connections"))


@pytest.fixture(scope="module")
def port(collection: Collection) -> int:
    return int(urlsplit(served(collection, token=TOKEN, limits=QUICK)).port or 0)


@pytest.fixture(autouse=True)
def _quick_to_close(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(connections, "CLOSING_SECONDS", 0.4)
    yield
    time.sleep(0.05)  # so that the server has seen that this test's clients left


def opened(port: int, sent: bytes = b"", source: str = "127.0.0.1", **options: Any) -> socket.socket:
    made = socket.socket()
    for name, value in options.items():
        made.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
    made.bind((source, 0))
    made.settimeout(PATIENCE)
    made.connect(("127.0.0.1", port))
    made.sendall(sent)
    return made


def everything(client: socket.socket) -> bytes:
    """All that arrives until the server closes the connection."""
    found = b""
    try:
        while part := client.recv(1 << 20):
            found += part
    except ConnectionResetError:
        pass
    return found


def status(client: socket.socket) -> int:
    """The status of one response, read to its end."""
    answer = http.client.HTTPResponse(client)
    answer.begin()
    answer.read()
    return answer.status


def refusal(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/json" in head and b"nosniff" in head
    return int(head.split(b" ")[1]), json.loads(body)["error"]["code"]


def is_answered(port: int, source: str = "127.0.0.1") -> bool:
    with opened(port, GET, source) as client:
        return status(client) == 200


def test_headers_that_trickle_are_refused(port: int) -> None:
    with opened(port, b"GET /points HTTP/1.1\r\nHost: 127") as client:
        assert refusal(everything(client)) == (408, "too_slow")


def test_a_second_request_has_the_same_limit_as_the_first(port: int) -> None:
    with opened(port, GET) as client:
        assert status(client) == 200
        started = time.monotonic()
        answer = b""
        while not answer and time.monotonic() - started < PATIENCE:
            try:
                client.sendall(b"G" if time.monotonic() - started < 0.1 else b"E")
                client.settimeout(0.1)
                answer = client.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                break
        assert time.monotonic() - started < PATIENCE and refusal(answer) in ((408, "too_slow"), (400, "bad_request"))


def test_silent_connections_are_closed_before_and_after_a_request(port: int) -> None:
    with opened(port) as client:
        assert everything(client) == b""
    with opened(port, GET) as client:
        assert everything(client).startswith(b"HTTP/1.1 200")


def test_a_body_nobody_wants_cannot_hold_a_connection(port: int) -> None:
    head = b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n"
    with opened(port, head) as client:
        assert refusal(everything(client)) == (401, "no_token")
    with opened(port, head) as client:  # it arrives: the connection goes on
        assert status(client) == 401
        client.sendall(b"x" * 1000)
        time.sleep(0.05)
        client.sendall(GET)
        assert b"HTTP/1.1 200" in everything(client)


def test_a_body_that_trickles_is_refused(port: int) -> None:
    head = GET.replace(b"GET /points?limit=1", b"POST /search").removesuffix(b"\r\n")
    with opened(port, head + b"Content-Type: image/png\r\nContent-Length: 1000\r\n\r\nx") as client:
        assert refusal(everything(client)) == (408, "too_slow")


def test_a_client_that_never_reads_is_dropped(port: int, monkeypatch) -> None:
    from nearkin.serve import explorer

    app_asset = explorer.asset
    monkeypatch.setattr(explorer, "asset", lambda name: app_asset(name) + b" " * (8 << 20))
    with opened(port, GET.replace(b"/points?limit=1", b"/explorer.js"), SO_RCVBUF=4096) as client:
        time.sleep(1.5)
        assert len(everything(client)) < 8 << 20  # the connection was closed under what was still to be sent


def test_large_heads_are_refused_before_they_are_parsed(port: int) -> None:
    whole = GET[:-2] + b"a:b\r\n" * 40_000 + b"\r\n"
    for sent in (whole, GET[:-2] + b"X: " + b"x" * HEAD_BYTES):
        with opened(port, sent) as client:
            assert refusal(everything(client)) == (431, "headers_too_large")
    cut = GET[:-2] + b"X: " + b"x" * 9000 + b"\r\n\r"  # the end of a head may arrive in two parts
    with opened(port, cut) as client:
        time.sleep(0.05)
        client.sendall(b"\n")
        assert status(client) == 200


def test_pipelined_requests_get_one_answer(port: int) -> None:
    with opened(port, GET * 3) as client:
        assert everything(client).count(b"HTTP/1.1 200") == 1


def test_an_address_has_its_share_only_and_waiting_connections_make_room(port: int) -> None:
    slow = [opened(port, b"GET / HTTP/1.1\r\n", "127.0.0.2") for _ in range(40)]
    assert is_answered(port) and is_answered(port, "127.0.0.2")
    slow += [opened(port, b"", f"127.0.0.{number}") for number in range(3, 20) for _ in range(5)]
    assert is_answered(port) and is_answered(port, "127.0.0.50")
    for client in slow:
        client.close()


def test_when_all_connections_are_at_work_others_are_refused(port: int, monkeypatch) -> None:
    over, points = threading.Event(), Service.points
    monkeypatch.setattr(Service, "points", lambda *args: (over.wait(PATIENCE), points(*args))[1])
    busy = [opened(port, GET) for _ in range(QUICK.connections_per_address)]
    time.sleep(0.2)
    with opened(port, GET) as client:
        assert refusal(everything(client)) == (503, "too_many_connections")
    over.set()
    assert all(status(client) == 200 for client in busy)
    for client in busy:
        client.close()


def test_wrong_tokens_wait_and_do_not_keep_the_right_one_out(port: int) -> None:
    started = time.monotonic()
    wrong = GET.replace(TOKEN.encode(), b"wrong")
    with opened(port, wrong) as client:
        assert status(client) == 401 and time.monotonic() - started >= QUICK.wrong_token_seconds
    guesses = [opened(port, wrong if number % 2 else wrong.replace(b"/points?limit=1", b"/health")) for number in range(20)]
    started = time.monotonic()
    assert is_answered(port) and time.monotonic() - started < QUICK.wrong_token_seconds
    for client in guesses:
        client.close()


@pytest.mark.parametrize("cookie", [b'nearkin_token="' + b"\\" * 14_000 + b'"', b"a=b;" * 3500, b"=" * 14_000, b'"' * 14_000])
def test_cookies_are_read_in_linear_time(port: int, cookie: bytes) -> None:
    sent = GET.replace(b"Authorization: Bearer " + TOKEN.encode(), b"Cookie: " + cookie)
    started = time.monotonic()
    with opened(port, sent) as client:
        assert status(client) == 401
    assert time.monotonic() - started < QUICK.wrong_token_seconds + 0.5


def test_clients_that_leave_cause_no_traceback(port: int, caplog: pytest.LogCaptureFixture) -> None:
    head = GET.replace(b"GET /points?limit=1", b"POST /search").removesuffix(b"\r\n")
    kinds = (b"image/png", b"application/json", b"multipart/form-data; boundary=x")
    with caplog.at_level(logging.DEBUG):
        for kind in kinds:
            opened(port, head + b"Content-Type: " + kind + b"\r\nContent-Length: 1000\r\n\r\n--x").close()
        opened(port, head + b"Content-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n").close()
        opened(port, GET).close()
        time.sleep(0.3)
        assert is_answered(port)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_large_json_is_refused_before_it_is_parsed(port: int) -> None:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    body = b'{"vector": [' + b"1," * 4_000_000 + b"1]}"
    client.request("POST", "/search", body, {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"})
    answer = client.getresponse()
    assert answer.status == 413 and b"at most 4,608 bytes" in answer.read()
    client.close()


def test_ipv6_clients_are_counted_by_network() -> None:
    assert network(("2001:db8::1", 5)) == network(("2001:db8::ffff:1", 6)) == "2001:db8::/64" != network(("2001:db8:0:1::1", 5))
    assert network(("192.0.2.7", 5)) == "192.0.2.7" and network(("fe80::1%eth0", 5)) == "fe80::/64" and network(None) == ""
