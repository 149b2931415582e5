"""References: who may be chosen as a neighbor, and how does that set move?

State lives here and changes only in a method named `update`, called after the optimizer's step: anchors stand still,
proxies follow the gradient, centers follow a moving mean, a memory bank follows the embeddings with momentum, a queue
remembers the last few thousand.
"""

from nearkin.compose.references.abstract import References
from nearkin.compose.references.anchors import Anchors
from nearkin.compose.references.centers import Centers
from nearkin.compose.references.in_batch import InBatch, OnePerClass
from nearkin.compose.references.memory_bank import MemoryBank
from nearkin.compose.references.proxies import Proxies
from nearkin.compose.references.queue import ClassBank, CrossBatchMemory, MomentumQueue

__all__ = [
    "Anchors",
    "Centers",
    "ClassBank",
    "CrossBatchMemory",
    "InBatch",
    "MemoryBank",
    "MomentumQueue",
    "OnePerClass",
    "Proxies",
    "References",
]
