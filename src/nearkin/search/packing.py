"""Packing: eight signs in a byte."""

import numpy as np
from torch import Tensor


def pack(x: Tensor | np.ndarray) -> np.ndarray:
    """(n, d) numbers as codes (n, ceil(d / 8)) uint8: a bit a dimension, set where the number is not negative."""
    rows = x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)
    if rows.ndim != 2:
        raise ValueError(f"codes are packed from (n, d) numbers, not from shape {rows.shape}")
    return np.packbits(rows >= 0, axis=1)


def unpack(codes: np.ndarray, dimension: int) -> np.ndarray:
    """Codes (n, ceil(d / 8)) as (n, d) float32 of +-1."""
    if codes.ndim != 2 or codes.shape[1] != (dimension + 7) // 8:
        raise ValueError(f"codes have shape {codes.shape}; {dimension} bits are (n, {(dimension + 7) // 8}) bytes")
    bits = np.unpackbits(codes, axis=1, count=dimension)
    return bits.astype(np.float32) * 2 - 1


class UnpackedRows:
    """Codes (n, ceil(d / 8)) that look like an array (n, d) of +-1: what is asked for is unpacked, the rest stays small."""

    def __init__(self, codes: np.ndarray, dimension: int) -> None:
        self.codes, self.dimension = codes, dimension

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return len(self.codes), self.dimension

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: int | slice | np.ndarray) -> np.ndarray:
        some = self.codes[rows]
        return unpack(some, self.dimension) if some.ndim == 2 else unpack(some[None], self.dimension)[0]
