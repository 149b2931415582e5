"""The trainings behind the tables and figures of [hao2018anchor]."""

from papers.cell import Settings, Trial

COMMON = {
    "batch_size": "256",
    "precision": "bfloat16",
    "optimizer.learning_rate": "0.1",
    "optimizer.weight_decay": "5e-4",
    "preprocess.options.per_channel": "false",
    "schedule.name": "cosine",
}
DATA: dict[str, tuple[str, Settings]] = {
    "mnist": ("mnist", {"network.name": "hao2018-mnist", "network.dimension": "256", "epochs": "20"}),
    "cifar10": ("cifar10", {"network.name": "hao2018-cifar10", "network.dimension": "256", "epochs": "90", "compile": "true"}),
    "cifar10+": (
        "cifar10",
        {"network.name": "hao2018-cifar10", "network.dimension": "256", "epochs": "90", "compile": "true", "augment.name": "crop_flip"},
    ),
    "cifar10+-long": (
        "cifar10",
        {"network.name": "hao2018-cifar10", "network.dimension": "256", "epochs": "270", "compile": "true", "augment.name": "crop_flip"},
    ),
    "cifar10+-plateau": (
        "cifar10",
        {
            "network.name": "hao2018-cifar10",
            "network.dimension": "256",
            "epochs": "90",
            "compile": "true",
            "augment.name": "crop_flip",
            "schedule.name": "plateau",
            "schedule.warmup": "0.02",
            "schedule.patience": "3",
            "optimizer.nesterov": "false",
        },
    ),
    "cifar100": ("cifar100", {"network.name": "hao2018-cifar100", "network.dimension": "512", "epochs": "45", "compile": "true"}),
    "cifar100-long": ("cifar100", {"network.name": "hao2018-cifar100", "network.dimension": "512", "epochs": "90", "compile": "true"}),
    "cifar100+": (
        "cifar100",
        {"network.name": "hao2018-cifar100", "network.dimension": "512", "epochs": "60", "compile": "true", "augment.name": "crop_flip"},
    ),
}
IMAGES = {"mnist": 60_000, "cifar10": 50_000, "cifar100": 50_000}  # to train on
LARGE: dict[int, Settings] = {m: {"objective.name": "large_margin_softmax", "objective.options.m": str(m)} for m in (2, 3, 4)}
_PRINTED = {"objective.name": "nearest_class_mean", "objective.options.scale": "1.0"}  # our default scale is larger
_LOSSES: dict[str, Settings] = {
    "softmax": {"objective.name": "softmax"},
    "hinge": {"objective.name": "hinge"},
    "hinge-gentle": {"objective.name": "hinge", "optimizer.learning_rate": "0.01"},
    "hinge-every": {"objective.name": "hinge", "objective.options.form": "weston-watkins"},
    "hinge-rest": {"objective.name": "hinge", "objective.options.form": "one-vs-rest", "optimizer.learning_rate": "0.01"},
    **{f"l-softmax-{m}": settings for m, settings in LARGE.items()},
    **{f"l-softmax-{m}-sooner": {**settings, "objective.options.gamma": "1e-4"} for m, settings in LARGE.items()},
    "c-ncm": {**_PRINTED, "objective.options.metric": "cosine"},
    "e-ncm": _PRINTED,
    "center": {"objective.name": "center_loss"},
    "pull": {"objective.name": "center_pull"},
    "e-ncm-simplex": {**_PRINTED, "objective.options.anchors": "simplex"},
    "e-ncm-length-10": {**_PRINTED, "objective.options.length": "10.0"},
    "c-ncm-scale-10": {**_PRINTED, "objective.options.metric": "cosine", "objective.options.scale": "10.0"},
}
DROPOUT = ("0.0", "0.1", "0.25", "0.5")
SEEDS = 3  # of every row: a training takes minutes
ROW = {
    "softmax": "SoftMax",
    "hinge": "Hinge",
    "hinge-gentle": "Hinge, rate 0.01",
    "hinge-every": "Hinge, mean over all other classes",
    "hinge-rest": "Hinge, one class against the rest, rate 0.01",
    **{f"l-softmax-{m}": f"L-Softmax, m = {m}" for m in LARGE},
    **{f"l-softmax-{m}-sooner": f"L-Softmax, m = {m}, margin in sooner" for m in LARGE},
    "c-ncm": "C-NCM",
    "e-ncm": "E-NCM",
    "e-ncm-simplex": "E-NCM, simplex anchors",
    "e-ncm-length-10": "E-NCM, anchors of length 10",
    "c-ncm-scale-10": "C-NCM, distances times 10",
}


def trial_name(data: str, loss: str, dropout: str) -> str:
    """The name of a trial of tables 2 and 3."""
    return f"hao2018-{data.replace('+', 'plus')}-{loss}-p{dropout}"


def _trial(data: str, loss: str, dropout: str) -> Trial:
    source, settings = DATA[data]
    merged = {**COMMON, **settings, **_LOSSES[loss], "network.options.dropout": dropout}
    return Trial(trial_name(data, loss, dropout), source, merged, figure="class vectors", seeds=SEEDS)


def _flat(loss: str) -> Trial:
    settings = {**COMMON, "network.name": "hao2018-mnist-2d", "network.dimension": "2", "epochs": "20", **_LOSSES[loss]}
    if loss.endswith("ncm"):
        settings["objective.options.anchors"] = "circle"
    return Trial(f"hao2018-mnist-2d-{loss}", "mnist", settings, figure="class vectors", seeds=2, keep="map")


def _converging(loss: str) -> Trial:
    """Ten epochs of the MNIST network, measured every epoch on a tenth of the training part."""
    settings = {**COMMON, **DATA["mnist"][1], "epochs": "10", "validate_every": "1", "network.options.dropout": "0.0", **_LOSSES[loss]}
    return Trial(f"hao2018-mnist-curve-{loss}", "mnist", settings, figure="class vectors", seeds=1, keep="curve")


# In the order of importance: where time is short, the first are run.
_PLAN: tuple[tuple[str, str, str], ...] = (
    *(("cifar100", loss, "0.0") for loss in ("e-ncm", "softmax", "c-ncm")),
    *((data, loss, "0.1") for data in ("cifar10", "cifar10+", "mnist", "cifar100") for loss in ("e-ncm", "softmax", "c-ncm")),
    ("cifar100+", "e-ncm", "0.1"),
    *(("mnist", loss, "0.1") for loss in ("hinge", "l-softmax-2", "l-softmax-3", "l-softmax-4", "e-ncm-simplex", "e-ncm-length-10")),
    *((data, loss, "0.0") for data in ("cifar10", "cifar10+") for loss in ("e-ncm", "softmax", "c-ncm")),
    ("cifar10+-long", "e-ncm", "0.1"),
    *((data, loss, "0.1") for data in ("cifar10", "cifar10+", "cifar100") for loss in ("hinge", "l-softmax-4")),
    *(("cifar100", loss, "0.1") for loss in ("hinge-every", "hinge-gentle", "hinge-rest")),
    *((data, f"l-softmax-{m}-sooner", "0.1") for data in ("mnist", "cifar100") for m in LARGE),
    *(("cifar100", loss, "0.1") for loss in ("e-ncm-simplex", "e-ncm-length-10", "c-ncm-scale-10")),
    *((data, loss, p) for p in ("0.25", "0.5") for data in ("cifar10", "cifar10+", "cifar100") for loss in ("e-ncm", "softmax", "c-ncm")),
    *(("cifar10+-plateau", loss, "0.1") for loss in ("e-ncm", "softmax", "c-ncm")),
    *(("cifar100-long", loss, "0.1") for loss in ("e-ncm", "softmax", "c-ncm")),
    *((data, loss, "0.1") for loss in ("l-softmax-2", "l-softmax-3") for data in ("cifar10", "cifar10+", "cifar100")),
)
TRIALS = (
    *(_flat(loss) for loss in ("softmax", "c-ncm", "e-ncm", "center", "pull")),
    *(_converging(loss) for loss in ("softmax", "c-ncm", "e-ncm")),
    *(_trial(*one) for one in _PLAN),
)
