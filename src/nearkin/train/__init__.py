"""Train a network: from a run and its data to a model folder. Trainings resume, and run on several ranks.

`Run` configures a training, and `train` runs it. `fit` is a training loop in one function. `discover` and the functions next
to it find neighborhoods in data without labels. Names are imported on first use, so that the command line can read a run without torch.
"""

from typing import TYPE_CHECKING, Any

from nearkin import _lazy_exports

_HOMES = {
    "nearkin.train.config": (
        "CodesChoice",
        "DataChoice",
        "DiscoveryChoice",
        "NetworkChoice",
        "OptimizerChoice",
        "Part",
        "Run",
        "ScheduleChoice",
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
        "curriculum",
    ),
    "nearkin.train.notebook": ("NotebookProgress",),
    "nearkin.train.reporter": ("Reporter",),
    "nearkin.train.teacher": ("Teacher",),
    "nearkin.train.training": ("train",),
    "nearkin.train.iterative_quantization": ("IterativeQuantization",),
}
__all__ = [*(name for names in _HOMES.values() for name in names)]  # noqa: PLE0604

if TYPE_CHECKING:
    from nearkin.train.config import CodesChoice as CodesChoice
    from nearkin.train.config import DataChoice as DataChoice
    from nearkin.train.config import DiscoveryChoice as DiscoveryChoice
    from nearkin.train.config import NetworkChoice as NetworkChoice
    from nearkin.train.config import OptimizerChoice as OptimizerChoice
    from nearkin.train.config import Part as Part
    from nearkin.train.config import Run as Run
    from nearkin.train.config import ScheduleChoice as ScheduleChoice
    from nearkin.train.config import override as override
    from nearkin.train.discovery import agreement as agreement
    from nearkin.train.discovery import curriculum as curriculum
    from nearkin.train.discovery import discover as discover
    from nearkin.train.discovery import keep_only as keep_only
    from nearkin.train.discovery import mutual as mutual
    from nearkin.train.discovery import trusted as trusted
    from nearkin.train.discovery import weights as weights
    from nearkin.train.iterative_quantization import IterativeQuantization as IterativeQuantization
    from nearkin.train.loop import fit as fit
    from nearkin.train.notebook import NotebookProgress as NotebookProgress
    from nearkin.train.reporter import Reporter as Reporter
    from nearkin.train.teacher import Teacher as Teacher
    from nearkin.train.training import train as train


def __getattr__(name: str) -> Any:
    return _lazy_exports(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted(__all__)
