import json
import math

import numpy as np
import pytest
import torch

from nearkin.data.preprocess import (
    BGR_255,
    CIFAR,
    IMAGENET,
    PRESETS,
    CenterCrop,
    LocalContrast,
    Resize,
    Standardize,
    describe,
    preprocessed,
    restore,
)


def stored(b=6, c=3, h=12, w=10, seed=0):
    return torch.randint(0, 256, (b, c, h, w), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def test_without_steps_the_pixels_are_in_0_to_1():
    images = stored()
    got = preprocessed(images, ())
    assert got.dtype == torch.float32
    assert torch.equal(got, images.float() / 255)
    assert torch.equal(preprocessed(got, ()), got)  # floats stay as they are


def test_standardize_fits_the_mean_and_standard_deviation_of_numpy():
    images = stored()
    fitted = Standardize.fitted(images)
    expected = images.numpy() / 255
    assert np.allclose(fitted.mean, expected.mean((0, 2, 3)), rtol=1e-13)
    assert np.allclose(fitted.std, expected.std((0, 2, 3)), rtol=1e-12)
    overall = Standardize.fitted(images, per_channel=False)
    assert np.allclose([*overall.mean, *overall.std], [expected.mean(), expected.std()], rtol=1e-12)
    for step in (fitted, overall):
        result = step(images)
        assert result.dtype == torch.float32
        assert abs(float(result.mean())) < 1e-6 and abs(float(result.std(correction=0)) - 1) < 1e-6


def test_standardize_fitted_by_batches_or_on_floats_is_the_same():
    images = stored(b=7)
    whole = Standardize.fitted(images)
    assert Standardize.fitted(list(images.split(2))) == whole
    assert Standardize.fitted(images.flip(0)) == whole
    floats = Standardize.fitted(images.float() / 255)
    assert np.allclose([*floats.mean, *floats.std], [*whole.mean, *whole.std], rtol=1e-6)


def test_standardize_depends_only_on_the_fitted_images():
    train, test = stored(seed=1), torch.full((2, 3, 12, 10), 255, dtype=torch.uint8)
    step = Standardize.fitted(train)
    mean, std = torch.tensor(step.mean), torch.tensor(step.std)
    assert torch.allclose(step(test)[0, :, 0, 0], (1 - mean) / std)


def test_a_constant_channel_is_only_centered():
    images = stored()
    images[:, 1] = 77
    step = Standardize.fitted(images)
    assert step.std[1] == 1.0 and torch.allclose(step(images)[:, 1], torch.zeros(()), atol=1e-6)


def test_presets():
    images = stored()
    got, expected = CIFAR(images), torch.empty(6, 3, 12, 10)
    for c in range(3):
        expected[:, c] = (images[:, c] / 255 - CIFAR.mean[c]) / CIFAR.std[c]
    assert torch.allclose(got, expected, atol=1e-6)
    bgr = BGR_255(images)
    for c, mean in enumerate((104, 117, 128)):
        assert torch.allclose(bgr[:, c], images[:, 2 - c].float() - mean, atol=1e-4)
    assert PRESETS["imagenet"] is IMAGENET


@pytest.mark.parametrize(("size", "sigma"), [(3, 1.0), (5, 1.591)])
def test_local_contrast_equals_its_loop(size, sigma):
    images, rim = stored(b=2, c=2, h=9, w=11), size // 2
    got = LocalContrast(size, sigma)(images)
    kernel = np.array([[math.exp(-(i * i + j * j) / (2 * sigma**2)) for j in range(-rim, rim + 1)] for i in range(-rim, rim + 1)])
    kernel /= kernel.sum()
    expected = np.zeros((2, 2, 9, 11))
    for b in range(2):
        for c in range(2):
            x = images[b, c].numpy().astype(float)
            x = (x - x.mean()) / x.std(ddof=1)
            for i in range(rim, 9 - rim):
                for j in range(rim, 11 - rim):
                    window = x[i - rim : i + rim + 1, j - rim : j + rim + 1]
                    mean = (kernel * window).sum()
                    spread = math.sqrt(max(0.0, (kernel * window**2).sum() - mean**2))
                    expected[b, c, i, j] = (x[i, j] - mean) / max(1.0, spread)
    assert got.dtype == torch.float32
    assert np.allclose(got.numpy(), expected, atol=1e-5)


def test_local_contrast_ignores_brightness_and_contrast_and_maps_constant_images_to_zero():
    images = stored().float() / 255
    step = LocalContrast(5)
    assert torch.allclose(step(images), step(0.3 * images + 0.2), atol=1e-4)
    assert torch.equal(step(torch.full((1, 1, 9, 9), 0.3)), torch.zeros(1, 1, 9, 9))


def test_resize_keeps_the_shape_and_averages():
    ramp = torch.arange(8.0).expand(1, 1, 16, 8) / 8
    assert Resize(4)(ramp).shape == (1, 1, 8, 4)
    assert Resize((5, 3))(ramp).shape == (1, 1, 5, 3)
    assert torch.equal(Resize(8)(ramp), ramp)
    checks = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).repeat(8, 8)[None, None]  # (1, 1, 16, 16)
    assert torch.allclose(Resize(4)(checks)[:, :, 1:3, 1:3], torch.full((), 0.5), atol=1e-6)  # antialiased: no moire


def test_resize_equals_pillow():
    from PIL import Image

    images = stored(b=1, c=1, h=20, w=30)
    expected = np.asarray(Image.fromarray(images[0, 0].numpy()).resize((15, 10), Image.Resampling.BILINEAR))
    got = Resize(10)(images)[0, 0].numpy() * 255
    assert np.abs(got - expected).max() <= 1.0  # Pillow rounds twice


@pytest.mark.parametrize(("height", "width", "size", "top", "left"), [(8, 8, 4, 2, 2), (7, 9, 4, 2, 2), (5, 8, (5, 3), 0, 2)])
def test_center_crop(height, width, size, top, left):
    images = stored(h=height, w=width)
    got = CenterCrop(size)(images)
    rows, columns = (size, size) if isinstance(size, int) else size
    assert torch.equal(got, images[:, :, top : top + rows, left : left + columns].float() / 255)


def test_steps_survive_json():
    steps = (Resize(10), Resize((9, 8)), CenterCrop(8), LocalContrast(3), Standardize.fitted(stored()), BGR_255)
    again = restore(json.loads(json.dumps(describe(steps))))
    assert again == steps
    images = stored()
    assert torch.equal(preprocessed(images, steps), preprocessed(images, again))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Standardize((0.5,), (0.0,)), r"std \(0.0,\) must be above 0"),
        (lambda: Standardize((0.5, 0.5), (1.0,)), "mean has 2 numbers and std 1"),
        (lambda: CIFAR(stored(c=1)), "images have 1 channels, but mean and std are for 3; give one number for each"),
        (lambda: Standardize.fitted([]), "images is empty; pass the training images"),
        (lambda: LocalContrast(4), r"size \(4\) must be odd and at least 3"),
        (lambda: LocalContrast(3, 0), r"sigma \(0\) must be above 0"),
        (lambda: LocalContrast(11)(stored()), r"size \(11\) is above the images' side \(10\)"),
        (lambda: CenterCrop(11)(stored()), r"size \(11 x 11\) is larger than the images \(12 x 10\); put a Resize before"),
        (lambda: preprocessed(torch.zeros(3, 4, 4), ()), r"images have shape \(3, 4, 4\); give a batch"),
        (lambda: restore([{"step": "Standarize", "mean": [0.0]}]), r"'Standarize' is unknown \(did you mean 'Standardize'\?\)"),
        (lambda: restore([{"step": "Resize", "side": 3}]), r"Resize has no option 'side' \(did you mean 'size'\?\)"),
    ],
)
def test_errors(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    ("images", "kind"), [(torch.zeros(1, 1, 2, 2, dtype=torch.int64), "torch.int64"), (np.zeros((1, 1, 2, 2)), "ndarray")]
)
def test_wrong_pixels_raise(images, kind):
    with pytest.raises(TypeError, match=rf"images must be a tensor of uint8 \(0..255\) or of floats \(0..1\), not {kind}"):
        preprocessed(images, ())
