"""Binary codes packed into bytes: eight signs in one byte."""

import numpy as np
from torch import Tensor


def pack(x: Tensor | np.ndarray) -> np.ndarray:
    """Pack the signs of (n, d) numbers into bytes, one bit for each dimension.

    Parameters
    ----------
    x : Tensor or ndarray (n, d)
        A bit is set where the number is >= 0.

    Returns
    -------
    ndarray (n, ceil(d / 8)) uint8
        The first dimension is the highest bit of the first byte; unused bits are 0.

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.search import pack
    >>> pack(np.array([[1.0, -1.0, 0.0]]))
    array([[160]], dtype=uint8)
    """
    rows = x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)
    if rows.ndim != 2:
        raise ValueError(f"x has shape {rows.shape}; codes are packed from (n, d) numbers")
    return np.packbits(rows >= 0, axis=1)


def unpack(codes: np.ndarray, dimension: int) -> np.ndarray:
    """Unpack codes into signs.

    Parameters
    ----------
    codes : ndarray (n, ceil(d / 8)) uint8
        As `pack` makes them.
    dimension : int
        The number of bits d.

    Returns
    -------
    ndarray (n, d) float32
        +1 where a bit is set, else -1.

    Examples
    --------
    >>> import numpy as np
    >>> from nearkin.search import pack, unpack
    >>> unpack(pack(np.array([[2.0, -3.0, 0.0]])), 3)
    array([[ 1., -1.,  1.]], dtype=float32)
    """
    if codes.ndim != 2 or codes.shape[1] != (dimension + 7) // 8:
        raise ValueError(f"codes have shape {codes.shape}; {dimension} bits need (n, {(dimension + 7) // 8}) bytes")
    bits = np.unpackbits(codes, axis=1, count=dimension)
    return bits.astype(np.float32) * 2 - 1


class UnpackedRows:
    """Codes (n, ceil(d / 8)) that can be indexed like an array (n, d) of +-1: only the selected rows are unpacked."""

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
