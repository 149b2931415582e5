"""The Triton engine, without a GPU: its cases run under Triton's interpreter.

The interpreter is chosen when a kernel is defined, so the cases (`triton_interpreted.py`) run in a separate process, and
all other tests keep the real Triton.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed, so its engine cannot be tested")


@pytest.mark.parametrize("chosen", ["not soak", pytest.param("soak", marks=pytest.mark.soak)])
def test_all_cases_hold_under_the_interpreter(chosen):
    here = Path(__file__).parent
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(here / "triton_interpreted.py"),
        "-q",
        "-p",
        "no:cacheprovider",
        "--no-header",
        "-m",
        chosen,
    ]
    run = subprocess.run(
        command,
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]


def test_an_unknown_precision_is_refused():
    from nearkin.kernels.triton_engine import TritonEngine

    with pytest.raises(ValueError, match=r"precision 'exact' is unknown; choose one of fast, high, highest"):
        TritonEngine("exact")


def test_every_chunk_of_dimensions_has_a_tile():
    from nearkin.kernels.triton_tuning import SCHEMES, dimensions, tile_of

    for name, scheme in SCHEMES.items():
        for d in (1, 16, 17, 64, 100, 128, 129, 256, 257, 2048):
            padded, chunk = dimensions(d, scheme)
            assert padded >= d and padded % chunk == 0
            for which in ("summaries", "gradients"):
                tile = tile_of(which, name, d, scattered=False)
                assert tile.rows >= 64, "the matrix units of Hopper take 64 rows"
                assert max(tile_of(which, name, d, scattered=True)[:2]) <= 64
