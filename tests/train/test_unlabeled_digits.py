"""Digits moved about a 16 x 16 canvas, without labels: discovery must find neighbors that raw pixels cannot."""

import numpy as np
import pytest
import torch

from nearkin.compose.affinity import cosine
from nearkin.compose.points import Points
from nearkin.data import Dataset
from nearkin.data.digits import moved_digits
from nearkin.evaluate import weighted_knn_predict
from nearkin.train.config import Run, override
from nearkin.train.training import train
from papers.after_training import voted

SETTINGS = {
    "network.name": "convnet",
    "network.dimension": "32",
    "objective.name": "neighborhood_discovery",
    "augment.name": "affine",
    "augment.options.translate": "0.25",
    "optimizer.name": "adam",
    "optimizer.learning_rate": "0.003",
    "optimizer.weight_decay": "0",
    "batch_size": "64",
    "validate_every": "1000",
    "checkpoint_seconds": "1e9",
    "data.validation": "0",
}
AHEAD = 0.15  # of raw pixels, at least
EACH_OF_FIVE = {"objective.options.quantifier": "each", "objective.options.k": "5"}


def moved(seed):
    split = moved_digits(seed=seed)
    pixels = (255 * torch.cat([part.images for part in split])).round().to(torch.uint8)
    labels = torch.cat([part.labels for part in split])
    names = np.array(["train"] * len(split.train.labels) + ["test"] * len(split.test.labels))
    return Dataset("moved digits", pixels, labels=labels, classes=tuple("0123456789"), split=names, by="ids")


def raw_pixels(data):
    """The weighted vote of the 200 nearest by pixels, at the better of the printed and the released temperature."""
    train_part, test = data.part("train"), data.part("test")
    known, queries = (part.inputs.flatten(1).float() for part in (train_part, test))
    votes = [weighted_knn_predict(queries, Points(known, train_part.labels), 200, cosine(heat)) for heat in (0.07, 0.1)]
    return max(float((vote == test.labels).double().mean()) for vote in votes)


def learned(folder, data, seed, epochs, **more):
    run = override(Run(), {**SETTINGS, "seed": str(seed), "epochs": str(epochs), **more})
    return train(run, folder, data=data, device="cpu")["test"]["weighted-nn"]


@pytest.mark.soak
def test_discovery_beats_raw_pixels(tmp_path):
    data = moved(0)
    assert learned(tmp_path / "m", data, 0, epochs=20) >= raw_pixels(data) + AHEAD


@pytest.mark.soak
def test_discovery_beats_raw_pixels_over_three_seeds(tmp_path):
    sets = [moved(seed) for seed in range(3)]
    found = [learned(tmp_path / str(seed), data, seed, epochs=30) for seed, data in enumerate(sets)]
    assert np.mean(found) >= np.mean([raw_pixels(data) for data in sets]) + AHEAD
    assert np.mean(found) >= 0.69 + AHEAD  # the nearest neighbor by pixels alone is right in about 69 %


def few(folder, data, seed, share, **more):
    """Where only a share of the points votes: an embedding that was learned without their labels."""
    learned(folder, data, seed, epochs=30, **more)
    return voted(folder, data, (share,), seed, "cpu")[f"weighted-nn of {share}"]


@pytest.mark.soak
@pytest.mark.parametrize("more", [{}, EACH_OF_FIVE], ids=["any", "each"])
def test_a_tenth_of_the_labels_helps_if_only_those_vote(tmp_path, more):
    """Against the same training without them, or the gain would be that of the other settings, too."""
    gained = []
    for seed in range(3):
        data = moved(seed)
        used = learned(tmp_path / f"used-{seed}", data, seed, epochs=30, **more, **{"discovery.labeled": "0.1"})
        gained.append(used - few(tmp_path / f"alone-{seed}", data, seed, "0.1", **more))
    assert np.mean(gained) >= 0.01, gained


@pytest.mark.soak
def test_each_of_five_neighbors_helps_if_a_fiftieth_votes(tmp_path):
    gained = []
    for seed in range(3):
        data = moved(seed)
        plain = few(tmp_path / f"any-{seed}", data, seed, "0.02")
        gained.append(few(tmp_path / f"each-{seed}", data, seed, "0.02", **EACH_OF_FIVE) - plain)
    assert np.mean(gained) >= 0.02, gained
