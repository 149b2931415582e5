"""The C-NCAR network of [taylor2010pose]: two sparse true convolutions, |tanh|, average pools with learned gain, linear code.

    x1_j = |tanh(x0 * k1_j + b1_j)|                                   eq. (28)
    x2_j = beta2_j down(x1_j, 5)                                      eq. (29)
    x3_j = |tanh(sum over i in M_j of x2_i * k3_ij + b3_j)|           eq. (30)
    x4_j = beta4_j down(x3_j, 4)                                      eq. (31)
    z    = A flatten(x4)                                              eq. (32)

`*` is convolution (with the filter rotated by 180 degrees), not correlation, which torch calls convolution; down(x, m) is the mean over
m x m; M_j are four of the input maps, drawn once by `seed` and stored in the state_dict. Differs: eq. (31) prints x4 on both sides.

Sizes are those of the main paper: 128 x 128, 16 and 32 maps of 9 x 9, 32 dimensions, 28,144 parameters. The small variant for 64 x 64 has
filters of 5 x 5: 64, 60, 12, 8, 2. Initial values are those of a related network that the authors published.
"""

from collections import OrderedDict

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from nearkin.compose.validation import check_whole
from nearkin.models.head import Head, ImageShape, check_image_shape


class SparseConvolution(nn.Module):
    """A convolution whose output maps each read `connections` of the input maps; only those filters exist."""

    inputs: Tensor

    def __init__(self, maps_in: int, maps: int, size: int, connections: int, generator: Generator) -> None:
        super().__init__()
        self.maps_in = maps_in
        chosen = [torch.randperm(maps_in, generator=generator, device="cpu")[:connections].sort().values for _ in range(maps)]
        self.register_buffer("inputs", torch.stack(chosen))  # (maps, connections)
        self.filters = nn.Parameter(0.01 * torch.randn(maps, connections, size, size))
        self.bias = nn.Parameter(torch.zeros(maps))

    def forward(self, x: Tensor) -> Tensor:
        maps, _, *size = self.filters.shape
        where = self.inputs[:, :, None, None].expand_as(self.filters)
        every = self.filters.new_zeros(maps, self.maps_in, *size).scatter(1, where, self.filters)  # zero where not connected
        return functional.conv2d(x, every.flip(2, 3), self.bias)


class AbsTanh(nn.Module):
    """f(u) = |tanh u|, with slope 0 at 0."""

    def forward(self, u: Tensor) -> Tensor:
        return u.tanh().abs()


class GainedPool(nn.Module):
    """beta_j times the mean over m x m windows without overlap."""

    def __init__(self, maps: int, m: int) -> None:
        super().__init__()
        self.m = m
        self.gain = nn.Parameter(1 + 0.01 * torch.randn(maps))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain[:, None, None] * functional.avg_pool2d(x, self.m)


def taylor2010(
    image_shape: ImageShape,
    dimension: int = 32,
    *,
    normalize: bool = False,
    maps: tuple[int, int] = (16, 32),
    size: int = 9,
    pools: tuple[int, int] = (5, 4),
    connections: int = 4,
    seed: int = 0,
) -> nn.Module:
    """Build the network; for images of 64 x 64 pass size=5.

    Parameters
    ----------
    image_shape : tuple of int
        (channels, height, width) of the images.
    dimension : int, default=32
        Size of the embedding.
    normalize : bool, default=False
        Give embeddings unit length.
    maps : tuple of int, default=(16, 32)
        Maps of the two convolutions.
    size : int, default=9
        Side of the filters.
    pools : tuple of int, default=(5, 4)
        Sides of the two pools.
    connections : int, default=4
        Input maps of each map of the second convolution.
    seed : int, default=0
        Seed of the choice of these maps.

    Returns
    -------
    nn.Module

    Raises
    ------
    ValueError
        If the image's sides do not divide evenly; the message names the nearest that do.

    References
    ----------
    [taylor2010pose], equations 28 to 32
    """
    channels, height, width = check_image_shape(image_shape)
    check_whole("size", size)
    if not 1 <= connections <= maps[0]:
        raise ValueError(f"connections ({connections}) must be between 1 and the number of first maps ({maps[0]})")
    rows, columns = _left_over("height", height, size, pools), _left_over("width", width, size, pools)
    generator = Generator().manual_seed(seed)
    head = Head(maps[1] * rows * columns, dimension, normalize=normalize, bias=False)
    assert isinstance(head.linear, nn.Linear)
    nn.init.normal_(head.linear.weight, std=0.01)
    return nn.Sequential(
        OrderedDict(
            conv1=SparseConvolution(channels, maps[0], size, channels, generator),  # every map reads the whole image
            tanh1=AbsTanh(),
            pool1=GainedPool(maps[0], pools[0]),
            conv2=SparseConvolution(maps[0], maps[1], size, connections, generator),
            tanh2=AbsTanh(),
            pool2=GainedPool(maps[1], pools[1]),
            head=head,
        )
    )


def _left_over(name: str, side: int, size: int, pools: tuple[int, int]) -> int:
    """A side after both layers. Windows that do not divide it evenly are an error: they would silently drop the image's edge."""
    left = _through(side, size, pools)
    if left:
        return left
    fitting = [n for n in range(1, 2 * side + 20 * size) if _through(n, size, pools)]
    near = sorted(sorted(fitting, key=lambda n: abs(n - side))[:2])
    raise ValueError(
        f"image {name} ({side}) cannot be divided evenly by filters of {size} and pools of {pools[0]} and {pools[1]}; "
        f"resize the images to {' or '.join(map(str, near))}, or choose other size and pools"
    )


def _through(side: int, size: int, pools: tuple[int, int]) -> int:
    """A side after both layers, 0 if it cannot be divided evenly."""
    for m in pools:
        side -= size - 1
        if side < m or side % m:
            return 0
        side //= m
    return side
