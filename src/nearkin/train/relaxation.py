"""Relaxation: what an objective sees of a binary code during training.

A sign has no gradient, so training minimizes

    objective(b) + pull * mean (1 - |b|)^2,   b = tanh(z)

where z are the network's outputs. The code is sign(z) = sign(b). Between outputs at +-1 the squared distance is four times the
Hamming distance h, and the cosine is 1 - 2 h / d, so what the objective learns is what is deployed.

Why tanh: a straight-through sign has a gradient that is not that of the loss, and a slope that grows over time would change the
step, which is recorded once as a CUDA graph. The pull is that of [liu2016deep], squared to be smooth.
"""

from torch import Tensor


def relaxed(z: Tensor) -> Tensor:
    """tanh of z: (n, d) in (-1, 1) with the signs of z."""
    return z.tanh()


def quantization_gap(b: Tensor) -> Tensor:
    """How far relaxed outputs (n, d) are from codes: mean (1 - |b|)^2, 0 at the corners of the cube and 1 in its center."""
    return (1 - b.abs()).square().mean()
