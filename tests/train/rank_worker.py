"""One rank of two: steps in float64 for every objective there is, and writes the weights. Run by test_ranks under torchrun."""

import sys

import torch
from torch import nn

from nearkin import Points
from nearkin import objectives as o
from nearkin.train import ranks
from nearkin.train.objective_choice import OBJECTIVES, build
from nearkin.train.optimizers import ConjugateGradient
from nearkin.train.step import Step
from nearkin.train.teacher import Teacher
from nearkin.train.whole_set import whole_set_step

POINTS, SIZE, WIDE, DIMENSION, CLASSES = 20, 13, 6, 4, 3  # 13 over two ranks: an uneven batch
OPTIONS = {"precision_at_k": {"k": 3, "covariance": 0.1}, "triplet": {"choice": "semi-hard"}, "deep_cluster": {"clusters": 5}}
LABELS = torch.arange(POINTS) % CLASSES
ANSWERS = {
    "classes": LABELS,
    "numbers": torch.linspace(0, 3, POINTS, dtype=torch.float64)[:, None],
    "sets": torch.nn.functional.one_hot(LABELS) | torch.nn.functional.one_hot(torch.arange(POINTS) // 7),
    "ids": None,
}


def objectives():
    """Every objective that a run can name, and two more shapes of them."""
    torch.manual_seed(5)
    facts = {"num_classes": CLASSES, "dimension": DIMENSION, "size": POINTS}
    named = {name: build(name, OPTIONS.get(name, {}), **facts) for name in OBJECTIVES}
    return named | {"nca, expected": o.NCA("expected"), "sum": o.WeightedSum({"npair": (1.0, o.NPair()), "angular": (2.0, o.Angular())})}


def step_of(objective, optimizer=None):
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(WIDE, 8), nn.Tanh(), nn.Linear(8, DIMENSION)).double()
    objective = objective.double()
    inputs = torch.randn(POINTS, WIDE, dtype=torch.float64)
    moving = [*network.parameters(), *objective.parameters()]
    moved_by = torch.optim.SGD(moving, lr=0.05, momentum=0.9) if optimizer is None else optimizer(moving)
    answers = ANSWERS[objective.supervision or "classes"]  # a sum takes what its parts take
    read = inputs.__getitem__
    views = 2 if isinstance(objective, o.VICReg | o.BarlowTwins) else 1
    teacher = None if objective.inertia is None else Teacher(network, objective.inertia)
    made = torch.Generator()
    return Step(network, objective, moved_by, read=read, answers=answers, prepare=lambda x: x, generator=made, views=views, teacher=teacher)


def weights(step):
    return {**step.network.state_dict(), **{f"objective.{k}": v for k, v in step.objective.state_dict().items()}}


def after_two_steps(objective):
    step = step_of(objective)
    for start in (0, 7):
        step(ranks.share(torch.arange(start, start + SIZE)))
    return weights(step)


def after_the_whole_set(objective, optimizer=None):
    step = step_of(objective, optimizer)
    for _ in range(2):
        whole_set_step(step, torch.arange(POINTS), 7)  # three chunks over two ranks
    return weights(step)


def after_two_steps_of_two_encoders(objective):
    """InfoNCE in a plain loop: both sides are gathered over the ranks, and the gradients of the encoders are summed."""
    torch.manual_seed(1)
    objective = objective.double()
    images, texts = (nn.Linear(WIDE, DIMENSION).double() for _ in range(2))
    inputs, words = (torch.randn(POINTS, WIDE, dtype=torch.float64) for _ in range(2))
    encoders = [*images.parameters(), *texts.parameters()]
    optimizer = torch.optim.SGD([*encoders, *objective.parameters()], lr=0.05)
    for start in (0, 7):
        mine = ranks.share(torch.arange(start, start + SIZE))
        ids = ranks.gather(mine)
        other = Points(ranks.gather(texts(words[mine])), None, ids)
        optimizer.zero_grad()
        objective(ranks.gather(images(inputs[mine])), ids=ids, references=other).backward()
        ranks.sum_gradients(encoders)
        optimizer.step()
    return {**images.state_dict(), **{f"texts.{k}": v for k, v in texts.state_dict().items()}, **objective.state_dict()}


def all_results():
    found = {name: after_two_steps(objective) for name, objective in objectives().items()}
    found["info nce"] = after_two_steps_of_two_encoders(o.InfoNCE())
    found["info nce, learned temperature"] = after_two_steps_of_two_encoders(o.InfoNCE(learn_temperature=True))
    found["nca, the whole training set"] = after_the_whole_set(o.NCA())
    found["softmax, the whole training set"] = after_the_whole_set(objectives()["softmax"])
    found["nca, conjugate gradient"] = after_the_whole_set(o.NCA(), lambda moving: ConjugateGradient(moving, iterations=2))
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    rank, count = ranks.start("cpu")[0], ranks.count()
    assert count == 2
    torch.save(all_results(), f"{sys.argv[1]}.{rank}")
    ranks.stop()
