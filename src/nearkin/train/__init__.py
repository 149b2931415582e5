"""Training: `fit` is the loop on one page, for images in memory."""

from nearkin.train.fit import Epoch, embed, fit, save

__all__ = ["Epoch", "embed", "fit", "save"]
