"""Image files decoded to arrays with Pillow and numpy alone, so that a process that only decodes starts quickly and stays small.

`nearkin.data.images` says how: orientation, channels, transparency, 16 bits and size.
"""

import io
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from nearkin.compose.validation import check_choice, check_whole
from nearkin.data.image_headers import check_header
from nearkin.data.sound import SIDE, SUFFIX, is_sound, spectrogram

# Pillow knows more than forty formats and would try them all, whatever the name of a file is: PostScript would start Ghostscript.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
UPLOAD_FORMATS = FORMATS[:5]
WHITE = (255, 255, 255, 255)
BAND = 1 << 20  # pixels converted at once, so that an image is never held three times


Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos"]


@dataclass(frozen=True)
class Framing:
    """How an image becomes `size` x `size`: resize the short side to size / crop, then cut out the center."""

    size: int
    crop: float = 1.0  # share of the short side that is kept
    interpolation: Interpolation = "bilinear"

    def __post_init__(self) -> None:
        check_whole("size", self.size)
        check_choice("interpolation", self.interpolation, get_args(Interpolation))
        if not 0 < self.crop <= 1:
            raise ValueError(f"crop ({self.crop}) must be above 0 and at most 1: the share of the short side that is kept")

    @property
    def short(self) -> int:
        """The short side before the center is cut out."""
        return max(self.size, round(self.size / self.crop))


def open_image(content: bytes, formats: tuple[str, ...] = FORMATS) -> Image.Image:
    """The image in the bytes of a file, not decoded yet; of a recording its spectrogram. All images of the package are opened here."""
    if formats is FORMATS and is_sound(content):
        return Image.fromarray(spectrogram(content))
    return Image.open(io.BytesIO(content), formats=formats)


def open_header(path: str) -> Image.Image:
    """The image in a file, of which only the header is read until it is decoded."""
    if path.lower().endswith(SUFFIX):
        return Image.new("L", (SIDE, SIDE))  # the size of a spectrogram
    return Image.open(path, formats=FORMATS)


def decode_file(content: bytes, channels: int, framing: Framing | None = None) -> np.ndarray:
    """(channels, h, w) uint8 of the bytes of a file."""
    with open_image(content) as image:
        return _decoded(image, channels, framing)


def decode_upload(content: bytes, channels: int, framing: Framing | None, most_pixels: int, most_bytes: int | None = None) -> np.ndarray:
    """The same for bytes of a client, refused if their header says that they cost more than is allowed."""
    with open_image(content, UPLOAD_FORMATS) as image:
        check_header(image, content, None if framing is None else framing.short, most_pixels, most_bytes)
        return _decoded(image, channels, framing)


def _decoded(image: Image.Image, channels: int, framing: Framing | None) -> np.ndarray:
    if framing is not None:
        image.draft(None, _at_least(image.size, framing.short))  # a large JPEG is decoded at a half, a quarter or an eighth
    ImageOps.exif_transpose(image, in_place=True)
    return as_array(plain(image, channels), channels, framing)


def _at_least(size: tuple[int, int], short: int) -> tuple[int, int]:
    """The size (width, height) at which the short side is `short`, rounded up."""
    least = min(size)
    return -(-size[0] * short // least), -(-size[1] * short // least)


def plain(image: Image.Image, channels: int) -> Image.Image:
    """The image with 8 bits, gray or RGB, without transparency."""
    mode = "L" if channels == 1 else "RGB"
    if image.mode == "F":
        raise ValueError("its pixels are floating point, for which black and white are not defined; save it with 8 or 16 bits")
    if image.mode.startswith("I") or image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        return _converted(image, mode)
    return image if image.mode == mode else image.convert(mode)


def as_array(image: Image.Image, channels: int, framing: Framing | None) -> np.ndarray:
    """(channels, h, w) uint8 of a plain image, its short side resized and the center cut out."""
    if framing is not None:
        image = _framed(image, framing)
    array = np.array(image, dtype=np.uint8)  # (h, w) or (h, w, 3), a copy that may be written to
    return array[None] if channels == 1 else np.ascontiguousarray(array.transpose(2, 0, 1))


def failure(error: Exception) -> str:
    """Why an image cannot be decoded, for an error message."""
    if isinstance(error, UnidentifiedImageError):
        return f"not an image, or an empty file; {', '.join(FORMATS)} are read"
    return str(error) or type(error).__name__


def _converted(image: Image.Image, mode: str) -> Image.Image:
    """16 bits and transparency become 8 bits on white, some rows at a time."""
    image.load()
    result = Image.new(mode, image.size)
    rows = max(1, BAND // max(image.width, 1))
    for top in range(0, image.height, rows):
        band = image.crop((0, top, image.width, min(top + rows, image.height)))
        result.paste(_opaque(band).convert(mode), (0, top))
    return result


def _opaque(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16-bit gray; Pillow also hands such files out as 32-bit "I"
        wide = np.asarray(image).astype(np.int64).clip(0, 65535)
        image = Image.fromarray((wide // 257).astype(np.uint8))
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        shown = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", shown.size, WHITE), shown)
    return image


def _framed(image: Image.Image, framing: Framing) -> Image.Image:
    width, height = image.size
    size, short = framing.size, min(width, height)
    new = (max(framing.short, round(width * framing.short / short)), max(framing.short, round(height * framing.short / short)))
    image = image if new == image.size else image.resize(new, Image.Resampling[framing.interpolation.upper()])
    left, top = (new[0] - size) // 2, (new[1] - size) // 2
    return image.crop((left, top, left + size, top + size))
