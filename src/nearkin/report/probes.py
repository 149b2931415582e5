"""Linear probes: softmax regression on the output of each layer of a network."""

from dataclasses import replace

import torch
from torch import Tensor

from nearkin.data.progress import Report, inform
from nearkin.evaluate import Score, linear_probes
from nearkin.report.subject import Side, Subject, prepared

FITTED, TESTED = 5000, 5000  # references and queries at most, drawn at random
HELD = 1 << 30  # bytes of inputs in memory at once


def probe(subject: Subject, report: Report | None = None) -> dict[str, Score]:
    """The score "probe LAYER" of each top-level layer with weights: fitted on the references, tested on the queries."""
    check_probed(subject)
    assert subject.gallery is not None
    layers = [name for name, part in subject.model.network.named_children() if next(part.parameters(), None) is not None]
    if not layers:
        raise ValueError("the network has no layers to probe; leave out --probes")
    train, test = _inputs(subject, subject.gallery, FITTED), _inputs(subject, subject.queries, TESTED)
    found = {}
    for layer in layers:
        inform(report, f"probing layer {layer}")
        (score,) = linear_probes(subject.model.network, [layer], train, test, split=subject.split).values()
        found[f"probe {layer}"] = replace(score, name=f"probe {layer}")
    return found


def check_probed(subject: Subject) -> None:
    """Raise a ValueError if the subject cannot be probed, before any work is done."""
    if subject.supervision != "classes" or subject.gallery is None:
        raise ValueError("probes need queries of classes that the references have; leave out --probes for these data")


def _inputs(subject: Subject, side: Side, most: int) -> tuple[Tensor, Tensor]:
    """Inputs of the network and classes, for at most `most` points."""
    assert side.points.labels is not None
    size = max(1, 4 * torch.Size(subject.model.about["shape"]).numel())
    most = max(1, min(most, HELD // size))
    rows = torch.randperm(len(side), generator=torch.Generator().manual_seed(0))[:most].sort().values
    parts = [prepared(subject.model, side.data.read(ids)) for ids in torch.split(side.data.ids[rows], 512)]
    return torch.cat(parts), side.points.labels[rows.to(side.points.labels.device)]
