"""Refusals: every error of the service is one JSON object, {"error": {"code", "message"}}, that says what was wrong and what to do."""

from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse


class Refusal(HTTPException):
    """A request that is not answered, and why."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, message, dict(headers) if headers else None)
        self.code = code


def told(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The answer that carries an error."""
    return JSONResponse({"error": {"code": code, "message": message}}, status, dict(headers) if headers else None)
