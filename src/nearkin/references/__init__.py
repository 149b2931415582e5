"""References: who may be chosen as a neighbour, and how does that set move?

State lives here and changes only in a method named `update`, called after the optimiser's step: anchors stand still,
proxies follow the gradient, centres follow a moving mean, a memory bank follows the embeddings with momentum, a queue
remembers the last few thousand.
"""

from nearkin.references.anchors import Anchors
from nearkin.references.centres import Centres
from nearkin.references.in_batch import InBatch, OnePerClass
from nearkin.references.memory_bank import MemoryBank
from nearkin.references.proxies import Proxies
from nearkin.references.queue import CrossBatchMemory
from nearkin.references.slot import References

__all__ = ["Anchors", "Centres", "CrossBatchMemory", "InBatch", "MemoryBank", "OnePerClass", "Proxies", "References"]
