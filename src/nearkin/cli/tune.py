"""`nearkin tune`: search for settings of a table on its validation part, then train with the best."""

from argparse import Namespace
from pathlib import Path

import torch

from nearkin.cli.early_checks import parse_settings
from nearkin.cli.progress import TrainingView
from nearkin.cli.train import next_commands, print_results
from nearkin.data.checksums import write_json
from nearkin.train.assemble import cut
from nearkin.train.config import Run, override
from nearkin.train.folder import check_folder, opened, rooted
from nearkin.train.row_search import search
from nearkin.train.training import train


def run(arguments: Namespace) -> int:
    """Search, train, print the results on the test part."""
    folder = Path(arguments.out)
    check_folder(folder, resume=False)
    named = {
        "data.source": arguments.data,
        "data.label_column": arguments.label,
        "data.ignore_columns": arguments.ignore,
        "data.keep_columns": arguments.keep,
        "data.category_columns": arguments.category,
        "seed": arguments.seed,
    }
    settings = {name: str(value) for name, value in named.items() if value is not None} | parse_settings(arguments.set)
    device = torch.device(arguments.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    with TrainingView("tuning") as view:
        plain, source = opened(rooted(override(Run(), settings), None), None, view, settings)
        if source.table is None:
            raise ValueError(f"nearkin tune is for tables whose rows are the points, and {arguments.data} is none; use `nearkin train`")
        chosen, trials = search(plain, cut(plain, source), arguments.trials, device, view)
        metrics = train(chosen, folder, data=source, reporter=view, device=device)
    write_json(folder / "tune.json", [{"settings": one.settings, "validation loss": one.loss} for one in trials])
    print_results(folder, metrics, next_commands(folder, chosen.data.source))
    return 0
