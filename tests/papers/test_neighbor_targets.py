"""Targets of learning without labels: the loss against loops, a short training, and the page."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

from nearkin import NeighborTargets
from nearkin.data import Dataset
from nearkin.data.augment import geometric
from nearkin.models.folder import build_network
from nearkin.train import OptimizerChoice, Run, override
from nearkin.train.assemble import describe
from nearkin.train.inputs import augmentation
from nearkin.train.recipes import lengthened, settings_for
from papers import neighbor_training
from papers.neighbor_targets import RECIPE, TARGETS, page_of, purity
from papers.neighbor_training import STRONG, WEAK, Target, Training, epochs, neighbor_shares, target_loss

OTHERS = ("slot-soft", "mixed", "soft-queue", "clean-soft", "later-both", "wide-before")


def looped(student, own, teacher, bank, mine, target):
    """The mean cross entropy, one image and one slot at a time."""
    total = 0.0
    for i in range(len(student)):
        slots = [j for j in range(len(bank)) if not mine[i, j]]
        alone = math.exp(float(student[i] @ own[i]) / target.temperature)
        near = {j: math.exp(float(student[i] @ bank[j]) / target.temperature) for j in slots}
        share = {j: math.exp(float(teacher[i] @ bank[j]) / target.sharp) for j in slots}
        below = sum(near.values()) + (alone if target.own else 0.0)
        if target.own:
            total -= target.own * math.log(alone / below)
        if target.own < 1:
            total -= (1 - target.own) * sum(share[j] / sum(share.values()) * math.log(near[j] / below) for j in slots)
    return total / len(student)


@pytest.mark.parametrize("own", [0.0, 0.3, 1.0])
def test_the_loss_is_the_cross_entropy_of_the_mixture(own):
    generator = torch.Generator().manual_seed(0)
    student, mine_own, teacher, bank = (normalize(torch.randn(n, 5, dtype=torch.float64, generator=generator)) for n in (4, 4, 4, 9))
    mine = torch.zeros(4, 9, dtype=torch.bool)
    mine[0, 3] = mine[2, 0] = True
    target = Target("", own=own, temperature=0.3, sharp=0.2)
    student.requires_grad_()
    near = neighbor_shares(teacher, bank, mine, target.sharp)
    loss = target_loss(student, mine_own, near, bank, mine, own, target)
    assert loss.item() == pytest.approx(looped(student.detach(), mine_own, teacher, bank, mine, target), rel=1e-12)
    assert torch.autograd.gradcheck(lambda x: target_loss(x, mine_own, near, bank, mine, own, target), (student,))


def test_a_share_that_falls_begins_at_one_and_stays_at_its_end():
    target = Target("", own=0.3, until=0.5)
    assert [target.share(done) for done in (0.0, 0.25, 0.5, 1.0)] == pytest.approx([1.0, 0.65, 0.3, 0.3])
    assert Target("", own=0.4).share(0.0) == 0.4
    generator = torch.Generator().manual_seed(1)
    student, bank = (normalize(torch.randn(n, 5, dtype=torch.float64, generator=generator)) for n in (4, 9))
    mine = torch.zeros(4, 9, dtype=torch.bool)
    near = neighbor_shares(bank[:4], bank, mine, target.sharp)
    falling, fixed = (target_loss(student, bank[:4], near, bank, mine, 0.65, one) for one in (target, Target("", own=0.65)))
    assert falling.item() == pytest.approx(fixed.item(), rel=1e-12)


def test_the_objective_of_the_library_is_the_row_that_won():
    generator = torch.Generator().manual_seed(2)
    student, teacher = (normalize(torch.randn(4, 5, dtype=torch.float64, generator=generator)) for _ in range(2))
    target, steps, ids = TARGETS[RECIPE], 100, torch.tensor([7, 0, 3, 8])
    torch.manual_seed(0)
    objective = NeighborTargets(size=9, dimension=5, steps=steps).double()
    for taken in (0, 12, 60):
        objective.taken.fill_(taken)
        mine = ids[:, None] == torch.arange(9)
        near = neighbor_shares(teacher, objective.bank.vectors, mine, target.sharp)
        expected = target_loss(student, teacher, near, objective.bank.vectors, mine, target.share(taken / steps), target)
        found = objective(torch.cat([student, teacher]), ids=torch.cat([ids, ids]))
        assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    assert objective.inertia == target.inertia


def test_the_recipe_for_discovery_is_the_row_that_won():
    """Except for the least number of steps, which matters to small folders alone, and the precision."""
    recipe, target = settings_for("discovery", "cifar10", {}), TARGETS[RECIPE]
    run = override(Run(), recipe)
    assert (run.batch_size, run.schedule.name, run.schedule.warmup) == (neighbor_training.BATCH, "cosine", neighbor_training.WARMUP)
    assert run.optimizer == OptimizerChoice("sgd", target.rate, momentum=0.9, nesterov=False, weight_decay=target.decay)
    assert run.views == target.views and lengthened(run, 50_000) == run
    views = (run.views + 1) * 50_000  # in an epoch
    assert abs(run.epochs * views - 25_000_000) < views
    assert lengthened(run, 300).epochs == run.least_steps > run.epochs
    assert "least_steps" not in settings_for("discovery", "cifar10", {"epochs": "20"})
    color = Dataset("made", torch.zeros(2, 3, 32, 32, dtype=torch.uint8))
    strong = augmentation(run, color, "neighbor_targets")
    assert set(strong) == set(STRONG) and set(geometric(strong)) == set(WEAK)
    objective, head = NeighborTargets(9, 5, 100), build_network(describe(run, color)).head
    assert (objective.until, objective.temperature, objective.sharp) == (target.until, target.temperature, target.sharp)
    learner = neighbor_training.Learner(target.hidden, predictor=False)
    assert [layer.weight.shape for layer in head.project if hasattr(layer, "weight")] == [
        layer.weight.shape for layer in learner.head if hasattr(layer, "weight")
    ]


def test_every_view_that_passes_through_a_network_counts():
    batch = neighbor_training.BATCH
    assert Target("", bank_of="slots").steps(4000 * batch, 10) == 4000
    assert Target("", bank_of="steps").steps(4000 * batch, 10) == 2000
    assert Target("", bank_of="steps", views=3).steps(4000 * batch, 10) == 1000
    assert Target("", bank_of="epochs", every=3).steps(4000 * batch, 10) == 3000


@pytest.mark.parametrize("name", ["slot", "wide-views", *(pytest.param(name, marks=pytest.mark.soak) for name in OTHERS)])
def test_a_short_training_moves_student_teacher_and_bank(monkeypatch, name):
    monkeypatch.setattr(neighbor_training, "BATCH", 8)
    images = torch.randint(0, 256, (16, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    training = Training(images, TARGETS[name], 2, seed=0)
    before = [p.clone() for p in training.student.parameters()]
    assert len(list(epochs(training))) == 1 and training.taken == 2
    assert any(not torch.equal(a, b) for a, b in zip(before, training.student.parameters(), strict=True))
    moved = any(not torch.equal(a, b) for a, b in zip(before, training.teacher.parameters(), strict=True))
    assert moved
    slots = training.bank[:16]
    assert torch.allclose(slots.norm(dim=1), torch.ones(16), atol=1e-2 if name == "clean-soft" else 1e-5)
    assert sorted(training.owners[:16].tolist()) == list(range(16))
    assert training.embedded(images).shape[0] == 16
    found = purity(training, torch.arange(16) % 2)
    assert all(0 <= found[name] <= 1 for name in ("nearest", "soft"))


def test_purity_is_the_share_of_the_same_class_among_the_neighbors(monkeypatch):
    monkeypatch.setattr(neighbor_training, "BATCH", 2)
    training = Training(torch.zeros(4, 3, 32, 32, dtype=torch.uint8), Target("", bank_of="slots", sharp=0.5), 1, seed=0)
    training.bank = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [-0.6, 0.8]])
    found = purity(training, torch.tensor([0, 1, 1, 1]))
    nearest, soft = [], []
    for i in range(4):
        near = {j: math.exp(float(training.bank[i] @ training.bank[j]) / 0.5) for j in range(4) if j != i}
        labels = [0, 1, 1, 1]
        nearest.append(labels[max(near, key=near.get)] == labels[i])
        soft.append(sum(near[j] for j in near if labels[j] == labels[i]) / sum(near.values()))
    assert found["nearest"] == pytest.approx(sum(nearest) / 4)
    assert found["soft"] == pytest.approx(sum(soft) / 4, rel=1e-6)


def weighted(root, name):
    runs = json.loads((root / f"docs/results/and-{name}.json").read_text(encoding="utf-8"))["runs"]
    return 100 * sum(run["figures"]["weighted-nn"] for run in runs) / len(runs)


def test_the_figures_in_words_are_those_of_the_saved_row():
    root = Path(__file__).parents[2]
    saved = json.loads((root / "docs/results/neighbor-targets.json").read_text(encoding="utf-8"))
    page = (root / "docs/how-to/no-labels.md").read_text(encoding="utf-8")
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    teacher, rounds, apart = (weighted(root, name) for name in ("recipe25", "goal25", "alone25"))
    assert f"{teacher:.1f} % on CIFAR-10 with 25 million views" in changes and f"in rounds had {rounds:.1f}" in changes
    more = f"for {teacher - apart:.1f} points more of the test images than that of instance discrimination, and for"
    assert f"{more} {teacher - rounds:.1f} more" in " ".join(page.split())
    longer = weighted(root, "recipe80")
    assert f"Three times as many views add {longer - teacher:.1f} points ({longer:.1f} %, one seed)" in " ".join(page.split())
    held_out = {
        name: f"{100 * saved[f'held out/{name}/10000000/0']['accuracy']:.1f}" for name in ("instance-wide", "later-wide", "wide-views")
    }
    apart, one, two = held_out.values()
    assert f"instance discrimination has {apart}, and neighbors as targets have {one} with one view and {two} with two" in " ".join(
        page.split()
    )
    decisions = " ".join((root / "docs/decisions.md").read_text(encoding="utf-8").split())
    assert f"{teacher:.1f} %, with 80 million {longer:.1f} (one seed" in decisions
    assert f"{one} % after 10 million views, instance discrimination {apart}, two views for the student {two}" in decisions


def test_the_page_lists_the_best_row_first():
    row = {"accuracy": 0.5, "seconds": 3.0, "device": "a GPU"}
    saved = {
        "held out/soft/1000/0": row,
        "held out/slot/1000/0": {**row, "accuracy": 0.4},
        "held out/soft/1000/1": {**row, "accuracy": 0.6},
    }
    page = page_of(saved)
    assert page.index("| steps, neighbors | 55.0 ± 7.1 | 2 | 3 |") < page.index("| own slot | 40.0 | 1 | 3 |")
