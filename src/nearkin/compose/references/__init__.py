"""References: who may be chosen as a neighbour, and how does that set move?

State lives here and changes only in a method named `update`, called after the optimiser's step: anchors stand still,
proxies follow the gradient, centres follow a moving mean, a memory bank follows the embeddings with momentum, a queue
remembers the last few thousand.
"""

from nearkin.compose.references.abstract import References
from nearkin.compose.references.anchors import Anchors
from nearkin.compose.references.centers import Centres
from nearkin.compose.references.in_batch import InBatch, OnePerClass
from nearkin.compose.references.memory_bank import MemoryBank
from nearkin.compose.references.proxies import Proxies
from nearkin.compose.references.queue import CrossBatchMemory

__all__ = ["Anchors", "Centres", "CrossBatchMemory", "InBatch", "MemoryBank", "OnePerClass", "Proxies", "References"]
