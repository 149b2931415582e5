"""Train: from a run and its data to a model folder; resumable, and the same on several ranks.

`Run` describes one training, `fit` is the loop on one page, `discover` and what stands beside it find neighborhoods in data without
labels. Names are imported when first used: the command line reads a run before torch is loaded.
"""

from typing import TYPE_CHECKING, Any

from nearkin import _lazy_exports

_HOMES = {
    "nearkin.train.config": (
        "Run",
        "override",
    ),
    "nearkin.train.loop": ("fit",),
    "nearkin.train.discovery": (
        "discover",
        "trusted",
        "weights",
        "mutual",
        "keep_only",
        "agreement",
    ),
    "nearkin.train.training": ("train",),
    "nearkin.train.iterative_quantization": ("IterativeQuantization",),
}
__all__ = [*(name for names in _HOMES.values() for name in names)]  # noqa: PLE0604

if TYPE_CHECKING:
    from nearkin.train.config import Run as Run
    from nearkin.train.config import override as override
    from nearkin.train.discovery import agreement as agreement
    from nearkin.train.discovery import discover as discover
    from nearkin.train.discovery import keep_only as keep_only
    from nearkin.train.discovery import mutual as mutual
    from nearkin.train.discovery import trusted as trusted
    from nearkin.train.discovery import weights as weights
    from nearkin.train.iterative_quantization import IterativeQuantization as IterativeQuantization
    from nearkin.train.loop import fit as fit
    from nearkin.train.training import train as train


def __getattr__(name: str) -> Any:
    return _lazy_exports(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted(__all__)
