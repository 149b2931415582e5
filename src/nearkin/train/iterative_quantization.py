"""Iterative quantization: the rotation after which the signs of an embedding lose least. [gong2011iterative]"""

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.validation import check_whole


class IterativeQuantization:
    """Codes for embeddings that were not trained for it: center, project on the first principal directions V, rotate by R.

        min_R |B - V R|^2,   B = sign(V R),   R orthogonal

    B and R are found in turn, each the best for the other, so the loss never rises; `losses_` holds it, a number of a value.
    [gong2011iterative] eq. (2)-(3)
    """

    def __init__(self, bits: int, iterations: int = 50, seed: int = 0) -> None:
        check_whole("bits", bits)
        check_whole("iterations", iterations)
        self.bits, self.iterations, self.seed = bits, iterations, seed
        self.losses_: list[float] = []

    def fit(self, x: Tensor) -> "IterativeQuantization":
        """Learn center, directions and rotation from x (n, d)."""
        n, d = _checked(x)
        if self.bits > d:
            raise ValueError(f"bits ({self.bits}) must be at most the embedding's {d} dimensions")
        if n < 2:
            raise ValueError("x has one row; a rotation is learned from two or more")
        x = x.detach().double()
        self.center_ = x.mean(0)
        centerd = x - self.center_
        _, directions = torch.linalg.eigh(centerd.T @ centerd / n)  # ascending
        self.directions_ = directions.flip(1)[:, : self.bits]  # (d, bits)
        v = centerd @ self.directions_  # (n, bits)
        drawn = torch.from_numpy(np.random.default_rng(self.seed).normal(size=(self.bits, self.bits))).to(x.device)
        rotation = torch.linalg.qr(drawn).Q
        self.losses_ = []
        for _ in range(self.iterations):
            turned = v @ rotation
            code = torch.where(turned >= 0, 1.0, -1.0).double()
            self.losses_.append(float((code - turned).square().mean()))
            left, _, right = torch.linalg.svd(v.T @ code)
            rotation = left @ right  # orthogonal Procrustes: the R that brings V nearest to B
        self.rotation_ = rotation
        return self

    def transform(self, x: Tensor) -> Tensor:
        """(n, bits) numbers whose signs are the codes, of the type of x."""
        if not hasattr(self, "rotation_"):
            raise ValueError("fit() comes before transform()")
        _, d = _checked(x)
        if d != len(self.center_):
            raise ValueError(f"x has {d} dimensions where {len(self.center_)} were fitted")
        turned: Tensor = (x.detach().double() - self.center_.to(x.device)) @ (self.directions_ @ self.rotation_).to(x.device)
        return turned.to(x.dtype)


def _checked(x: Tensor) -> tuple[int, int]:
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"x has shape {tuple(x.shape)}; give (n, d) with at least one row")
    if not bool(torch.isfinite(x).all()):
        raise ValueError("x holds NaN or infinity; nothing can be rotated with those: drop them")
    return x.shape[0], x.shape[1]
