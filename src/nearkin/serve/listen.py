"""Run the service: a socket, uvicorn on it, and a stop that lets running requests finish."""

import asyncio
import ipaddress
import logging
import signal
import socket
import threading
from collections.abc import Callable

import numpy as np
import uvicorn

from nearkin.index.collection import Collection
from nearkin.report.projection import Method
from nearkin.serve.app import make_app
from nearkin.serve.connection import HEAD_BYTES, Connections, connection_class
from nearkin.serve.limits import Limits

SHORTEST_TOKEN = 16
GIVING_UP = 1.0  # seconds before the end of `stop_seconds` at which running requests are dropped


def checked_token(host: str, token: str | None) -> str | None:
    """The token, which is required if other machines can reach the service."""
    if token is not None and (len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token):
        raise ValueError(
            f"token must be at least {SHORTEST_TOKEN} plain characters without spaces, so that it cannot be guessed; it has {len(token)}"
        )
    if token is None and not _is_loopback(host):
        raise ValueError(
            f"host {host} opens the service to other machines; set NEARKIN_TOKEN (or --token) to a secret of at least "
            f"{SHORTEST_TOKEN} characters, such as the output of `openssl rand -hex 16`"
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
    """Serve a collection over HTTP until SIGTERM or Ctrl-C.

    Parameters
    ----------
    collection : Collection
        The model and its index, as `open_index` returns them.
    host : str, default "127.0.0.1"
        The address to listen on. Any other than this machine's own needs a token.
    port : int, default 8000
        The port; 0 for any free one.
    token : str, optional
        A secret of at least 16 characters that clients must send.
    limits : Limits, optional
        Sizes and times above which requests are refused.
    ready : callable, optional
        Called with the address, as a browser on this machine opens it, when the service accepts connections.
    compare : Collection, optional
        Another model's collection of the same points, which the explorer shows side by side.
    method : {"tsne", "pca"}, default "tsne"
        How the explorer's map is computed.

    Raises
    ------
    ValueError
        If the token is missing or too short, or the port is out of range.
    OSError
        If the port is in use.

    Examples
    --------
    >>> serve(open_index("runs/photos"), port=8080)  # doctest: +SKIP
    """
    token, limits = checked_token(host, token), limits or Limits()
    _warm(collection)
    bound = _bound(host, port)
    address = f"http://{browser_host(host)}:{bound.getsockname()[1]}"
    app = make_app(collection, token=token, limits=limits, compare=compare, method=method)
    app.state.explorer.restore()
    app.state.service.decoders.start()
    connections = Connections(limits)
    config = uvicorn.Config(
        app,
        http=connection_class(connections),
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=int(limits.idle_seconds) + 1,  # the connection has its own limit
        timeout_graceful_shutdown=int(limits.stop_seconds),
    )
    for name in ("uvicorn.error", "python_multipart", "asyncio"):  # malformed requests are not logged: clients could fill the log
        logging.getLogger(name).setLevel(logging.ERROR)

    def give_up() -> None:
        app.state.service.stop()
        asyncio.get_running_loop().call_later(GIVING_UP / 2, connections.abort)  # after their responses

    server = _Server(config, (lambda: None) if ready is None else lambda: ready(address), give_up, limits.stop_seconds - GIVING_UP)
    # uvicorn stops gracefully and then raises the signal again for the previous handler: this one does nothing.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: None)
    with bound:
        server.run([bound])


def _warm(collection: Collection) -> None:
    """Search once before the first request, so that loops are compiled and memory maps are read."""
    index, shape = collection.index, collection.model.about["shape"]
    example = ["a"] if collection.model.reads_texts else np.zeros((1, *shape), np.uint8 if len(shape) == 3 else np.float32)
    collection.model.encode(example)
    if index.count:
        query = np.ones((1, index.dimension), np.float32)
        index.search(query, 1)
        index.search(query, 1, exclude=[0])


class _Server(uvicorn.Server):
    """uvicorn's server, with a callback when it is ready, and one when requests have had their time to finish."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], give_up: Callable[[], None], patience: float) -> None:
        super().__init__(config)
        self._ready, self._give_up, self._patience = ready, give_up, patience

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().call_later(max(0.0, self._patience), self._give_up)
        await super().shutdown(sockets)


def _bound(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise ValueError(f"port ({port}) must be between 0 and 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio disables Nagle's algorithm only for TCP; otherwise every response would wait 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise OSError(f"cannot listen on {host} port {port} ({error.strerror}); choose another --port, or 0 for any free one") from None
    return bound


def browser_host(host: str) -> str:
    """The host as a browser on this machine opens it: 0.0.0.0 and :: are addresses to listen on only."""
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{here}]" if ":" in here else here


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
