"""What the caller of the door wants of any source: one value handed to every reader."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from nearkin.data.images import Files, OnError, image_files, recolored, resized
from nearkin.data.progress import Report


class Wanted(NamedTuple):
    """How images are to come out, what to do with damaged ones, and whom to tell."""

    split: str | None = None  # for sets with a part so large that it is only read when asked for
    size: int | None = None
    channels: int | None = None
    on_error: OnError = "raise"
    report: Report | None = None

    def files(self, paths: Sequence[str]) -> Files:
        """Files that decode as wanted."""
        return image_files(paths, self.size, self.channels, self.on_error)

    def fit(self, images: Tensor) -> Tensor:
        """Images held as one tensor, brought to the wanted size and channels."""
        images = images if self.size is None else resized(images, self.size)
        return images if self.channels is None else recolored(images, self.channels)
