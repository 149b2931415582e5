"""The routes of the service: /search, /points, /image/{id}, /health, /metrics, a page at /, and their description at /openapi.json.

No path from a client is ever opened: images arrive as bytes, and leave as the thumbnails that the index stores.
"""

import asyncio
import base64
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from nearkin import __version__
from nearkin.index import thumbnail
from nearkin.index.collection import Collection
from nearkin.index.contract import Where
from nearkin.index.milvus_client import IndexUnreachableError
from nearkin.report.projection import Method
from nearkin.serve import explorer
from nearkin.serve.errors import Refusal, error_response
from nearkin.serve.limits import Limits
from nearkin.serve.metrics import MEDIA_TYPE
from nearkin.serve.middleware import Guard
from nearkin.serve.schemas import (
    LARGEST_ID,
    LARGEST_NUMBER,
    LONGEST_TEXT,
    ErrorPage,
    HealthPage,
    ImageTypes,
    PointsPage,
    QuestionBody,
    SearchPage,
    question_schema,
)
from nearkin.serve.service import Question, Service, json_response

ROUTES = ("/", "/search", "/points", "/image/", "/health", "/metrics", "/openapi.json", "/explore", "/atlas", "/atlas/")
MOST_NEIGHBORS, MOST_POINTS = 100, 1000
JSON_BYTES, NUMBER_BYTES = 4096, 64  # of a query in JSON, and of each number of its vector
TEXT_BYTES = 6 * LONGEST_TEXT  # of a text in JSON, every character escaped
CODES = {400: "bad_request", 404: "not_found", 405: "wrong_method", 413: "too_large", 415: "wrong_type", 422: "invalid"}

K = Annotated[int, Query(ge=1, le=MOST_NEIGHBORS, description="how many neighbors")]
Reject = Annotated[
    float | None, Query(ge=0, lt=1, description="say whether the query is of no known class, such that this share of known ones is, too")
]
Labels = Annotated[list[str], Query(alias="label", max_length=100, description="only points of these classes")]
Conditions = Annotated[
    list[Annotated[str, Query(pattern="^[^=]+=")]],
    Query(alias="where", max_length=20, description="only points with this metadata: key=value"),
]


def make_app(
    collection: Collection,
    *,
    token: str | None = None,
    limits: Limits | None = None,
    compare: Collection | None = None,
    method: Method = "tsne",
) -> FastAPI:
    """Create the ASGI application of the service, to run it with your own server.

    Parameters
    ----------
    collection : Collection
        The model and its index, as `open_index` returns them.
    token : str, optional
        A secret that clients must send for every route but /health. Without one, only requests to this machine's own address are served.
    limits : Limits, optional
        Sizes and times above which requests are refused.
    compare : Collection, optional
        Another model's collection of the same points, which the explorer shows side by side.
    method : {"tsne", "pca"}, default "tsne"
        How the explorer's map is computed.

    Returns
    -------
    fastapi.FastAPI

    Examples
    --------
    >>> app = make_app(open_index("runs/photos"), token="at least 16 characters".replace(" ", "-"))  # doctest: +SKIP
    >>> uvicorn.run(app, port=8000)  # doctest: +SKIP
    """
    limits = limits or Limits()
    service = Service(collection, limits)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(service.watch())
        yield
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        service.stop()

    app = FastAPI(
        title="nearkin",
        version=__version__,
        description="Nearest neighbors.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=life,
    )
    app.state.service = service
    _add_errors(app)
    _add_routes(app, service)
    app.state.explorer = explorer.Explorer([collection, *([] if compare is None else [compare])], method)
    explorer.add_routes(app, app.state.explorer, service)
    app.add_middleware(Guard, limits=limits, metrics=service.metrics, token=token, routes=ROUTES)
    return app


def _add_routes(app: FastAPI, service: Service) -> None:
    errors = _errors(400, 401, 403, 408, 413, 422, 429, 500, 503, 504)
    page, page_headers = _page()

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return Response(page, media_type="text/html", headers=page_headers)

    model = service.collection.model

    @app.post(
        "/search",
        response_model=SearchPage,
        responses={**errors, **_errors(404, 415)},
        openapi_extra={"requestBody": question_schema(service.current.dimension, texts=model.reads_texts, rows="table" in model.about)},
    )
    async def search(
        request: Request,
        k: K = 10,
        labels: Labels = [],  # noqa: B006
        conditions: Conditions = [],  # noqa: B006
        reject: Reject = None,
    ) -> Response:
        """The nearest neighbors of an image (as a form's `image`, or as the body itself), a text, a point (id), a vector, or a row."""
        question, where = await _question(request, service), _where(labels, conditions)
        found = await service.workers.run(lambda: service.answer(question, k, where, reject))
        service.metrics.seconds["search"].observe(found.searching)
        if question.image is not None or question.text is not None:
            service.metrics.seconds["encode"].observe(found.encoding)
        seconds = {"encode": found.encoding, "search": found.searching}
        judged = {} if reject is None else {"none_of_these": found.rejected, "p_value": found.p_value}
        about = {"exact": found.exact, **judged, "generation": found.generation, "seconds": seconds}
        return json_response({"neighbors": found.neighbors, **about})

    @app.get("/points", response_model=PointsPage, responses=errors)
    async def points(
        offset: Annotated[int, Query(ge=0, le=LARGEST_ID)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_POINTS)] = 100,
        labels: Labels = [],  # noqa: B006
        conditions: Conditions = [],  # noqa: B006
    ) -> Response:
        """Points of the index, a page at a time."""
        where = _where(labels, conditions)
        return json_response(await service.workers.run(lambda: service.points(offset, limit, where)))

    @app.get("/image/{id}", response_class=Response, responses={**errors, **_errors(404), 200: _IMAGE})
    async def image(id: Annotated[int, Path(ge=0, le=LARGEST_ID)]) -> Response:
        """The thumbnail of a point."""
        content = await service.workers.run(lambda: service.thumbnail(id))
        if not content:
            raise Refusal(404, "no_such_picture", f"no point has the id {id}, or it has no image")
        return Response(content, media_type=thumbnail.media_type(content), headers={"Cache-Control": "private, max-age=60"})

    @app.head("/health", include_in_schema=False)  # load balancers send HEAD
    @app.get("/health", response_model=HealthPage, responses=_errors(400, 403, 413, 500))
    async def health(request: Request) -> Response:
        """Whether the service runs, and what it serves."""
        if not request.state.known:
            return json_response({"status": "ok"})
        now = service.current
        index = {"dimension": now.dimension, "backend": now.backend, "generation": service.generation, "labels": list(now.labels)}
        reads = service.collection.model.about["kind"]
        return json_response({"status": "ok", "points": service.count, **index, "reads": reads, "stale": service.stale})

    @app.get("/metrics", response_class=Response, responses={**_errors(400, 401, 403, 413, 500), 200: _TEXT})
    async def metrics() -> Response:
        """For Prometheus."""
        return Response(service.metrics.text(), media_type=MEDIA_TYPE)


_IMAGE: dict[str, Any] = {"description": "a small image", "content": {kind: {} for kind in ("image/png", "image/jpeg")}}
_TEXT: dict[str, Any] = {"description": "Prometheus's text format", "content": {"text/plain": {"schema": {"type": "string"}}}}


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ErrorPage} for status in statuses}


def _add_errors(app: FastAPI) -> None:
    """Return every error in one form."""

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> Response:
        code = error.code if isinstance(error, Refusal) else CODES.get(error.status_code, "refused")
        return error_response(error.status_code, code, str(error.detail), error.headers)

    @app.exception_handler(IndexUnreachableError)
    async def unreachable(_: Request, __: IndexUnreachableError) -> Response:
        return error_response(503, "index_unreachable", "the index does not respond; try again later", {"Retry-After": "5"})

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return error_response(422, "invalid", _first(error.errors()))

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> Response:
        return error_response(500, "failed", f"the service failed ({type(error).__name__}); please report this bug")


async def _question(request: Request, service: Service) -> Question:
    """The query in a body, by its Content-Type."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        dimension, texts = service.current.dimension, service.collection.model.reads_texts
        most = JSON_BYTES + NUMBER_BYTES * dimension + (TEXT_BYTES if texts else 0)
        return _json_question(await _short_body(request, most), dimension, texts)
    if kind in ImageTypes:
        return Question(image=await service.decoded(await request.body(), service.collection))
    if kind == "multipart/form-data":
        return Question(image=await service.decoded(await _uploaded(request, service.limits.body_bytes), service.collection))
    accepted = ", ".join(("application/json", "multipart/form-data", *ImageTypes))
    raise Refusal(415, "wrong_type", f"Content-Type {kind[:50]!r} is not supported; send one of {accepted}")


async def _short_body(request: Request, most: int) -> bytes:
    """The body, if it is short: parsing it takes time in which nobody else is answered."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise Refusal(413, "too_large", f"a query in JSON is an id, a vector, a row or a text, at most {most:,} bytes")
    return bytes(body)


async def _uploaded(request: Request, most: int) -> bytes:
    async with request.form(max_files=1, max_fields=1, max_part_size=most) as form:
        if list(form) != ["image"] or isinstance(form["image"], str):
            raise Refusal(422, "invalid", "the form must hold one file, and its name must be 'image'")
        return await form["image"].read()


def _json_question(body: bytes, dimension: int, texts: bool) -> Question:
    try:
        question = QuestionBody.model_validate_json(body)
    except ValidationError as error:
        raise Refusal(422, "invalid", _first(error.errors(include_url=False))) from None
    if [question.id, question.vector, question.row, question.text].count(None) != 3 or (question.text is not None and not texts):
        raise Refusal(422, "invalid", f"send exactly one of id, vector and {'text' if texts else 'row'}")
    if question.row is not None:
        return Question(row=question.row)
    if question.text is not None:
        if not question.text.strip():
            raise Refusal(422, "invalid", "text is empty; send a sentence")
        return Question(text=question.text)
    if question.vector is None:
        return Question(id=question.id)
    vector = np.asarray(question.vector, dtype=np.float64)
    if len(vector) != dimension or not (np.abs(vector) <= LARGEST_NUMBER).all():  # NaN fails the comparison
        raise Refusal(
            422, "invalid", f"vector must hold {dimension} numbers between -{LARGEST_NUMBER:g} and {LARGEST_NUMBER:g}; it has {len(vector)}"
        )
    return Question(vector=vector.astype(np.float32))


def _where(labels: list[str], conditions: list[str]) -> Where:
    pairs = [text.partition("=")[::2] for text in conditions]
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise Refusal(
                422, "invalid", f"where: {key[:50]!r} is given {keys.count(key)} times; a point has one value for it, so give it once"
            )
    return Where(tuple(labels), dict(pairs))


def _first(errors: Any) -> str:
    """The first of pydantic's errors, without the value that was sent."""
    one = errors[0]
    return f"{'.'.join(str(part) for part in one['loc']) or 'body'}: {one['msg']}"[:300]


def _page() -> tuple[bytes, dict[str, str]]:
    """The page, and a policy that allows only its own script and style and no requests to other sites."""
    text = (files("nearkin.serve") / "page.html").read_text(encoding="utf-8")
    allowed = {}
    for tag, inside in re.findall(r"<(script|style)>(.*?)</\1>", text, flags=re.DOTALL):
        allowed[tag] = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src 'self' blob: data:; connect-src 'self'; script-src 'sha256-{allowed['script']}'; "
        f"style-src 'sha256-{allowed['style']}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text.encode(), {"Content-Security-Policy": policy, "Cache-Control": "no-cache"}
