"""Models: networks from images or vectors to embeddings, and the model folder that training writes.

`build` makes a network from its name (`NETWORKS`, timm's and torchvision's), `adapt` puts a head on a network of yours, and `load` opens a
model folder as a `Model`, which encodes inputs, finds their neighbors among the training points and predicts labels from those.
"""

from typing import TYPE_CHECKING, Any

from nearkin import _lazy_exports

_HOMES = {
    "nearkin.models.adapters": ("adapt",),
    "nearkin.models.catalog": (
        "NETWORKS",
        "build",
        "channels_last",
        "options_of",
    ),
    "nearkin.models.small_convnet": ("convnet",),
    "nearkin.models.layer_outputs": (
        "features",
        "layers",
    ),
    "nearkin.models.head": ("Head",),
    "nearkin.models.weights": (
        "convert_weights",
        "load_weights",
    ),
    "nearkin.models.folder": (
        "Model",
        "load",
    ),
    "nearkin.models.saved_report": ("SavedReport",),
}
__all__ = [*(name for names in _HOMES.values() for name in names)]  # noqa: PLE0604

if TYPE_CHECKING:
    from nearkin.models.adapters import adapt as adapt
    from nearkin.models.catalog import NETWORKS as NETWORKS
    from nearkin.models.catalog import build as build
    from nearkin.models.catalog import channels_last as channels_last
    from nearkin.models.catalog import options_of as options_of
    from nearkin.models.folder import Model as Model
    from nearkin.models.folder import load as load
    from nearkin.models.head import Head as Head
    from nearkin.models.layer_outputs import features as features
    from nearkin.models.layer_outputs import layers as layers
    from nearkin.models.saved_report import SavedReport as SavedReport
    from nearkin.models.small_convnet import convnet as convnet
    from nearkin.models.weights import convert_weights as convert_weights
    from nearkin.models.weights import load_weights as load_weights


def __getattr__(name: str) -> Any:
    return _lazy_exports(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted(__all__)
