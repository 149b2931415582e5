"""The trainings and fits behind the tables of [ren2014convolutional]."""

from collections.abc import Mapping
from dataclasses import replace

from papers.cell import Keep, Settings, Trial

Candidates = Mapping[str, tuple[str, ...]]

_RATES = {"optimizer.learning_rate": ("0.1", "0.3")}
_UNMOVED = {"optimizer.learning_rate": ("0.05", "0.1"), "optimizer.clip": ("0.0", "1.0"), "optimizer.weight_decay": ("1e-4", "1e-3")}
_COOLER = {"objective.options.temperature": ("0.25", "1.0")}
_CHOSEN = {"epochs": ("20", "40"), **_COOLER}
_WIDER = {  # around 20 epochs at 0.25, the choice among those above, which lay on their edge
    "epochs": ("12", "20"),
    "objective.options.temperature": ("0.1", "0.25"),
    "network.options.pooling": ("floor", "ceil"),
}
_SMALLER = {  # more noise and more decay against the overfitting that is left
    "batch_size": ("100", "250"),
    "optimizer.weight_decay": ("1e-3", "4e-3"),
    "objective.options.temperature": ("0.1", "0.25"),
    "epochs": ("12", "20"),
}
_DECAYS = {"optimizer.weight_decay": ("1e-4", "5e-4", "1e-3")}  # for long trainings
_COMMON = {
    "batch_size": "1000",
    "schedule.name": "one_cycle",
    "precision": "bfloat16",
    "optimizer.weight_decay": "1e-4",
    "optimizer.clip": "1.0",  # without it the softmax rows diverged in some seeds at either rate
}
_MNIST: Settings = {**_COMMON, "network.name": "ren2014-mnist", "network.dimension": "64", "epochs": "20"}
_CIFAR: Settings = {**_COMMON, "network.name": "ren2014-cifar", "network.dimension": "100", "epochs": "60"}
_LOG = {"objective.name": "nca"}
_EXPECTED = {"objective.name": "nca", "objective.options.form": "expected"}
_SOFTMAX = {"objective.name": "softmax"}
_SHIFT = {"augment.name": "shift"}
_AFFINE = {"augment.name": "affine", "epochs": "120", "batch_size": "500"}
_CROP = {"augment.name": "crop_flip", "epochs": "100"}
_CEIL = {"network.options.pooling": "ceil"}
_HALF = {"batch_size": "500"}
_LONG = {"optimizer.learning_rate": "0.1"}
_GENTLE = {"optimizer.learning_rate": "0.05", "optimizer.clip": "0.0"}  # what tuning chooses for the log form without augmentation


def _by_rule(trial: Trial) -> Trial:
    """The same with the first rate of the rate finder."""
    return replace(trial, find_rate=True)


def _mnist(name: str, *settings: Settings, tune: Candidates = _RATES, figure: str = "1-nn", seeds: int = 3, keep: Keep = "") -> Trial:
    merged: dict[str, str] = dict(_MNIST)
    for one in settings:
        merged |= one
    return Trial(f"ren2014-mnist-{name}", "mnist", merged, tune, figure=figure, seeds=seeds, keep=keep)


def _cifar(
    name: str,
    *settings: Settings,
    tune: Candidates = _RATES,
    tuning_epochs: int = 20,
    figure: str = "1-nn",
    seeds: int = 3,
    keep: Keep = "",
) -> Trial:
    merged: dict[str, str] = dict(_CIFAR)
    for one in settings:
        merged |= one
    return Trial(f"ren2014-cifar-{name}", "cifar10", merged, tune, tuning_epochs=tuning_epochs, figure=figure, seeds=seeds, keep=keep)


_FLAT = {"network.dimension": "2"}
WHOLE = {"references": "training_set", "epochs": "150", "schedule.name": "cosine", "optimizer.learning_rate": "0.3"}
_SOME = {"first": "50", "fitted": "10000", "iterations": "30"}
FEWER = f"fitted on {int(_SOME['fitted']):,} images, {_SOME['iterations']} iterations after PCA to {_SOME['first']}"
LMNN = {"dimension": "50", "first": "50", "iterations": "50"}
_RULE: Settings = {  # the paper's own: no warm-up, decay or clipping
    "optimizer.nesterov": "false",
    "optimizer.weight_decay": "0.0",
    "optimizer.clip": "0.0",
    "schedule.name": "plateau",
    "schedule.warmup": "0.0",
    "schedule.patience": "3",
    "validate_every": "1",
    "patience": "12",
    "epochs": "100",
}
_ALL: Settings = {  # linear NCA on every image
    "network.name": "linear",
    "network.dimension": "2",
    "references": "training_set",
    "epochs": "5",
    **_EXPECTED,
    "optimizer.name": "conjugate_gradient",
    "optimizer.iterations": "20",
    "optimizer.weight_decay": "0.0",
    "precision": "float32",
    "optimizer.clip": "0.0",
    "schedule.name": "constant",
}
ALL = f"{int(_ALL['epochs']) * int(_ALL['optimizer.iterations'])} line searches of conjugate gradient on standardized pixels"
_FAST_MNIST = {"epochs": "8", "optimizer.learning_rate": "0.3", **_SHIFT, **_LOG}
_FAST_CIFAR = {"epochs": "28", "optimizer.learning_rate": "0.1", "augment.name": "crop_flip", **_LOG}
FAST: dict[str, Settings] = {"mnist": {**_MNIST, **_FAST_MNIST}, "cifar10": {**_CIFAR, **_FAST_CIFAR}}  # seconds on a large GPU

TRIALS = (
    Trial("ren2014-mnist-raw", "mnist", method="raw", seeds=1),
    Trial("ren2014-mnist-raw-deskewed", "mnist", {"deskew": "true"}, method="raw", seeds=1),
    Trial("ren2014-mnist-pca-50", "mnist", {"dimension": "50"}, method="pca", seeds=1),
    _mnist("softmax", _SOFTMAX),
    _mnist("nca-log", _LOG, keep="filters"),
    _mnist("nca-expected", _EXPECTED),
    _mnist("nca-log-same-batches", _LOG, {"sampler.options.reshuffle": "false"}, seeds=2),
    _mnist("softmax-shift", _SOFTMAX, _SHIFT),
    _mnist("nca-log-shift", _LOG, _SHIFT),
    _mnist("nca-expected-shift", _EXPECTED, _SHIFT, seeds=2),
    _mnist("nca-beyond", _LOG, {"augment.name": "affine", "epochs": "80"}),
    _mnist("nca-decay", _LOG, _LONG, _AFFINE, tune=_DECAYS),
    _mnist("nca-cooler", _LOG, _LONG, _AFFINE, tune={**_COOLER, "optimizer.weight_decay": ("1e-3", "3e-3")}, figure="10-nn"),
    _mnist("nca-2d", _LOG, _FLAT, keep="map"),
    _mnist("softmax-2d", _SOFTMAX, _FLAT),
    _mnist("nca-whole-set", _LOG, WHOLE, tune={}, seeds=1),
    _mnist("fast", _FAST_MNIST, tune={}),
    _mnist("fast-uncaptured", _FAST_MNIST, {"capture": "false"}, tune={}),
    _mnist("fast-compiled", _FAST_MNIST, {"compile": "true"}, tune={}),
    *(
        Trial(f"ren2014-mnist-{name}-2d", "mnist", {"dimension": "2", **more}, method=name, seeds=1, keep="map")
        for name, more in (
            ("pca", {}),
            ("ppca", {"first": "100"}),
            ("lda", {}),
            ("lmnn", _SOME),
            ("linear_nca", _SOME),
        )
    ),
    *(
        _by_rule(_mnist(f"rule-{name}", loss, _RULE, tune={}))
        for name, loss in (("softmax", _SOFTMAX), ("nca-log", _LOG), ("nca-expected", _EXPECTED))
    ),
    *(
        _by_rule(_cifar(f"rule-{name}", loss, _HALF, _RULE, tune={}, tuning_epochs=0))
        for name, loss in (("softmax", _SOFTMAX), ("nca-log", _LOG), ("nca-expected", _EXPECTED))
    ),
    _mnist("linear_nca-2d-all", _ALL, tune={}),
    Trial("ren2014-mnist-lmnn", "mnist", LMNN, method="lmnn", seeds=1),
    Trial("ren2014-mnist-lmnn-deskewed", "mnist", {**LMNN, "deskew": "true"}, method="lmnn", seeds=1),
    Trial("ren2014-mnist-lmnn-fewer", "mnist", {**LMNN, "fitted": "10000"}, method="lmnn", seeds=1),
    _cifar("softmax", _SOFTMAX, _HALF, tune=_UNMOVED),
    _cifar("nca-log", _LOG, _HALF, tune=_UNMOVED),
    _cifar("nca-expected", _EXPECTED, _HALF, {"objective.options.temperature": "10.0"}, tune=_UNMOVED),
    _cifar("nca-chosen", _LOG, _HALF, _GENTLE, tune=_CHOSEN, tuning_epochs=0, figure="10-nn"),
    _cifar("nca-wider", _LOG, _HALF, _GENTLE, tune=_WIDER, tuning_epochs=0, figure="10-nn"),
    _cifar("nca-smaller", _LOG, _GENTLE, _CEIL, tune=_SMALLER, tuning_epochs=0, figure="10-nn"),
    _cifar("softmax-crop", _SOFTMAX, _CROP),
    _cifar("nca-log-crop", _LOG, _CROP, keep="filters"),
    _cifar("nca-beyond", _LOG, _CROP, {"epochs": "300", **_CEIL}, seeds=2),
    _cifar("nca-decay", _LOG, _CROP, _LONG, {"epochs": "300", **_CEIL}, tune=_DECAYS, tuning_epochs=60, seeds=2),
    _cifar(
        "nca-settled",
        _LOG,
        _CROP,
        _LONG,
        {"epochs": "600", **_CEIL},
        tune={**_COOLER, "optimizer.weight_decay": ("1e-4", "5e-4")},
        tuning_epochs=300,
        figure="10-nn",
        seeds=2,
    ),
    _cifar("fast", _FAST_CIFAR, tune={}, tuning_epochs=0),
    _cifar("fast-uncaptured", _FAST_CIFAR, {"capture": "false"}, tune={}, tuning_epochs=0),
    _cifar("fast-compiled", _FAST_CIFAR, {"compile": "true"}, tune={}, tuning_epochs=0),
)
