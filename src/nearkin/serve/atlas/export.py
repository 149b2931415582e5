"""The explorer as a folder that opens from disk, without a server or a network.

A page opened from disk may load scripts and images from its folder, but may not read other files. So the data are scripts, each with a
thousand points, which are loaded when needed; images are sheets of tiles.
"""

import base64
import io
import json
import secrets
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

from nearkin.data.disk import created, explain_full_disk, sync
from nearkin.data.pixels import open_image
from nearkin.data.progress import Report, Ticker
from nearkin.serve.atlas.model_maps import ModelMap
from nearkin.serve.atlas.page_data import encoded, header
from nearkin.serve.atlas.table import PointTable

CHUNK = 1000  # points per file
ACROSS = 25  # tiles in a row of a sheet, 40 rows
SMALL, LARGE = 32, 64  # sides of tiles: for images up to that size, and for all others
WRITTEN = ("explorer.js", "explorer.css", "index.html", "atlas.js", "near", "pictures")
MARK = "<!-- atlas.js -->"  # replaced by the script that loads the data
NONCE = "{nonce}"  # replaced by a secret of each page, with which it may compile its draw calls
CHARSET = '<meta charset="utf-8">'
SOURCES = "'self' file:"  # of a page that is opened from disk or put on a web server


def write_page(maps: Sequence[ModelMap], out: Path, report: Report | None = None) -> Path:
    """Write the folder; returns the page to open."""
    check_free(out)
    with explain_full_disk(out, "run the same command again"):
        for inside in ("near", "pictures"):
            (out / inside).mkdir(parents=True, exist_ok=True)
        (out / "atlas.js").unlink(missing_ok=True)  # last again, so that an old one never stands beside new files
        for name in ("explorer.js", "explorer.css"):
            _write(out / name, asset(name))
        sheets = _write_sheets(maps[0].table, out / "pictures", report)
        nonce = secrets.token_urlsafe(16)
        page = asset("index.html").decode().replace(MARK, '<script src="atlas.js"></script>').replace(NONCE, nonce)
        policy = f'<meta http-equiv="Content-Security-Policy" content="{page_policy(nonce, SOURCES)}">'
        _write(out / "index.html", page.replace(CHARSET, CHARSET + policy).encode())
        _write_chunks(maps, out / "near", report)
        for folder in (out / "near", out / "pictures", out):
            sync(folder)
        _call(out / "atlas.js", header(maps, live=False, chunk=CHUNK, sheets=sheets))
        sync(out)
    return out / "index.html"


def page_text(maps: Sequence[ModelMap]) -> str:
    """The same page as one text that holds everything, for the frame of a notebook."""
    with TemporaryDirectory() as place:
        out = Path(place) / "page"
        write_page(maps, out)
        by_number = lambda path: int(path.stem)  # noqa: E731
        scripts = [(out / "atlas.js").read_text(), *(path.read_text() for path in sorted((out / "near").iterdir(), key=by_number))]
        sheets = [_as_url(path) for path in sorted((out / "pictures").iterdir(), key=by_number)]
    scripts.append(f"Object.assign(window.nearkin,{{notebook:true,pictures:{json.dumps(sheets)}}});")
    nonce = secrets.token_urlsafe(16)
    code = "\n".join([*scripts, asset("explorer.js").decode().replace("</script", "<\\/script")])
    own = f"'nonce-{nonce}'"
    policy = f"default-src 'none'; img-src data: blob:; script-src {own}; style-src {own}; base-uri 'none'; form-action 'none'"
    page = asset("index.html").decode().replace(CHARSET, f'{CHARSET}<meta http-equiv="Content-Security-Policy" content="{policy}">')
    style = f'<style nonce="{nonce}">{asset("explorer.css").decode()}</style>'
    page = page.replace(MARK, "").replace('<link rel="stylesheet" href="explorer.css">', style)
    before, _, after = page.partition(f'<script src="explorer.js" nonce="{NONCE}"></script>')
    return f'{before}<script nonce="{nonce}">{code}</script>{after}'


def _as_url(path: Path) -> str:
    kind = "png" if path.suffix == ".png" else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"


def page_policy(nonce: str, own: str = "'self'") -> str:
    """The content security policy of the page: only its own files, no eval, and no requests to other sites."""
    return (
        f"default-src 'none'; img-src {own} blob: data:; connect-src {own}; script-src {own} 'nonce-{nonce}'; style-src {own}; "
        "base-uri 'none'; form-action 'none'"
    )


def check_free(out: Path) -> None:
    """Refuse a folder that holds anything but an explorer, complete or not, before the work begins."""
    if out.exists() and (not out.is_dir() or any(path.name not in WRITTEN or path.is_symlink() for path in out.iterdir())):
        raise ValueError(f"{out} holds other files; name a new folder, or an empty one")


def asset(name: str) -> bytes:
    """A file of the built page."""
    return (files("nearkin.serve.atlas") / "page" / name).read_bytes()


def _write_chunks(maps: Sequence[ModelMap], folder: Path, report: Report | None) -> None:
    table = maps[0].table
    ticker = Ticker(report, "writing neighbors", len(table), "points")
    for number, start in enumerate(range(0, len(table), CHUNK)):
        rows = slice(start, start + CHUNK)
        models = [
            {
                "rows": encoded(one.atlas.positions[rows], "<i4"),
                "affinity": encoded(one.atlas.affinity[rows], "<f4"),
                "right": encoded(one.atlas.right[rows], "<i1"),
            }
            for one in maps
        ]
        _call(folder / f"{number}.js", {"sources": list(table.sources[rows]), "metadata": list(table.metadata[rows]), "models": models})
        ticker.update(min(start + CHUNK, len(table)))


def _call(path: Path, content: dict[str, Any]) -> None:
    """A script that passes the content to the page; `</` is escaped, since it could end the script."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":")).replace("</", "<\\/")
    number = json.dumps(path.stem)
    _write(path, f"(window.nearkin=window.nearkin||{{}})[{number}]={text};\n".encode())


def _write(path: Path, content: bytes) -> None:
    with created(path) as file:
        file.write(content)


def _write_sheets(table: PointTable, folder: Path, report: Report | None) -> dict[str, Any] | None:
    """Sheets of a thousand tiles each; None if there are no images."""
    largest = [_size(table.thumbnail(row)) for row in range(0, len(table), max(1, len(table) // 50))]
    if not max(largest, default=0):
        return None
    side = SMALL if max(largest) <= SMALL else LARGE
    suffix = "png" if side == SMALL else "jpg"
    ticker = Ticker(report, "writing images", len(table), "points")
    for number, start in enumerate(range(0, len(table), CHUNK)):
        sheet = Image.new("RGB", (ACROSS * side, CHUNK // ACROSS * side), (127, 127, 127))
        for at, row in enumerate(range(start, min(start + CHUNK, len(table)))):
            _paste(sheet, table.thumbnail(row), at, side)
        gray = suffix == "png" and _is_gray(sheet)
        content = io.BytesIO()
        (sheet.convert("L") if gray else sheet).save(content, {"png": "PNG", "jpg": "JPEG"}[suffix], quality=82)  # ignored by PNG
        _write(folder / f"{number}.{suffix}", content.getvalue())
        ticker.update(min(start + CHUNK, len(table)))
    return {"side": side, "across": ACROSS, "down": CHUNK // ACROSS, "suffix": suffix}


def _paste(sheet: Image.Image, content: bytes, at: int, side: int) -> None:
    """One image, scaled to its tile and centered."""
    if not content:
        return
    with open_image(content) as stored:
        image = stored.convert("RGB")
    scale = side / max(image.size)
    new = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    image = image.resize(new, Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS)
    left, top = at % ACROSS * side + (side - new[0]) // 2, at // ACROSS * side + (side - new[1]) // 2
    sheet.paste(image, (left, top))


def _size(content: bytes) -> int:
    if not content:
        return 0
    with open_image(content) as stored:
        return max(stored.size)


def _is_gray(sheet: Image.Image) -> bool:
    red, green, blue = sheet.split()
    return red.tobytes() == green.tobytes() == blue.tobytes()
