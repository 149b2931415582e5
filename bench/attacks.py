"""The service under attack: `python -m bench.attacks [--source OTHER/src] [--out FILE.json]`.

A service with a token runs in a process of its own. Each attack goes on while a client with the token, from another address of this
machine, asks /health and /search in turn; their times are compared with those before the attack. `--source` serves with the package of
another checkout, to compare.

- cookies: four clients without the token send a quoted cookie of 29,000 backslashes, and one of 14,000
- sockets: 511 connections that send half a head, or ask and never read
- json: eight bodies of 16 MB (with the token)
- images: two JPEGs of 31 megapixels with 7,000 scans (with the token); then the service is asked to stop
"""

import argparse
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.hostile_jpeg import many_scans
from bench.service import D, clustered, model_folder

TOKEN = "a-secret-for-the-benchmark"
SIGNED = {"Authorization": f"Bearer {TOKEN}"}
SECONDS = 20.0  # that an attack is watched
Figures = dict[str, Any]


class Served:
    """The service in a process, and the clients' side of its port."""

    def __init__(self, folder: Path, source: Path | None) -> None:
        paths = {"PYTHONPATH": str(source)} if source else {}
        command = [sys.executable, "-m", "nearkin", "serve", str(folder), "--port", "0", "--no-browser", "--token", TOKEN]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **paths})
        assert self.process.stdout is not None
        found = re.search(r":(\d+) \(Ctrl-C", self.process.stdout.readline())
        assert found is not None
        self.port = int(found[1])

    def stop(self) -> float:
        """Seconds from SIGTERM to the end, infinite if that does not come in two minutes."""
        started = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return float("inf")
        return time.monotonic() - started

    def ask(self, what: str, seconds: float = 100) -> float:
        """Milliseconds of one request on a connection of its own, from 127.0.0.9; infinite if it is refused or not answered."""
        started = time.perf_counter()
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds, source_address=("127.0.0.9", 0))
        try:
            if what == "health":
                client.request("GET", "/health", headers=SIGNED)
            else:
                body = json.dumps({"vector": [0.5] * D})
                client.request("POST", "/search", body, {"Content-Type": "application/json", **SIGNED})
            answer = client.getresponse()
            answer.read()
            return 1000 * (time.perf_counter() - started) if answer.status == 200 else float("inf")
        except OSError:
            return float("inf")
        finally:
            client.close()

    def watch(self, seconds: float) -> Figures:
        """The slowest and the median answers while the seconds last."""
        times: dict[str, list[float]] = {"health": [], "search": []}
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for name, found in times.items():
                found.append(self.ask(name))
            time.sleep(0.05)
        pairs = {name: sorted(found) for name, found in times.items()}
        return {
            name: {
                "requests": len(one),
                "median_ms": one[len(one) // 2],
                "slowest_ms": one[-1],
                "failed": sum(value == float("inf") for value in one),
            }
            for name, one in pairs.items()
        }

    def send(self, path: str, body: bytes, headers: dict[str, str]) -> None:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=200)
        try:
            client.request("POST", path, body, headers)
            client.getresponse().read()
        except OSError:
            pass
        finally:
            client.close()


def cookies(service: Served) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        for slashes in (29_000, 14_000):
            service.send("/search", b"", {"Cookie": 'nearkin_token="' + "\\" * slashes + '"'})


def sockets(service: Served) -> None:
    asked = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\n\r\n"
    opened = []
    for number in range(511):
        try:
            opened.append(socket.create_connection(("127.0.0.1", service.port), timeout=5))
            opened[-1].sendall(asked + b"GET / HTTP/1.1\r\n" if number % 2 else b"GET / HTTP/1.1\r\nHost: 127")
        except OSError:
            continue
    time.sleep(SECONDS)
    for client in opened:
        client.close()


def json_bodies(service: Served) -> None:
    body = b'{"vector": [' + b"1.25," * 3_300_000 + b"1]}"
    service.send("/search", body, {"Content-Type": "application/json", **SIGNED})


def images(service: Served) -> None:
    service.send("/search", many_scans(7000), {"Content-Type": "image/jpeg", **SIGNED})


ATTACKS: dict[str, tuple[Callable[[Served], None], int]] = {
    "cookies": (cookies, 4),
    "sockets": (sockets, 1),
    "json": (json_bodies, 8),
    "images": (images, 2),
}


def measure(folder: Path, source: Path | None, name: str) -> Figures:
    """One attack on a fresh service."""
    attack, clients = ATTACKS[name]
    service = Served(folder, source)
    try:
        before = service.watch(3)
        threads = [threading.Thread(target=attack, args=(service,), daemon=True) for _ in range(clients)]
        for thread in threads:
            thread.start()
        time.sleep(1)
        during = service.watch(SECONDS - 5)
        for thread in threads if name == "images" else ():  # so that some are under way when the service is stopped
            if not thread.is_alive():
                threading.Thread(target=attack, args=(service,), daemon=True).start()
        time.sleep(1)
        return {"before": before, "during": during, "stop_s": service.stop()}
    finally:
        service.process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="the src folder of another checkout")
    parser.add_argument("--only", choices=ATTACKS, action="append")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    arguments = parser.parse_args()
    many_scans(7000)
    found: Figures = {"when": datetime.now(UTC).isoformat(timespec="seconds")}
    with tempfile.TemporaryDirectory() as place:
        folder = model_folder(Path(place) / "model", clustered(6000, 1))
        for name in arguments.only or ATTACKS:
            found[name] = one = measure(folder, arguments.source, name)
            for what in ("health", "search"):
                before, during = one["before"][what], one["during"][what]
                print(
                    f"{name:8} {what:6} before {before['median_ms']:.1f} ms; during {during['median_ms']:.1f} ms,"
                    f" slowest {during['slowest_ms']:.0f} ms, {during['failed']} failed"
                )
            print(f"{name:8} stopped in {one['stop_s']:.1f} s", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
