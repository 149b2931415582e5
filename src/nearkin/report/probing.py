"""Linear probes of a subject: how much does each layer of its network know of the classes?"""

from dataclasses import replace

import torch
from torch import Tensor

from nearkin.data.progress import Report, inform
from nearkin.evaluate import Score, linear_probes
from nearkin.report.subject import Side, Subject, prepared

FITTED, ASKED = 5000, 5000  # points on each side, drawn at random where there are more
HELD = 1 << 30  # bytes of inputs held at once


def probe(subject: Subject, report: Report | None = None) -> dict[str, Score]:
    """ "probe LAYER" for each outermost layer with weights, in the order of the network: fitted on the references, asked of the queries."""
    check_probed(subject)
    assert subject.gallery is not None
    layers = [name for name, part in subject.model.network.named_children() if next(part.parameters(), None) is not None]
    if not layers:
        raise ValueError("the network has no layers inside to probe; leave the probes out")
    train, test = _inputs(subject, subject.gallery, FITTED), _inputs(subject, subject.queries, ASKED)
    found = {}
    for layer in layers:
        inform(report, f"probing layer {layer}")
        (score,) = linear_probes(subject.model.network, [layer], train, test, split=subject.split).values()
        found[f"probe {layer}"] = replace(score, name=f"probe {layer}")
    return found


def check_probed(subject: Subject) -> None:
    """Refuse what cannot be probed, before any time is spent."""
    if subject.supervision != "classes" or subject.gallery is None:
        raise ValueError("probes need queries of classes that the references have; leave them out for these data")


def _inputs(subject: Subject, side: Side, most: int) -> tuple[Tensor, Tensor]:
    """What the network is fed, and the classes, of some points."""
    assert side.points.labels is not None
    size = max(1, 4 * torch.Size(subject.model.about["shape"]).numel())
    most = max(1, min(most, HELD // size))
    rows = torch.randperm(len(side), generator=torch.Generator().manual_seed(0))[:most].sort().values
    parts = [prepared(subject.model, side.data.read(ids)) for ids in torch.split(side.data.ids[rows], 512)]
    return torch.cat(parts), side.points.labels[rows.to(side.points.labels.device)]
