"""The service as people run it: a process of its own on loopback, many clients, an index that changes, and a stop."""

import http.client
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from nearkin import cli
from nearkin.index.contract import Entries
from nearkin.index.local import LocalIndex
from nearkin.serve.listen import browser_host
from tests.serve.hostile_images import many_scans
from tests.serve.small_model import D, encoded, make_collection, picture
from tests.soak_results import record

JSON = {"Content-Type": "application/json"}


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "nearkin", "serve", str(folder), "--port", "0", "--no-browser", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", "NEARKIN_TOKEN": ""}
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+) \(Ctrl-C stops\)", line)
        assert found, line + process.stderr.read()
        yield process, int(found[1])
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("process")
    make_collection(folder)
    return folder / "model"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    with serving(folder) as running:
        yield running


def ask(connection: http.client.HTTPConnection, body: bytes, headers: dict[str, str], path: str = "/search?k=10") -> tuple[int, bytes]:
    connection.request("POST", path, body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def resident(process: int) -> float:
    """Megabytes of another process."""
    line = next(line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


QUESTIONS = [
    (json.dumps({"id": 7}).encode(), JSON),
    (json.dumps({"vector": [0.1] * D}).encode(), JSON),
    (encoded(picture("red", 4), "JPEG"), {"Content-Type": "image/jpeg"}),
    (encoded(picture("green", 4), "PNG"), {"Content-Type": "image/png"}),
]


def stress(port: int, clients: int, seconds: float) -> tuple[Counter[int], list[float]]:
    """All answers' statuses, and how long they took."""
    statuses: Counter[int] = Counter()
    taken: list[float] = []
    until = time.monotonic() + seconds

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        turn = number
        while time.monotonic() < until:
            started = time.perf_counter()
            status, _ = ask(connection, *QUESTIONS[turn % len(QUESTIONS)])
            taken.append(time.perf_counter() - started)
            statuses[status] += 1
            turn += 1
        connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses, taken


def sixteen_clients(server: tuple[subprocess.Popen[str], int], seconds: float, record) -> None:
    process, port = server
    _, alone = stress(port, 1, min(1.0, seconds))
    stress(port, 16, min(2.0, seconds))
    before = resident(process.pid)
    statuses, taken = stress(port, 16, seconds)
    growth = resident(process.pid) - before
    record("one client, median ms", 1000 * statistics.median(alone))
    record("16 clients, median ms", 1000 * statistics.median(taken))
    record("16 clients, p99 ms", 1000 * float(np.percentile(taken, 99)))
    record("answers a second", len(taken) / seconds)
    record("growth in MB", growth)
    assert min(alone) < 0.035, "answers wait for the client's acknowledgement"
    assert set(statuses) == {200} and statuses[200] > 10 * seconds
    assert growth < 40


@pytest.mark.soak
def test_sixteen_clients_for_five_seconds(server, record_property) -> None:
    sixteen_clients(server, 5, record_property)


@pytest.mark.soak
def test_sixteen_clients_for_ten_minutes(server, record_property) -> None:
    """NEARKIN_SOAK_MINUTES makes it shorter."""
    minutes = float(os.environ.get("NEARKIN_SOAK_MINUTES", "10"))
    found: dict[str, float] = {}
    sixteen_clients(server, 60 * minutes, found.__setitem__)
    outcome = f"all answered with 200; p99 {found['16 clients, p99 ms']:.0f} ms; memory {found['growth in MB']:+.1f} MB"
    record(f"16 clients for {minutes:g} minutes", round(found["answers a second"] * 60 * minutes), outcome, 60 * minutes)


@pytest.mark.soak
def test_five_hundred_slow_clients(folder: Path) -> None:
    """Five kinds of them from four addresses: others are served meanwhile, and in the end every connection is closed."""
    asked = b"POST /search?k=60 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n"
    kinds = (b"", b"GET / HTTP/1.1\r\nHost: 1", asked + b"{", asked + b'{"id":7}', asked + b'{"id":7}' + asked)
    with serving(folder) as (process, port):
        stress(port, 2, 2)
        before, started, slow = resident(process.pid), time.monotonic(), []
        for number in range(500):
            slow.append(socket.socket())
            slow[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            slow[-1].bind((f"127.0.0.{2 + number % 4}", 0))
            slow[-1].connect(("127.0.0.1", port))
            slow[-1].sendall(kinds[number // 4 % len(kinds)])
        statuses, taken = stress(port, 2, 10)
        assert set(statuses) == {200}
        deadline = time.monotonic() + 150
        while (left := connections_to(port)) and time.monotonic() < deadline:
            time.sleep(1)
        assert left == 0, f"{left} connections are still open"
        growth = resident(process.pid) - before
        assert growth < 40
        for client in slow:
            client.close()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 0 and not errors
        p99 = 1000 * float(np.percentile(taken, 99))
        outcome = f"all closed; others: {statuses[200]:,} answers meanwhile, p99 {p99:.0f} ms; no traceback; memory {growth:+.1f} MB"
        record("connections of slow clients", 500, outcome, time.monotonic() - started)


def connections_to(port: int) -> int:
    """Connections that the service holds, from the kernel's table."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] in ("01", "08") for row in rows)


@pytest.mark.soak
def test_answers_are_of_the_old_index_or_the_new_one(tmp_path: Path) -> None:
    """Ten points at a time stand on one far spot and are taken away again: an answer has all ten of a kind, or none."""
    make_collection(tmp_path)
    index = LocalIndex.open(tmp_path / "model/index")
    wrong: list[str] = []
    seen: Counter[int] = Counter()
    over = threading.Event()
    question = json.dumps({"vector": [1e5] * D}).encode()

    with serving(tmp_path / "model") as (_, port):

        def client() -> None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            last = 0
            while not over.is_set():
                status, body = ask(connection, question, JSON, "/search?k=30")
                page = json.loads(body)
                kinds = Counter(hit["label"] for hit in page["neighbors"] if hit["label"].startswith("far"))
                if status != 200 or any(count != 10 for count in kinds.values()) or page["generation"] < last:
                    wrong.append(f"{status} {kinds} {page['generation']} after {last}")
                last = page["generation"]
                seen[last] += 1
            connection.close()

        threads = [threading.Thread(target=client) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(8):
            ids = index.add(Entries(np.full((10, D), 1e5), labels=[f"far {number}"] * 10))
            time.sleep(0.3)
            if number % 2:
                index.delete(ids)
            if number == 5:
                index.compact()
        time.sleep(1)
        over.set()
        for thread in threads:
            thread.join()
    assert not wrong and len(seen) >= 3 and max(seen) == index.generation


def half_sent(port: int, body: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    head = f"POST /search?k=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body[:3])
    return connection


def test_a_stop_lets_answers_under_way_be_finished(folder: Path) -> None:
    with serving(folder) as (process, port):
        body = b'{"id": 7}'
        connection = half_sent(port, body)
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=2).close()
        connection.sendall(body[3:])
        answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 200")
        connection.close()
        out, errors = process.communicate(timeout=20)
        assert process.returncode == 0 and out.strip().endswith("stopped") and not errors


def test_a_stop_does_not_wait_for_hostile_images(folder: Path) -> None:
    content = many_scans(7000)
    with serving(folder) as (process, port):
        head = f"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/jpeg\r\nContent-Length: {len(content)}\r\n\r\n"
        clients = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(3)]
        for client in clients:
            client.sendall(head.encode() + content)
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=60)
        assert time.monotonic() - started < 10
        assert process.returncode == 0 and out.strip().endswith("stopped") and not errors
        for client in clients:
            client.close()


STUCK = """
import functools, sys, time
from nearkin import cli
from nearkin.serve import listen
from nearkin.serve.service import Service
listen.Limits = functools.partial(listen.Limits, stop_seconds=2)
Service.answer = lambda *question: time.sleep(100)
sys.exit(cli.main(sys.argv[1:]))
"""


def test_a_stop_ends_in_time_whatever_a_search_does(folder: Path) -> None:
    command = [sys.executable, "-c", STUCK, "serve", str(folder), "--port", "0", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r":(\d+) \(Ctrl-C", process.stdout.readline())
        assert found
        stuck = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=20)
        stuck.request("POST", "/search", b'{"id": 7}', JSON)
        slow = half_sent(int(found[1]), b'{"id": 7}')
        time.sleep(0.5)
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        answer = stuck.getresponse()
        assert answer.status == 503 and json.loads(answer.read())["error"]["code"] == "stopping"
        out, errors = process.communicate(timeout=60)
        assert time.monotonic() - started < 10
        assert process.returncode == 0 and out.strip().endswith("stopped") and not errors
        stuck.close(), slow.close()
    finally:
        process.kill()
        process.communicate()


RAW = {
    "two hosts": (b"GET /points HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n", b"400"),
    "no host": (b"GET /points HTTP/1.1\r\n\r\n", b"400"),
    "two lengths": (b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 50\r\n\r\nhello", b"400"),
    "a length that is none": (b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: +5\r\n\r\nhello", b"400"),
    "headers without end": (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 100_000, b"431"),
    "a line break in a header": (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: b\rHost: evil.example\r\n\r\n", b"400"),
    "rubbish": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"400"),
    "two ways to say the length": (
        b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"400",
    ),
    "a whole address": (b"GET http://evil.example/points HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"400"),
    "up and away": (b"GET /../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"404"),
}


@pytest.mark.parametrize("name", sorted(RAW))
def test_malformed_requests_are_refused_and_forgotten(server, name: str) -> None:
    _, port = server
    sent, status = RAW[name]
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(sent)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        body = answer.read()
    assert answer.status == int(status) and b"root:" not in body
    assert set(json.loads(body)["error"]) == {"code", "message"} and answer.headers["X-Content-Type-Options"] == "nosniff"
    ready = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    assert ask(ready, *QUESTIONS[0])[0] == 200
    ready.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "host 0.0.0.0 opens the service to other machines; set NEARKIN_TOKEN"),
        (["--token", "short"], "token must be at least 16 plain characters"),
        (["--port", "70000"], "port (70000) must be between 0 and 65535"),
    ],
)
def test_unsafe_ways_of_listening_are_refused(folder: Path, options: list[str], message: str, capsys) -> None:
    assert cli.main(["serve", str(folder), "--no-browser", *options]) == 1
    assert message in capsys.readouterr().err


def test_a_port_in_use_is_reported(folder: Path, server, capsys) -> None:
    _, port = server
    assert cli.main(["serve", str(folder), "--no-browser", "--port", str(port)]) == 1
    output = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1 port {port}" in output and "choose another --port, or 0 for any free one" in output


def test_without_the_extra_it_is_named(folder: Path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for name in [name for name in sys.modules if name.startswith("nearkin.serve.listen")]:
        monkeypatch.delitem(sys.modules, name)
    assert cli.main(["serve", str(folder)]) == 1
    assert "serving needs uvicorn, which is not installed; pip install 'nearkin[serve]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "written"),
    [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]"), ("127.0.0.1", "127.0.0.1"), ("photos.lan", "photos.lan")],
)
def test_the_printed_address_opens_in_a_browser(host: str, written: str) -> None:
    assert browser_host(host) == written


def test_a_service_for_all_tells_an_address_that_answers_also_to_head(folder: Path) -> None:
    with serving(folder, "--host", "0.0.0.0", "--token", "a-secret-of-an-option") as (process, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("HEAD", "/health")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
        connection.close()
        assert process.stdout is not None and "on 0.0.0.0, every address of this machine" in process.stdout.readline()
