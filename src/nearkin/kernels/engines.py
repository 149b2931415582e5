"""Which engine evaluates a piece of work: Triton on CUDA, numba tiles or plain torch tiles on the CPU."""

from nearkin.kernels.tiled import TorchTiles
from torch import Tensor

from nearkin.kernels.work import Engine

ENGINES = ("auto", "dense", "torch", "numba", "triton")
PRECISIONS = ("highest", "high", "fast")


def choose(engine: str, queries: Tensor, precision: str) -> Engine:
    """The engine by name, or the best one for where the queries live."""
    if engine == "auto":
        engine = _best(queries.device.type)
    if engine == "numba":
        return _numba()
    if engine == "triton":
        return _triton(precision)
    if engine == "torch":
        return TorchTiles()
    raise ValueError(f"engine {engine!r} is unknown; choose one of {', '.join(ENGINES)}")
