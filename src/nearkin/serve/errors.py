"""Errors of the service: one JSON object, {"error": {"code", "message"}}, that says what is wrong and how to fix it."""

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}  # of every response


class Refusal(HTTPException):
    """A request that is refused, and why."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, message, dict(headers) if headers else None)
        self.code = code


def error_content(code: str, message: str) -> dict[str, Any]:
    """The object that every error is."""
    return {"error": {"code": code, "message": message}}


def error_response(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The response for an error."""
    return JSONResponse(error_content(code, message), status, dict(headers) if headers else None)
