"""What the routes of the service share: the collection, the index that is served now, and the workers."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from starlette.responses import Response

from nearkin.data.images import DamagedImageError
from nearkin.index import rejection
from nearkin.index.collection import Collection
from nearkin.index.contract import Entry, Hit, VectorIndex, Where
from nearkin.search.rejection import Rejection
from nearkin.serve.decoders import Decoded, Decoders
from nearkin.serve.errors import Refusal
from nearkin.serve.limits import Limits
from nearkin.serve.metrics import Metrics
from nearkin.serve.workers import Workers


class Question(NamedTuple):
    """A query: an image or a text to encode, the id of a point, a vector, or the row of a table."""

    image: Decoded | None = None
    id: int | None = None
    vector: np.ndarray | None = None
    row: Mapping[str, Any] | None = None
    text: str | None = None


class Found(NamedTuple):
    """The answer to a query."""

    neighbors: list[dict[str, Any]]  # as JSON
    exact: bool
    generation: int
    encoding: float  # seconds
    searching: float  # seconds
    p_value: float | None = None
    rejected: bool | None = None


class Service:
    """What the routes share."""

    def __init__(self, collection: Collection, limits: Limits) -> None:
        self.collection, self.limits = collection, limits
        self.stale: str | None = None  # why changes of the index cannot be read
        self.workers = Workers(limits.threads, limits.queue, limits.job_seconds)
        self.decoders = Decoders(limits)
        self._rejection: tuple[str, Rejection] | None = None  # with the identity of the index that it was fitted to
        self._take_over()
        gauges = {"points": lambda: self.count, "generation": lambda: self.generation, "queue_jobs": self._pending}
        self.metrics = Metrics(gauges)

    async def watch(self) -> None:
        """Serve every new generation of the index; keep the old one if the new one cannot be read."""
        while True:
            await asyncio.sleep(self.limits.reload_seconds)
            try:
                changed = await asyncio.to_thread(self.reload)
            except (OSError, ValueError, ImportError) as error:  # tried again at the next turn
                self.stale = str(error)
                self.metrics.reloads.labels("failed").inc()
            else:
                self.stale = None
                if changed:
                    self.metrics.reloads.labels("done").inc()

    def reload(self) -> bool:
        """Take over the index if its content has changed, or another one was moved into its place.

        It is searched once before it is served, so that no request waits for it.
        """
        index = self.collection.index
        index.refresh()
        if index.identity == self.identity:
            return False
        newest = index.frozen()
        if newest.count:
            newest.search(np.ones((1, newest.dimension), np.float32), 1)
        self._take_over()
        return True

    def _take_over(self) -> None:
        self.current: VectorIndex = self.collection.index.frozen()
        self.identity, self.generation, self.count = self.current.identity, self.current.generation, self.current.count

    def answer(self, question: Question, k: int, where: Where, reject: float | None = None) -> Found:
        """The neighbors of a query. Runs in a worker's thread."""
        index, started = self.current, time.perf_counter()
        vector, exclude = question.vector, None
        if question.image is not None:
            vector = self.encoded(question.image.pixels[None], self.collection)
            started -= question.image.seconds
        if question.row is not None:
            vector = self.encoded_row(question.row)
        if question.text is not None:
            vector = self.encoded([question.text], self.collection)
        encoded = time.perf_counter()
        if question.id is not None:
            try:
                vector, exclude = index.vectors([question.id])[0], [question.id]
            except KeyError:
                raise Refusal(404, "no_such_point", f"no point has the id {question.id}") from None
        assert vector is not None
        found = index.search(vector[None], k, where=where, exclude=exclude)[0]
        if reject is not None:
            [found] = rejection.judged([found], index, self._rule(index), vector[None], reject, exclude)
        searched = time.perf_counter()
        neighbors = _json_points(index, found.hits)
        for one, hit in zip(neighbors, found.hits, strict=True):
            one |= {"affinity": hit.affinity, "same_kind": hit.same_kind}
        return Found(neighbors, found.exact, index.generation, encoded - started, searched - encoded, found.p_value, found.rejected)

    def _rule(self, index: VectorIndex) -> Rejection:
        """The rule that rejects queries, fitted once for each content of the index."""
        if self._rejection is None or self._rejection[0] != index.identity:
            try:
                self._rejection = (index.identity, rejection.fit(index))
            except ValueError as error:
                raise Refusal(422, "cannot_reject", str(error)) from None
        return self._rejection[1]

    def points(self, offset: int, limit: int, where: Where) -> dict[str, Any]:
        """A page of points. Runs in a worker's thread."""
        index = self.current
        try:
            page = index.page(where, offset, limit)
        except ValueError as error:
            raise Refusal(422, "invalid", str(error)) from None
        return {"total": page.total, "points": _json_points(index, page.entries), "generation": index.generation}

    def thumbnail(self, id: int) -> bytes:
        """The thumbnail of a point, b"" if there is none. Runs in a worker's thread."""
        try:
            return self.current.thumbnails([id])[0]
        except KeyError:
            return b""

    async def decoded(self, image: bytes, collection: Collection) -> Decoded:
        """An image file as the model of a collection reads it, or a refusal that says what to send."""
        try:
            return await self.decoders.decode(image, collection.image_reading())
        except DamagedImageError as error:
            raise Refusal(422, "no_picture", f"{error}; send a complete PNG, JPEG, WebP, GIF or BMP") from None
        except ValueError as error:
            raise Refusal(422, "no_pictures_here", str(error)) from None

    def encoded(self, one: np.ndarray | list[str], collection: Collection) -> np.ndarray:
        """The embedding (d,) of one decoded image (1, c, h, w), or of one text, by the model of a collection. Runs in a worker's thread."""
        vector = np.asarray(collection.model.encode(one)).reshape(-1)
        if not np.isfinite(vector).all():
            what = "text" if isinstance(one, list) else "image"
            raise Refusal(422, "no_embedding", f"the network returned no finite embedding for this {what}; send another")
        return vector

    def encoded_row(self, row: Mapping[str, Any]) -> np.ndarray:
        """The embedding (d,) of a table's row. Runs in a worker's thread."""
        model = self.collection.model
        if "table" not in model.about:
            raise Refusal(422, "no_rows_here", "this model reads no rows of a table; search by id or by vector")
        try:
            return np.asarray(model.encode({name: [cell] for name, cell in row.items()})).reshape(-1)  # type: ignore[arg-type]
        except (ValueError, TypeError) as error:
            raise Refusal(422, "invalid", f"row: {error}"[:500]) from None

    def stop(self) -> None:
        """Drop all jobs and end the processes that decode images."""
        self.decoders.stop()
        self.workers.stop()

    def _pending(self) -> int:
        return self.decoders.pending + self.workers.pending


def json_response(content: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """JSON without spaces; NaN and infinity are errors."""
    return Response(json.dumps(content, allow_nan=False, separators=(",", ":")), media_type="application/json", headers=headers)


def _json_points(index: VectorIndex, points: Sequence[Entry | Hit]) -> list[dict[str, Any]]:
    """Points as JSON, with the address of their thumbnails."""
    pictured = index.has_thumbnails([point.id for point in points])
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
