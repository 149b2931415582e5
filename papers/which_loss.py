"""Which loss? Every objective for classes on four data sets, with equal tuning: classes that training has not seen, and classes it has.

A row is one objective. On every set it has the same network, batches, number of iterations and number of tuning runs: two learning rates by
two values of its own setting, or four rates if it has none. Settings are selected on held-out training classes (unseen) or on a held-out
tenth (seen), never on the test part. COIL-20 is the set on which nothing was ever developed.
"""

from collections.abc import Mapping
from typing import NamedTuple

from papers.cell import Cell, Settings, Trial
from papers.lu2019_trials import SETS

_OWN = "objective.options."


class Contender(NamedTuple):
    """A row: the objective, its batches, and the setting of its own that is tuned."""

    row: str
    settings: Settings
    tuned: str = ""
    values: tuple[str, ...] = ()


def _contender(row: str, objective: str, tuned: str = "", values: tuple[str, ...] = (), **options: str) -> Contender:
    settings = {"objective.name": objective, **{_OWN + name: value for name, value in options.items()}}
    return Contender(row, settings, _OWN + tuned if tuned else "", values)


_COLD = ("0.05", "0.1")
_SCALES = ("0.03125", "0.0625")  # 1/32 and 1/16: the papers' 1/64 is for tens of thousands of classes
CONTENDERS: Mapping[str, Contender] = {
    "softmax": _contender("Normalized softmax", "normalized_softmax", "temperature", _COLD),
    "nca": _contender("NCA on cosines", "nca", "temperature", _COLD, metric="cosine"),
    "supcon": _contender("SupCon", "supcon", "temperature", _COLD),
    "nt-xent": _contender("NT-Xent", "nt_xent", "temperature", _COLD),
    "arcface": _contender("ArcFace", "arcface", "temperature", _SCALES, margin="0.3"),
    "cosface": _contender("CosFace", "cosface", "temperature", _SCALES, margin="0.2"),
    "sub-center": _contender("Sub-center ArcFace", "sub_center_arcface", "temperature", _SCALES, margin="0.3"),
    "sphereface": _contender("SphereFace", "sphereface", "m", ("2", "4")),
    "adacos": _contender("AdaCos", "adacos"),
    "soft-triple": _contender("SoftTriple", "soft_triple", "temperature", ("0.05", "0.1"), per_class="5"),
    "proxy-anchor": _contender("Proxy-Anchor", "proxy_anchor", "temperature", _SCALES),
    "proxy-nca": _contender("Proxy-NCA", "proxy_nca", "temperature", ("0.333", "0.111")),
    "multi-similarity": _contender("Multi-similarity", "multi_similarity", "base", ("0.5", "0.8")),
    "circle": _contender("Circle", "circle", "margin", ("0.25", "0.4")),
    "tuplet": _contender("Tuplet margin", "tuplet_margin", "temperature", _SCALES),
    "margin": _contender("Margin loss, learned beta", "margin_loss", "margin", ("0.1", "0.2")),
    "ranked-list": _contender("Ranked list", "ranked_list", "sharpness", ("1.0", "10.0")),
    "histogram": _contender("Histogram", "histogram"),
    "snr": _contender("SNR contrastive", "signal_to_noise_contrastive", "margin", ("0.5", "1.0")),
    "fast-ap": _contender("FastAP", "fast_ap", "bins", ("10", "20")),
    "smooth-ap": _contender("Smooth-AP", "smooth_ap", "temperature", ("0.01", "0.05")),
    "recall": _contender("Recall@k surrogate", "recall_at_k", "temperature", ("0.01", "0.05")),
    "prec5": _contender("Prec@5", "precision_at_k", "margin", ("0.1", "0.3")),
    "triplet": _contender("Semi-hard triplets", "triplet", "margin", ("0.1", "0.3")),
    "contrastive": _contender("Contrastive", "contrastive", "margin", ("0.5", "1.0")),
    "lifted": _contender("Lifted structure", "lifted_structure", "margin", ("0.5", "1.0")),
    "angular": _contender("Angular", "angular", "alpha", ("36.0", "45.0")),
}
BATCHES: Settings = {"sampler.name": "per_class", "sampler.options.per_class": "4", "batch_size": "64"}
FEW_CLASSES: Mapping[str, Settings] = {"coil": {"sampler.options.per_class": "8"}}  # tuning has 8 classes for a batch of 64
FIGURE = {"coil": "map@r"}  # the nearest view of an object is a turn of 5 degrees away, so precision at 1 is nearly 100 % for all
_COIL: Settings = {**SETS["omniglot"].settings, "network.dimension": "64", "iterations": "500", "tuning_iterations": "250"}
UNSEEN: Mapping[str, tuple[str, Settings, tuple[str, ...]]] = {
    **{name: (SETS[name].title, SETS[name].settings, SETS[name].rates) for name in ("cub", "omniglot", "cifar")},
    "coil": ("COIL-20 at 32 px, 10 unseen classes, convnet", _COIL, SETS["omniglot"].rates),
}
SEEN: Settings = {
    "network.options.widths": "[64, 128, 256, 256]",
    "network.options.hidden": "256",
    "network.normalize": "true",
    "preprocess.name": "cifar",
    "augment.name": "crop_flip",
    "precision": "bfloat16",
    "optimizer.name": "adam",
    "optimizer.weight_decay": "1e-4",
    "epochs": "10",
}
SEEN_TITLE = "CIFAR-100 at 32 px, seen classes, convnet"


def _tuning(contender: Contender, rates: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Four runs for every row."""
    if not contender.tuned:
        return {"optimizer.learning_rate": rates}
    return {"optimizer.learning_rate": rates[1::2], contender.tuned: contender.values}


def _trials() -> tuple[Trial, ...]:
    found = []
    for name, contender in CONTENDERS.items():
        for data, (_, settings, rates) in UNSEEN.items():
            shared = {**settings, **BATCHES, **FEW_CLASSES.get(data, {}), **contender.settings}
            tune = _tuning(contender, rates)
            found.append(Trial(f"which-loss-{data}-{name}", data, shared, tune, figure=FIGURE.get(data, "precision@1"), method="unseen"))
        shared = {**SEEN, **BATCHES, **contender.settings}
        tune = _tuning(contender, SETS["cifar"].rates)
        found.append(Trial(f"which-loss-seen-{name}", "cifar-100", shared, tune, tuning_epochs=5))
    return tuple(found)


def _cells() -> tuple[Cell, ...]:
    found = []
    for name, contender in CONTENDERS.items():
        for data, (title, _, _) in UNSEEN.items():
            table, trial = f"Which loss? {title}", f"which-loss-{data}-{name}"
            found.append(Cell(table, contender.row, None, "accuracy %", trial, FIGURE.get(data, "precision@1")))
        found.append(Cell(f"Which loss? {SEEN_TITLE}", contender.row, None, "accuracy %", f"which-loss-seen-{name}"))
    return tuple(found)


TRIALS, CELLS = _trials(), _cells()
