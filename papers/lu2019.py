"""Table 1 of [lu2019sampling] under one protocol: is optimizing Prec@k better than other samplings and losses, all else being equal?"""

from collections.abc import Mapping
from dataclasses import replace

from nearkin.models.mobilenet import LAST
from nearkin.train.config import Run
from papers.cell import Cell
from papers.lu2019_printed import PRINTED
from papers.lu2019_trials import LONGER, MARGINS, NOT_RUN, OTHERS, OURS, SETS, TABLE_1, TIMES, WITH_VECTORS, Setting, floors

ABOUT = (
    "Three protocols on unseen classes:",
    '- **"11 per class"**: every loss has the same network, batches of 64 with 11 images per class, augmentation, iterations, Adam, and '
    "four tuning runs of half the length on held-out classes: two learning rates times two values of the loss's own setting, or four "
    "rates where nothing else is tuned.",
    '- **"Uniform batches"** for losses with class vectors: batches of six classes give most class vectors no example.',
    '- **"The paper\'s batches"**: its baselines have 2 images per class, its own loss 11.',
    "Data sets:",
    "- **CUB-200-2011**: classes 1-100 train, 101-200 test, 128 px (random crops of 112), MobileNetV2 pretrained on ImageNet. Its batch "
    "normalization keeps its statistics, because those of a batch of six classes differ from those of the test.",
    "- **Omniglot**: 30 background alphabets train, 20 evaluation alphabets test, 28 px.",
    "- **CIFAR-100**: training images of the first 50 classes train, test images of the other 50 test, 32 px.",
    "- **Cars and Online Products** are set up and not run. Their printed rows stand next to the first protocol. The printed NMI and F1 of "
    "Online Products are over its 12 super-categories, ours would be over its classes.",
    "Rows:",
    "- **N-pair** trains without unit length, which its own norm penalty replaces. All rows are compared by cosine.",
    "- **The memory of 10,000** is larger than the training part of CUB, so it holds some images twice. No image is compared with itself.",
    "- **The ensemble** concatenates the two rows with 11 images per class that are best on held-out training classes. Rows with a fixed "
    "margin do not take part.",
    f"- **{TIMES} times as many iterations**: both forms of Prec@5 and, by held-out training classes, the best of table 1 with 11 images "
    "per class, with 2, and the best with class vectors; with the settings that their short trainings chose, one seed.",
    "- **Floors**: the pretrained network untouched is its features before the head, also projected to as many dimensions as the models "
    "have. The untrained network has processed the training images once, for the statistics of its batch normalization alone.",
    "- **Test figures had been seen** before two protocols were changed for all rows alike, by held-out training classes: on CUB the "
    "statistics of batch normalization, on CIFAR-100 the rates.",
    "The settings that all rows of a data set share:",
)
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
    "2": "the paper's batches, 2 per class for its baselines and 11 for Prec@5 as released",
    "longer": f"{TIMES} times as many iterations",
}
BATCHES = {"11": "11 images per class", "any": "uniform batches", "2": "2 images per class"}
_FLOORS = {
    "pixels": "Raw pixels",
    "untrained": "Untrained network",
    "pretrained": f"Pretrained network untouched ({LAST:,} dimensions)",
    "projected": "Pretrained network untouched, PCA of the training part (as many dimensions as the models)",
}


def protocol() -> list[str]:
    """The settings that the rows of a data set share, as lines of a table."""
    heads = ("data set", "network", "dimensions", "augmentation", "precision", "iterations (tuning)", "two rates", "or four")
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, *map(_shared, SETS.values()))]
    return [lines[0], "|" + "---|" * len(heads), *lines[1:]]


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
    """The first protocol with its floors and the ensemble, then the other two; Cars and Online Products have the first alone."""
    main, start = table_name(data, "11"), f"lu2019-{data}"
    found: list[Cell] = []
    for trial in floors(data):
        kind = trial.settings["floor"]
        found += _row(main, _FLOORS[kind], trial.name, timed=False)
    printed = PRINTED.get(data, {}) if data != "cub" else {}
    rows = {**TABLE_1, **OURS} if data in NOT_RUN else {**TABLE_1, **OURS, **MARGINS, **OTHERS}
    for name, loss in rows.items():
        found += _row(main, loss.row, f"{start}-11-{name}", printed.get(name))
    if data in NOT_RUN:
        return tuple(found)
    found += _row(main, "The two best on held-out training classes, concatenated (128 dimensions)", f"{start}-ensemble", timed=False)
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


AFTER_TEST = {  # by data set: how its protocol was changed after figures of the test classes had been seen
    "cub": "batch normalization keeps its statistics: changed after test figures had been seen, by held-out training classes",
    "cifar": "lower rates: changed after test figures had been seen, by held-out training classes",
}


def _after_test(cell: Cell) -> str:
    """Floors have no settings that were changed."""
    data = next((data for data in AFTER_TEST if str(cell.trial).startswith(f"lu2019-{data}-")), "")
    return "" if "-floor-" in str(cell.trial) else AFTER_TEST.get(data, "")


CELLS = tuple(replace(cell, after_test=_after_test(cell)) for data in SETS for cell in _cells(data))
