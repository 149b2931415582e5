"""Hostile files: whatever bytes arrive, the response is 200 or a refusal, and the process neither dies nor grows."""

import asyncio
import random
import struct
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from starlette.testclient import TestClient

from nearkin.serve.app import make_app
from nearkin.serve.limits import Limits
from tests.serve.small_model import encoded, make_collection, picture
from tests.soak_results import record

TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp", "GIF": "image/gif", "BMP": "image/bmp"}
SEEDS = {kind: encoded(picture("blue", 3), kind) for kind in TYPES}
MEGABYTES = 120  # of growth that are forgiven: one picture of the largest size, and what malloc keeps


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    app = make_app(make_collection(tmp_path_factory.mktemp("hostile")), limits=Limits(pixels=4_000_000))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def resident() -> float:
    """Megabytes of this process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def mutated(rng: random.Random) -> tuple[str, bytes]:
    """A picture cut, bent, stuffed, spliced with another, or with its sizes changed."""
    kind = rng.choice(list(SEEDS))
    content = bytearray(SEEDS[kind])
    how = rng.randrange(7)
    if how == 0:
        del content[rng.randrange(len(content)) :]
    elif how == 1:
        for _ in range(rng.randint(1, 8)):
            content[rng.randrange(len(content))] = rng.randrange(256)
    elif how == 2:  # the head, where the sizes stand
        content[rng.randrange(min(40, len(content)))] = rng.choice((0, 1, 127, 128, 255))
    elif how == 3:
        at = rng.randrange(len(content))
        content[at:at] = rng.randbytes(rng.randint(1, 200))
    elif how == 4:  # a polyglot: one file's head on another's body
        other = SEEDS[rng.choice(list(SEEDS))]
        content = content[: rng.randrange(1, len(content))] + bytearray(other[rng.randrange(len(other)) :])
    elif how == 5:
        at, end = sorted(rng.randrange(len(content)) for _ in range(2))
        content[at:end] = content[at:end] * rng.randint(2, 20)
    else:
        content = bytearray(
            rng.choice((b"", b"GIF89a", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"BM", b"RIFF")) + rng.randbytes(rng.randint(0, 300))
        )
    return rng.choice((kind, kind, kind, "PNG")), bytes(content)


def send(client: TestClient, kind: str, content: bytes, form: bool = False) -> int:
    if form:
        answer = client.post("/search?k=1", files={"image": ("x", content)})
    else:
        answer = client.post("/search?k=1", content=content, headers={"Content-Type": TYPES[kind]})
    page = answer.json()
    assert (answer.status_code == 200 and page["neighbors"]) or (answer.status_code == 422 and page["error"]["code"] == "no_picture")
    return answer.status_code


def storm(client: TestClient, count: int, seed: int) -> str:
    rng = random.Random(seed)
    for _ in range(50):
        send(client, *mutated(rng))
    before, seen = resident(), {200: 0, 422: 0}
    for number in range(count):
        seen[send(client, *mutated(rng), form=number % 10 == 0)] += 1
    assert resident() - before < MEGABYTES
    assert min(seen.values()) > count / 50, f"{seen}: the mutations are all too tame or all too wild"
    assert send(client, "PNG", SEEDS["PNG"]) == 200
    return f"{seen[200]:,} answered, {seen[422]:,} refused, no other status; memory {resident() - before:+.1f} MB"


def test_mutations(client: TestClient) -> None:
    storm(client, 300, 1)


@pytest.mark.soak
def test_ten_thousand_mutations(client: TestClient) -> None:
    started = time.monotonic()
    record("mutated uploads", 10_000, storm(client, 10_000, 2), time.monotonic() - started)


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def bomb(width: int, height: int, rows: int) -> bytes:
    """A PNG that says so many pixels and brings so many rows of black."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    squeeze = zlib.compressobj(9)
    body = b"".join(squeeze.compress(bytes(width + 1)) for _ in range(rows)) + squeeze.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def text_bomb() -> bytes:
    """A PNG with a text of 200 MB squeezed into 200 kB, right behind its head."""
    plain = encoded(Image.new("L", (8, 8)))
    return plain[:33] + chunk(b"zTXt", b"x\0\0" + zlib.compress(bytes(200_000_000), 9)) + plain[33:]


def gif(width: int, height: int, frames: int) -> bytes:
    """A GIF that says so large a screen, with many frames."""
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x08\x02\x4c\x01\x00"
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + b"\x00\x00\x00\xff\xff\xff" + frame * frames + b";"


def bmp(width: int, height: int) -> bytes:
    return (
        b"BM"
        + struct.pack("<IHHI", 54 + 100, 0, 0, 54)
        + struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
        + bytes(100)
    )


BOMBS = {
    "a square of 900 million pixels": ("PNG", lambda: bomb(30_000, 30_000, 30)),
    "a strip that becomes large when its short side grows": ("PNG", lambda: bomb(3_900_000, 1, 1)),
    "a thin tower": ("PNG", lambda: bomb(1, 3_900_000, 3_900_000 // 1000)),
    "a text of 200 MB": ("PNG", text_bomb),
    "a GIF screen of 4 billion": ("GIF", lambda: gif(65_535, 65_535, 1)),
    "a BMP that says a lot": ("BMP", lambda: bmp(2**31 - 1, 2**31 - 1)),
    "a BMP with a negative height": ("BMP", lambda: bmp(100_000, -100_000)),
    "a width of nothing": ("PNG", lambda: bomb(0, 5, 1)),
}


@pytest.mark.parametrize("name", sorted(BOMBS))
def test_bombs_are_refused_quickly_and_take_no_room(client: TestClient, name: str) -> None:
    kind, make = BOMBS[name]
    content = make()
    assert len(content) < 1 << 20
    send(client, "PNG", SEEDS["PNG"])
    before, started = resident(), time.perf_counter()
    assert send(client, kind, content) == 422
    assert time.perf_counter() - started < 3 and resident() - before < MEGABYTES


def test_the_largest_picture_allowed_is_taken(client: TestClient) -> None:
    assert send(client, "JPEG", encoded(picture("red", 1, (2000, 2000)), "JPEG")) == 200
    assert send(client, "JPEG", encoded(picture("red", 1, (2001, 2000)), "JPEG")) == 422


@pytest.mark.parametrize(
    "content",
    [
        b"%PDF-1.4 not a picture",
        b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) run",
        b"II*\0" + bytes(100),
        b"P6 9 9 255 " + bytes(300),
    ],
)
def test_formats_beyond_the_five_are_not_even_tried(client: TestClient, content: bytes) -> None:
    assert send(client, "PNG", content) == 422


def test_a_polyglot_is_only_its_pixels(client: TestClient) -> None:
    page = SEEDS["GIF"] + b"<script>alert(1)</script>"
    assert send(client, "GIF", page) == 200


BITS = (
    *(
        b"127.0.0.1",
        b"[::1]",
        b"[",
        b"]",
        b":",
        b"http://",
        b"@",
        b"\xff",
        b"\x00",
        b";",
        b"=",
        b"nearkin_token=",
        b"; boundary=",
        b"x",
        b'"',
    ),
    *(
        b"multipart/form-data",
        b"application/json",
        b"image/png",
        b"charset=utf-16",
        b"..",
        b"/",
        b"%2e",
        b"Bearer ",
        b"9" * 40,
        b"{",
        b"[1,2]",
    ),
    *(b"--x", b"\r\n", b"Content-Disposition: form-data; name=", b"filename*=utf-8''%ff", b"\xe2\x82", b"-", b"k=5"),
)


def scrambled(rng: random.Random) -> tuple[dict[str, Any], bytes]:
    """A request whose path, query, headers and body are put together at random, and now and then make sense."""

    def some(most: int = 6) -> bytes:
        return b"".join(rng.choices(BITS, k=rng.randint(0, most)))

    headers = [(b"host", b"127.0.0.1" if rng.random() < 0.8 else some())]
    headers += [(name, some()) for name in (b"origin", b"cookie", b"authorization", b"content-length") if rng.random() < 0.15]
    headers += [(b"content-type", rng.choice((b"application/json", b"multipart/form-data; boundary=x", some())))]
    path = rng.choice(("/search", "/search", "/points", "/image/3", "/image/" + some(3).decode("latin-1"), "/" + some(3).decode("latin-1")))
    about = {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    asked = {"method": rng.choice(("POST", "POST", "GET", "HEAD")), "path": path, "raw_path": path.encode(), "query_string": some()}
    return {**about, **asked, "headers": headers}, (b"--x\r\n" if rng.random() < 0.5 else b"") + some(10)


def scramble(client: TestClient, count: int, seed: int) -> Counter[int]:
    """The statuses of so many scrambled requests."""
    rng, seen = random.Random(seed), Counter[int]()

    async def ask(scope: dict[str, Any], body: bytes) -> int:
        messages: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            messages.append(message)

        await client.app(scope, receive, send)
        return int(messages[0]["status"])

    async def storm() -> None:
        for _ in range(count):
            seen[await ask(*scrambled(rng))] += 1

    asyncio.run(storm())
    assert max(seen) < 500 and {200, 400, 403, 404, 405, 413, 415, 422} <= set(seen)
    return seen


def test_scrambled_requests_are_answered_and_never_fail(client: TestClient) -> None:
    scramble(client, 1500, 5)


@pytest.mark.soak
def test_ten_thousand_scrambled_requests(client: TestClient) -> None:
    scramble(client, 500, 6)
    before, started = resident(), time.monotonic()
    seen = scramble(client, 10_000, 7)
    growth = resident() - before
    assert growth < MEGABYTES
    outcome = f"{seen[200]:,} answered, {sum(seen.values()) - seen[200]:,} refused, no status of 500 or more; memory {growth:+.1f} MB"
    record("scrambled requests and bodies", 10_000, outcome, time.monotonic() - started)
