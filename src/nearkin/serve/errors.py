"""Errors of the service: one JSON object, {"error": {"code", "message"}}, that says what is wrong and how to fix it."""

from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse


class Refusal(HTTPException):
    """A request that is refused, and why."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, message, dict(headers) if headers else None)
        self.code = code


def error_response(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The response for an error."""
    return JSONResponse({"error": {"code": code, "message": message}}, status, dict(headers) if headers else None)
