"""Table 1 of [lu2019sampling] under one protocol: is optimizing Prec@k better than other samplings and losses, all else being equal?

Three protocols on unseen classes. "11 per class": every loss gets the same network, batches of 64 with 11 images a class, augmentation,
iterations, Adam, and four tuning runs of half the length on held-out training classes: two learning rates times two values of the loss's
own setting, or four rates where nothing else is tuned. "Uniform batches" for losses with class vectors, which batches of six classes
starve. "The document's": its baselines had 2 images a class, its own loss 11.

CUB-200-2011: classes 1-100 train, 101-200 test, 128 px (random 112 of it), MobileNetV2 pretrained on ImageNet, whose batch normalization
keeps its statistics (a batch of six classes has others than the test). Omniglot: 30 background alphabets train, 20 evaluation alphabets
test, 28 px. CIFAR-100: training images of the first 50 classes train, test images of the other 50 test, 32 px. Cars and Online Products
are set up and not run: their printed rows, whose baselines had 2 images a class, stand beside the first protocol, and the printed NMI and
F1 of Online Products are over its 12 super-categories, ours would be over its classes.

N-pair alone trains without unit length, which its own norm penalty replaces; all are compared by cosine. The memory of 10,000 is larger
than CUB's training part, of which it then holds some images twice; no image is asked about itself. An ensemble is made of the two rows
with 11 images a class that did best on held-out training classes; those of a fixed margin, which are one loss many times, are not asked. A
last table of each asks whether longer trainings answer otherwise: both forms of Prec@5 and, on held-out training classes, the best of
table 1 with 11 images a class, with 2, and the best with class vectors; with the settings that they chose before, one seed.

The protocols of CUB (statistics of batch normalization) and CIFAR-100 (rates) were changed after a look at figures of the test classes,
for all rows alike and by held-out training classes; [the log](log.md) says how.

Floors: what was there before. The pretrained network untouched is its features before the head, also projected to as many dimensions as
the models have. The untrained network has seen the training images once, for the statistics of its batch normalization alone.
"""

from collections.abc import Mapping
from typing import NamedTuple

from nearkin.models.mobilenet import LAST
from nearkin.train.config import Run
from papers.cell import Cell, Settings, Trial
from papers.lu2019_printed import PRINTED

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
    """A data set: what its tables say of it, and what all its trials share."""

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
    """A row: its settings, and the two values of its own setting between which it is tuned."""

    row: str
    settings: Settings
    tuned: str
    values: tuple[str, ...]


_OWN = "objective.options."
_MARGIN, _MARGINS = f"{_OWN}margin", ("0.1", "0.3")
_SPREAD = str(0.1 / 6)  # released: 0.1 beside the SUM over the classes of a batch, six of them; a training here takes their mean


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

NOT_RUN = ("cars", "products")  # set up for whoever has them: the first protocol alone


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
        tune = {"optimizer.learning_rate": shared.rates}  # without a setting of its own: four rates, so four runs like everybody
    else:
        tune = {"optimizer.learning_rate": shared.rates[1::2], loss.tuned: loss.values}
    return Trial(f"lu2019-{data}-{batches}-{name}", data, settings, tune, figure="precision@1", method="unseen")


def _longer(data: str, short: Trial) -> Trial:
    """The same with what it chose, for more iterations."""
    left_out = ("tuning_iterations", "watch")
    settings = {name: value for name, value in short.settings.items() if name not in left_out}
    settings |= {"iterations": str(TIMES * int(settings["iterations"])), "tuned": short.name}
    name = short.name.replace(f"lu2019-{data}-", f"lu2019-{data}-longer-")
    return Trial(name, data, settings, figure=short.figure, seeds=1, method=short.method)


def _floors(data: str) -> tuple[Trial, ...]:
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
    """In the order in which they are worth running."""
    if data in NOT_RUN:
        return (*_floors(data), *(_trial(data, "11", name, loss) for name, loss in {**TABLE_1, **OURS}.items()))
    first = {**{name: OURS[name] for name in ("prec5-printed", "prec5-released")}, **TABLE_1, **OURS, **OTHERS}
    found = (
        *_floors(data),
        *(_trial(data, "11", name, loss) for name, loss in first.items()),
        Trial(f"lu2019-{data}-ensemble", data, {"ensemble": f"lu2019-{data}-11-"}, figure="precision@1", method="unseen"),
        *(_trial(data, "any", name, loss) for name, loss in WITH_VECTORS.items()),
        *(_trial(data, "2", name, loss) for name, loss in TABLE_1.items()),
        *(_trial(data, "11", name, loss) for name, loss in MARGINS.items()),
    )
    longer = [f"lu2019-{data}-{name}" for name in LONGER.get(data, ())]
    return (*found, *(_longer(data, trial) for trial in found if trial.name in longer))


TRIALS = tuple(trial for data in SETS for trial in _trials(data))

COLUMNS: Mapping[str, str] = {
    "P@1": "precision@1",
    "P@3": "precision@3",
    "P@5": "precision@5",
    "P@10": "precision@10",
    "R@3": "recall@3",
    "R@5": "recall@5",
    "R@10": "recall@10",
    "NMI": "nmi",
    "mAP": "map",
    "F1": "pairwise_f1",
    "AMI": "ami",
    "MAP@R": "map@r",
}
SECONDS, ACTIVE = "s / 1,000 it.", "active / it."
_PROTOCOLS = {
    "11": "one protocol, 11 per class",
    "any": "uniform batches for losses with class vectors",
    "2": "the document's protocol, 2 per class for its baselines and 11 for Prec@5 as released",
    "longer": f"{TIMES} times as many iterations",
}
BATCHES = {"11": "11 images a class", "any": "uniform batches", "2": "2 images a class"}
_FLOORS = {
    "pixels": "Raw pixels",
    "untrained": "Untrained network",
    "pretrained": f"Pretrained network untouched ({LAST:,} dimensions)",
    "projected": "Pretrained network untouched, PCA of the training part (as many dimensions as the models)",
}


def protocol() -> list[str]:
    """How the tables were made, in paragraphs and lines of a table, for the page that shows them."""
    heads = ("data set", "network", "dimensions", "augmentation", "precision", "iterations (tuning)", "two rates", "or four")
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, *map(_shared, SETS.values()))]
    return [*str(__doc__).strip().split("\n\n")[1:], lines[0], "|" + "---|" * len(heads), *lines[1:]]


def _shared(one: Setting) -> tuple[str, ...]:
    """What all rows of a data set have in common."""
    leaves, plain = one.settings, Run()
    maps = leaves.get("network.options.widths", "").strip("[]")
    network = f"convnet of {maps} maps, then {leaves['network.options.hidden']}" if maps else f"{leaves['network.name']}, pretrained"
    dimension = leaves.get("network.dimension", str(plain.network.dimension))
    precision = leaves.get("precision", plain.precision)
    length = f"{int(leaves['iterations']):,} ({int(leaves['tuning_iterations']):,})"
    rates = (", ".join(some) for some in (one.rates[1::2], one.rates))
    return one.title.partition(",")[0], network, dimension, leaves["augment.name"], precision, length, *rates


def table_name(data: str, batches: str) -> str:
    """The heading of a table."""
    return f"[lu2019sampling] table 1 on {SETS[data].title}: {_PROTOCOLS[batches]}"


def _row(table: str, row: str, trial: str, printed: tuple[float, ...] | None = None, timed: bool = True) -> tuple[Cell, ...]:
    figures = dict(zip(COLUMNS, printed or (), strict=False))
    cells = [Cell(table, row, figures.get(head), "accuracy %", trial, name, head, wide=True) for head, name in COLUMNS.items()]
    if timed:
        cells.append(Cell(table, row, None, "seconds", trial, "seconds per 1,000", SECONDS, wide=True))
        cells.append(Cell(table, row, None, "pairs", trial, "active per iteration", ACTIVE, wide=True))
    return tuple(cells)


def _cells(data: str) -> tuple[Cell, ...]:
    """One protocol with its floors and the ensemble, then the other two; Cars and Online Products have no protocol but the first."""
    main, start = table_name(data, "11"), f"lu2019-{data}"
    found: list[Cell] = []
    for trial in _floors(data):
        kind = trial.settings["floor"]
        found += _row(main, _FLOORS[kind], trial.name, timed=False)
    printed = PRINTED.get(data, {}) if data != "cub" else {}
    rows = {**TABLE_1, **OURS} if data in NOT_RUN else {**TABLE_1, **OURS, **MARGINS, **OTHERS}
    for name, loss in rows.items():
        found += _row(main, loss.row, f"{start}-11-{name}", printed.get(name))
    if data in NOT_RUN:
        return tuple(found)
    found += _row(main, "The two best on held-out training classes, side by side (128 dimensions)", f"{start}-ensemble", timed=False)
    for name, loss in WITH_VECTORS.items():
        found += _row(table_name(data, "any"), loss.row, f"{start}-any-{name}")
    printed = PRINTED.get(data, {}) if data == "cub" else {}
    for name, loss in TABLE_1.items():
        found += _row(table_name(data, "2"), loss.row, f"{start}-2-{name}", printed.get(name))
    released = OURS["prec5-released"].row
    found += _row(table_name(data, "2"), released, f"{start}-11-prec5-released", printed.get("prec5-released"))
    for name in LONGER.get(data, ()):
        batches, _, loss_name = name.partition("-")
        row = {**TABLE_1, **OURS, **WITH_VECTORS}[loss_name].row
        found += _row(table_name(data, "longer"), row if batches == "11" else f"{row}, {BATCHES[batches]}", f"{start}-longer-{name}")
    return tuple(found)


CELLS = tuple(cell for data in SETS for cell in _cells(data))
