"""Iterative quantization: the rotation after which the signs of an embedding lose least. [gong2011iterative]"""

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.validation import check_finite, check_whole


class IterativeQuantization:
    r"""Binary codes for embeddings that were not trained for them.

    Center the embeddings, project them on the first principal directions, V, and rotate them by R:

    .. math::
        \min_R \|B - V R\|^2, \qquad B = \operatorname{sign}(V R), \quad R \text{ orthogonal}

    B and R are optimized in turn, so the loss never rises.

    Parameters
    ----------
    bits : int
        Length of the codes, at most the dimension of the embeddings.
    iterations : int, default=50
        Updates of B and R.
    seed : int, default=0
        Seed of the first rotation.

    Attributes
    ----------
    center_ : Tensor of shape (d,)
        Mean of the embeddings.
    directions_ : Tensor of shape (d, bits)
        Principal directions.
    rotation_ : Tensor of shape (bits, bits)
        R.
    losses_ : list of float
        Mean squared difference between B and V R, before every update.

    See Also
    --------
    CodesChoice : Train a network for binary codes.

    References
    ----------
    [gong2011iterative] eq. (2)-(3)

    Examples
    --------
    >>> import torch
    >>> from nearkin.train import IterativeQuantization
    >>> x = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
    >>> codes = IterativeQuantization(bits=4).fit(x).transform(x) > 0
    >>> codes.shape
    torch.Size([100, 4])
    """

    def __init__(self, bits: int, iterations: int = 50, seed: int = 0) -> None:
        check_whole("bits", bits)
        check_whole("iterations", iterations)
        self.bits, self.iterations, self.seed = bits, iterations, seed
        self.losses_: list[float] = []

    def fit(self, x: Tensor) -> "IterativeQuantization":
        """Learn center, directions and rotation.

        Parameters
        ----------
        x : Tensor of shape (n, d)
            Embeddings, at least two rows.

        Returns
        -------
        IterativeQuantization
            The fitted object.

        Raises
        ------
        ValueError
            If `bits` is above d, or x holds NaN or infinity.
        """
        n, d = _checked(x)
        if self.bits > d:
            raise ValueError(f"bits ({self.bits}) must be at most the dimension of x ({d})")
        if n < 2:
            raise ValueError("x has one row; give at least 2")
        x = x.detach().double()
        self.center_ = x.mean(0)
        centered = x - self.center_
        _, directions = torch.linalg.eigh(centered.T @ centered / n)  # ascending
        self.directions_ = directions.flip(1)[:, : self.bits]  # (d, bits)
        v = centered @ self.directions_  # (n, bits)
        drawn = torch.from_numpy(np.random.default_rng(self.seed).normal(size=(self.bits, self.bits))).to(x.device)
        rotation = torch.linalg.qr(drawn).Q
        self.losses_ = []
        for _ in range(self.iterations):
            turned = v @ rotation
            code = torch.where(turned >= 0, 1.0, -1.0).double()
            self.losses_.append(float((code - turned).square().mean()))
            left, _, right = torch.linalg.svd(v.T @ code)
            rotation = left @ right  # orthogonal Procrustes: the R that minimizes |B - V R|
        self.rotation_ = rotation
        return self

    def transform(self, x: Tensor) -> Tensor:
        """Rotate embeddings so that their signs are the codes.

        Parameters
        ----------
        x : Tensor of shape (n, d)
            Embeddings.

        Returns
        -------
        Tensor of shape (n, bits)
            Numbers whose signs are the codes, of the dtype of x.
        """
        if not hasattr(self, "rotation_"):
            raise ValueError("this IterativeQuantization is not fitted; call fit before transform")
        _, d = _checked(x)
        if d != len(self.center_):
            raise ValueError(f"x has {d} dimensions, and fit saw {len(self.center_)}")
        turned: Tensor = (x.detach().double() - self.center_.to(x.device)) @ (self.directions_ @ self.rotation_).to(x.device)
        return turned.to(x.dtype)


def _checked(x: Tensor) -> tuple[int, int]:
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"x has shape {tuple(x.shape)}; give (n, d) with at least one row")
    check_finite("x", x)
    return x.shape[0], x.shape[1]
