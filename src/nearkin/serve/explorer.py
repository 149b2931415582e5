"""The explorer's side of the service: the atlas is drawn beside the answers, once for each generation of the index, when first asked for.

    /explore                the page, with /explorer.js and /explorer.css
    /atlas                  how far the drawing is, or all that is drawn
    /atlas/near/{row}       the exact neighbors of a point under every model, asked live
    /atlas/drop             a picture's neighbors, and where it lands on the map

They are the page's own, and may change with it; programs ask /search.
"""

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from fastapi import FastAPI, Query, Request
from fastapi import Path as InPath
from starlette.responses import RedirectResponse, Response

from nearkin.index.collection import Collection
from nearkin.index.snapshot import Snapshot
from nearkin.report.projection import Method, Projection
from nearkin.serve.atlas.draw import neighbors_of, placed_on_canvas, restored
from nearkin.serve.atlas.folder import MARK, asset
from nearkin.serve.atlas.view import Place, View, views, was_drawn
from nearkin.serve.atlas.wire import answer, header
from nearkin.serve.errors import Refusal

if TYPE_CHECKING:
    from nearkin.serve.app import Service

Row = Annotated[int, InPath(ge=0, le=2**31)]
Asked = Annotated[int, Query(ge=1, le=100)]
TAKING_UP = 10.0  # seconds at most that the service waits for the last atlas before it takes connections
FRESH = {"Cache-Control": "no-cache"}


class Explorer:
    """The atlas of one model, or of two side by side, and who draws it."""

    def __init__(self, collections: Sequence[Collection], method: Method = "tsne") -> None:
        self.collections, self.method = collections, method
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._drawn: list[View] = []
        self._header: dict[str, Any] = {}
        self._generations: tuple[int, ...] = ()  # of the indexes that are drawn, or were tried
        self._says, self._failed = "opening the index", ""
        self._projections: dict[int, Projection] = {}

    def state(self, snapshots: Sequence[Snapshot]) -> dict[str, Any]:
        """The atlas, or what is being done for it; a new one is begun when an index has changed."""
        generations = tuple(int(snapshot.manifest["generation"]) for snapshot in snapshots)
        with self._lock:
            if self._thread is None and generations != self._generations:
                self._generations, self._failed = generations, ""
                places = [Place(Path(one.folder), snapshot) for one, snapshot in zip(self.collections, snapshots, strict=True)]
                self._thread = threading.Thread(target=self._draw, args=(places,), name="atlas", daemon=True)
                self._thread.start()
            drawing = self._thread is not None
            if self._header:
                return {"state": "ready", "drawing": self._says if drawing else None, "failed": self._failed or None, "atlas": self._header}
            return {"state": "failed", "message": self._failed} if self._failed else {"state": "drawing", "says": self._says}

    def take_up(self) -> None:
        """Before anybody asks: what was drawn for these indexes the last time. Nothing is waited for where nothing was drawn."""
        snapshots = [one.index.snapshot for one in self.collections]
        if not was_drawn([Place(Path(one.folder), snapshot) for one, snapshot in zip(self.collections, snapshots, strict=True)]):
            return
        self.state(snapshots)
        thread = self._thread
        if thread is not None:
            thread.join(TAKING_UP)

    def near(self, row: int, k: int, version: str) -> dict[str, Any]:
        """The neighbors of a point under every model. Runs in a worker's thread."""
        drawn = self._ready(version)
        census = drawn[0].census
        if not 0 <= row < len(census):
            raise Refusal(404, "no_such_point", f"row {row} is not on the map, which has {len(census):,} points")
        asked = np.array([row])
        found = [[part[0] for part in neighbors_of(view.census, asked, k)] for view in drawn]
        models = [answer(view.census, *parts) for view, parts in zip(drawn, found, strict=True)]
        return {"row": row, "source": census.sources[row], "metadata": dict(census.metadata[row]), "models": models}

    def drop(self, encode: Callable[[Collection], np.ndarray], k: int, version: str) -> dict[str, Any]:
        """Where a new picture lands, and its neighbors, under every model. Runs in a worker's thread."""
        started, models = time.perf_counter(), list[dict[str, Any]]()
        for at, (view, collection) in enumerate(zip(self._ready(version), self.collections, strict=True)):
            vector = encode(collection)[None].astype(np.float32)
            found = view.census.nearest(vector, k)
            spot = placed_on_canvas(self._projection(at, view).place(vector), view.atlas.points)[0]
            near = answer(view.census, found.positions[0].numpy(), found.affinity[0].float().numpy(), None)
            models.append({**near, "at": [float(value) for value in spot]})
        return {"models": models, "seconds": time.perf_counter() - started}

    def _ready(self, version: str) -> list[View]:
        """The views, if they are those the page has: rows of another generation would be other points."""
        with self._lock:
            drawn, now = self._drawn, self._header.get("version")
        if not drawn:
            raise Refusal(409, "not_drawn", "the map is not drawn yet; ask /atlas how far it is")
        if version != now:
            raise Refusal(409, "redrawn", "the index has changed and the map was drawn anew; load the page again")
        return drawn

    def _projection(self, at: int, view: View) -> Projection:
        with self._lock:
            if at not in self._projections:
                self._projections[at] = restored(view.atlas, view.census)
            return self._projections[at]

    def _draw(self, places: Sequence[Place]) -> None:
        try:
            version = ".".join(str(place.snapshot.manifest["generation"]) for place in places)
            for drawn in views(places, self.method, self._tell):
                page = header(drawn, live=True, chunk=0, sheets=None, version=version)
                with self._lock:
                    self._drawn, self._header, self._projections = drawn, page, {}
                for view in drawn:  # once before anybody clicks: loops are compiled now
                    neighbors_of(view.census, np.zeros(1, np.int64), 1)
        except Exception as error:  # whatever it is, the page must say it: nobody waits for this thread
            with self._lock:
                self._failed = str(error) or type(error).__name__
        finally:
            with self._lock:
                self._thread = None

    def _tell(self, line: str) -> None:
        self._says = line


def page() -> tuple[bytes, dict[str, str]]:
    """The explorer's page, and a policy under which only its own script runs and nothing is fetched from elsewhere.

    regl compiles its draw calls with Function(), hence 'unsafe-eval'; no text from anywhere else reaches it.
    """
    policy = (
        "default-src 'none'; img-src 'self' blob: data:; connect-src 'self'; script-src 'self' 'unsafe-eval'; "
        "style-src 'self' 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return asset("index.html").replace(MARK.encode(), b""), {"Content-Security-Policy": policy, **FRESH}


def add_routes(app: FastAPI, explorer: Explorer, service: "Service") -> None:
    """The page and what it asks for; not part of the API's description."""
    content, headers = page()
    kinds = {"explorer.js": "text/javascript", "explorer.css": "text/css"}

    @app.get("/explore", include_in_schema=False)
    async def explore() -> Response:
        return Response(content, media_type="text/html", headers=headers)

    @app.get("/explore/", include_in_schema=False)
    async def explore_typed() -> Response:
        return RedirectResponse("/explore", 308)  # the page asks for its parts beside it

    @app.get("/explorer.{kind}", include_in_schema=False)
    async def part(kind: Literal["js", "css"]) -> Response:
        name = f"explorer.{kind}"
        return Response(asset(name), media_type=kinds[name], headers=FRESH)

    @app.get("/atlas", include_in_schema=False)
    async def atlas() -> Response:
        return _json(explorer.state([service.current, *(one.index.snapshot for one in explorer.collections[1:])]))

    @app.get("/atlas/near/{row}", include_in_schema=False)
    async def near(row: Row, k: Asked = 30, version: str = "") -> Response:
        return _json(await service.workers.run(lambda: explorer.near(row, k, version)))

    @app.post("/atlas/drop", include_in_schema=False)
    async def drop(request: Request, k: Asked = 30, version: str = "") -> Response:
        picture = await request.body()
        return _json(await service.workers.run(lambda: explorer.drop(lambda one: service.encoded(picture, one), k, version)))


def _json(content: dict[str, Any]) -> Response:
    return Response(json.dumps(content, allow_nan=False, separators=(",", ":")), media_type="application/json", headers=FRESH)
