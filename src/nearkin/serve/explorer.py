"""The explorer in the service. Its map is built in a thread, once for each content of the index, when the page is first opened.

    /explore                the page, with /explorer.js and /explorer.css
    /atlas                  the state of the map, or its data
    /atlas/near/{row}       the exact neighbors of a point under every model
    /atlas/drop             the neighbors of an uploaded image, and its position on the map

These routes serve the page only and may change with it. Programs use /search.
"""

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import FastAPI, Query, Request
from fastapi import Path as InPath
from starlette.responses import RedirectResponse, Response
from torch import Tensor

from nearkin.index.collection import Collection
from nearkin.index.contract import VectorIndex
from nearkin.report.projection import Method, Projection
from nearkin.search.rejection import NEAREST, Rejection, mean_of_finite
from nearkin.serve.atlas.atlas import familiar_points, neighbors_of, restored, to_canvas
from nearkin.serve.atlas.export import MARK, NONCE, asset, page_policy
from nearkin.serve.atlas.model_maps import Indexed, ModelMap, are_stored, build_maps
from nearkin.serve.atlas.page_data import header, neighbors_json
from nearkin.serve.errors import Refusal
from nearkin.serve.schemas import LONGEST_TEXT
from nearkin.serve.service import Service, json_response

Row = Annotated[int, InPath(ge=0, le=2**31)]
K = Annotated[int, Query(ge=1, le=100)]
REJECT = 0.05  # share of known images that are called none of these, as on the search page
RESTORING = 10.0  # seconds at most that the start of the service waits for a stored map
FRESH = {"Cache-Control": "no-cache"}


class Explorer:
    """The maps of one model, or of two side by side, and the thread that builds them."""

    def __init__(self, collections: Sequence[Collection], method: Method = "tsne") -> None:
        self.collections, self.method = collections, method
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._maps: list[ModelMap] = []
        self._header: dict[str, Any] = {}
        self._identities: tuple[str, ...] = ()  # of the indexes whose map was built, or failed
        self._message, self._error = "opening the index", ""
        self._projections: dict[int, Projection] = {}
        self._rules: dict[int, Rejection | None] = {}

    def state(self, indexes: Sequence[VectorIndex]) -> dict[str, Any]:
        """The map, or the progress of its construction, which starts here when an index has changed."""
        identities = tuple(index.identity for index in indexes)
        with self._lock:
            if self._thread is None and identities != self._identities:
                self._identities, self._error = identities, ""
                self._thread = threading.Thread(target=self._build, args=(self._indexed(indexes),), name="atlas", daemon=True)
                self._thread.start()
            message = None if self._thread is None else self._message
            if self._header:
                return {"state": "ready", "building": message, "failed": self._error or None, "atlas": self._header}
            return {"state": "failed", "message": self._error} if self._error else {"state": "building", "message": self._message}

    def restore(self) -> None:
        """Load the maps that were stored for these indexes, if there are any, before the first request."""
        indexes = [one.index.frozen() for one in self.collections]
        if not are_stored(self._indexed(indexes)):
            return
        self.state(indexes)
        thread = self._thread
        if thread is not None:
            thread.join(RESTORING)

    def near(self, row: int, k: int, version: str) -> dict[str, Any]:
        """The neighbors of a point under every model. Runs in a worker's thread."""
        maps = self._ready(version)
        table = maps[0].table
        if not 0 <= row < len(table):
            raise Refusal(404, "no_such_point", f"row {row} is not on the map, which has {len(table):,} points")
        found = [[part[0] for part in neighbors_of(one.table, np.array([row]), k)] for one in maps]
        models = [neighbors_json(one.table, *parts) for one, parts in zip(maps, found, strict=True)]
        return {"row": row, "source": table.sources[row], "metadata": dict(table.metadata[row]), "models": models}

    def drop(self, encode: Sequence[Callable[[], np.ndarray]], k: int, version: str) -> dict[str, Any]:
        """The position of a new image on the map and its neighbors, under every model. Runs in a worker's thread."""
        started, models = time.perf_counter(), list[dict[str, Any]]()
        for at, (one, encoded) in enumerate(zip(self._ready(version), encode, strict=True)):
            vector = encoded()[None].astype(np.float32)
            found = one.table.nearest(vector, max(k, NEAREST))
            position = to_canvas(self._projection(at, one).place(vector), one.atlas.points)[0]
            near = neighbors_json(one.table, found.positions[0, :k].numpy(), found.affinity[0, :k].float().numpy(), None)
            models.append({**near, **self._judged(at, one, found.affinity), "at": [float(value) for value in position]})
        return {"models": models, "seconds": time.perf_counter() - started}

    def _judged(self, at: int, one: ModelMap, affinity: Tensor) -> dict[str, Any]:
        """Whether a query whose nearest points have these affinities (1, k) is like no point of the map, at the rate of the search page."""
        with self._lock:
            if at not in self._rules:
                self._rules[at] = familiar_points(one.atlas, one.table)
            rule = self._rules[at]
        if rule is None:
            return {}
        [p_value] = rule.p_values(mean_of_finite(affinity[:, : rule.neighbors].double().numpy())).tolist()
        return {"p_value": p_value, "none_of_these": p_value <= REJECT}

    def _indexed(self, indexes: Sequence[VectorIndex]) -> list[Indexed]:
        return [Indexed(one.folder, index) for one, index in zip(self.collections, indexes, strict=True)]

    def _ready(self, version: str) -> list[ModelMap]:
        """The maps, if they are those that the page shows: in another index, rows are other points."""
        with self._lock:
            maps, now = self._maps, self._header.get("version")
        if not maps:
            raise Refusal(409, "not_ready", "the map is not ready yet; /atlas returns its state")
        if version != now:
            raise Refusal(409, "outdated", "the index has changed and there is a new map; reload the page")
        return maps

    def _projection(self, at: int, one: ModelMap) -> Projection:
        with self._lock:
            if at not in self._projections:
                self._projections[at] = restored(one.atlas, one.table)
            return self._projections[at]

    def _build(self, indexes: Sequence[Indexed]) -> None:
        try:
            images = all(len(one.model.about["shape"]) == 3 for one in self.collections)
            texts = all(one.model.reads_texts for one in self.collections)
            version = ".".join(one.index.identity[:16] for one in indexes)
            for maps in build_maps(indexes, self.method, self._report):
                page = header(maps, live=True, chunk=0, sheets=None, version=version, images=images, searches=texts)
                with self._lock:
                    self._maps, self._header, self._projections, self._rules = maps, page, {}, {}
                for one in maps:  # once before the first click, so that loops are compiled
                    neighbors_of(one.table, np.zeros(1, np.int64), 1)
        except Exception as error:  # the page must show any error, since no code waits for this thread
            with self._lock:
                self._error = str(error) or type(error).__name__
        finally:
            with self._lock:
                self._thread = None

    def _report(self, line: str) -> None:
        self._message = line


def page() -> tuple[bytes, dict[str, str]]:
    """The explorer's page, and a policy that allows only its own script and no requests to other sites. Each call has another nonce."""
    nonce = secrets.token_urlsafe(16)
    policy = f"{page_policy(nonce)}; frame-ancestors 'none'"
    content = asset("index.html").replace(MARK.encode(), b"").replace(NONCE.encode(), nonce.encode())
    return content, {"Content-Security-Policy": policy, **FRESH}


def _sent_text(content: bytes, collections: Sequence[Collection]) -> str:
    """The text of a request, or a refusal that says what to send."""
    text = content.decode("utf-8", "replace").strip()
    if not text or len(text) > LONGEST_TEXT or not all(one.model.reads_texts for one in collections):
        raise Refusal(422, "invalid", f"send a text of 1 to {LONGEST_TEXT:,} characters, to a model that reads texts")
    return text


def add_routes(app: FastAPI, explorer: Explorer, service: Service) -> None:
    """Add the page and its data; they are not part of the API's description."""
    kinds = {"explorer.js": "text/javascript", "explorer.css": "text/css"}

    @app.get("/explore", include_in_schema=False)
    async def explore() -> Response:
        content, headers = page()
        return Response(content, media_type="text/html", headers=headers)

    @app.get("/explore/", include_in_schema=False)
    async def explore_slash() -> Response:
        return RedirectResponse("/explore", 308)  # the page loads its parts by relative paths

    @app.get("/explorer.{kind}", include_in_schema=False)
    async def part(kind: Literal["js", "css"]) -> Response:
        name = f"explorer.{kind}"
        return Response(asset(name), media_type=kinds[name], headers=FRESH)

    @app.get("/atlas", include_in_schema=False)
    async def atlas() -> Response:
        return json_response(explorer.state([service.current, *(one.index.frozen() for one in explorer.collections[1:])]), FRESH)

    @app.get("/atlas/near/{row}", include_in_schema=False)
    async def near(row: Row, k: K = 30, version: str = "") -> Response:
        return json_response(await service.workers.run(lambda: explorer.near(row, k, version)), FRESH)

    @app.post("/atlas/drop", include_in_schema=False)
    async def drop(request: Request, k: K = 30, version: str = "") -> Response:
        content = await request.body()
        if request.headers.get("content-type", "").startswith("text/plain"):
            text = _sent_text(content, explorer.collections)
            encode = [partial(service.encoded, [text], one) for one in explorer.collections]
        else:
            decoded = [(await service.decoded(content, one), one) for one in explorer.collections]
            encode = [partial(service.encoded, image.pixels[None], one) for image, one in decoded]
        found = await service.workers.run(lambda: explorer.drop(encode, k, version))
        return json_response(found, FRESH)
