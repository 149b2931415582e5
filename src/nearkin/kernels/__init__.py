"""Exact soft-neighbor losses and gradients over all pairs, in O((n + m) d) memory.

`soft_neighbors` evaluates a sum over every pair of a query and a reference, and its gradient, without ever holding the n x m matrix. The
objectives call it for you. `Work` describes one evaluation, `Soft` holds its result, and `choose` picks the engine that computes it:
Triton on CUDA, compiled numba tiles on the CPU, plain torch tiles anywhere. numba and Triton are imported when first needed.
"""

from nearkin.kernels.autograd import Soft, soft_neighbors
from nearkin.kernels.contract import Engine, Form, Work
from nearkin.kernels.engines import ENGINES, PRECISIONS, choose

__all__ = ["ENGINES", "PRECISIONS", "Engine", "Form", "Soft", "Work", "choose", "soft_neighbors"]
