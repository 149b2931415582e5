"""Thumbnails: small images stored in the index, so that neighbors can be shown without opening their files."""

import io

import numpy as np
from PIL import Image, ImageOps
from torch import Tensor

from nearkin.data.files import read_bytes
from nearkin.data.pixels import open_image, plain

SIDE = 128  # pixels at most
PLAIN = 64  # side up to which PNG is used, which is exact


def of_file(path: str) -> bytes:
    """A small JPEG of an image file, b"" if it cannot be read."""
    try:
        with open_image(read_bytes(path)) as stored:
            stored.draft("RGB", (2 * SIDE, 2 * SIDE))  # lets a large JPEG be decoded at a fraction of its size
            return _encoded(plain(ImageOps.exif_transpose(stored), 3))  # on white, as the network sees it
    except Exception:  # decoders raise many kinds of errors; a point without a thumbnail is still added
        return b""


def of_pixels(image: Tensor) -> bytes:
    """The same for pixels (c, h, w) uint8."""
    array = image.numpy()
    if len(array) not in (1, 3):
        return b""
    return _encoded(Image.fromarray(array[0] if len(array) == 1 else np.ascontiguousarray(array.transpose(1, 2, 0))))


def media_type(content: bytes) -> str:
    """The media type of a thumbnail, by its first bytes."""
    return "image/png" if content.startswith(b"\x89PNG") else "image/jpeg"


def _encoded(image: Image.Image) -> bytes:
    image.thumbnail((SIDE, SIDE))
    out = io.BytesIO()
    if max(image.size) <= PLAIN:
        image.save(out, "PNG", optimize=True)
    else:
        image.save(out, "JPEG", quality=85)
    return out.getvalue()
