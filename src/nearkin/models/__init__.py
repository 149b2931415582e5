"""Networks: from images or vectors to embeddings. `build` makes any of them from its name."""

from nearkin.models.adapters import adapt, parameter_groups
from nearkin.models.catalog import NETWORKS, build, channels_last, options_of
from nearkin.models.convnet import convnet
from nearkin.models.features import features, layers
from nearkin.models.head import Head
from nearkin.models.weights import convert_weights, load_weights

__all__ = [
    "NETWORKS",
    "Head",
    "adapt",
    "build",
    "channels_last",
    "convert_weights",
    "convnet",
    "features",
    "layers",
    "load_weights",
    "options_of",
    "parameter_groups",
]
