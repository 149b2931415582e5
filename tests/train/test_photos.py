"""A folder of photographs as people have them: many sizes and kinds of files, some damaged, few of each class."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from nearkin.data import open as open_data
from nearkin.data.images import DamagedImageError, decode, sides_of
from nearkin.data.pixels import Framing
from nearkin.train import Run, override
from nearkin.train.training import Loop, train
from nearkin.train.validate import at_chance, noise
from tests.train.test_training import Notes

QUICK = {"epochs": "1", "network.dimension": "4", "data.leaks": "allow"}


def photographs(folder: Path, each: int = 6) -> Path:
    """Files of many kinds, dark and bright ones."""
    generator = np.random.default_rng(0)
    for label, low in (("dark", 0), ("bright", 150)):
        (folder / label).mkdir(parents=True)
        for number in range(each):
            pixels = generator.integers(low, low + 100, (20 + 3 * number, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{number}.png")
    color = Image.fromarray(generator.integers(150, 250, (40, 24, 3), dtype=np.uint8))
    turned = Image.Exif()
    turned[0x0112] = 6
    color.save(folder / "bright" / "turned.jpg", exif=turned)
    color.convert("L").save(folder / "bright" / "gray.png")
    color.convert("CMYK").save(folder / "bright" / "ink.jpg")
    color.quantize(16).save(folder / "bright" / "palette.png", transparency=3)
    color.save(folder / "bright" / "animated.gif", save_all=True, append_images=[Image.new("RGB", color.size)])
    Image.fromarray(np.full((24, 40), 50_000, dtype=np.uint16)).save(folder / "bright" / "deep.png")
    return folder


def test_photographs_of_any_size_and_kind_are_trained_on_as_they_are(tmp_path):
    data, notes = photographs(tmp_path / "photos"), Notes()
    train(override(Run(), {**QUICK, "data.source": str(data)}), tmp_path / "m", reporter=notes, device="cpu")
    assert any("the short side of the images is 20 to 30 pixels: they are resized and cut to 24 x 24" in line for line in notes.lines)
    assert Run.from_json((tmp_path / "m" / "run.json").read_text()).data.size == 24


def test_a_size_of_your_own_is_taken_and_the_first_frame_of_an_animation(tmp_path):
    data, notes = photographs(tmp_path / "photos"), Notes()
    train(override(Run(), {**QUICK, "data.source": str(data), "data.size": "16"}), tmp_path / "m", reporter=notes, device="cpu")
    assert not any("resized and cut" in line for line in notes.lines)
    assert decode(str(data / "bright" / "animated.gif"), 3).float().mean() > 100  # the second frame is black


def test_turned_photographs_count_with_their_sides_exchanged(tmp_path):
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.new("RGB", (8, 12)).save(tmp_path / "a.jpg", exif=turned)
    Image.new("RGB", (12, 8)).save(tmp_path / "b.jpg")
    sides = sides_of([str(tmp_path / "a.jpg"), str(tmp_path / "b.jpg")])
    assert sides is not None and sides.same and (sides.smallest, sides.largest) == (8, 8)


def test_color_files_after_many_gray_ones_make_the_set_color(tmp_path):
    for number in range(200):
        (tmp_path / "p" / f"{number % 2}").mkdir(parents=True, exist_ok=True)
        mode = "RGB" if number == 101 else "L"  # not among the headers that are probed first
        Image.new(mode, (8, 8), (200, 10, 10) if mode == "RGB" else number).save(tmp_path / "p" / f"{number % 2}" / f"{number:03}.png")
    train(override(Run(), {**QUICK, "data.source": str(tmp_path / "p")}), tmp_path / "m", device="cpu")
    assert '"shape": [\n    3,' in (tmp_path / "m" / "model.json").read_text()


def test_all_damaged_files_are_named_at_once_before_anything_is_trained(tmp_path):
    data, notes = photographs(tmp_path / "photos", 20), Notes()
    for number in range(12):
        (data / "dark" / f"{number}.png").write_bytes(b"no picture")
    run = override(Run(), {**QUICK, "data.source": str(data)})
    with pytest.raises(DamagedImageError, match=r"(?s)12 of 46 files cannot be read:.*dark/0.png.*and 2 more; remove .*--skip-damaged"):
        train(run, tmp_path / "m", reporter=notes, device="cpu")
    assert not notes.epochs
    train(override(run, {"data.on_error": "skip"}), tmp_path / "m", reporter=notes, device="cpu")
    assert any("12 of 46 images are damaged and left out" in line for line in notes.lines)


def test_large_jpegs_are_decoded_at_a_fraction_of_their_size_with_nearly_the_same_pixels(tmp_path):
    ramp = np.linspace(0, 255, 640, dtype=np.uint8)[None, :, None].repeat(400, 0).repeat(3, 2)
    Image.fromarray(ramp).save(tmp_path / "a.jpg", quality=95)
    Image.fromarray(ramp).save(tmp_path / "a.png")
    small, exact = (decode(str(tmp_path / f"a.{kind}"), 3, Framing(40)).float() for kind in ("jpg", "png"))
    assert (small - exact).abs().max() < 4


def test_framing_cuts_a_share_of_the_short_side(tmp_path):
    pixels = np.zeros((32, 32, 3), dtype=np.uint8)
    pixels[8:24, 8:24] = 255
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert decode(str(tmp_path / "a.png"), 3, Framing(16, crop=0.5)).min() == 255
    assert open_data(tmp_path, size=16, crop=0.5).read([0]).min() == 255
    with pytest.raises(ValueError, match=r"crop \(1.5\) must be above 0 and at most 1"):
        Framing(16, crop=1.5)
    with pytest.raises(ValueError, match="interpolation 'cubic' is unknown .did you mean 'bicubic'"):
        Framing(16, interpolation="cubic")


def test_of_results_within_the_noise_of_few_validation_points_the_later_weights_are_kept():
    assert noise({"1-nn": 0.5}, 12) == pytest.approx(0.144, abs=1e-3)
    assert noise({"1-nn": 0.5}, 1000) == 0 and noise({"mean_absolute_error": 0.5}, 12) == 0
    loop = object.__new__(Loop)
    loop.best, loop.waited, loop.kept, loop.rank, loop.start = -np.inf, 0, {}, 1, None
    loop.parts = type("P", (), {"objective": torch.nn.Identity()})
    loop.data = type("D", (), {"validation": open_data("digits").subset(range(12))})
    for loop.epoch, value in ((1, 0.5), (2, 0.42), (3, 0.1)):
        loop._keep_best({"1-nn": value})
    assert loop.kept == {"epoch": 2, "figure": "1-nn", "value": 0.42, "points": 12, "best": 0.5} and loop.best == 0.5


def test_a_model_at_chance_is_called_that_and_the_kept_epoch_is_named(tmp_path):
    digits, notes = open_data("digits"), Notes()
    noise_only = torch.randn(400, 6, generator=torch.Generator().manual_seed(0)).numpy()
    np.savez(tmp_path / "n.npz", x=noise_only, y=np.arange(400) % 4)
    run = override(Run(), {"data.source": str(tmp_path / "n.npz"), "epochs": "2", "network.dimension": "4"})
    metrics = train(run, tmp_path / "m", reporter=notes, device="cpu")
    assert any("no better than guessing the largest class" in line and line.startswith("warning") for line in notes.lines)
    assert metrics["kept"]["points"] == 40 and any(
        "kept the weights after epoch" in line and "40 validation" in line for line in notes.lines
    )
    assert f'nearkin.load("{tmp_path / "m"}")' in (tmp_path / "m" / "README.md").read_text()
    assert at_chance({"1-nn": 1.0}, digits, digits.subset([0, 1, 2])) == ""  # few points, and all of them right
    assert at_chance({"1-nn": 0.9}, digits, digits) == "" and at_chance({"recall@1": 0.0}, digits, digits) == ""


def test_a_loss_that_rises_is_warned_about_once(tmp_path):
    notes, digits = Notes(), open_data("digits")
    settings = {"network.name": "mlp", "epochs": "6", "optimizer.learning_rate": "30", "schedule.warmup": "1", "optimizer.clip": "1"}
    train(override(Run(), settings), tmp_path / "m", data=digits.subset(range(300)), reporter=notes, device="cpu")
    assert sum("the loss has risen from" in line for line in notes.lines) == 1


def test_few_points_make_a_few_steps_in_an_epoch(tmp_path):
    x = torch.randn(120, 6, generator=torch.Generator().manual_seed(0)).numpy()
    np.savez(tmp_path / "n.npz", x=x, y=(x[:, 0] > 0).astype(int))
    metrics = train(override(Run(), {"data.source": str(tmp_path / "n.npz")}), tmp_path / "m", given=[], device="cpu")
    assert metrics["steps"] / metrics["epochs"] >= 4
