"""The checks before a request reaches the routes, and the headers of every response.

- Headers are few and short, and say the length of the body in one way.
- A token, if there is one, is required everywhere but at /health, which returns only its status without it: `Authorization: Bearer`, or
  the cookie that `/?token=` sets. The response to a wrong one is delayed, so that guessing is slow; the right one never waits.
- `Host` must name this machine when the service listens on loopback only: a foreign page that rebinds its name to 127.0.0.1 is refused.
- `Origin`, if sent, must be the service itself: other sites cannot send requests from a user's browser.
- The body is counted as it arrives, whatever Content-Length says, and must arrive in time.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import time
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nearkin.serve.errors import SAFE_HEADERS, Refusal, error_response
from nearkin.serve.limits import Limits
from nearkin.serve.metrics import Metrics

COOKIE = b"nearkin_token"
DIGITS = 18  # of a Content-Length; Python refuses to parse very long numbers
HEADER_COUNT, HEADER_BYTES = 100, 16 << 10
GONE = 499  # as nginx counts clients that left before the response
PAGES = ("/", "/explore", "/explore/")  # that a browser may open with the token in the address
METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE")


class Guard:
    """The ASGI middleware."""

    def __init__(self, app: ASGIApp, *, limits: Limits, metrics: Metrics, token: str | None, routes: tuple[str, ...]) -> None:
        self.app, self.limits, self.metrics, self.token, self.routes = app, limits, metrics, token, routes
        self._cookie = "" if token is None else hashlib.sha256(token.encode()).hexdigest()  # needs no quoting, and is not the token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SAFE_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            response = _malformed(scope) or await self._unknown(scope) or self._refused(scope) or self._with_cookie(scope)
            if response is not None:
                await response(scope, receive, with_headers)
            else:
                await self.app(scope, self._counted(receive), with_headers)
        except ClientDisconnect:
            status = GONE
        finally:
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.metrics.requests.labels(self._route(scope), method, str(status)).inc()
            self.metrics.seconds["request"].observe(time.perf_counter() - started)

    async def _unknown(self, scope: Scope) -> Response | None:
        """The error response if the token is required and not sent; a wrong one is answered late."""
        state = scope.setdefault("state", {})
        state["known"] = known = self.token is None
        if self.token is not None:
            sent = self._sent_tokens(scope)
            state["known"] = known = any(hmac.compare_digest(one, right.encode()) for one, right in sent)
            if sent and not known:
                state["wrong_token"] = True  # the connection may be closed if others need it
                await asyncio.sleep(self.limits.wrong_token_seconds)
        if known or scope["path"] == "/health":  # without the token /health returns its status only
            return None
        return error_response(401, "no_token", "send the token as 'Authorization: Bearer ...'", {"WWW-Authenticate": "Bearer"})

    def _refused(self, scope: Scope) -> Response | None:
        """The error response if a request comes from elsewhere or is too large."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self.token is None and not _is_this_machine(_host_name(host)):
            return error_response(
                400,
                "wrong_host",
                "this service is for localhost, 127.0.0.1 and [::1] only; to open it to other machines start it with --host and --token",
            )
        origin = headers.get("origin")
        if origin is not None and _host_of(origin) != host.lower():
            return error_response(403, "wrong_origin", "requests from pages of other sites are refused")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > DIGITS or int(length) > self.limits.body_bytes:
            return error_response(413, "too_large", _large(self.limits.body_bytes))
        return None

    def _with_cookie(self, scope: Scope) -> Response | None:
        """Move the token from the address bar into a cookie."""
        if self.token is None or scope["path"] not in PAGES or not scope["query_string"]:
            return None
        response = RedirectResponse(scope["path"], 303)
        response.set_cookie(COOKIE.decode(), self._cookie, httponly=True, samesite="strict")
        return response

    def _sent_tokens(self, scope: Scope) -> list[tuple[bytes, str]]:
        """What was sent as a token, and what it should be. Python's own parser of cookies takes quadratic time."""
        right, found = str(self.token), []
        for name, value in scope["headers"]:
            if name == b"authorization":
                found.append((value.removeprefix(b"Bearer "), right))
            elif name == b"cookie":
                pairs = (part.partition(b"=") for part in value.split(b";"))
                found += [(content.strip(), self._cookie) for key, _, content in pairs if key.strip() == COOKIE]
        if scope["path"] in PAGES:
            query = scope["query_string"].decode("latin-1")
            found += [(one.encode(), right) for one in parse_qs(query).get("token", [])]
        return found

    def _counted(self, receive: Receive) -> Receive:
        """The same body, unless it is too long or too slow."""
        received, until, complete = 0, time.monotonic() + self.limits.body_seconds, False

        async def counted() -> Message:
            nonlocal received, complete
            if complete:
                return await receive()  # only the message that the client has left
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    message = await receive()
            except TimeoutError:
                raise Refusal(
                    408, "too_slow", f"the request did not arrive within {self.limits.body_seconds:g} s", {"Connection": "close"}
                ) from None
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                complete = not message.get("more_body", False)
                if received > self.limits.body_bytes:
                    raise Refusal(413, "too_large", _large(self.limits.body_bytes))
            return message

        return counted

    def _route(self, scope: Scope) -> str:
        """A name from a short list: clients must not be able to grow the metrics."""
        path = scope["path"]
        return next(
            (route for route in self.routes if path == route or (route.endswith("/") and route != "/" and path.startswith(route))), "other"
        )


def _malformed(scope: Scope) -> Response | None:
    """The error response if there are too many headers, or two that disagree on where the body ends."""
    headers = scope["headers"]
    if len(headers) > HEADER_COUNT or sum(len(name) + len(value) for name, value in headers) > HEADER_BYTES:
        most = f"{HEADER_COUNT} headers and {HEADER_BYTES:,} bytes of them are allowed"
        return error_response(431, "headers_too_large", f"at most {most}", {"Connection": "close"})
    names = {name for name, _ in headers}
    if b"content-length" in names and b"transfer-encoding" in names:
        return error_response(400, "bad_request", "send Content-Length or Transfer-Encoding, not both", {"Connection": "close"})
    return None


def _host_name(host: str) -> str:
    """The host without its port."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdecimal() else host.lower()


def _is_this_machine(name: str) -> bool:
    """Whether a host name is this machine's own; any of 127.0.0.0/8, which no name of another site can be."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name).is_loopback
    except ValueError:
        return False


def _host_of(origin: str) -> str | None:
    """Host and port of an origin, None if it has none."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:  # such as http://[
        return None


def _large(most: int) -> str:
    return f"the request is larger than {most:,} bytes; send a smaller image"
