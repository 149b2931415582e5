"""The service: /search, /points, /image/{id}, /health, /metrics, a page at /, and their description at /openapi.json.

No path from a client is ever opened: pictures come in as bytes and go out as the thumbnails that the index keeps.
"""

import asyncio
import base64
import hashlib
import json
import os
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from typing import Annotated, Any, NamedTuple

import numpy as np
from fastapi import FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from nearkin import __version__
from nearkin.data.images import DamagedImageError
from nearkin.index import thumbnail
from nearkin.index.collection import Collection
from nearkin.index.contract import Answer, Entry, Hit, Where
from nearkin.index.snapshot import Snapshot
from nearkin.report.projection import Method
from nearkin.serve.errors import Refusal, told
from nearkin.serve.explorer import Explorer, add_routes
from nearkin.serve.limits import Limits
from nearkin.serve.metrics import Metrics
from nearkin.serve.middleware import Guard
from nearkin.serve.schemas import (
    LARGEST_ID,
    LARGEST_NUMBER,
    ErrorPage,
    HealthPage,
    PictureTypes,
    PointsPage,
    Question,
    SearchPage,
    question_schema,
)
from nearkin.serve.workers import Workers

ROUTES = ("/", "/search", "/points", "/image/", "/health", "/metrics", "/openapi.json", "/explore", "/atlas", "/atlas/")
MOST_NEIGHBORS, MOST_POINTS = 100, 1000
CODES = {400: "bad_request", 404: "not_found", 405: "wrong_method", 413: "too_large", 415: "wrong_type", 422: "invalid"}

K = Annotated[int, Query(ge=1, le=MOST_NEIGHBORS, description="how many neighbors")]
Labels = Annotated[list[str], Query(alias="label", max_length=100, description="only points of these classes")]
Conditions = Annotated[
    list[Annotated[str, Query(pattern="^[^=]+=")]],
    Query(alias="where", max_length=20, description="only points with this metadata: key=value"),
]


class Asked(NamedTuple):
    """A question, understood: a picture to encode, a point, or a vector."""

    picture: bytes | None = None
    id: int | None = None
    vector: np.ndarray | None = None


class Service:
    """What the routes share: the collection, the generation now served, and who does the work."""

    def __init__(self, collection: Collection, limits: Limits) -> None:
        self.collection, self.limits = collection, limits
        self.current: Snapshot = collection.index.snapshot
        self.metrics = Metrics()
        self.workers = Workers(limits.threads, limits.queue, limits.job_seconds)
        self.stale: str | None = None  # why a newer index is not served

    async def watch(self) -> None:
        """Take over every newer index, and keep the old one if it cannot be read."""
        manifest = self.collection.index.folder / "manifest.json"
        seen = _signature(manifest)
        while True:
            await asyncio.sleep(self.limits.reload_seconds)
            now = _signature(manifest)
            if now == seen and self.stale is None:
                continue
            try:
                await asyncio.to_thread(self.reload)
                self.metrics.reloads["done"] += 1
                seen = now
            except (OSError, ValueError, ImportError) as error:  # tried again at the next look: the cause may pass
                self.stale = str(error)
                self.metrics.reloads["failed"] += 1

    def reload(self) -> None:
        """The newest generation is loaded whole and asked once, then served: nobody has to wait for it."""
        self.collection.index.refresh()
        newest = self.collection.index.snapshot
        if len(newest):
            newest.neighbors(newest.vectors[:1], 1)
        self.current, self.stale = newest, None

    def answer(self, asked: Asked, k: int, where: Where) -> tuple[Answer, Snapshot, float, float]:
        """The neighbors, with the seconds of encoding and of searching. Runs in a worker's thread."""
        snapshot, started = self.current, time.perf_counter()
        vector, exclude = asked.vector, None
        if asked.picture is not None:
            vector = self.encoded(asked.picture, self.collection)
        encoded = time.perf_counter()
        if asked.id is not None:
            row = int(snapshot.rows([asked.id])[0])
            if row < 0:
                raise Refusal(404, "no_such_point", f"no point has the id {asked.id}")
            vector, exclude = snapshot.vectors[row], [asked.id]
        assert vector is not None
        found = snapshot.search(vector[None], k, where=where, exclude=exclude)[0]
        return found, snapshot, encoded - started, time.perf_counter() - encoded

    def points(self, offset: int, limit: int, where: Where) -> dict[str, Any]:
        """A page of points. Runs in a worker's thread."""
        snapshot = self.current
        rows = np.arange(len(snapshot)) if where.everything else snapshot.allowed(where)
        some = _shown(snapshot, [snapshot.entry(row) for row in rows[offset : offset + limit].tolist()])
        return {"total": len(rows), "points": some, "generation": snapshot.manifest["generation"]}

    def encoded(self, picture: bytes, collection: Collection) -> np.ndarray:
        """The embedding (d,) of a picture by a collection's model, or a refusal that says what to send."""
        try:
            vector = collection.encode_upload(picture, self.limits.pixels)
        except DamagedImageError as error:
            raise Refusal(422, "no_picture", f"{error}; send a whole PNG, JPEG, WebP, GIF or BMP") from None
        except ValueError as error:
            raise Refusal(422, "no_pictures_here", str(error)) from None
        if not np.isfinite(vector).all():
            raise Refusal(422, "no_embedding", "the network made no finite embedding of this picture; send another")
        return vector


def make_app(
    collection: Collection,
    *,
    token: str | None = None,
    limits: Limits | None = None,
    compare: Collection | None = None,
    method: Method = "tsne",
) -> FastAPI:
    """The ASGI application over a collection. With a token, every route but /health asks for it.

    The explorer shows it beside `compare`, another model's collection of the same points, and draws its map by `method`.
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
        service.workers.stop()

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
    app.state.explorer = Explorer([collection, *([] if compare is None else [compare])], method)
    add_routes(app, app.state.explorer, service)
    app.add_middleware(Guard, limits=limits, metrics=service.metrics, token=token, routes=ROUTES)
    return app


def _add_routes(app: FastAPI, service: Service) -> None:
    errors = _errors(400, 401, 403, 408, 413, 422, 429, 500, 504)
    page, page_headers = _page()

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return Response(page, media_type="text/html", headers=page_headers)

    @app.post(
        "/search",
        response_model=SearchPage,
        responses={**errors, **_errors(404, 415)},
        openapi_extra={"requestBody": question_schema(service.current.dimension)},
    )
    async def search(request: Request, k: K = 10, labels: Labels = [], conditions: Conditions = []) -> Response:  # noqa: B006
        """The nearest neighbors of a picture (as a form's `image`, or as the body itself), of a point by id, or of a vector."""
        asked, where = await _asked(request, service), _where(labels, conditions)
        found, snapshot, encoding, searching = await service.workers.run(lambda: service.answer(asked, k, where))
        service.metrics.seconds["search"].add(searching)
        if asked.picture is not None:
            service.metrics.seconds["encode"].add(encoding)
        neighbors = _shown(snapshot, found.hits)
        for one, hit in zip(neighbors, found.hits, strict=True):
            one |= {"affinity": hit.affinity, "same_kind": hit.same_kind}
        seconds = {"encode": encoding, "search": searching}
        return _json({"neighbors": neighbors, "exact": found.exact, "generation": snapshot.manifest["generation"], "seconds": seconds})

    @app.get("/points", response_model=PointsPage, responses=errors)
    async def points(
        offset: Annotated[int, Query(ge=0, le=LARGEST_ID)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_POINTS)] = 100,
        labels: Labels = [],  # noqa: B006
        conditions: Conditions = [],  # noqa: B006
    ) -> Response:
        """Points of the index, a page at a time."""
        where = _where(labels, conditions)
        return _json(await service.workers.run(lambda: service.points(offset, limit, where)))

    @app.get("/image/{id}", response_class=Response, responses={**errors, **_errors(404), 200: _PICTURE})
    async def image(id: Annotated[int, Path(ge=0, le=LARGEST_ID)]) -> Response:
        """The thumbnail of a point."""
        snapshot = service.current
        row = int(snapshot.rows([id])[0])
        content = snapshot.picture(row) if row >= 0 else b""
        if not content:
            raise Refusal(404, "no_such_picture", f"no point has the id {id}, or it has no picture")
        return Response(content, media_type=thumbnail.media_type(content), headers={"Cache-Control": "private, max-age=60"})

    @app.head("/health", include_in_schema=False)  # as load balancers ask
    @app.get("/health", response_model=HealthPage, responses=_errors(400, 403, 413, 500))
    async def health(request: Request) -> Response:
        """Whether it answers, and what it serves."""
        if not request.state.known:
            return _json({"status": "ok"})
        index, now = service.collection.index, service.current
        told_of = {"dimension": now.dimension, "backend": index.backend, "generation": now.manifest["generation"]}
        return _json({"status": "ok", "points": len(now), **told_of, "labels": now.manifest["labels"], "stale": service.stale})

    @app.get("/metrics", response_class=Response, responses={**_errors(400, 401, 403, 413, 500), 200: _TEXT})
    async def metrics() -> Response:
        """For Prometheus."""
        now = service.current
        gauges = {"points": len(now), "generation": now.manifest["generation"], "queue_jobs": service.workers.pending}
        return Response(service.metrics.text(gauges), media_type="text/plain; version=0.0.4")


_PICTURE: dict[str, Any] = {"description": "a small picture", "content": {kind: {} for kind in ("image/png", "image/jpeg")}}
_TEXT: dict[str, Any] = {"description": "Prometheus's text format", "content": {"text/plain": {"schema": {"type": "string"}}}}


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ErrorPage} for status in statuses}


def _add_errors(app: FastAPI) -> None:
    """Every error in one form."""

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> Response:
        code = error.code if isinstance(error, Refusal) else CODES.get(error.status_code, "refused")
        return told(error.status_code, code, str(error.detail), error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return told(422, "invalid", _first(error.errors()))

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> Response:
        return told(500, "failed", f"the service failed ({type(error).__name__}); this is a bug worth reporting")


async def _asked(request: Request, service: Service) -> Asked:
    """What a body asks for, by its Content-Type."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        return _question(await request.body(), service.current.dimension)
    if kind in PictureTypes:
        return Asked(picture=await request.body())
    if kind == "multipart/form-data":
        return Asked(picture=await _uploaded(request, service.limits.body_bytes))
    accepted = ", ".join(("application/json", "multipart/form-data", *PictureTypes))
    raise Refusal(415, "wrong_type", f"Content-Type {kind[:50]!r} is not understood; send one of {accepted}")


async def _uploaded(request: Request, most: int) -> bytes:
    async with request.form(max_files=1, max_fields=1, max_part_size=most) as form:
        if list(form) != ["image"] or isinstance(form["image"], str):
            raise Refusal(422, "invalid", "the form must hold one file, and its name must be 'image'")
        return await form["image"].read()


def _question(body: bytes, dimension: int) -> Asked:
    try:
        question = Question.model_validate_json(body)
    except ValidationError as error:
        raise Refusal(422, "invalid", _first(error.errors(include_url=False))) from None
    if (question.id is None) == (question.vector is None):
        raise Refusal(422, "invalid", "give exactly one of id and vector")
    if question.vector is None:
        return Asked(id=question.id)
    vector = np.asarray(question.vector, dtype=np.float64)
    if len(vector) != dimension or not (np.abs(vector) <= LARGEST_NUMBER).all():  # NaN is no number, and fails the comparison
        raise Refusal(
            422, "invalid", f"vector must hold {dimension} numbers between -{LARGEST_NUMBER:g} and {LARGEST_NUMBER:g}; it has {len(vector)}"
        )
    return Asked(vector=vector.astype(np.float32))


def _where(labels: list[str], conditions: list[str]) -> Where:
    return Where(tuple(labels), {key: value for key, _, value in (text.partition("=") for text in conditions)})


def _shown(snapshot: Snapshot, points: Sequence[Entry | Hit]) -> list[dict[str, Any]]:
    """Points as JSON, with the address of their thumbnails."""
    pictured = [snapshot.has_picture(row) for row in snapshot.rows([point.id for point in points]).tolist()]
    return [
        {
            "id": point.id,
            "label": point.label,
            "source": point.source,
            "metadata": point.metadata,
            "image": f"/image/{point.id}" if has else None,
        }
        for point, has in zip(points, pictured, strict=True)
    ]


def _json(content: dict[str, Any]) -> Response:
    return Response(json.dumps(content, allow_nan=False, separators=(",", ":")), media_type="application/json")


def _first(errors: Any) -> str:
    """The first of pydantic's complaints, without repeating what was sent."""
    one = errors[0]
    return f"{'.'.join(str(part) for part in one['loc']) or 'body'}: {one['msg']}"[:300]


def _signature(path: os.PathLike[str]) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_size


def _page() -> tuple[bytes, dict[str, str]]:
    """The page, and a policy under which only its own script and style run and nothing is fetched from elsewhere."""
    text = (files("nearkin.serve") / "page.html").read_text(encoding="utf-8")
    allowed = {}
    for tag, inside in re.findall(r"<(script|style)>(.*?)</\1>", text, flags=re.DOTALL):
        allowed[tag] = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src 'self' blob: data:; connect-src 'self'; script-src 'sha256-{allowed['script']}'; "
        f"style-src 'sha256-{allowed['style']}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text.encode(), {"Content-Security-Policy": policy, "Cache-Control": "no-cache"}
