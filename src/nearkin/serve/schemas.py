"""Requests and responses, for the OpenAPI description of one index."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

LARGEST_ID = 2**63 - 1
LONGEST_TEXT = 20_000  # characters
LARGEST_NUMBER = 1e15  # its square, times any dimension, is still a float32
ImageTypes = ("image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp")


class Error(BaseModel):
    """What is wrong: a code for programs and a sentence for people."""

    code: str
    message: str


class ErrorPage(BaseModel):
    """Every error."""

    error: Error


class Point(BaseModel):
    """A point of the index; `image` is the path of its thumbnail, if it has one."""

    id: int
    label: str | None
    source: str
    metadata: dict[str, Any]
    image: str | None


class Neighbor(Point):
    """A neighbor: its affinity (larger is nearer), and whether it is near enough to be of the same class."""

    affinity: float
    same_kind: bool | None


class Seconds(BaseModel):
    """Duration of the encoding and of the search."""

    encode: float
    search: float


class SearchPage(BaseModel):
    """The nearest neighbors, nearest first. `exact` is false when a nearer one may have been missed.

    With `reject`, `none_of_these` says whether the query is of no known class, and `p_value` which share of known points is no nearer.
    """

    neighbors: list[Neighbor]
    exact: bool
    none_of_these: bool | None = None
    p_value: float | None = None
    generation: int
    seconds: Seconds


class PointsPage(BaseModel):
    """Some of the points, in the order of the index."""

    total: int
    points: list[Point]
    generation: int


class HealthPage(BaseModel):
    """The state of the service. `reads` says what the model reads (images, vectors, texts), `stale` why changes cannot be read.

    Without the token, only `status` is returned.
    """

    status: str
    points: int | None = None
    dimension: int | None = None
    backend: str | None = None
    generation: int | None = None
    labels: list[str] | None = None
    reads: str | None = None
    stale: str | None = None


def whole(value: Any) -> Any:
    """5.0 is an integer to JSON Schema, though not to pydantic."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class QuestionBody(BaseModel):
    """A query by id, by vector, by the row of a table or by a text: exactly one of them."""

    model_config = ConfigDict(extra="forbid", strict=True)
    id: Annotated[int, BeforeValidator(whole), Field(ge=0, le=LARGEST_ID)] | None = None
    vector: list[float] | None = None
    row: dict[str, str | float | bool | None] | None = None
    text: Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)] | None = None


def question_schema(dimension: int, *, texts: bool = False, rows: bool = False) -> dict[str, Any]:
    """The body of /search, of a model that reads images, texts or rows of a table."""
    number = {"type": "number", "minimum": -LARGEST_NUMBER, "maximum": LARGEST_NUMBER}
    by_id = {"id": {"type": "integer", "minimum": 0, "maximum": LARGEST_ID}}
    by_vector = {"vector": {"type": "array", "items": number, "minItems": dimension, "maxItems": dimension}}
    cell = {"type": ["string", "number", "boolean", "null"]}
    by_row = {"row": {"type": "object", "additionalProperties": cell, "description": "The features of a row, for a model of tables."}}
    by_text = {"text": {"type": "string", "minLength": 1, "maxLength": LONGEST_TEXT, "pattern": "\\S"}}
    image = {"type": "string", "format": "binary"}
    ways: list[dict[str, Any]] = [by_id, by_vector, *([by_text] if texts else []), *([by_row] if rows else [])]
    bodies = [{"type": "object", "properties": one, "required": list(one), "additionalProperties": False} for one in ways]
    form = {"type": "object", "properties": {"image": image}, "required": ["image"], "additionalProperties": False}
    content: dict[str, Any] = {"application/json": {"schema": {"oneOf": bodies}}}
    if not texts and not rows:
        content |= {"multipart/form-data": {"schema": form}, **{kind: {"schema": image} for kind in ImageTypes}}
    return {"required": True, "content": content}
