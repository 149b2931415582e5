"""One rank of two: prices a batch in float64 for every objective and writes the gradients. Run by test_ranks under torchrun."""

import sys

import torch
from torch import nn

from nearkin import objectives as o
from nearkin.references.anchors import orthonormal
from nearkin.train import ranks
from nearkin.train.step import Step

SIZE, WIDE, DIMENSION = 13, 6, 4  # 13 over two ranks: an uneven batch


def objectives():
    torch.manual_seed(5)
    return {
        "nca": o.NCA(),
        "nca expected": o.NCA("expected"),
        "nca regression": o.NCARegression(),
        "nearest class mean": o.NearestClassMean(orthonormal(3, DIMENSION)),
        "instances": o.InstanceDiscrimination(20, DIMENSION),
        "discovery": o.NeighbourhoodDiscovery(20, DIMENSION),
        "precision at k": o.PrecisionAtK(3, covariance=0.1),
        "softmax": o.Softmax(3, DIMENSION),
        "hinge": o.Hinge(3, DIMENSION),
        "large margin": o.LargeMarginSoftmax(3, DIMENSION),
        "centre": o.CentreLoss(3, DIMENSION),
        "contrastive": o.Contrastive(),
        "triplet": o.Triplet("semi-hard"),
        "npair": o.NPair(),
        "lifted": o.LiftedStructure(),
        "angular": o.Angular(),
        "proxy nca": o.ProxyNCA(3, DIMENSION),
        "normalised softmax": o.NormalisedSoftmax(3, DIMENSION),
    }


def after_two_steps(objective, answers):
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(WIDE, 8), nn.Tanh(), nn.Linear(8, DIMENSION)).double()
    objective = objective.double()
    inputs = torch.randn(20, WIDE, dtype=torch.float64)
    optimiser = torch.optim.SGD([*network.parameters(), *objective.parameters()], lr=0.05, momentum=0.9)
    step = Step(
        network, objective, optimiser, read=lambda ids: inputs[ids], answers=answers, prepare=lambda x: x, generator=torch.Generator()
    )
    for start in (0, 7):
        step(ranks.share(torch.arange(start, start + SIZE)))
    return {**network.state_dict(), **{f"objective.{k}": v for k, v in objective.state_dict().items()}}


def all_results():
    labels = torch.arange(20) % 3
    numbers = torch.linspace(0, 3, 20, dtype=torch.float64)[:, None]
    found = {}
    for name, objective in objectives().items():
        answers = {"classes": labels, "numbers": numbers, "ids": None}[getattr(objective, "supervision", "classes")]
        found[name] = after_two_steps(objective, answers)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    rank, count = ranks.start("cpu")[0], ranks.count()
    assert count == 2
    torch.save(all_results(), f"{sys.argv[1]}.{rank}")
    ranks.stop()
