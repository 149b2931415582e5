"""The small convolutional network."""

import pytest
import torch

from nearkin.models.head import Head
from nearkin.models.small_convnet import convnet


@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 32, 32), (3, 17, 23), (2, 1, 1), (4, 5, 3)])
@pytest.mark.parametrize("dimension", [1, 2, 32])
def test_any_size_channels_and_dimension(shape: tuple[int, int, int], dimension: int) -> None:
    embeddings = convnet(shape, dimension)(torch.rand(6, *shape))
    assert embeddings.shape == (6, dimension) and bool(torch.isfinite(embeddings).all())


def test_one_network_takes_images_of_other_sizes_too() -> None:
    network = convnet((1, 16, 16), 4)
    assert network(torch.rand(3, 1, 28, 20)).shape == (3, 4)


def test_every_parameter_gets_a_gradient() -> None:
    network = convnet((1, 16, 16), 2, widths=(4, 8), size=5, hidden=16)
    network(torch.rand(8, 1, 16, 16)).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in network.parameters())


def test_embeddings_do_not_depend_on_the_place_of_an_object() -> None:
    network = convnet((1, 24, 24), 3).eval()
    images = torch.zeros(2, 1, 24, 24)
    images[0, 0, 8:12, 8:12] = images[1, 0, 12:16, 8:12] = torch.rand(4, 4)  # moved by 4: a whole step after two pools
    first, second = network(images)
    torch.testing.assert_close(first, second)


def test_unit_length_on_request() -> None:
    network = convnet((1, 8, 8), 5, normalize=True)
    torch.testing.assert_close(network(torch.rand(4, 1, 8, 8)).norm(dim=1), torch.ones(4))
    assert isinstance(network.head, Head)


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"dimension \(0\) must be a whole number of at least 1"):
        convnet((1, 16, 16), 0)
    with pytest.raises(ValueError, match=r"image_shape \(16, 16\) must be \(channels, height, width\)"):
        convnet((16, 16), 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="widths is empty"):
        convnet((1, 16, 16), 2, widths=())
    with pytest.raises(ValueError, match=r"widths \(0\) must be a whole number of at least 1"):
        convnet((1, 16, 16), 2, widths=(8, 0))
    with pytest.raises(ValueError, match=r"size \(4\) must be odd"):
        convnet((1, 16, 16), 2, size=4)
    with pytest.raises(ValueError, match=r"hidden \(0\) must be a whole number of at least 1"):
        convnet((1, 16, 16), 2, hidden=0)
