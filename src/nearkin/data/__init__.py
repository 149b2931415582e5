"""Data: opening data sets, splitting them, and loading batches of them to a device.

`open` reads a known set, a folder of images, a table, arrays or shards and returns a `Dataset`. `partition` splits it if it has no splits,
and a `Loader` loads batches of the ids that a sampler draws. What is done to images is in `nearkin.data.preprocess` (always) and
`nearkin.data.augment` (in training); data larger than memory are in `nearkin.data.shards`.
"""

from nearkin.data.dataset import Dataset, Supervision
from nearkin.data.digits import LabeledImages, Split, hold_out, moved_digits
from nearkin.data.hard_samplers import Grouped, HardClasses, NearNeighbors, near_classes
from nearkin.data.images import DamagedImageError
from nearkin.data.leaks import LeakError, check_leaks
from nearkin.data.loader import Loader
from nearkin.data.opener import open
from nearkin.data.progress import Progress, Report
from nearkin.data.samplers import ClassBalanced, PerClass, Sampler, Shuffled
from nearkin.data.sources.catalog import SETS
from nearkin.data.sources.download import DownloadError
from nearkin.data.sources.local_files import MissingFileError
from nearkin.data.splits import Partition, by_group, partition, set_aside, stratified, unseen_classes

__all__ = [
    "SETS",
    "ClassBalanced",
    "DamagedImageError",
    "Dataset",
    "DownloadError",
    "Grouped",
    "HardClasses",
    "LabeledImages",
    "LeakError",
    "Loader",
    "MissingFileError",
    "NearNeighbors",
    "Partition",
    "PerClass",
    "Progress",
    "Report",
    "Sampler",
    "Shuffled",
    "Split",
    "Supervision",
    "by_group",
    "check_leaks",
    "hold_out",
    "moved_digits",
    "near_classes",
    "open",
    "partition",
    "set_aside",
    "stratified",
    "unseen_classes",
]
