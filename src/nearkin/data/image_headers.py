"""What the header of an image file says that decoding would cost, read without decoding anything.

Small files can be made that take minutes or gigabytes to decode: a progressive JPEG may scan all of its pixels thousands of times, and a
palette or 16 bits grow several times when they become color. These checks are for files from people you do not know.
"""

import re

from PIL import Image

MOST_SCANS = 100  # of a JPEG; encoders write 10 or so
MOST_FRAMES = 1000
SCANNED = 16  # times the allowed pixels that all scans of a JPEG may visit together
BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}  # a pixel takes in memory; 4 in all other modes
COLOR_BYTES = 4  # a pixel takes as RGB in memory
JPEG_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")  # \x00 and the restarts are part of the pixels


def check_header(image: Image.Image, content: bytes, size: int | None, most_pixels: int, most_bytes: int | None = None) -> None:
    """Refuse an image that was opened but not decoded, if decoding it and resizing its short side to `size` would cost too much.

    Parameters
    ----------
    image : PIL.Image.Image
        The image as `PIL.Image.open` returns it.
    content : bytes
        The file.
    size : int, optional
        The short side after resizing: 1 x 1,000,000 pixels are few until their short side grows.
    most_pixels : int
        Pixels as stored, and after resizing.
    most_bytes : int, optional
        Memory for the pixels as stored and in color.

    Raises
    ------
    ValueError
        If it is too large, or has too many scans or frames.
    """
    width, height = image.size
    pixels = width * height
    grown = 0 if size is None else size * size * max(width, height) // max(min(width, height), 1)
    if max(pixels, grown) > most_pixels:
        raise ValueError(f"{width} x {height} are more than {most_pixels:,} pixels, or become so when resized")
    needed = pixels * (BYTES.get(image.mode, COLOR_BYTES) + COLOR_BYTES)
    if most_bytes is not None and needed > most_bytes:
        raise ValueError(f"its {pixels:,} pixels of mode {image.mode} take {needed:,} bytes decoded; at most {most_bytes:,} are allowed")
    if (frames := frame_count(content)) > MOST_FRAMES:
        raise ValueError(f"it has {frames:,} frames or more; at most {MOST_FRAMES:,} are allowed")
    scans = scan_count(content)
    if scans > MOST_SCANS or (scans - 1) * pixels > SCANNED * most_pixels:
        raise ValueError(f"its {width} x {height} pixels are scanned {scans:,} times or more; save it as a baseline JPEG")


def scan_count(content: bytes) -> int:
    """How often a JPEG visits its pixels, counted to one more than is allowed; 0 for other files."""
    scans, at = 0, 2
    while content.startswith(b"\xff\xd8") and scans <= MOST_SCANS and (found := JPEG_MARKER.search(content, at)):
        kind, at = found[1][0], found.end()
        if kind == 0xD9:  # the end
            break
        if kind not in (0x01, 0xD8):  # all others have a length
            at += int.from_bytes(content[at : at + 2], "big")
        scans += kind == 0xDA
    return scans


def frame_count(content: bytes) -> int:
    """Frames of a GIF, WebP or PNG, counted to one more than is allowed; 1 for other files."""
    if content.startswith(b"GIF8"):
        return _gif_frames(content)
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return max(1, sum(1 for kind, _ in _chunks(content, 12, "little") if kind == b"ANMF"))
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        animated = (at for kind, at in _chunks(content, 8, "big") if kind == b"acTL")
        return max((int.from_bytes(content[at : at + 4], "big") for at in animated), default=1)
    return 1


def _chunks(content: bytes, at: int, order: str) -> "list[tuple[bytes, int]]":
    """The kind of each chunk and where its data begin: RIFF says the kind first, PNG the length. At most a few more than allowed."""
    found: list[tuple[bytes, int]] = []
    while at + 8 <= len(content) and len(found) <= 4 * MOST_FRAMES:
        first, second = content[at : at + 4], content[at + 4 : at + 8]
        kind, length = (first, int.from_bytes(second, "little")) if order == "little" else (second, int.from_bytes(first, "big"))
        found.append((kind, at + 8))
        at += 8 + length + (length % 2 if order == "little" else 4)  # RIFF pads to even lengths, PNG adds a checksum
    return found


def _gif_frames(content: bytes) -> int:
    frames, at = 0, 13 + _table(content, 10)
    while at < len(content) and frames <= MOST_FRAMES:
        kind = content[at]
        if kind == 0x2C:
            frames += 1
            at += 11 + _table(content, at + 9)  # the descriptor, its colors, and the size of a code
        elif kind == 0x21:
            at += 2
        else:
            break
        while at < len(content) and content[at]:  # blocks of at most 255 bytes, ended by an empty one
            at += 1 + content[at]
        at += 1
    return max(1, frames)


def _table(content: bytes, at: int) -> int:
    """Bytes of the color table that a GIF's flags announce."""
    flags = content[at] if at < len(content) else 0
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0
