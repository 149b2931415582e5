"""[taylor2010pose]'s C-NCAR network: two sparse true convolutions, |tanh|, average pools with learned gain, linear code. [taylor2010pose]

    x1_j = |tanh(x0 * k1_j + b1_j)|                                   eq. (28)
    x2_j = beta2_j down(x1_j, 5)                                      eq. (29)
    x3_j = |tanh(sum over i in M_j of x2_i * k3_ij + b3_j)|           eq. (30)
    x4_j = beta4_j down(x3_j, 4)                                      eq. (31)
    z    = A flatten(x4)                                              eq. (32)

`*` is convolution (the filter is turned by 180 degrees), not the correlation other software calls so; down(x, m) the mean over
m x m; M_j four of the input maps, drawn once by `seed` and kept in the state_dict. Differs: eq. (31) prints x4 on both sides.

Sizes are of the main paper: 128 x 128, 16 and 32 maps of 9 x 9, 32 dimensions, 28,144 parameters. The small variant for 64 x 64 has
filters of 5 x 5: 64, 60, 12, 8, 2. Start values are those of the authors' published sibling network.
"""

from collections import OrderedDict

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from nearkin.compose.validation import check_whole
from nearkin.models.head import Head, ImageShape, check_image_shape


class SparseConvolution(nn.Module):
    """Each output map reads `connections` of the input maps only; the filters of those, and no others, exist."""

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
    """f(u) = |tanh u|; its slope at 0 is taken as 0."""

    def forward(self, u: Tensor) -> Tensor:
        return u.tanh().abs()


class GainedPool(nn.Module):
    """beta_j times the mean over m x m windows that do not overlap."""

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
    """The network; for 64 x 64 images take size=5."""
    channels, height, width = check_image_shape(image_shape)
    check_whole("size", size)
    if not 1 <= connections <= maps[0]:
        raise ValueError(f"connections ({connections}) must be between 1 and the number of first maps ({maps[0]})")
    rows, columns = _left_over("height", height, size, pools), _left_over("width", width, size, pools)
    generator = Generator().manual_seed(seed)
    head = Head(maps[1] * rows * columns, dimension, normalize=normalize, bias=False)
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
    """What is left of a side after both layers; windows that do not come out even would drop the image's edge unseen."""
    left = _through(side, size, pools)
    if left:
        return left
    fitting = [n for n in range(1, 2 * side + 20 * size) if _through(n, size, pools)]
    near = sorted(sorted(fitting, key=lambda n: abs(n - side))[:2])
    raise ValueError(
        f"image {name} ({side}) does not come out even with filters of {size} and pools of {pools[0]} and {pools[1]}; "
        f"resize the images to {' or '.join(map(str, near))}, or choose other size and pools"
    )


def _through(side: int, size: int, pools: tuple[int, int]) -> int:
    """The side after both layers, 0 if it does not come out even."""
    for m in pools:
        side -= size - 1
        if side < m or side % m:
            return 0
        side //= m
    return side
