"""Listening: a socket, uvicorn on it, and a stop that lets answers under way be finished."""

import ipaddress
import logging
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from nearkin.index.collection import Collection
from nearkin.report.projection import Method
from nearkin.serve.app import make_app
from nearkin.serve.limits import Limits

SHORTEST_TOKEN = 16
CONNECTIONS = 512
HEADER_BYTES = 32 << 10


def checked_token(host: str, token: str | None) -> str | None:
    """The token, which is required wherever others than this machine can reach the service."""
    if token is not None and (len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token):
        raise ValueError(f"token must be at least {SHORTEST_TOKEN} plain characters, so that it cannot be guessed; it has {len(token)}")
    if token is None and not _is_loopback(host):
        raise ValueError(
            f"host {host} opens the service to others; set NEARKIN_TOKEN (or --token) to a secret of at least {SHORTEST_TOKEN} characters, "
            "such as `openssl rand -hex 16` prints"
        )
    return token


def serve(
    collection: Collection,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    limits: Limits | None = None,
    ready: Callable[[str], None] | None = None,
    compare: Collection | None = None,
    method: Method = "tsne",
) -> None:
    """Answer until SIGTERM or Ctrl-C. `ready` is told the address, as a browser here opens it, as soon as connections are taken.

    The explorer shows the collection beside `compare`, if there is one, on maps by `method`.
    """
    token, limits = checked_token(host, token), limits or Limits()
    _warm(collection)
    bound = _bound(host, port)
    address = f"http://{opened_here(host)}:{bound.getsockname()[1]}"
    app = make_app(collection, token=token, limits=limits, compare=compare, method=method)
    app.state.explorer.take_up()
    config = uvicorn.Config(
        app,
        http=_protocol(limits.body_seconds),
        loop="asyncio",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(limits.stop_seconds),
    )
    for name in ("uvicorn.error", "python_multipart"):  # malformed requests are answered, not logged: strangers could fill the log
        logging.getLogger(name).setLevel(logging.ERROR)
    server = _Server(config, (lambda: None) if ready is None else lambda: ready(address))
    # uvicorn stops gracefully and then raises the signal once more, for whoever had asked for it before: let that be nobody.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: None)
    with bound:
        server.run([bound])


def _warm(collection: Collection) -> None:
    """One search before anybody asks: compiled loops are compiled now, memory maps are read now."""
    index, shape = collection.index, collection.model.about["shape"]
    collection.model.encode(np.zeros((1, *shape), np.uint8 if len(shape) == 3 else np.float32))
    if index.count:
        index.search(index.snapshot.vectors[:1], 1)
        index.search(index.snapshot.vectors[:1], 1, exclude=[int(index.snapshot.ids[0])])


class _Server(uvicorn.Server):
    """uvicorn's, with a word when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


def _protocol(seconds: float) -> type[H11Protocol]:
    """HTTP that hangs up on whoever connects and never finishes his first headers; uvicorn would wait for ever."""

    class Impatient(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.loop.call_later(seconds, self._hang_up_if_silent)

        def _hang_up_if_silent(self) -> None:
            if self.cycle is None and not self.transport.is_closing():
                self.transport.close()

    return Impatient


def _bound(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise ValueError(f"port ({port}) must be between 0 and 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named: asyncio turns Nagle's algorithm off only where it sees TCP, and every answer would wait 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise OSError(f"cannot listen on {host} port {port} ({error.strerror}); choose another --port, or 0 for any free one") from None
    return bound


def opened_here(host: str) -> str:
    """What a browser on this machine writes for the host: 0.0.0.0 and :: listen everywhere, but are no place to go to."""
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{here}]" if ":" in here else here


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
