"""The trainings behind table 1 of [lu2019sampling]: data sets, losses, protocols."""

from collections.abc import Mapping
from typing import NamedTuple

from papers.cell import Settings, Trial

_ADAM: Settings = {"optimizer.name": "adam", "optimizer.weight_decay": "1e-4", "batch_size": "64", "network.normalize": "true"}


def _length(iterations: int) -> Settings:
    """Tuning runs are half as long."""
    return {"iterations": str(iterations), "tuning_iterations": str(iterations // 2)}


_FINE_TUNED: Settings = {
    **_ADAM,
    "network.name": "mobilenet-v2",
    "network.weights": "mobilenet_v2-b0353104.safetensors",
    "network.rate": "0.03",
    "network.statistics": "kept",
    "preprocess.name": "imagenet",
    "preprocess.options.crop": "112",
    "augment.name": "crop",
    "augment.options.size": "112",
    "precision": "bfloat16",
    **_length(500),
}
_GENTLE = ("0.00025", "0.0005", "0.001", "0.002")


class Setting(NamedTuple):
    """A data set: its title, and the settings that all its trials share."""

    title: str
    settings: Settings
    orthonormal: bool = False  # whether there are as many dimensions as training classes
    pretrained: bool = False
    rates: tuple[str, str, str, str] = ("0.001", "0.002", "0.004", "0.008")


SETS: Mapping[str, Setting] = {
    "cub": Setting("CUB-200-2011 at 128 px, pretrained MobileNetV2", _FINE_TUNED, pretrained=True, rates=_GENTLE),
    "omniglot": Setting(
        "Omniglot at 28 px, convnet",
        {
            **_ADAM,
            "network.options.widths": "[64, 64, 64, 64]",
            "network.options.hidden": "128",
            "augment.name": "affine",
            **_length(1000),
        },
    ),
    "cifar": Setting(
        "CIFAR-100 at 32 px, 50 unseen classes, convnet",
        {
            **_ADAM,
            "network.options.widths": "[64, 128, 256, 256]",
            "network.options.hidden": "256",
            "preprocess.name": "cifar",
            "augment.name": "crop_flip",
            "precision": "bfloat16",
            **_length(1000),
        },
        orthonormal=True,
        rates=_GENTLE,
    ),
    "cars": Setting("Cars-196 at 128 px, pretrained MobileNetV2", _FINE_TUNED, pretrained=True, rates=_GENTLE),
    "products": Setting(
        "Online Products at 128 px, pretrained MobileNetV2", {**_FINE_TUNED, "network.dimension": "512"}, pretrained=True, rates=_GENTLE
    ),
}


class Loss(NamedTuple):
    """A row: its settings, and the values of its own setting that are tuned."""

    row: str
    settings: Settings
    tuned: str
    values: tuple[str, ...]


_OWN = "objective.options."
_MARGIN, _MARGINS = f"{_OWN}margin", ("0.1", "0.3")
_SPREAD = str(0.1 / 6)  # released: 0.1 times the SUM over the six classes of a batch; ours takes their mean


def _triplet(row: str, choice: str) -> Loss:
    return Loss(row, {"objective.name": "triplet", f"{_OWN}choice": choice}, _MARGIN, _MARGINS)


def _precision(row: str, k: int = 5, values: tuple[str, ...] = _MARGINS, **options: str) -> Loss:
    more = {_OWN + name: value for name, value in options.items()}
    return Loss(row, {"objective.name": "precision_at_k", f"{_OWN}k": str(k), **more}, _MARGIN, values)


TABLE_1: Mapping[str, Loss] = {
    "triplet-uniform": _triplet("Uniform triplets", "uniform"),
    "triplet-hard": _triplet("Hard triplets", "hard"),
    "triplet-semi": _triplet("Semi-hard triplets", "semi-hard"),
    "triplet-weighted": _triplet("Distance-weighted triplets", "distance-weighted"),
    "contrastive": Loss("Contrastive", {"objective.name": "contrastive"}, _MARGIN, ("0.5", "1.0")),
    "lifted": Loss("Lifted structure", {"objective.name": "lifted_structure"}, _MARGIN, ("0.5", "1.0")),
    "npair": Loss("N-pair", {"objective.name": "npair", "network.normalize": "false"}, f"{_OWN}l2", ("0.002", "0.02")),
    "angular": Loss("Angular", {"objective.name": "angular"}, f"{_OWN}alpha", ("36.0", "45.0")),
    "proxy": Loss("Proxy-NCA", {"objective.name": "proxy_nca"}, f"{_OWN}temperature", ("0.333", "0.111")),
}
OURS: Mapping[str, Loss] = {
    "prec5-printed": _precision("Prec@5 as printed"),
    "prec5-released": _precision(
        "Prec@5 as released", values=("0.05", "0.2"), log_sum_exp="true", covariance=_SPREAD, class_balanced="true"
    ),
    "prec5-lse": _precision("Prec@5 with the log-sum-exp term alone", log_sum_exp="true"),
    "prec5-cov": _precision("Prec@5 with the covariance term alone", covariance=_SPREAD),
    "prec1-printed": _precision("Prec@1", 1),
    "prec10-printed": _precision("Prec@10", 10),
    "prec5-memory": _precision("Prec@5 against a memory of 10,000", memory="10000"),
}
OTHERS: Mapping[str, Loss] = {
    "nca": Loss("NCA on cosines", {"objective.name": "nca", f"{_OWN}metric": "cosine"}, f"{_OWN}temperature", ("0.05", "0.15")),
    "e-ncm": Loss("E-NCM", {"objective.name": "nearest_class_mean"}, f"{_OWN}scale", ("5.0", "20.0")),
    "misplaced-triplet": _triplet("Triplets of Prec@5's misplaced sets", "misplaced"),
    "misplaced-angular": Loss(
        "Angular on Prec@5's misplaced sets", {"objective.name": "angular", f"{_OWN}choice": "misplaced"}, f"{_OWN}alpha", ("36.0", "45.0")
    ),
}
MARGINS: Mapping[str, Loss] = {
    f"prec5-margin{margin}": _precision(f"Prec@5 with margin {margin}", values=(margin,)) for margin in ("0.05", "0.1", "0.2", "0.4")
}
WITH_VECTORS: Mapping[str, Loss] = {
    "proxy": TABLE_1["proxy"],
    "e-ncm": OTHERS["e-ncm"],
    "softmax": Loss("Normalized softmax", {"objective.name": "normalized_softmax"}, f"{_OWN}temperature", ("0.05", "0.1")),
}

_FOLLOWED = ("prec5-printed", "prec5-released", "triplet-semi", "triplet-weighted", "angular", "proxy")  # for the curves of figure 4
_LOOKS = "6"
_BATCHES: Mapping[str, Settings] = {
    "11": {"sampler.name": "per_class", "sampler.options.per_class": "11"},
    "2": {"sampler.name": "per_class", "sampler.options.per_class": "2"},
    "any": {"sampler.name": "shuffled"},
}


_BOTH = ("11-prec5-printed", "11-prec5-released")
LONGER = {
    "cub": (*_BOTH, "11-triplet-weighted", "2-proxy", "any-e-ncm"),
    "omniglot": (*_BOTH, "11-angular", "2-angular", "any-softmax"),
    "cifar": (*_BOTH, "11-angular", "2-proxy", "any-proxy"),
}
TIMES = 5

NOT_RUN = ("cars", "products")  # the data are not at hand; the first protocol alone is set up


def _trial(data: str, batches: str, name: str, loss: Loss) -> Trial:
    shared = SETS[data]
    settings = {**shared.settings, **_BATCHES[batches], **loss.settings}
    if loss.settings["objective.name"] == "nearest_class_mean":
        settings[f"{_OWN}anchors"] = "orthonormal" if shared.orthonormal else "random"
    if batches == "11" and name in _FOLLOWED:
        settings["watch"] = _LOOKS
    tune: dict[str, tuple[str, ...]]
    if len(loss.values) == 1:
        settings[loss.tuned] = loss.values[0]
        tune = {"optimizer.learning_rate": shared.rates}  # without a setting of its own: four rates, so four runs like all others
    else:
        tune = {"optimizer.learning_rate": shared.rates[1::2], loss.tuned: loss.values}
    return Trial(f"lu2019-{data}-{batches}-{name}", data, settings, tune, figure="precision@1", method="unseen")


def _longer(data: str, short: Trial) -> Trial:
    """The same with the settings it chose, for more iterations."""
    left_out = ("tuning_iterations", "watch")
    settings = {name: value for name, value in short.settings.items() if name not in left_out}
    settings |= {"iterations": str(TIMES * int(settings["iterations"])), "tuned": short.name}
    name = short.name.replace(f"lu2019-{data}-", f"lu2019-{data}-longer-")
    return Trial(name, data, settings, figure=short.figure, seeds=1, method=short.method)


def floors(data: str) -> tuple[Trial, ...]:
    """Embeddings of a data set without training: pixels, an untrained network, and a pretrained one."""
    shared = SETS[data].settings
    fresh = {name: value for name, value in shared.items() if name not in ("network.weights", "network.statistics")}
    kinds: dict[str, tuple[Settings, int]] = {"pixels": (fresh, 1), "untrained": (fresh, 3)}
    if SETS[data].pretrained:
        kinds |= {"pretrained": (shared, 1), "projected": (shared, 1)}
    return tuple(
        Trial(f"lu2019-{data}-floor-{kind}", data, {**settings, "floor": kind}, figure="precision@1", seeds=seeds, method="unseen")
        for kind, (settings, seeds) in kinds.items()
    )


def _trials(data: str) -> tuple[Trial, ...]:
    """In the order of importance: where time is short, the first are run."""
    if data in NOT_RUN:
        return (*floors(data), *(_trial(data, "11", name, loss) for name, loss in {**TABLE_1, **OURS}.items()))
    first = {**{name: OURS[name] for name in ("prec5-printed", "prec5-released")}, **TABLE_1, **OURS, **OTHERS}
    found = (
        *floors(data),
        *(_trial(data, "11", name, loss) for name, loss in first.items()),
        Trial(f"lu2019-{data}-ensemble", data, {"ensemble": f"lu2019-{data}-11-"}, figure="precision@1", method="unseen"),
        *(_trial(data, "any", name, loss) for name, loss in WITH_VECTORS.items()),
        *(_trial(data, "2", name, loss) for name, loss in TABLE_1.items()),
        *(_trial(data, "11", name, loss) for name, loss in MARGINS.items()),
    )
    longer = [f"lu2019-{data}-{name}" for name in LONGER.get(data, ())]
    return (*found, *(_longer(data, trial) for trial in found if trial.name in longer))


TRIALS = tuple(trial for data in SETS for trial in _trials(data))
