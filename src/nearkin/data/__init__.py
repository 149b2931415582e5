"""Data: every source behind one door, splits, the batches' way to the device, and what is done to images on it.

`open` yields a `Dataset`; `partition` splits it if it brings no split; a `Loader` serves it.
"""

from nearkin.data.dataset import Dataset, Supervision
from nearkin.data.digits import LabeledImages, Split, hold_out, moved_digits
from nearkin.data.images import DamagedImageError
from nearkin.data.leaks import LeakError, check_leaks
from nearkin.data.loader import Loader
from nearkin.data.opener import open
from nearkin.data.progress import Progress, Report
from nearkin.data.sources.catalog import SETS
from nearkin.data.sources.download import DownloadError
from nearkin.data.sources.local_files import MissingFileError
from nearkin.data.splits import Partition, by_group, partition, set_aside, stratified, unseen_classes

__all__ = [
    "SETS",
    "DamagedImageError",
    "Dataset",
    "DownloadError",
    "LabeledImages",
    "LeakError",
    "Loader",
    "MissingFileError",
    "Partition",
    "Progress",
    "Report",
    "Split",
    "Supervision",
    "by_group",
    "check_leaks",
    "hold_out",
    "moved_digits",
    "open",
    "partition",
    "set_aside",
    "stratified",
    "unseen_classes",
]
