"""Data: opening data sets, splitting them, and loading batches of them to a device.

`open` reads a known set, a folder of images or texts, a table, arrays or shards and returns a `Dataset`. `partition` splits it if it has
no splits, and a `Loader` loads batches of the ids that a sampler draws. What is done to images is in `nearkin.data.preprocess` (always) and
`nearkin.data.augment` (in training); data larger than memory are in `nearkin.data.shards`. Names are
imported when first used.
"""

from typing import TYPE_CHECKING, Any

from nearkin import _lazy_exports

_HOMES = {
    "nearkin.data.columns": ("TableSchema",),
    "nearkin.data.dataset": ("Dataset", "Supervision"),
    "nearkin.data.digits": ("LabeledImages", "Split", "hold_out", "moved_digits"),
    "nearkin.data.hard_samplers": ("Grouped", "HardClasses", "NearNeighbors", "near_classes"),
    "nearkin.data.images": ("DamagedImageError",),
    "nearkin.data.leaks": ("LeakError", "check_leaks"),
    "nearkin.data.loader": ("Loader",),
    "nearkin.data.opener": ("open",),
    "nearkin.data.progress": ("Progress", "Report"),
    "nearkin.data.samplers": ("ClassBalanced", "PerClass", "Sampler", "Shuffled"),
    "nearkin.data.sources.catalog": ("SETS",),
    "nearkin.data.sources.download": ("DownloadError",),
    "nearkin.data.sources.local_files": ("MissingFileError",),
    "nearkin.data.sources.vector_tables": ("VectorColumns",),
    "nearkin.data.sources.vectors": ("open_vectors",),
    "nearkin.data.texts": ("Texts",),
    "nearkin.data.splits": ("Partition", "by_group", "partition", "set_aside", "stratified", "unseen_classes"),
}
__all__ = [*(name for names in _HOMES.values() for name in names)]  # noqa: PLE0604

if TYPE_CHECKING:
    from nearkin.data.columns import TableSchema as TableSchema
    from nearkin.data.dataset import Dataset as Dataset
    from nearkin.data.dataset import Supervision as Supervision
    from nearkin.data.digits import LabeledImages as LabeledImages
    from nearkin.data.digits import Split as Split
    from nearkin.data.digits import hold_out as hold_out
    from nearkin.data.digits import moved_digits as moved_digits
    from nearkin.data.hard_samplers import Grouped as Grouped
    from nearkin.data.hard_samplers import HardClasses as HardClasses
    from nearkin.data.hard_samplers import NearNeighbors as NearNeighbors
    from nearkin.data.hard_samplers import near_classes as near_classes
    from nearkin.data.images import DamagedImageError as DamagedImageError
    from nearkin.data.leaks import LeakError as LeakError
    from nearkin.data.leaks import check_leaks as check_leaks
    from nearkin.data.loader import Loader as Loader
    from nearkin.data.opener import open as open
    from nearkin.data.progress import Progress as Progress
    from nearkin.data.progress import Report as Report
    from nearkin.data.samplers import ClassBalanced as ClassBalanced
    from nearkin.data.samplers import PerClass as PerClass
    from nearkin.data.samplers import Sampler as Sampler
    from nearkin.data.samplers import Shuffled as Shuffled
    from nearkin.data.sources.catalog import SETS as SETS
    from nearkin.data.sources.download import DownloadError as DownloadError
    from nearkin.data.sources.local_files import MissingFileError as MissingFileError
    from nearkin.data.sources.vector_tables import VectorColumns as VectorColumns
    from nearkin.data.sources.vectors import open_vectors as open_vectors
    from nearkin.data.splits import Partition as Partition
    from nearkin.data.splits import by_group as by_group
    from nearkin.data.splits import partition as partition
    from nearkin.data.splits import set_aside as set_aside
    from nearkin.data.splits import stratified as stratified
    from nearkin.data.splits import unseen_classes as unseen_classes
    from nearkin.data.texts import Texts as Texts


def __getattr__(name: str) -> Any:
    return _lazy_exports(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted(__all__)
