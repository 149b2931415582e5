"""What is asked of Milvus goes through here: one connection, a time limit on every call, a few tries, and errors in words.

Every write is an upsert or a delete by id, so that one that was lost on its way can be sent again and nothing is there twice.
"""

import json
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from nearkin.index.contract import Where, as_text

T = TypeVar("T")
Fields = Sequence[tuple[str, str, dict[str, Any]]]  # name, type, options
PASSING = (
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
FULL_MEND = "free some room on its disk and give the same command again; what was acknowledged before is kept"
RELEASED = ("is in state 'released'", "collection not loaded")
WAIT = 0.5  # seconds before the second try, twice as long before each further one


class IndexUnreachableError(OSError):
    """Nobody answers where the index is said to be; the message names the address and what can be done."""


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
        self._pymilvus = _library(self.local)
        self._client: Any = None
        self._token = token

    def call(self, what: str, *arguments: Any, **options: Any) -> Any:
        """A method of the client, with the time limit; tried again while the cause may pass."""
        released = False

        def ask() -> Any:
            client = self._connected()
            if released:  # by a server that has started anew
                client.load_collection(arguments[0], timeout=self.timeout)
            return getattr(client, what)(*arguments, timeout=self.timeout, **options)

        try:
            return self._tried(what, ask)
        except ValueError as error:
            if not any(word in str(error) for word in RELEASED):
                raise
            released = True
            return self._tried(what, ask)

    def create(self, name: str, fields: Fields, indexed: tuple[str, str, str], properties: dict[str, str]) -> None:
        """A collection with these fields, of which one vector field is `indexed`: its name, structure and metric."""
        made = self._pymilvus.MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        for field, kind, options in fields:
            made.add_field(field, getattr(self._pymilvus.DataType, kind), **options)
        self.call("create_collection", name, schema=made, properties=properties, consistency_level="Strong")
        self.ready(name, indexed)

    def ready(self, name: str, indexed: tuple[str, str, str]) -> None:
        """The collection can be searched; what a creation that was broken off has left out is done."""
        if not self.call("list_indexes", name):
            made = self._pymilvus.MilvusClient.prepare_index_params()
            made.add_index(indexed[0], index_type=indexed[1], metric_type=indexed[2])
            self.call("create_index", name, index_params=made)
        self.call("load_collection", name)

    def close(self) -> None:
        """Let go of the connection; another one is made when something is asked again."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connected(self) -> Any:
        if self._client is None:
            if self.local:
                Path(self.uri).absolute().parent.mkdir(parents=True, exist_ok=True)
            # channels of their own: those that are shared wait longer and longer after each failure, also when the server is back;
            # and few pings: a server that is busy with a long call takes many for an attack
            options = {"grpc.use_local_subchannel_pool": 1, "grpc.keepalive_time_ms": 300_000}
            self._client = self._pymilvus.MilvusClient(self.uri, token=self._token, timeout=self.timeout, grpc_options=options)
        return self._client

    def _tried(self, what: str, ask: Callable[[], T]) -> T:
        errors, last = self._pymilvus.exceptions.MilvusException, ""
        for number in range(self.tries):
            try:
                return ask()
            except (errors, import_module("grpc").RpcError, ValueError) as error:
                last = _words(error)
                if not any(word in last.lower() for word in PASSING):
                    mend = f"; {FULL_MEND}" if FULL in last.lower() else ""
                    raise ValueError(f"Milvus at {self.uri} refuses {what}: {last}{mend}") from error
                with suppress(Exception):  # a channel that has failed is not used again, whatever it says to that
                    self.close()
                self._client = None
            if number + 1 < self.tries:
                time.sleep(WAIT * 2**number)
        raise IndexUnreachableError(f"{self._unreachable()} ({what}, {self.tries} tries of at most {self.timeout:g} s: {last})")

    def _unreachable(self) -> str:
        kept = "what was acknowledged before is kept"
        if self.local:
            return f"{self.uri} cannot be opened; another process may hold it: end that one, or start a server and give its address; {kept}"
        return (
            f"nobody answers at {self.uri}; start Milvus there, or give the right address with --uri; {kept}, and the same command goes on"
        )


def expression(where: Where) -> str:
    """Milvus's words for who may be a neighbor."""
    parts = []
    if where.labels:
        parts.append(f"label in [{', '.join(map(_quoted, where.labels))}]")
    parts += [f'row["texts"][{_quoted(key)}] == {_quoted(as_text(value))}' for key, value in where.metadata.items()]
    if where.ids is not None:
        parts.append(f"id in [{', '.join(str(int(point)) for point in where.ids)}]")
    return " and ".join(parts)


def _quoted(text: str) -> str:
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
    ):  # they write to the terminal what we raise, and what milvus-lite lacks and is not needed
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return found
