"""The guard at the door: who may come in, how much he may carry, how long he may take, and what every answer wears.

- `Host` must name this machine when the service listens on loopback only: a page elsewhere that rebinds its name to 127.0.0.1 is refused.
- `Origin`, if sent, must be the service itself: other sites cannot make a visitor's browser ask for them.
- A token, if there is one, is required everywhere but at /health, which tells strangers its status alone: `Authorization: Bearer`,
  or the cookie that `/?token=` leaves.
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

from nearkin.serve.errors import Refusal, told
from nearkin.serve.limits import Limits
from nearkin.serve.metrics import Metrics

COOKIE = "nearkin_token"
DIGITS = 18  # of a length; Python refuses to read numbers of thousands
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
PAGES = ("/", "/explore", "/explore/")  # that a browser may open with the token in the address
METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE")
WORN = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


class Guard:
    """ASGI around the app."""

    def __init__(self, app: ASGIApp, *, limits: Limits, metrics: Metrics, token: str | None, routes: tuple[str, ...]) -> None:
        self.app, self.limits, self.metrics, self.token, self.routes = app, limits, metrics, token, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def dressed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in WORN.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            answer = self._refused(scope) or self._admitted(scope)
            if answer is not None:
                await answer(scope, receive, dressed)
            else:
                await self.app(scope, self._counted(receive), dressed)
        finally:
            self.metrics.requests[self._route(scope), scope["method"] if scope["method"] in METHODS else "other", status] += 1
            self.metrics.seconds["request"].add(time.perf_counter() - started)

    def _refused(self, scope: Scope) -> Response | None:
        """An answer for those who may not come in."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self.token is None and _name(host) not in LOOPBACK:
            return told(
                400,
                "wrong_host",
                f"this service answers to {', '.join(LOOPBACK)} only; to open it to others start it with --host and --token",
            )
        origin = headers.get("origin")
        if origin is not None and _place(origin) != host.lower():
            return told(403, "wrong_origin", "requests from pages of other sites are not answered")
        known = self.token is None or self._knows(scope, headers)
        scope.setdefault("state", {})["known"] = known  # /health answers strangers, too, in a word
        if not known and scope["path"] != "/health":
            return told(401, "no_token", "send the token as 'Authorization: Bearer ...'", {"WWW-Authenticate": "Bearer"})
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > DIGITS or int(length) > self.limits.body_bytes:
            return _too_large(self.limits.body_bytes)
        return None

    def _admitted(self, scope: Scope) -> Response | None:
        """The token of the address bar becomes a cookie, and leaves the address bar."""
        if self.token is None or scope["path"] not in PAGES or not scope["query_string"]:
            return None
        answer = RedirectResponse(scope["path"], 303)
        answer.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
        return answer

    def _knows(self, scope: Scope, headers: Headers) -> bool:
        shown = headers.get("authorization", "").removeprefix("Bearer ")
        if not shown:
            try:
                jar = SimpleCookie(headers.get("cookie", ""))
                shown = jar[COOKIE].value if COOKIE in jar else ""
            except CookieError:
                shown = ""
        if not shown and scope["path"] in PAGES:
            shown = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        return hmac.compare_digest(shown.encode(), str(self.token).encode())

    def _counted(self, receive: Receive) -> Receive:
        """The same body, as long as it is not too long and not too slow."""
        taken, until, whole = 0, time.monotonic() + self.limits.body_seconds, False

        async def counted() -> Message:
            nonlocal taken, whole
            if whole:
                return await receive()  # only news of the client's leaving
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    message = await receive()
            except TimeoutError:
                raise Refusal(
                    408, "too_slow", f"the request did not arrive within {self.limits.body_seconds:g} s", {"Connection": "close"}
                ) from None
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
                whole = not message.get("more_body", False)
                if taken > self.limits.body_bytes:
                    raise Refusal(413, "too_large", _large(self.limits.body_bytes), {"Connection": "close"})
            return message

        return counted

    def _route(self, scope: Scope) -> str:
        """A name from a short list: clients must not be able to grow the metrics."""
        path = scope["path"]
        return next(
            (route for route in self.routes if path == route or (route.endswith("/") and route != "/" and path.startswith(route))), "other"
        )


def _name(host: str) -> str:
    """The host without its port."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdecimal() else host.lower()


def _place(origin: str) -> str | None:
    """Host and port of an origin, None if it has none."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:  # such as http://[
        return None


def _too_large(most: int) -> Response:
    return told(413, "too_large", _large(most), {"Connection": "close"})


def _large(most: int) -> str:
    return f"the request is larger than {most:,} bytes; send a smaller picture"
