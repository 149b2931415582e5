"""Each augmentation against a literal loop over images and pixels, given the same drawn numbers."""

import colorsys
import json
import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from nearkin.data.augment import (
    AND_CIFAR,
    CIFAR_PLUS,
    STEPS,
    Affine,
    ColorJitter,
    Grayscale,
    HorizontalFlip,
    PadAndCrop,
    RandomResizedCrop,
    Swap,
    augmented,
    restore,
    two_views,
)
from nearkin.data.preprocess import CIFAR, LocalContrast, describe, preprocessed
from tests.recording import Recordable

GRAY = (0.299, 0.587, 0.114)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(b=5, c=3, h=6, w=7, seed=1):
    return torch.rand(b, c, h, w, generator=seeded(seed))


def literal(images, drawn, one):
    """`one(image as a list of channels of rows, the drawn numbers of that image)`, image by image."""
    results = []
    for i, image in enumerate(images.double().tolist()):
        results.append(one(image, {name: values[i].tolist() for name, values in drawn.items()}))
    return torch.tensor(results, dtype=torch.float64)


def pixel(channel, y, x, outside="zeros"):
    rows, columns = len(channel), len(channel[0])
    if outside == "border":
        return channel[min(max(y, 0), rows - 1)][min(max(x, 0), columns - 1)]
    return channel[y][x] if 0 <= y < rows and 0 <= x < columns else 0.0


def bilinear(channel, y, x, outside="zeros"):
    top, left = math.floor(y), math.floor(x)
    value = 0.0
    for row, down in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, right in ((left, 1 - (x - left)), (left + 1, x - left)):
            value += down * right * pixel(channel, row, column, outside)
    return value


def agree(got, expected):
    assert got.dtype == torch.float32
    assert got.shape == expected.shape
    assert torch.allclose(got.double(), expected.double(), atol=3e-6), float((got - expected).abs().max())


@pytest.mark.parametrize("step", [PadAndCrop(2), PadAndCrop(1, outside="border"), PadAndCrop(0, size=4), PadAndCrop(3, size=9)])
def test_pad_and_crop(step):
    images = pictures()
    drawn = step.draw(images, seeded())
    rows, columns = (6, 7) if step.size is None else (step.size, step.size)

    def one(image, d):
        y, x = int(d["top"]) - step.padding, int(d["left"]) - step.padding
        return [[[pixel(c, y + r, x + k, step.outside) for k in range(columns)] for r in range(rows)] for c in image]

    agree(step.apply(images, drawn), literal(images, drawn, one))


def test_pad_and_crop_reaches_every_corner_evenly():
    drawn = PadAndCrop(2).draw(torch.zeros(20_000, 1, 4, 4), seeded())
    counts = torch.bincount((drawn["top"] * 5 + drawn["left"]).long(), minlength=25)
    assert len(counts) == 25 and counts.min() > 650 and counts.max() < 950


def test_flip():
    images = pictures(b=8)
    drawn = HorizontalFlip().draw(images, seeded())
    assert 0 < drawn["flipped"].sum() < 8
    agree(
        HorizontalFlip().apply(images, drawn),
        literal(images, drawn, lambda image, d: [[row[::-1] for row in c] for c in image] if d["flipped"] else image),
    )


def test_swap_takes_numbers_of_other_vectors_in_the_same_column():
    vectors = torch.arange(50 * 40).reshape(50, 40)  # every number identifies its row and column
    drawn = Swap(0.3).draw(vectors, seeded())
    found = augmented(vectors, [Swap(0.3)], seeded())
    expected = [
        [float(vectors[int(drawn["whose"][i, j]), j]) if drawn["swapped"][i, j] else float(vectors[i, j]) for j in range(40)]
        for i in range(50)
    ]
    assert found.tolist() == expected and found.dtype == torch.float32
    assert 0.25 < float((found != vectors).double().mean()) < 0.33 and len(set(drawn["whose"].flatten().tolist())) == 50
    assert torch.equal(augmented(vectors, [Swap(0.0)], seeded()), vectors.float())


@pytest.mark.parametrize("step", [RandomResizedCrop(), RandomResizedCrop(4), RandomResizedCrop(9, scale=(0.2, 1.0)), RandomResizedCrop(1)])
def test_random_resized_crop(step):
    images = pictures()
    drawn = step.draw(images, seeded())
    rows, columns = (6, 7) if step.size is None else (step.size, step.size)

    def one(image, d):
        def place(i, count, start, length):
            return start + min(max((i + 0.5) * length / count - 0.5, 0), length - 1)

        return [
            [
                [bilinear(c, place(r, rows, d["top"], d["height"]), place(k, columns, d["left"], d["width"])) for k in range(columns)]
                for r in range(rows)
            ]
            for c in image
        ]

    agree(step.apply(images, drawn), literal(images, drawn, one))


def test_random_resized_crop_is_cut_then_stretch():
    images, step = pictures(h=11, w=9), RandomResizedCrop(8)
    drawn = step.draw(images, seeded(3))
    for i, image in enumerate(step.apply(images, drawn)):
        top, left, height, width = (int(drawn[k][i]) for k in ("top", "left", "height", "width"))
        box = images[i : i + 1, :, top : top + height, left : left + width]
        assert torch.allclose(image, functional.interpolate(box, (8, 8), mode="bilinear", align_corners=False)[0], atol=1e-6)


def test_random_resized_crop_draws_boxes_of_the_requested_area_and_ratio():
    step = RandomResizedCrop(scale=(0.2, 0.5), ratio=(0.5, 2.0))
    drawn = step.draw(torch.zeros(4000, 1, 64, 64), seeded())
    share = drawn["height"] * drawn["width"] / 64**2
    ratio = (drawn["width"] / drawn["height"]).log()
    assert share.min() > 0.19 and share.max() < 0.52 and abs(share.mean() - 0.35) < 0.01
    assert ratio.abs().max() < math.log(2.1) and abs(ratio.mean()) < 0.02
    assert (drawn["top"] >= 0).all() and (drawn["top"] + drawn["height"] <= 64).all()
    assert (drawn["left"] >= 0).all() and (drawn["left"] + drawn["width"] <= 64).all()
    assert ((drawn["top"] + drawn["height"]) == 64).any() and (drawn["top"] == 0).any()


def test_random_resized_crop_takes_the_first_box_that_fits():
    step = RandomResizedCrop(scale=(0.5, 1.0), ratio=(0.5, 2.0))
    drawn = step.draw(torch.zeros(50, 1, 20, 20), seeded(2))
    later = 0
    for i, u in enumerate(torch.rand(50, 22, generator=seeded(2)).double().tolist()):  # ten areas, ten ratios, top, left
        for attempt in range(10):
            area = (0.5 + 0.5 * u[attempt]) * 400
            ratio = math.exp(math.log(0.5) + math.log(4) * u[10 + attempt])
            width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if width <= 20 and height <= 20:
                box = (height, width, int(u[20] * (21 - height)), int(u[21] * (21 - width)))
                break
        later += attempt > 0
        assert tuple(int(drawn[k][i]) for k in ("height", "width", "top", "left")) == box
    assert later > 10


@pytest.mark.parametrize(("height", "width", "box"), [(4, 40, (4, 5)), (40, 4, (5, 4)), (10, 10, (10, 10))])
def test_random_resized_crop_falls_back_to_the_middle(height, width, box):
    step = RandomResizedCrop(scale=(1.0, 1.0), ratio=(3 / 4, 4 / 3) if height != width else (1.0, 1.0))
    drawn = step.draw(torch.zeros(3, 1, height, width), seeded())
    assert (drawn["height"] == box[0]).all() and (drawn["width"] == box[1]).all()
    assert (drawn["top"] == (height - box[0]) // 2).all() and (drawn["left"] == (width - box[1]) // 2).all()


def jittered(image, d):
    """ColorJitter as a loop: four operations on one image, in the image's own order; colorsys for the hue."""
    pixels = np.array(image)  # (3, h, w)
    for operation in d["order"]:
        gray = sum(w * channel for w, channel in zip(GRAY, pixels, strict=True))
        if operation == 3:
            turned = [colorsys.rgb_to_hsv(*p) for p in pixels.reshape(3, -1).T]
            back = [colorsys.hsv_to_rgb((h + d["turn"]) % 1, s, v) for h, s, v in turned]
            pixels = np.array(back).T.reshape(pixels.shape)
        else:
            other = [np.zeros_like(gray), np.full_like(gray, gray.mean()), gray][operation]
            factor = d["factors"][operation]
            pixels = np.clip(factor * pixels + (1 - factor) * other, 0, 1)
    return pixels.tolist()


@pytest.mark.parametrize("step", [ColorJitter(), ColorJitter(1.5, 1.5, 1.5, 0.5), ColorJitter(0.3, 0.2, 0.1, 0), ColorJitter(0, 0, 0, 0.2)])
def test_color_jitter(step):
    images = pictures(b=40, h=3, w=2)
    images[0] = 0.4  # gray: no hue to change
    images[1] = 0.0
    images[2, 0] = 1.0
    drawn = step.draw(images, seeded())
    agree(step.apply(images, drawn), literal(images, drawn, jittered))


def test_color_jitter_orders_each_image_on_its_own():
    drawn = ColorJitter().draw(torch.zeros(2400, 3, 2, 2), seeded())
    orders, counts = drawn["order"].unique(dim=0, return_counts=True)
    assert len(orders) == 24 and counts.min() > 60
    assert ((drawn["factors"] >= 0.6) & (drawn["factors"] <= 1.4)).all() and drawn["turn"].abs().max() <= 0.4


def test_color_jitter_at_zero_changes_nothing():
    images = pictures()
    assert torch.equal(augmented(images, [ColorJitter(0, 0, 0, 0)], seeded()), images)


def test_color_jitter_of_gray_images():
    images = pictures(c=1)
    step = ColorJitter(0.4, 0.4, 0, 0)
    drawn = step.draw(images, seeded())

    def one(image, d):
        return jittered([image[0]] * 3, {**d, "factors": [*d["factors"][:2], 1.0], "turn": 0.0})[:1]

    agree(step.apply(images, drawn), literal(images, drawn, one))
    with pytest.raises(ValueError, match=r"images have 1 channels, but saturation \(0.4\) and hue \(0.4\) need 3; set both to 0"):
        augmented(images, [ColorJitter()], seeded())


def test_grayscale():
    images = pictures(b=12)
    drawn = Grayscale(0.5).draw(images, seeded())
    assert 0 < drawn["gray"].sum() < 12

    def one(image, d):
        gray = sum(w * np.array(c) for w, c in zip(GRAY, image, strict=True)).tolist()
        return [gray] * 3 if d["gray"] else image

    agree(Grayscale(0.5).apply(images, drawn), literal(images, drawn, one))


@pytest.mark.parametrize("outside", ["zeros", "border"])
def test_affine(outside):
    images, step = pictures(), Affine(30, 0.2, (0.7, 1.4), 20, outside)
    drawn = step.draw(images, seeded())

    def one(image, d):
        cos, sin, tan = math.cos(d["angle"]), math.sin(d["angle"]), math.tan(d["shear"])
        forward = d["scale"] * np.array([[cos, sin], [-sin, cos]]) @ np.array([[1, tan], [0, 1]])
        middle, result = np.array([3.0, 2.5]), np.zeros((3, 6, 7))
        for y in range(6):
            for x in range(7):
                source = np.linalg.solve(forward, np.array([x, y]) - middle - [d["right"], d["down"]]) + middle
                for c in range(3):
                    result[c, y, x] = bilinear(image[c], source[1], source[0], outside)
        return result.tolist()

    agree(step.apply(images, drawn), literal(images, drawn, one))


def test_affine_turns_anticlockwise_and_shifts_right_and_down():
    images = torch.zeros(1, 1, 5, 5)
    images[0, 0, 2, 4] = 1.0  # to the right of the middle
    still = {name: torch.zeros(1) for name in ("angle", "shear", "right", "down")} | {"scale": torch.ones(1)}
    quarter = Affine().apply(images, still | {"angle": torch.full((1,), math.pi / 2)})
    assert quarter[0, 0].argmax() == 0 * 5 + 2  # now above it
    shifted = Affine().apply(images, still | {"right": torch.full((1,), -3.0), "down": torch.full((1,), 1.0)})
    assert shifted[0, 0].argmax() == 3 * 5 + 1
    assert torch.allclose(Affine().apply(images, still), images, atol=1e-6)


OF_IMAGES = tuple(kind for kind in STEPS.values() if kind is not Swap)


@pytest.mark.parametrize("steps", [CIFAR_PLUS, AND_CIFAR, tuple(kind() for kind in OF_IMAGES)])
def test_compositions_are_seeded_bounded_and_survive_json(steps):
    images = (pictures(b=6, h=8, w=8) * 255).to(torch.uint8)
    got = augmented(images, steps, seeded(5))
    assert got.dtype == torch.float32 and got.shape == images.shape and got.min() >= 0 and got.max() <= 1
    assert restore(json.loads(json.dumps(describe(steps)))) == steps
    assert torch.equal(got, augmented(images, restore(json.loads(json.dumps(describe(steps)))), seeded(5)))
    assert not torch.equal(got, augmented(images, steps, seeded(6)))


def test_an_image_does_not_depend_on_others_of_the_batch():
    images, other = pictures(b=4), pictures(b=4, seed=9)
    other[2] = images[2]
    for step in (kind() for kind in OF_IMAGES):
        drawn = step.draw(images, seeded())
        assert torch.equal(step.apply(images, drawn)[2], step.apply(other, drawn)[2])


def test_nothing_is_read_back_so_a_cuda_graph_can_record_it():
    images, generator = (pictures(h=12, w=12) * 255).to(torch.uint8), seeded()
    steps = tuple(kind() for kind in OF_IMAGES)
    standard = (LocalContrast(3), CIFAR)
    expected = preprocessed(augmented(images, steps, seeded()), standard)  # and the constants are on their device now
    with Recordable():
        got = preprocessed(augmented(images, steps, generator), standard)
        augmented(images[:, 0, 0], [Swap()], generator)
    assert torch.equal(got, expected)
    with Recordable(), pytest.raises(AssertionError, match="_local_scalar_dense"):
        images[0, 0, 0, 0].item()


def test_two_views_differ_and_keep_the_rows():
    images = torch.arange(4.0)[:, None, None, None].expand(4, 3, 8, 8) / 8
    first, second = two_views(images, (PadAndCrop(1, outside="border"),), seeded())
    assert torch.equal(first, images) and torch.equal(second, images)
    noisy = pictures(b=4, h=8, w=8)
    first, second = two_views(noisy, AND_CIFAR, seeded())
    assert first.shape == second.shape == noisy.shape and not torch.equal(first, second)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: PadAndCrop(-1), r"padding \(-1\) must be at least 0"),
        (lambda: PadAndCrop(outside="mirror"), "outside 'mirror' is unknown; choose zeros"),
        (lambda: HorizontalFlip(1.5), r"probability \(1.5\) must be between 0 and 1"),
        (lambda: Swap(1.5), r"share \(1.5\) must be between 0 and 1"),
        (lambda: Grayscale(-0.1), r"probability \(-0.1\) must be between 0 and 1"),
        (lambda: RandomResizedCrop(scale=(0.5, 1.5)), r"scale \(0.5, 1.5\) must be \(least, most\), both above 0 and at most 1"),
        (lambda: RandomResizedCrop(ratio=(2.0, 1.0)), r"ratio \(2.0, 1.0\) must be \(least, most\), both above 0"),
        (lambda: ColorJitter(hue=0.6), r"hue \(0.6\) must be between 0 and 0.5"),
        (lambda: ColorJitter(contrast=-1), r"contrast \(-1\) must be at least 0"),
        (lambda: Affine(shear=90), r"shear \(90\) must be between 0 and 80"),
        (lambda: augmented(pictures(), [PadAndCrop(0, size=9)], seeded()), r"size \(9\) is larger than the padded images \(6 x 7"),
        (lambda: restore([{"step": "Grayscal"}]), r"step 'Grayscal' is unknown \(did you mean 'Grayscale'\?\); choose one of PadAndCrop"),
        (lambda: restore([{"step": "Affine", "degree": 3}]), r"Affine has no option 'degree' \(did you mean 'degrees'\?\); its options"),
    ],
)
def test_errors(build, words):
    with pytest.raises(ValueError, match=words):
        build()
