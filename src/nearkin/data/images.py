"""Image files, decoded when they are needed, all to the same shape and in the same way.

- The EXIF orientation is applied.
- `channels` 1 or 3: gray is repeated into 3, color is weighted into 1 (ITU-R 601: 0.299 R + 0.587 G + 0.114 B).
- Transparent pixels are put on white; otherwise the color stored under them would show.
- 16 bits become 8 by the full scale (value / 257), whatever values the image has.
- Seven formats are read (`nearkin.data.pixels.FORMATS`), whatever the name of a file says.
- `size`: the short side is resized and the center cut out, size x size. Without it, all files must have the same size.
- Of an animation the first frame is read. A JPEG that is much larger than `size` is decoded at a fraction of its size.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.nn import functional

from nearkin.data.files import INSIDE, read_bytes
from nearkin.data.pixels import Framing, as_array, decode_file, failure, open_header, open_image, plain

OnError = Literal["raise", "skip"]
SKIP = "on_error='skip' (nearkin train: --skip-damaged)"  # as error messages say it, for Python and for the command line
NAMED = 10  # damaged files that an error lists
PROBED = 64  # headers read to find out whether a set is gray or color
SURVEYED = 10_000  # headers read to find out whether files differ in size
READERS = 8  # threads that read headers
ORIENTATION, QUARTER_TURNS = 0x0112, 5  # the EXIF tag, and its values from which width and height are exchanged
QUICK_SIDE = 128  # the largest size that an error message proposes: full photographs would take hours, or too much memory
GRAY_MODES = ("1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "I;16N")
LUMA = torch.tensor([0.299, 0.587, 0.114])


class DamagedImageError(ValueError):
    """A file that cannot be decoded; the message names the file and, if there is one, the fix.

    Parameters
    ----------
    reason : str
        Which file, and what is wrong with it.
    fix : str, default=""
        What to do about it.
    """

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(f"{reason}; {fix}" if fix else reason)
        self.reason = reason


def damaged_file_error(reason: str) -> DamagedImageError:
    """The error for sets opened with on_error="raise", with its fix."""
    return DamagedImageError(reason, f"remove the file, or pass {SKIP} to leave such files out")


def damaged_files_error(reasons: Sequence[str], total: int) -> DamagedImageError:
    """The error for all damaged files of a set at once: how many, and the first of them by name."""
    if len(reasons) == 1:
        return damaged_file_error(reasons[0])
    listed = [*reasons[:NAMED], *([f"and {len(reasons) - NAMED:,} more"] if len(reasons) > NAMED else [])]
    named = "".join(f"\n  {reason}" for reason in listed)
    fix = f"remove them, or pass {SKIP} to leave them out"
    return DamagedImageError(f"{len(reasons):,} of {total:,} files cannot be read:{named}", fix)


@dataclass(frozen=True, eq=False)
class Files:
    """n image files that decode to uint8 of one `shape`."""

    paths: tuple[str, ...]
    shape: tuple[int, int, int]  # channels, height, width
    framing: Framing | None = None
    on_error: OnError = "raise"  # what a loader does with a damaged file
    guessed: bool = False  # whether the channels were taken from some headers
    decoded: Tensor | None = None  # (n, c, h, w) uint8, where all of them are in memory

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, row: int) -> Tensor:
        """One image, (c, h, w) uint8."""
        if self.decoded is not None:
            return self.decoded[row]
        path = self.paths[row]
        image = decode(path, 3 if self.guessed else self.shape[0], self.framing)
        if self.guessed and self.shape[0] == 1:
            image = _still_gray(image, path)
        if tuple(image.shape) != self.shape:
            (_, h, w), (_, height, width) = image.shape, self.shape
            side = min(max(min(h, w), min(height, width)), QUICK_SIDE)  # not the smaller of the two, which may be a single icon
            raise ValueError(
                f"size: {path} is {w} x {h}, and the first image is {width} x {height}; "
                f"pass size={side}, say, to resize the short side and cut out the center (nearkin train: --size {side})"
            )
        return image

    def take(self, rows: Sequence[int]) -> "Files":
        held = None if self.decoded is None else self.decoded[torch.as_tensor(rows, dtype=torch.int64)]
        return replace(self, paths=tuple(self.paths[row] for row in rows), decoded=held)


def image_files(paths: Sequence[str], framing: Framing | None, channels: int | None, on_error: OnError) -> Files:
    """Files with their shape: from `framing` and `channels`, or from the first files and some headers if those are None.

    Without `channels` a set is color if one of the probed headers is. If all of those are gray, a color file met later is an error; it is
    not silently converted.
    """
    found = channels or _channels(paths[:: max(1, len(paths) // PROBED)])
    side = (framing.size, framing.size) if framing else _first_size(paths)
    return Files(tuple(paths), (found, *side), framing, on_error, guessed=channels is None and found == 1)


class Sides(NamedTuple):
    """The sizes of image files, from their headers."""

    smallest: int  # of the short sides
    median: int
    largest: int
    same: bool  # whether all files have one width and one height
    gray: bool  # whether all files are gray


def sides_of(paths: Sequence[str]) -> Sides | None:
    """Sizes of many files without decoding them; None if no header can be read."""
    with ThreadPoolExecutor(READERS) as pool:
        headers = [header for header in pool.map(_header, paths[:: max(1, len(paths) // SURVEYED)]) if header is not None]
    if not headers:
        return None
    short = sorted(min(width, height) for _, width, height in headers)
    same, gray = len({header[1:] for header in headers}) == 1, all(mode in GRAY_MODES for mode, _, _ in headers)
    return Sides(short[0], short[len(short) // 2], short[-1], same, gray)


def decode(path: str, channels: int, framing: Framing | None = None) -> Tensor:
    """(channels, h, w) uint8; any error of the decoder becomes a `DamagedImageError` that names the file."""
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        raise DamagedImageError(f"{path} does not exist") from None
    except Exception as error:  # a zip's members raise errors of many kinds
        raise DamagedImageError(f"{path} cannot be decoded ({failure(error)})") from error
    return decode_bytes(content, channels, framing, name=path)


def decode_bytes(content: bytes, channels: int, framing: Framing | None = None, *, name: str) -> Tensor:
    """The same from the bytes of a file."""
    try:
        return torch.from_numpy(decode_file(content, channels, framing))
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error and more on broken bytes
        raise DamagedImageError(f"{name} cannot be decoded ({failure(error)})") from error


def decode_picture(picture: str | Path | Image.Image, channels: int, framing: Framing | None = None) -> Tensor:
    """The same for a path, or for an image that Pillow has opened."""
    if isinstance(picture, Image.Image):
        return torch.from_numpy(as_array(plain(ImageOps.exif_transpose(picture), channels), channels, framing))
    return decode(str(picture), channels, framing)


def resized(images: Tensor, size: int) -> Tensor:
    """The same short side and center cut for images held as one tensor: (n, c, h, w) to (n, c, size, size) uint8."""
    height, width = images.shape[-2:]
    if (height, width) == (size, size):
        return images
    new = [max(size, round(side * size / min(height, width))) for side in (height, width)]
    top, left = (new[0] - size) // 2, (new[1] - size) // 2
    parts = []
    for some in torch.split(images, 4096):  # bounds what is held between the two sizes
        scaled = functional.interpolate(some, new, mode="bilinear", antialias=True)
        parts.append(scaled[:, :, top : top + size, left : left + size].clone())
    return torch.cat(parts)


def recolored(images: Tensor, channels: int) -> Tensor:
    """Gray repeated into 3 channels or color weighted into 1, as for files: (n, c, h, w) to (n, channels, h, w) uint8."""
    if images.shape[1] == channels:
        return images
    if images.shape[1] == 1:
        return images.expand(-1, channels, -1, -1).contiguous()
    parts = [(some * LUMA[:, None, None]).sum(1, keepdim=True).round() for some in torch.split(images, 4096)]
    return torch.cat(parts).to(torch.uint8)


def _still_gray(image: Tensor, path: str) -> Tensor:
    if not (torch.equal(image[0], image[1]) and torch.equal(image[0], image[2])):
        fix = "pass channels=3 or channels=1 (nearkin train: save all files in color, or all in gray)"
        raise ValueError(f"channels: {path} is in color, and the files read first are gray; {fix}")
    return image[:1]


def _channels(paths: Sequence[str]) -> int:
    modes = [mode for mode in map(_mode, paths) if mode is not None]
    return 1 if modes and all(mode in GRAY_MODES for mode in modes) else 3


def _mode(path: str) -> str | None:
    header = _header(path)
    return None if header is None else header[0]


def _header(path: str) -> tuple[str, int, int] | None:
    """Mode, width and height as shown, without decoding the pixels; None for a damaged file, which is reported when it is decoded."""
    try:
        with open_image(read_bytes(path)) if INSIDE in path else open_header(path) as image:
            turned = image.getexif().get(ORIENTATION, 1) >= QUARTER_TURNS
            width, height = image.size
            return (image.mode, height, width) if turned else (image.mode, width, height)
    except Exception:
        return None


def _first_size(paths: Sequence[str]) -> tuple[int, int]:
    """Height and width of the first file that can be decoded."""
    failure: DamagedImageError | None = None
    for path in paths[:PROBED]:
        try:
            _, height, width = decode(path, 3).shape
            return height, width
        except DamagedImageError as error:
            failure = failure or error
    fix = "give a folder or a table of readable images, or remove these files if the others are readable"
    raise DamagedImageError(f"none of the first {min(PROBED, len(paths))} files can be decoded: {failure}", fix)
