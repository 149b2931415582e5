"""Relaxation: what an objective sees of a code while it is learned.

A sign has no gradient, so the objective is given b = tanh(z) and the sum

    objective(b) + pull * mean (1 - |b|)^2

where z are the network's outputs. The code is sign(z) = sign(b). Between outputs that have arrived at +-1 the squared distance is
four times the Hamming distance, and the cosine 1 - 2 / d times it: what any objective learns of either is what is deployed.
tanh is taken, and not the sign with a gradient passed straight through, because its gradient is that of the value valid; and not a
slope that grows with time, because a step that never changes can be recorded once. The pull is that of [liu2016deep], squared to be smooth.
"""

from torch import Tensor


def relaxed(z: Tensor) -> Tensor:
    """(n, d) in (-1, 1) with the signs of z."""
    return z.tanh()


def quantization_gap(b: Tensor) -> Tensor:
    """How far relaxed outputs (n, d) are from codes: mean (1 - |b|)^2, 0 at the corners of the cube and 1 in its middle."""
    return (1 - b.abs()).square().mean()
