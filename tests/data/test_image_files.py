"""Image files of all formats decode the same way, and damaged ones are named."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from nearkin.data.files import listing, read_bytes
from nearkin.data.images import DamagedImageError, decode, image_files, recolored, resized
from nearkin.data.pixels import Framing
from tests.data.picture_files import channels_first, pixels, save


def stored(path, image, **how):
    image.save(path, **how)
    return str(path)


def test_pixels_come_through_unchanged(tmp_path):
    array = save(tmp_path / "a.png")
    assert np.array_equal(decode(str(tmp_path / "a.png"), 3).numpy(), channels_first(array))


def test_names_of_any_script(tmp_path):
    array = save(tmp_path / "Küche" / "猫 ñ.png")
    assert np.array_equal(decode(str(tmp_path / "Küche" / "猫 ñ.png"), 3).numpy(), channels_first(array))


@pytest.mark.parametrize(
    ("orientation", "upright"),
    [(1, lambda a: a), (3, lambda a: a[::-1, ::-1]), (6, lambda a: np.rot90(a, -1)), (8, np.rot90), (2, lambda a: a[:, ::-1])],
)
def test_exif_orientation_is_applied(tmp_path, orientation, upright):
    array = pixels(0, 4, 6)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = stored(tmp_path / "turned.png", Image.fromarray(array), exif=exif)
    assert np.array_equal(decode(path, 3).numpy(), channels_first(upright(array)))


def test_gray_is_repeated_and_color_weighted(tmp_path):
    gray, color = save(tmp_path / "gray.png", channels=1), save(tmp_path / "color.png")
    assert np.array_equal(decode(str(tmp_path / "gray.png"), 3).numpy(), np.stack([gray] * 3))
    weighted = (color @ np.array([0.299, 0.587, 0.114]))[None]
    assert np.abs(decode(str(tmp_path / "color.png"), 1).numpy() - weighted).max() <= 1


def test_transparent_pixels_become_white(tmp_path):
    array = np.zeros((2, 2, 4), dtype=np.uint8)
    array[0, 0] = (10, 20, 30, 255)
    array[0, 1] = (10, 20, 30, 0)  # the color stored under it must not show
    image = decode(stored(tmp_path / "clear.png", Image.fromarray(array)), 3)
    assert image[:, 0, 0].tolist() == [10, 20, 30] and image[:, 0, 1].tolist() == [255, 255, 255]


def test_sixteen_bits_become_eight_by_the_full_scale(tmp_path):
    array = np.array([[0, 257, 65535], [256, 1000, 514]], dtype=np.uint16)
    image = decode(stored(tmp_path / "deep.png", Image.fromarray(array)), 1)
    assert image.tolist() == [[[0, 1, 255], [0, 3, 2]]]


def test_palettes_and_two_levels(tmp_path):
    palette = Image.fromarray(pixels(0)).quantize(8)
    want = np.asarray(palette.convert("RGB"))
    assert np.array_equal(decode(stored(tmp_path / "p.png", palette), 3).numpy(), channels_first(want))
    clear = stored(tmp_path / "clear.gif", palette, transparency=palette.getpixel((0, 0)))
    assert decode(clear, 3)[:, 0, 0].tolist() == [255, 255, 255]
    ink = Image.fromarray(np.array([[True, False]]))
    assert decode(stored(tmp_path / "ink.png", ink), 1).tolist() == [[[255, 0]]]


def test_size_resizes_the_short_side_and_cuts_out_the_center(tmp_path):
    array = np.zeros((20, 40, 3), dtype=np.uint8)
    array[:, 10:30] = 200  # the central square
    path = stored(tmp_path / "wide.png", Image.fromarray(array))
    image = decode(path, 3, Framing(10))
    assert image.shape == (3, 10, 10) and bool((image[:, :, 1:-1] == 200).all())
    assert np.array_equal(decode(path, 3, Framing(20)).numpy(), channels_first(array[:, 10:30]))  # no resizing needed: pixels untouched


def test_tensors_are_resized_and_recolored_as_files_are(tmp_path):
    array = np.kron(pixels(1, 6, 8), np.ones((4, 4, 1), dtype=np.uint8))
    path = stored(tmp_path / "a.png", Image.fromarray(array))
    held = torch.from_numpy(channels_first(array).copy())[None]
    assert (resized(held, 12)[0].int() - decode(path, 3, Framing(12)).int()).abs().max() <= 1
    assert (recolored(held, 1)[0].int() - decode(path, 1).int()).abs().max() <= 1
    assert torch.equal(recolored(held[:, :1], 3)[0, 2], held[0, 0])


def test_channels_are_taken_from_the_files_by_default(tmp_path):
    save(tmp_path / "a.png", channels=1)
    save(tmp_path / "b.png", channels=1)
    gray = listing(tmp_path)
    assert image_files(gray, None, None, "raise").shape == (1, 8, 8)
    save(tmp_path / "c.png")
    assert image_files(listing(tmp_path), None, None, "raise").shape == (3, 8, 8)
    assert image_files(gray, Framing(4), 3, "raise").shape == (3, 4, 4)


def test_a_color_file_among_gray_ones_is_an_error(tmp_path):
    for number in range(130):  # enough that not every header is read
        save(tmp_path / f"{number:03}.png", number, 2, 2, 3 if number == 129 else 1)
    files = image_files(listing(tmp_path), None, None, "raise")
    assert files.shape[0] == 1 and files.read(0).shape == (1, 2, 2)
    with pytest.raises(
        ValueError,
        match=r"channels: .*129.png is in color, and .* are gray.* .nearkin train: save",
    ):
        files.read(129)


def test_differing_sizes_are_an_error_that_proposes_a_medium_size(tmp_path):
    save(tmp_path / "a.png", 0, 8, 10)
    save(tmp_path / "b.png", 1, 6, 5)
    files = image_files(listing(tmp_path), None, None, "raise")
    with pytest.raises(
        ValueError,
        match=r"size: .*b.png is 5 x 6, and the first image is 10 x 8; pass size=8, say, to resize .*\(nearkin train: --size 8\)",
    ):
        files.read(1)
    assert image_files(listing(tmp_path), Framing(8), None, "raise").read(1).shape == (3, 8, 8)
    save(tmp_path / "c.png", 2, 300, 400)
    with pytest.raises(ValueError, match=r"c.png is 400 x 300, and the first image is 10 x 8; pass size=128"):
        image_files(listing(tmp_path), None, None, "raise").read(2)


def half(path):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (half, "cannot be decoded"),
        (lambda path: path.write_bytes(b""), "not an image, or an empty file"),
        (lambda path: path.write_text("<html>"), "not an image, or an empty file"),
        (lambda path: path.unlink(), "does not exist"),
        (lambda path: Image.fromarray(np.zeros((2, 2), np.float32)).save(path, format="TIFF"), "floating point"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, spoil, why):
    path = tmp_path / "broken.png"
    save(path, 0, 64, 64)
    spoil(path)
    with pytest.raises(DamagedImageError, match=rf"broken.png.*{why}"):
        decode(str(path), 3)


def test_a_set_of_damaged_files_only_is_an_error_on_opening(tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(
        DamagedImageError, match=r"none of the first 1 files can be decoded: .*a.png .*; give a folder or a table of readable"
    ):
        image_files(listing(tmp_path), None, None, "skip")


def test_files_inside_a_zip_are_read_as_they_are(tmp_path):
    import zipfile

    array = pixels(3)
    memory = io.BytesIO()
    Image.fromarray(array).save(memory, format="PNG")
    with zipfile.ZipFile(tmp_path / "some.zip", "w") as archive:
        archive.writestr("in/a.png", memory.getvalue())
        archive.writestr("__MACOSX/in/._a.png", b"")
        archive.writestr("in/notes.txt", b"")
    (source,) = listing(tmp_path / "some.zip")
    assert source.endswith("some.zip!/in/a.png")
    assert np.array_equal(decode(source, 3).numpy(), channels_first(array))
    with pytest.raises(DamagedImageError, match=r"some.zip!/in/b.png does not exist"):
        decode(source.replace("a.png", "b.png"), 3)
    with pytest.raises(FileNotFoundError, match=r"some.zip has no member in/b.png"):
        read_bytes(source.replace("a.png", "b.png"))


def test_a_loop_of_links_ends(tmp_path):
    save(tmp_path / "cats" / "a.png")
    (tmp_path / "cats" / "again").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "dogs").symlink_to(tmp_path / "cats", target_is_directory=True)  # a linked class folder is followed
    assert any("dogs" in path for path in listing(tmp_path / "dogs"))
