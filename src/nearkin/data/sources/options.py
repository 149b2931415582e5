"""The options of `nearkin.data.open` that every reader takes, as one value."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from nearkin.data.images import Files, OnError, image_files, recolored, resized
from nearkin.data.pixels import Framing
from nearkin.data.progress import Report


class ReadOptions(NamedTuple):
    """Size and channels of images, what to do with damaged files, and the reporter."""

    split: str | None = None  # for sets with a large part that is read only if it is requested
    framing: Framing | None = None
    channels: int | None = None
    on_error: OnError = "raise"
    report: Report | None = None

    def files(self, paths: Sequence[str]) -> Files:
        """Image files that decode to the requested size and channels."""
        return image_files(paths, self.framing, self.channels, self.on_error)

    def fit(self, images: Tensor) -> Tensor:
        """Convert images of one tensor to the requested size and channels."""
        images = images if self.framing is None else resized(images, self.framing.size)
        return images if self.channels is None else recolored(images, self.channels)
