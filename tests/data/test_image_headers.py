"""What a header says that decoding would cost, and the formats that are read."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

import nearkin
from nearkin import data as sources
from nearkin.data.image_headers import MOST_FRAMES, MOST_SCANS, check_header, frame_count, scan_count
from nearkin.data.images import DamagedImageError, decode
from nearkin.data.pixels import FORMATS, Framing, decode_file, decode_upload, open_image
from nearkin.index import thumbnail
from tests.data.picture_files import save
from tests.serve.hostile_images import animation, deep_png, many_scans, palette_png

POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(/etc/passwd) run\n%%EOF\n"


def stored(kind: str, image: Image.Image | None = None, **how: object) -> bytes:
    out = io.BytesIO()
    (image or Image.new("RGB", (40, 30), (9, 99, 199))).save(out, kind, **how)
    return out.getvalue()


def test_scans_are_counted_without_decoding() -> None:
    assert scan_count(stored("JPEG")) == 1
    usual = scan_count(stored("JPEG", progressive=True))
    assert 5 < usual < 20
    thumbnail_inside = stored("JPEG", exif=b"Exif\0\0" + stored("JPEG", progressive=True))
    assert scan_count(thumbnail_inside) == 1
    assert scan_count(many_scans(60, 64)) == 60 and scan_count(many_scans(7000, 64)) == MOST_SCANS + 1
    assert scan_count(b"") == scan_count(b"\xff\xd8") == scan_count(stored("PNG")) == 0
    assert scan_count(b"\xff\xd8" + b"\xff" * 1_000_000) == 0


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_frames_are_counted_without_decoding(kind: str) -> None:
    assert frame_count(stored(kind)) == 1
    assert frame_count(animation(kind, 7)) == 7
    assert frame_count(stored(kind)[:20]) == 1 and frame_count(b"") == 1


def test_too_many_frames_are_refused() -> None:
    frame = b"\x2c" + bytes(4) + b"\x01\0\x01\0\0" + b"\x02\x02\x4c\x01\x00"
    content = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff" + frame * (MOST_FRAMES + 5) + b";"
    with pytest.raises(ValueError, match=r"it has 1,001 frames or more; at most 1,000 are allowed"):
        decode_upload(content, 3, Framing(8), 10_000)
    assert decode_upload(content.replace(frame * 6, b"", 1), 3, Framing(8), 10_000).shape == (3, 8, 8)


def test_many_scans_are_refused_and_usual_ones_are_not() -> None:
    with pytest.raises(ValueError, match=r"64 x 64 pixels are scanned 101 times or more; save it as a baseline JPEG"):
        decode_upload(many_scans(7000, 64), 3, Framing(8), 32_000_000)
    with pytest.raises(ValueError, match=r"are scanned 90 times or more"):  # fewer, but all of a large image
        decode_upload(many_scans(90, 3000), 3, Framing(8), 32_000_000)
    assert decode_upload(stored("JPEG", progressive=True), 3, Framing(8), 40 * 30).shape == (3, 8, 8)


@pytest.mark.parametrize(("make", "mode", "needed"), [(palette_png, "P", 5), (deep_png, "I;16", 6)])
def test_what_grows_when_it_becomes_color_is_refused_by_its_header(make, mode: str, needed: int) -> None:
    content, pixels = make(100), 10_000
    assert decode_upload(content, 3, Framing(8), pixels, needed * pixels).shape == (3, 8, 8)
    with pytest.raises(ValueError, match=rf"its 10,000 pixels of mode {mode} take {needed * pixels:,} bytes decoded"):
        decode_upload(content, 3, Framing(8), pixels, needed * pixels - 1)


def test_bands_give_the_same_pixels(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    clear = Image.fromarray(rng.integers(0, 255, (37, 23, 4), dtype=np.uint8))
    palette = Image.fromarray(rng.integers(0, 255, (37, 23, 3), dtype=np.uint8)).quantize(16)
    files = [
        stored("PNG", clear),
        stored("PNG", palette, transparency=3),
        stored("PNG", Image.fromarray(rng.integers(0, 65535, (37, 23), dtype=np.uint16))),
    ]
    whole = [decode_file(one, channels) for one in files for channels in (1, 3)]
    monkeypatch.setattr("nearkin.data.pixels.BAND", 50)
    for one, other in zip(whole, [decode_file(one, channels) for one in files for channels in (1, 3)], strict=True):
        assert np.array_equal(one, other)
    shown = Image.alpha_composite(Image.new("RGBA", clear.size, (255,) * 4), clear).convert("RGB")
    assert np.array_equal(whole[1], np.asarray(shown).transpose(2, 0, 1))


def test_check_header_reads_no_pixels() -> None:
    content = many_scans(7000, 5568)
    with open_image(content) as image, pytest.raises(ValueError, match="5568 x 5568 pixels are scanned"):
        check_header(image, content, 8, 32_000_000)


def test_postscript_in_a_png_never_starts_ghostscript(tmp_path: Path, monkeypatch) -> None:
    """A fake gs in the path leaves a mark when it is started, as Pillow starts it for a file of any name."""
    ghostscript, mark = tmp_path / "bin/gs", tmp_path / "started"
    ghostscript.parent.mkdir()
    ghostscript.write_text(f"#!/bin/sh\ntouch {mark}\n")
    ghostscript.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ghostscript.parent}:/usr/bin:/bin")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    photos = tmp_path / "photos/cats"
    photos.mkdir(parents=True)
    bad = photos / "evil.png"
    bad.write_bytes(POSTSCRIPT)
    message = rf"{re.escape(str(bad))} cannot be decoded \(not an image, or an empty file; PNG, JPEG, WEBP, GIF, BMP, TIFF, PPM are read\)"
    with pytest.raises(DamagedImageError, match=message):
        decode(str(bad), 3)
    assert thumbnail.of_file(str(bad)) == b""
    save(photos / "good.png", height=8, width=8)
    opened = sources.open(tmp_path / "photos", size=8)
    with pytest.raises(DamagedImageError, match=f"{message}; remove the file, or pass on_error='skip'"):
        list(sources.Loader(opened)([[0, 1]]))
    assert not mark.exists()
    with pytest.raises(OSError, match=r"."), Image.open(bad) as image:  # what Pillow does by itself: the test would notice
        image.load()
    assert mark.exists()


def test_images_are_opened_in_one_place() -> None:
    source = Path(nearkin.__file__).parent
    assert [path.name for path in source.rglob("*.py") if re.search(r"Image\.open\(", path.read_text())] == ["pixels.py"]
    assert len(FORMATS) == 7 and "EPS" not in FORMATS
