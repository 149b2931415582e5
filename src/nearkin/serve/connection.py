"""HTTP connections with limits.

uvicorn limits only how long a connection may be idle. Here every state of a connection has a time limit, so that no client can hold one
for ever by sending slowly, by never reading, or by doing nothing; heads of requests are limited before they are parsed; and one address
gets only a share of the connections. When a share is used up, the connection that has waited longest for its client is closed.

Requests that are sent before the last one was answered (pipelining) are not answered: the connection is closed, and clients send again.
"""

import asyncio
import ipaddress
import json
import re
from collections import Counter
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from nearkin.serve.errors import SAFE_HEADERS, error_content
from nearkin.serve.limits import Limits

HEAD_BYTES = 16 << 10
HEAD_END = re.compile(rb"\n\r?\n")
CLOSING_SECONDS = 5.0  # for what a client has not yet read or sent when its connection is closed


class Connections:
    """The open connections, oldest first, and how many there are from each address."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._open: dict[Connection, str] = {}
        self._counts: Counter[str] = Counter()

    def admit(self, connection: "Connection") -> bool:
        """Whether a connection may be opened. If there are too many, one that waits for its client is closed instead."""
        address = network(connection.client)
        if self._counts[address] >= self.limits.connections_per_address:
            admitted = self._close_one(address)
        elif len(self._open) >= self.limits.connections:
            admitted = self._close_one(self._counts.most_common(1)[0][0])
        else:
            admitted = True
        if admitted:
            self._open[connection] = address
            self._counts[address] += 1
        return admitted

    def remove(self, connection: "Connection") -> None:
        address = self._open.pop(connection, None)
        if address is not None:
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]

    def abort(self) -> None:
        """Close all of them now."""
        for connection in list(self._open):
            connection.transport.abort()

    def _close_one(self, address: str) -> bool:
        oldest = next((one for one, its in self._open.items() if its == address and one.waits_for_client()), None)
        if oldest is not None:
            self.remove(oldest)
            oldest.transport.abort()
        return oldest is not None


def network(client: tuple[str, int] | None) -> str:
    """The address of a client; for IPv6 its /64 network, since a client has all of it."""
    host = client[0] if client else ""
    if ":" not in host:
        return host
    return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))


class Connection(H11Protocol):
    """One connection. `table` is set by `connection_class`."""

    table: Connections

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None
        self._idle = False  # between two requests
        self._head, self._tail = 0, b""  # bytes of the head that have arrived, and the last of them

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # so that pause_writing is called as soon as a client does not read
        if not self.table.admit(self):
            self.refuse(503, "too_many_connections", "too many connections are open; try again later")
            return
        self._limit(self.table.limits.body_seconds, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self.table.remove(self)
        if self._timer is not None:
            self._timer.cancel()
        self._unset_keepalive_if_required()  # uvicorn leaves the timer if the client broke off
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        step = HEAD_BYTES if self.conn.our_state is h11.DONE else max(len(data), 1)  # a head may follow the rest of a body nobody wanted
        for at in range(0, len(data), step):
            self._take(data[at : at + step])

    def _take(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.IDLE and not self._head_fits(data):
            self.refuse(431, "headers_too_large", f"the headers are larger than {HEAD_BYTES:,} bytes; send fewer or shorter ones")
            return
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.DONE and self.conn.trailing_data[0]:  # pipelined
            self.cycle.keep_alive = False
        elif self.conn.our_state is h11.IDLE and self.conn.their_state is h11.IDLE and not self._head:
            self._begin_idle()  # the rest of a body has arrived

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing() or self.flow.write_paused:
            self._limit(self.table.limits.send_seconds, self.transport.abort)
        elif self.conn.their_state is h11.SEND_BODY:
            self._limit(CLOSING_SECONDS, self.transport.abort)
        else:
            self._begin_idle()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._limit(self.table.limits.send_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.cycle is not None and self.cycle.response_complete and not self.transport.is_closing():
            self._begin_idle()

    def shutdown(self) -> None:
        super().shutdown()
        if self.transport.is_closing():
            self._limit(CLOSING_SECONDS, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        self.refuse(400, "bad_request", msg)

    def waits_for_client(self) -> bool:
        """Whether it is the client's turn: nobody's work is lost if the connection is closed."""
        if self.cycle is None or self.cycle.response_complete:
            return True
        waiting = self.conn.their_state is h11.SEND_BODY or self.flow.write_paused
        return waiting or bool(self.scope["state"].get("wrong_token"))

    def refuse(self, status: int, code: str, message: str) -> None:
        """Answer, if no response has begun, and close."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps(error_content(code, message)).encode()
            headers = [
                *SAFE_HEADERS.items(),
                ("Content-Type", "application/json"),
                ("Content-Length", str(len(body))),
                ("Connection", "close"),
            ]
            response = h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status])
            self.transport.write(b"".join(self.conn.send(event) or b"" for event in (response, h11.Data(data=body), h11.EndOfMessage())))
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()
        self._limit(CLOSING_SECONDS, self.transport.abort)

    def _head_fits(self, data: bytes) -> bool:
        """Count the head of a request as it arrives. Its first byte ends the idle time."""
        if self._idle:
            self._idle = False
            self._limit(self.table.limits.body_seconds, self._too_slow)
        start = self._tail + data[: HEAD_BYTES + 4]
        end = HEAD_END.search(start)
        self._head += (end.end() if end else len(start)) - len(self._tail)
        self._tail = data[-3:]
        if self._head > HEAD_BYTES:
            return False
        if end:
            self._head, self._tail = 0, b""
            limits = self.table.limits  # the application has limits of its own; this is for what it cannot see
            self._limit(limits.body_seconds + limits.decode_seconds + 2 * limits.job_seconds + limits.send_seconds, self.transport.abort)
        return True

    def _begin_idle(self) -> None:
        self._idle = True
        self._limit(self.table.limits.idle_seconds, self.transport.close)

    def _too_slow(self) -> None:
        if self._head:
            seconds = self.table.limits.body_seconds
            self.refuse(408, "too_slow", f"the headers did not arrive within {seconds:g} s")
        else:
            self.transport.close()

    def _limit(self, seconds: float, then: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, then)


def connection_class(connections: Connections) -> type[Connection]:
    """The class of the connections in this table: uvicorn makes them without arguments of ours."""
    return type("Connection", (Connection,), {"table": connections})
