"""The recipe of `nearkin train --for retrieval`, generated from the runs of table 1 of [lu2019sampling].

It is the best row on held-out training classes of all three data sets. From scratch it has the settings tuned on CIFAR-100, with
pretrained weights those tuned on CUB-200-2011, and it trains for at least as many steps as there. For a folder of images it adds the sizes
and the augmentation of those sets.
"""

import json
from pathlib import Path
from typing import Any

from papers.cell import Settings
from papers.ledger import Ledger
from papers.lu2019 import BATCHES, CELLS
from papers.lu2019_rows import SINGLE, by_set, plain_title
from papers.lu2019_summary import PRETRAINED, SCRATCH, counted, enough, ranked
from papers.lu2019_trials import SETS, TRIALS
from papers.tables import verdicts
from papers.unseen import TASKS

_SHARED = ("objective.", "sampler.", "optimizer.", "batch_size", "network.normalize")
_START = ("network.rate", "network.statistics", "preprocess.name")
_SIZED = ("preprocess.options.crop", "augment.name", "augment.options.size")


def measured(results: Path) -> dict[str, Any]:
    """The recipe of the row that did best on held-out training classes."""
    sets = counted(by_set(verdicts(CELLS, results)))
    if not enough(sets):
        names = ", ".join(map(plain_title, (PRETRAINED, *SCRATCH)))
        raise ValueError(f"{results} does not hold half the rows on each of {names}; run `python -m papers lu2019` first")
    name, trials = ranked(sets)[0], {trial.name: trial for trial in TRIALS}
    pretrained, fresh = (Ledger.read(results, trials[f"lu2019-{data}-{name}"]).chosen for data in (PRETRAINED, SCRATCH[0]))
    where = ", ".join(plain_title(data) for data in sets)
    return recipe(
        name, fresh, pretrained, f"docs/papers/lu2019.md, table 1 of Lu et al.: the best row on held-out training classes of {where}"
    )


def recipe(name: str, fresh: Settings, pretrained: Settings, source: str) -> dict[str, Any]:
    """Leaves of a row by batches and name, with the settings tuned from scratch and with pretrained weights."""
    settings = next(trial.settings for trial in TRIALS if trial.name == f"lu2019-{PRETRAINED}-{name}")
    shared = {leaf: value for leaf, value in settings.items() if leaf.startswith(_SHARED)}
    length = "unit length" if settings["network.normalize"] == "true" else "no unit length"
    batches = BATCHES[name.partition("-")[0]]
    return {
        "row": name,
        "words": f"{SINGLE[name].row}, batches of {settings['batch_size']}, {batches}, {length}, {settings['optimizer.name'].capitalize()}",
        "source": source,
        "settings": {**shared, **fresh, "least_steps": SETS[SCRATCH[0]].settings["iterations"], "data.split": "classes"},
        "folder": {"data.size": str(TASKS[PRETRAINED].size), "augment.name": SETS[SCRATCH[0]].settings["augment.name"]},
        "pretrained": {**{leaf: settings[leaf] for leaf in _START}, **pretrained, "least_steps": settings["iterations"]},
        "pretrained_folder": {leaf: settings[leaf] for leaf in _SIZED},
    }


def write(results: Path, path: Path) -> Path:
    """The recipe as the JSON that the package reads."""
    path.write_text(json.dumps(measured(results), indent=1) + "\n", encoding="utf-8")
    return path
