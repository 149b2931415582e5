"""Array files that are odd or hostile: an error that names the file, never a traceback or a full memory."""

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from nearkin import data


def npy(shape: str, kind: str = "'<f4'", body: bytes = b"") -> bytes:
    header = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + body


@pytest.mark.parametrize(
    "content",
    [
        npy("(4000000000000, 5)"),
        npy("(99999999999999999999999, 5)"),
        npy("(-3, 5)"),
        npy("(10, 5)", body=b"1234"),
        npy("(3,", body=b"1234"),
        npy("(3, 2)", "'<f'"),
        b"\x93NUMPY",
        b"",
        b"PK\x03\x04 and nothing more",
    ],
    ids=["huge", "endless", "negative", "short", "no header", "odd type", "cut", "empty", "half a zip"],
)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_damaged_files_are_named(tmp_path: Path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    if suffix == ".npz" and content.startswith(b"\x93NUMPY\x01"):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as zipped:
            zipped.writestr("x.npy", content)
        content = out.getvalue()
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"x\{suffix}.*(damaged or not a NumPy file|more than fits in memory|is float32 )"):
        data.open(str(path))


@pytest.mark.parametrize("array", [np.array([["a", "b"]]), np.zeros((0, 5), np.float32), np.zeros((3, 0), np.float32), np.array(3.0)])
def test_arrays_without_points_or_numbers_are_refused(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(ValueError, match="x.npy|points"):
        data.open(str(tmp_path / "x.npy"))
