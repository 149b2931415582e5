"""The checks before a request reaches the routes, and the headers of every response.

- `Host` must name this machine when the service listens on loopback only: a foreign page that rebinds its name to 127.0.0.1 is refused.
- `Origin`, if sent, must be the service itself: other sites cannot send requests from a user's browser.
- A token, if there is one, is required everywhere but at /health, which returns only its status without it: `Authorization: Bearer`, or
  the cookie that `/?token=` sets.
- The body is counted as it arrives, whatever Content-Length says, and must arrive in time.
"""

import asyncio
import hmac
import time
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nearkin.serve.errors import Refusal, error_response
from nearkin.serve.limits import Limits
from nearkin.serve.metrics import Metrics

COOKIE = "nearkin_token"
DIGITS = 18  # of a Content-Length; Python refuses to parse very long numbers
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
PAGES = ("/", "/explore", "/explore/")  # that a browser may open with the token in the address
METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


class Guard:
    """The ASGI middleware."""

    def __init__(self, app: ASGIApp, *, limits: Limits, metrics: Metrics, token: str | None, routes: tuple[str, ...]) -> None:
        self.app, self.limits, self.metrics, self.token, self.routes = app, limits, metrics, token, routes

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
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            response = self._refused(scope) or self._with_cookie(scope)
            if response is not None:
                await response(scope, receive, with_headers)
            else:
                await self.app(scope, self._counted(receive), with_headers)
        finally:
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.metrics.requests.labels(self._route(scope), method, str(status)).inc()
            self.metrics.seconds["request"].observe(time.perf_counter() - started)

    def _refused(self, scope: Scope) -> Response | None:
        """The error response if a request is refused."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self.token is None and _host_name(host) not in LOOPBACK:
            return error_response(
                400,
                "wrong_host",
                f"this service is for {', '.join(LOOPBACK)} only; to open it to other machines start it with --host and --token",
            )
        origin = headers.get("origin")
        if origin is not None and _host_of(origin) != host.lower():
            return error_response(403, "wrong_origin", "requests from pages of other sites are refused")
        known = self.token is None or self._has_token(scope, headers)
        scope.setdefault("state", {})["known"] = known  # without the token /health returns its status only
        if not known and scope["path"] != "/health":
            return error_response(401, "no_token", "send the token as 'Authorization: Bearer ...'", {"WWW-Authenticate": "Bearer"})
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > DIGITS or int(length) > self.limits.body_bytes:
            return _too_large(self.limits.body_bytes)
        return None

    def _with_cookie(self, scope: Scope) -> Response | None:
        """Move the token from the address bar into a cookie."""
        if self.token is None or scope["path"] not in PAGES or not scope["query_string"]:
            return None
        response = RedirectResponse(scope["path"], 303)
        response.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
        return response

    def _has_token(self, scope: Scope, headers: Headers) -> bool:
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if not token:
            try:
                jar = SimpleCookie(headers.get("cookie", ""))
                token = jar[COOKIE].value if COOKIE in jar else ""
            except CookieError:
                token = ""
        if not token and scope["path"] in PAGES:
            token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        return hmac.compare_digest(token.encode(), str(self.token).encode())

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
                    raise Refusal(413, "too_large", _large(self.limits.body_bytes), {"Connection": "close"})
            return message

        return counted

    def _route(self, scope: Scope) -> str:
        """A name from a short list: clients must not be able to grow the metrics."""
        path = scope["path"]
        return next(
            (route for route in self.routes if path == route or (route.endswith("/") and route != "/" and path.startswith(route))), "other"
        )


def _host_name(host: str) -> str:
    """The host without its port."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdecimal() else host.lower()


def _host_of(origin: str) -> str | None:
    """Host and port of an origin, None if it has none."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:  # such as http://[
        return None


def _too_large(most: int) -> Response:
    return error_response(413, "too_large", _large(most), {"Connection": "close"})


def _large(most: int) -> str:
    return f"the request is larger than {most:,} bytes; send a smaller image"
