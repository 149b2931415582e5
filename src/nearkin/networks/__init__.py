"""Networks: from images or vectors to embeddings. `build` makes any of them from its name."""

from nearkin.networks.adapters import adapt, parameter_groups
from nearkin.networks.catalogue import NETWORKS, build, channels_last, options_of
from nearkin.networks.convnet import convnet
from nearkin.networks.features import features, layers
from nearkin.networks.head import Head
from nearkin.networks.weights import convert_weights, load_weights

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
