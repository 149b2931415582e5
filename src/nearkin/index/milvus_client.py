"""The connection to Milvus: a time limit on every call, a few tries, and plain error messages.

Every write is an upsert or a delete by id, so that a lost request can be sent again without storing a point twice.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from nearkin.index.contract import Where, as_text

T = TypeVar("T")
Fields = Sequence[tuple[str, str, dict[str, Any]]]  # name, type, options
TEMPORARY = (  # words of errors after which a call is tried again
    "retry",
    "fail connecting",
    "unavailable",
    "deadline",
    "timeout",
    "connect",
    "not ready",
    "rate limit",
    "closed channel",
    "open local milvus",
)


FULL = "no space left"
FULL_FIX = "free some space on its disk and run the same command again; points written before are kept"
RELEASED = ("is in state 'released'", "collection not loaded")
WAIT = 0.5  # seconds before the second try, doubled before each further one


class IndexUnreachableError(OSError):
    """No server responds at the address of the index. The message names the address and the fix."""


class Milvus:
    """A connection to milvus-lite (a path that ends in .db) or to a server (http://host:port)."""

    def __init__(self, uri: str, *, token: str = "", timeout: float = 10.0, tries: int = 4) -> None:
        if timeout <= 0 or tries < 1:
            raise ValueError(f"timeout ({timeout}) must be above 0 and tries ({tries}) at least 1")
        self.uri, self.local, self.timeout, self.tries = uri, "://" not in uri, timeout, tries
        if self.local and not uri.endswith(".db"):
            raise ValueError(
                f"uri {uri!r} must be a path that ends in .db (milvus-lite), or the address of a server such as http://host:19530"
            )
        if not self.local:
            _check_private(uri, token)
        self._pymilvus = _library(self.local)
        self._client: Any = None
        self._token = token
        self._lock = threading.Lock()

    def call(self, what: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the client with the time limit, and again after temporary errors."""
        released = False

        def attempt() -> Any:
            client = self._connected()
            if released:  # by a server that was restarted
                client.load_collection(arguments[0], timeout=self.timeout)
            return getattr(client, what)(*arguments, timeout=self.timeout, **options)

        try:
            return self._tried(what, attempt)
        except ValueError as error:
            if not any(word in str(error) for word in RELEASED):
                raise
            released = True
            return self._tried(what, attempt)

    def properties(self, name: str) -> dict[str, str]:
        """The properties of a collection."""
        return dict(self.call("describe_collection", name).get("properties", {}))

    def scan(self, name: str, fields: list[str], batch: int) -> Iterator[list[dict[str, Any]]]:
        """All rows of a collection, in batches, by id."""
        iterator = self.call("query_iterator", name, batch_size=batch, output_fields=fields)
        try:
            while rows := self._tried("query_iterator", iterator.next):
                yield rows
        finally:
            with suppress(Exception):
                iterator.close()

    def create(self, name: str, fields: Fields, indexed: tuple[str, str, str], properties: dict[str, str]) -> None:
        """A collection with these fields, of which one vector field is `indexed`: its name, structure and metric."""
        made = self._pymilvus.MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        for field, kind, options in fields:
            made.add_field(field, getattr(self._pymilvus.DataType, kind), **options)
        self.call("create_collection", name, schema=made, properties=properties, consistency_level="Strong")
        self.ready(name, indexed)

    def ready(self, name: str, indexed: tuple[str, str, str]) -> None:
        """Make the collection searchable; an interrupted creation is completed."""
        if not self.call("list_indexes", name):
            made = self._pymilvus.MilvusClient.prepare_index_params()
            made.add_index(indexed[0], index_type=indexed[1], metric_type=indexed[2])
            self.call("create_index", name, index_params=made)
        self.call("load_collection", name)

    def close(self) -> None:
        """Close the connection. The next call opens it again."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> Any:
        with self._lock:  # the service calls from several threads
            if self._client is None:
                if self.local:
                    Path(self.uri).absolute().parent.mkdir(parents=True, exist_ok=True)
                # Separate channels: shared ones wait longer after each failure, even when the server is back.
                # Few pings: a server that is busy with a long call would take many for an attack.
                options = {"grpc.use_local_subchannel_pool": 1, "grpc.keepalive_time_ms": 300_000}
                self._client = self._pymilvus.MilvusClient(self.uri, token=self._token, timeout=self.timeout, grpc_options=options)
            return self._client

    def _tried(self, what: str, attempt: Callable[[], T]) -> T:
        errors, last = self._pymilvus.exceptions.MilvusException, ""
        for number in range(self.tries):
            try:
                return attempt()
            except (errors, import_module("grpc").RpcError, ValueError) as error:
                last = _words(error)
                if not any(word in last.lower() for word in TEMPORARY):
                    fix = f"; {FULL_FIX}" if FULL in last.lower() else ""
                    raise ValueError(f"Milvus at {self.uri} refuses {what}: {last}{fix}") from error
                with suppress(Exception):  # a channel that has failed is not used again
                    self.close()
            if number + 1 < self.tries:
                time.sleep(WAIT * 2**number)
        raise IndexUnreachableError(f"{self._unreachable()} ({what}, {self.tries} tries of at most {self.timeout:g} s: {last})")

    def _unreachable(self) -> str:
        kept = "points written before are kept"
        if self.local:
            return f"{self.uri} cannot be opened; another process may use it: stop that one, or start a server and pass its address; {kept}"
        return (
            f"no server responds at {self.uri}; start Milvus there, or pass the right address with --uri; {kept}, "
            "and the same command continues"
        )


def _check_private(uri: str, token: str) -> None:
    """Refuse to send a token or a password over a network in clear."""
    parts = urlsplit(uri)
    secret = "token" if token else "password" if parts.password else ""
    host = parts.hostname or ""
    try:
        here = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        here = False
    if secret and parts.scheme != "https" and not here:
        shown = f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "")
        raise ValueError(
            f"the {secret} for {shown} would be sent in clear, for anyone on the way to read; use an https address, or unset "
            "NEARKIN_MILVUS_TOKEN if the server needs none"
        )


def expression(where: Where) -> str:
    """A filter in Milvus's language."""
    parts = []
    if where.labels:
        parts.append(f"label in [{', '.join(map(quoted, where.labels))}]")
    parts += [f'row["texts"][{quoted(key)}] == {quoted(as_text(value))}' for key, value in where.metadata.items()]
    if where.ids is not None:
        parts.append(f"id in [{', '.join(str(int(point)) for point in where.ids)}]")
    return " and ".join(parts)


def quoted(text: str) -> str:
    """A text as Milvus's filters write it."""
    return json.dumps(text, ensure_ascii=False)


def _words(error: BaseException) -> str:
    return str(getattr(error, "message", "") or error).strip() or type(error).__name__


def _library(local: bool) -> Any:
    if find_spec("pymilvus") is None or (local and find_spec("milvus_lite") is None):
        raise ImportError("backend milvus needs pymilvus and milvus-lite, which are not installed; pip install 'nearkin[milvus]'")
    found = import_module("pymilvus")
    for name in (
        "pymilvus",
        "milvus_lite",
        "grpc._server",
    ):  # they print what is raised here, and warnings about features that are not used
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return found
