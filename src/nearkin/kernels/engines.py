"""Choose the engine of an evaluation: Triton on CUDA, numba tiles or plain torch tiles on the CPU.

numba and Triton are imported when they are first needed, never when the package is imported.
"""

import os
import warnings
from functools import lru_cache
from importlib.util import find_spec
from typing import cast

from torch import Tensor

from nearkin.compose.validation import check_choice
from nearkin.kernels.contract import Engine
from nearkin.kernels.torch_tiles import TorchTiles

ENGINES = ("auto", "dense", "torch", "numba", "triton")
PRECISIONS = ("highest", "high", "fast")


def choose(engine: str, queries: Tensor, precision: str) -> Engine:
    """Return the engine with this name, or the fastest one for the device of the queries.

    Parameters
    ----------
    engine : {"auto", "torch", "numba", "triton"}
        "auto" takes Triton on CUDA, numba on the CPU, and torch tiles where the first choice is not installed. "dense" is refused: it
        means that the objective builds the full matrix itself.
    queries : Tensor (n, d)
        Only its device matters.
    precision : {"highest", "high", "fast"}
        For Triton only. "highest" keeps the digits of float32, "high" rounds products to tf32, "fast" to float16.

    Returns
    -------
    Engine

    Raises
    ------
    ValueError
        If a name is unknown, or the engine does not run on the device of the queries.
    ImportError
        If the engine is not installed; the message names the package.

    Examples
    --------
    >>> import torch
    >>> from nearkin.kernels import choose
    >>> choose("torch", torch.zeros(2, 3), "highest")
    TorchTiles(block=512)
    """
    check_choice("precision", precision, PRECISIONS)
    device = queries.device.type
    if engine == "auto":
        engine = _best(device)
    if engine == "numba":
        return _numba(device)
    if engine == "triton":
        return _triton(device, precision)
    if engine == "torch":
        return TorchTiles()
    if check_choice("engine", engine, ENGINES) == "dense":
        raise ValueError("engine 'dense' is the objective itself and never streams; choose auto, torch, numba or triton here")
    raise ValueError(f"engine {engine!r} is unknown; choose one of {', '.join(ENGINES)}")


def _best(device: str) -> str:
    if device == "cuda":
        return "triton" if has_triton() else "torch"
    return "numba" if device == "cpu" and find_spec("numba") else "torch"


@lru_cache(1)
def has_triton() -> bool:
    """Whether Triton is installed. Cached, so that a machine without Triton warns once in a process."""
    if find_spec("triton"):
        return True
    warnings.warn("Triton is not installed: CUDA tensors go through the slower torch tiles (pip install triton)", stacklevel=4)
    return False


def _numba(device: str) -> Engine:
    if device != "cpu":
        raise ValueError(f"engine 'numba' runs on the CPU and the queries are on {device}; use engine='auto' or move them with .cpu()")
    if find_spec("numba") is None:
        raise ImportError("engine 'numba' needs numba: pip install 'nearkin[fast]' (or use engine='torch')")
    from nearkin.kernels.numba_tiles import NumbaTiles

    return NumbaTiles()


def _triton(device: str, precision: str) -> Engine:
    if device != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise ValueError(
            f"engine 'triton' runs on CUDA and the queries are on {device}; use engine='auto', move them with .cuda(), "
            "or set TRITON_INTERPRET=1 to debug"
        )
    return _triton_engine(precision)


@lru_cache
def _triton_engine(precision: str) -> Engine:
    """One engine for each precision: small evaluations wait for the host, which would otherwise build and compare one each time."""
    if find_spec("triton") is None:
        raise ImportError("engine 'triton' needs Triton: pip install triton (or use engine='torch')")
    from nearkin.kernels.triton_engine import Precision, TritonEngine

    return TritonEngine(cast(Precision, precision))
