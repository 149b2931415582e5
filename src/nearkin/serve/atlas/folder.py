"""The explorer as a folder that opens from disk: no server, and nothing is fetched from anywhere.

A page opened from disk may load scripts and pictures beside it, but may not read other files. So the data are scripts that call
`nearkin`, a thousand points in each, loaded when one of those is asked for; pictures are sheets of tiles.
"""

import io
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from PIL import Image

from nearkin.data.progress import Report, Ticker
from nearkin.serve.atlas.census import Census
from nearkin.serve.atlas.view import View
from nearkin.serve.atlas.wire import header, numbers

CHUNK = 1000  # points of one file
ACROSS = 25  # tiles in a row of a sheet, 40 rows
SMALL, LARGE = 32, 64  # sides of tiles: of pictures no larger than that, and of all others
MARK = "<!-- atlas.js -->"  # where the page of a folder loads its data


def write_page(views: Sequence[View], out: Path, report: Report | None = None) -> Path:
    """Write the folder; the page to open."""
    check_free(out)
    for inside in ("near", "pictures"):
        (out / inside).mkdir(parents=True, exist_ok=True)
    for name in ("explorer.js", "explorer.css"):
        (out / name).write_bytes(asset(name))
    sheets = _write_sheets(views[0].census, out / "pictures", report)
    page = asset("index.html").decode().replace(MARK, '<script src="atlas.js"></script>')
    (out / "index.html").write_text(page, encoding="utf-8")
    _write_chunks(views, out / "near", report)
    _call(out / "atlas.js", header(views, live=False, chunk=CHUNK, sheets=sheets))
    return out / "index.html"


def check_free(out: Path) -> None:
    """Refuse a folder that holds anything but an explorer, before minutes are spent."""
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / "atlas.js").exists())):
        raise ValueError(f"{out} holds other things; name a new folder, or an empty one")


def asset(name: str) -> bytes:
    """A file of the built page."""
    return (files("nearkin.serve.atlas") / "page" / name).read_bytes()


def _write_chunks(views: Sequence[View], folder: Path, report: Report | None) -> None:
    census = views[0].census
    ticker = Ticker(report, "writing neighbors", len(census), "points")
    for number, start in enumerate(range(0, len(census), CHUNK)):
        rows = slice(start, start + CHUNK)
        models = [
            {
                "rows": numbers(view.atlas.positions[rows], "<i4"),
                "affinity": numbers(view.atlas.affinity[rows], "<f4"),
                "right": numbers(view.atlas.right[rows], "<i1"),
            }
            for view in views
        ]
        _call(folder / f"{number}.js", {"sources": list(census.sources[rows]), "metadata": list(census.metadata[rows]), "models": models})
        ticker.update(min(start + CHUNK, len(census)))


def _call(path: Path, content: dict[str, Any]) -> None:
    """A script that hands the content to the page; `</` cannot end a script from inside a text."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":")).replace("</", "<\\/")
    number = json.dumps(path.stem)
    path.write_text(f"(window.nearkin=window.nearkin||{{}})[{number}]={text};\n", encoding="utf-8")


def _write_sheets(census: Census, folder: Path, report: Report | None) -> dict[str, Any] | None:
    """Sheets of tiles, a thousand to each; None where there are no pictures."""
    largest = [_size(census.picture(row)) for row in range(0, len(census), max(1, len(census) // 50))]
    if not max(largest, default=0):
        return None
    side = SMALL if max(largest) <= SMALL else LARGE
    suffix = "png" if side == SMALL else "jpg"
    ticker = Ticker(report, "writing pictures", len(census), "points")
    for number, start in enumerate(range(0, len(census), CHUNK)):
        sheet = Image.new("RGB", (ACROSS * side, CHUNK // ACROSS * side), (127, 127, 127))
        for at, row in enumerate(range(start, min(start + CHUNK, len(census)))):
            _paste(sheet, census.picture(row), at, side)
        gray = suffix == "png" and _is_gray(sheet)
        (sheet.convert("L") if gray else sheet).save(folder / f"{number}.{suffix}", quality=82)  # of JPEG; PNG has none
        ticker.update(min(start + CHUNK, len(census)))
    return {"side": side, "across": ACROSS, "down": CHUNK // ACROSS, "suffix": suffix}


def _paste(sheet: Image.Image, content: bytes, at: int, side: int) -> None:
    """One picture, as large as its tile lets it be, in the middle."""
    if not content:
        return
    with Image.open(io.BytesIO(content)) as stored:
        image = stored.convert("RGB")
    scale = side / max(image.size)
    new = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    image = image.resize(new, Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS)
    left, top = at % ACROSS * side + (side - new[0]) // 2, at // ACROSS * side + (side - new[1]) // 2
    sheet.paste(image, (left, top))


def _size(content: bytes) -> int:
    if not content:
        return 0
    with Image.open(io.BytesIO(content)) as stored:
        return max(stored.size)


def _is_gray(sheet: Image.Image) -> bool:
    red, green, blue = sheet.split()
    return red.tobytes() == green.tobytes() == blue.tobytes()
