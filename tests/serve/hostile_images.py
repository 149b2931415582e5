"""Small files that cost a lot to decode, and animations."""

import io
from functools import cache

import numpy as np
from PIL import Image

from bench.hostile_jpeg import many_scans

__all__ = ["animation", "deep_png", "many_scans", "palette_png"]


@cache
def palette_png(side: int) -> bytes:
    """A PNG of one color out of a palette with transparency: it becomes four times as large as RGBA."""
    out = io.BytesIO()
    image = Image.new("P", (side, side), 1)
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.save(out, "PNG", transparency=0, optimize=True)
    return out.getvalue()


@cache
def deep_png(side: int) -> bytes:
    """A black PNG of 16 bits."""
    out = io.BytesIO()
    Image.fromarray(np.zeros((side, side), np.uint16)).save(out, "PNG")
    return out.getvalue()


def animation(kind: str, frames: int) -> bytes:
    """Frames of random colors, as a GIF, WebP or PNG."""
    out = io.BytesIO()
    colors = np.random.default_rng(0).integers(0, 255, (frames, 3))
    first, *others = (Image.new("RGB", (4, 4), tuple(int(part) for part in color)) for color in colors)
    first.save(out, kind, save_all=True, append_images=others)
    return out.getvalue()
