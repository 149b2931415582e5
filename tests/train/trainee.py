"""A small training that a test may run, kill and resume: `python tests/train/trainee.py FOLDER [resume]`."""

import sys
from pathlib import Path

import torch

from nearkin.data import open as open_data
from nearkin.train.config import Run, override
from nearkin.train.training import train

SETTINGS = {
    "data.source": "digits",
    "network.name": "mlp",
    "network.dimension": "8",
    "network.options.hidden": "[32]",
    "objective.name": "neighborhood_discovery",
    "augment.name": "shift",
    "optimizer.learning_rate": "0.05",
    "epochs": "6",
    "batch_size": "200",
    "checkpoint_seconds": "0",
    "seed": "3",
}


def run_it(folder: Path, resume: bool) -> None:
    torch.set_num_threads(1)
    digits = open_data("digits")
    train(override(Run(), SETTINGS), folder, data=digits, resume=resume, device="cpu")


if __name__ == "__main__":
    run_it(Path(sys.argv[1]), "resume" in sys.argv[2:])
