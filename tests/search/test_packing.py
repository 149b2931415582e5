"""Codes in bytes and back."""

import numpy as np
import pytest
import torch

from nearkin.compose.affinity import signs
from nearkin.search.packing import UnpackedRows, pack, unpack


@pytest.mark.parametrize("d", [1, 7, 8, 9, 16, 64, 100])
def test_packed_and_unpacked_are_the_signs(d: int) -> None:
    x = torch.randn(20, d, generator=torch.Generator().manual_seed(d))
    codes = pack(x)
    assert codes.shape == (20, (d + 7) // 8) and codes.dtype == np.uint8
    assert np.array_equal(unpack(codes, d), signs(x).numpy()) and np.array_equal(pack(x.numpy()), codes)


def test_zero_counts_as_positive() -> None:
    assert signs(torch.tensor([[0.0, -0.0, -1e-30, 2.0]])).tolist() == [[1.0, 1.0, -1.0, 1.0]]


def test_only_selected_rows_are_unpacked() -> None:
    x = np.random.default_rng(0).normal(size=(9, 12))
    rows, all_of_them = UnpackedRows(pack(x), 12), np.where(x >= 0, 1, -1)
    assert len(rows) == 9 and rows.shape == (9, 12)
    for some in (3, slice(2, 5), np.array([8, 0])):
        assert np.array_equal(rows[some], all_of_them[some])


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"x has shape \(3,\); codes are packed from \(n, d\) numbers"):
        pack(np.ones(3))
    with pytest.raises(ValueError, match=r"codes have shape \(2, 2\); 24 bits need \(n, 3\) bytes"):
        unpack(np.zeros((2, 2), np.uint8), 24)
