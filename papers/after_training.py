"""Figures of a training besides its test figures: images, rounds, the authors' protocol, linear probes, votes of a share."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nearkin.compose.points import Points
from nearkin.data import Dataset
from nearkin.data.preprocess import preprocessed
from nearkin.evaluate import linear_probes
from nearkin.models.folder import load
from nearkin.train.config import Run, override
from nearkin.train.rounds import labels_used
from nearkin.train.validate import weighted_accuracy
from papers.attention import encoded


def discovery_figures(metrics: dict[str, Any]) -> dict[str, float]:
    """Images processed, trusted points of every round of discovery and their purity, and the figure of the released protocol.

    "trusted" counts points, "consistent" and "inconsistent" pairs of a trusted point and a neighbor: with k = 1 these are points, too.
    """
    found = {"images": float(metrics["images"])} if "images" in metrics else {}
    if "released protocol" in metrics:
        found["released protocol"] = metrics["released protocol"]
    for one in metrics.get("rounds", ()):
        name = f"round {one['round']}"
        found[f"{name} trusted"] = float(one["trusted"])
        if "agreement" in one:
            found[f"{name} consistent"] = right = float(round(one["pairs"] * one["agreement"]))
            found[f"{name} inconsistent"] = one["pairs"] - right
    return found


def probed(folder: Path, data: Dataset, layer: str, device: str) -> dict[str, float]:
    """The test accuracy of a linear classifier on one layer of the last weights, fitted on the training part. [huang2019and] table 1"""
    model = load(folder, "last", device)

    def prepared(part: Dataset) -> tuple[Tensor, Tensor]:
        assert part.labels is not None
        rows = [preprocessed(part.read(ids).to(device), model.prepare).cpu() for ids in torch.split(part.ids, 1024)]
        return torch.cat(rows), part.labels.to(device)

    found = linear_probes(model.network, [layer], prepared(data.part("train")), prepared(data.part("test")), draws=0)
    return {f"linear {layer}": found[layer].value}


def voted(folder: Path, data: Dataset, shares: tuple[str, ...], seed: int, device: str) -> dict[str, float]:
    """The weighted vote of a share of the training part: the points whose labels a semi-supervised run of this seed would use."""
    model = load(folder, "last", device)
    train, test = data.part("train"), data.part("test")
    references, queries = (encoded(model, part).to(device) for part in (train, test))
    assert test.labels is not None
    found = {}
    for share in shares:
        labels = labels_used(override(Run(), {"discovery.labeled": share, "seed": str(seed)}), train)
        assert labels is not None
        some = labels >= 0
        voters = Points(references[some.to(device)], labels[some].to(device))
        found[f"weighted-nn of {share}"] = weighted_accuracy(Points(queries, test.labels.to(device)), voters)
    return found
