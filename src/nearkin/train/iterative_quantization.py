"""Iterative quantisation: the rotation after which the signs of an embedding lose least. [gong2011iterative]"""

import numpy as np
import torch
from torch import Tensor


class IterativeQuantisation:
    """Codes for embeddings that were not trained for it: centre, project on the first principal directions V, rotate by R.

        min_R |B - V R|^2,   B = sign(V R),   R orthogonal

    B and R are found in turn, each the best for the other, so the loss never rises; `losses_` holds it, a number of a value.
    [gong2011iterative] eq. (2)-(3)
    """

    def __init__(self, bits: int, iterations: int = 50, seed: int = 0) -> None:
        if isinstance(bits, bool) or not isinstance(bits, int) or bits < 1:
            raise ValueError(f"bits ({bits}) must be a whole number of at least 1")
        if iterations < 1:
            raise ValueError(f"iterations ({iterations}) must be at least 1")
        self.bits, self.iterations, self.seed = bits, iterations, seed
        self.losses_: list[float] = []

    def fit(self, x: Tensor) -> "IterativeQuantisation":
        """Learn centre, directions and rotation from x (n, d)."""
        n, d = _checked(x)
        if self.bits > d:
            raise ValueError(f"bits ({self.bits}) must be at most the embedding's {d} dimensions")
        if n < 2:
            raise ValueError("x has one row; a rotation is learnt from two or more")
        x = x.detach().double()
        self.centre_ = x.mean(0)
        centred = x - self.centre_
        _, directions = torch.linalg.eigh(centred.T @ centred / n)  # ascending
        self.directions_ = directions.flip(1)[:, : self.bits]  # (d, bits)
        v = centred @ self.directions_  # (n, bits)
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
        if d != len(self.centre_):
            raise ValueError(f"x has {d} dimensions where {len(self.centre_)} were fitted")
        turned: Tensor = (x.detach().double() - self.centre_.to(x.device)) @ (self.directions_ @ self.rotation_).to(x.device)
        return turned.to(x.dtype)


def _checked(x: Tensor) -> tuple[int, int]:
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"x has shape {tuple(x.shape)}; give (n, d) with at least one row")
    if not bool(torch.isfinite(x).all()):
        raise ValueError("x holds NaN or infinity; nothing can be rotated with those: drop them")
    return x.shape[0], x.shape[1]
