"""Samplers of groups, near classes and near points."""

from typing import Any

import pytest
import torch

from nearkin import Points, nearest
from nearkin.data import Dataset, Grouped, HardClasses, NearNeighbors, near_classes
from nearkin.train.assemble import assemble
from nearkin.train.config import Run, override
from nearkin.train.data_checks import sampler_warning, share_with_positives

LABELS = torch.arange(12).repeat(8)
GROUPS = LABELS // 3


def test_a_batch_holds_a_few_groups() -> None:
    sampler = Grouped(LABELS, GROUPS, 12, per_class=2, per_batch=2, seed=1)
    for ids in sampler:
        assert len(ids) == 12 == len(ids.unique()) and len(GROUPS[ids].unique()) == 2
        assert LABELS[ids].unique(return_counts=True)[1].tolist() == [2] * 6
    again = Grouped(LABELS, GROUPS, 12, per_class=2, per_batch=2, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(sampler.batches(3), again.batches(3), strict=True))
    small = Grouped(torch.tensor([0, 1, 2, 3]), torch.tensor([0, 0, 1, 1]), 6, seed=0)
    assert [len(ids) for ids in small] == [6], "a group that is smaller than its share repeats points"


def test_hard_classes_stand_together() -> None:
    embeddings = torch.tensor([0.0, 0.1, 0.3, 5.0, 5.1, 5.3, 9.0, 9.1, 9.3, 20.0, 20.1, 20.3])[LABELS, None]
    near = near_classes(embeddings, LABELS)
    assert near.shape == (12, 11) and near[0, :2].tolist() == [1, 2] and near[11, :2].tolist() == [10, 9]
    for ids in HardClasses(LABELS, 6, per_class=2, near=near, seed=0):
        assert len(GROUPS[ids].unique()) == 1 and len(ids.unique()) == 6
    spread = HardClasses(LABELS, 6, per_class=2, seed=0)
    assert any(len(GROUPS[ids].unique()) > 1 for ids in spread)


def test_near_points_stand_together() -> None:
    points = Points(torch.arange(20.0)[:, None].square(), None, torch.arange(20))
    table = nearest(points, points, 3, exclude_same_id=True).positions
    for ids in NearNeighbors(table, 8, per_point=3, seed=0):
        assert len(ids) == 8 == len(ids.unique()) and set(table[ids[0]].tolist()) <= set(ids.tolist())


def test_they_resume() -> None:
    for make in (
        lambda: Grouped(LABELS, GROUPS, 12, seed=1),
        lambda: HardClasses(LABELS, 12, seed=1),
        lambda: NearNeighbors(torch.zeros(96, 1, dtype=torch.int64), 12, seed=1),
    ):
        sampler, other = make(), make()
        running = iter(sampler)
        next(running)
        other.load_state_dict(sampler.state_dict())
        assert torch.equal(next(running), next(iter(other)))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Grouped(LABELS, GROUPS, 9, seed=0), r"batch \(9\) cannot be divided among 2 groups"),
        (lambda: Grouped(LABELS, GROUPS[:5], 8, seed=0), "groups has 5 entries for 96 points"),
        (lambda: Grouped(LABELS, GROUPS, 10, per_batch=5, seed=0), r"per_batch \(5\) is more than the 4 groups there are"),
        (lambda: HardClasses(LABELS, 4, seed=0), r"batch \(4\) can be filled by one class"),
        (lambda: HardClasses(LABELS, 8, near=torch.zeros(3, 2), seed=0), r"near has shape \(3, 2\) for 12 classes"),
        (lambda: NearNeighbors(torch.zeros(5, 2), 4, seed=0), r"table has shape \(5, 2\) and type torch.float32"),
        (lambda: NearNeighbors(torch.zeros(5, 2, dtype=torch.int64), 6, seed=0), r"batch \(6\) is more than the 5 points"),
    ],
)
def test_wrong_settings_name_the_fix(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


def test_a_sampler_that_leaves_queries_without_positives_is_named() -> None:
    many = torch.arange(500).repeat(4)
    assert share_with_positives(many, 32) == pytest.approx(1 - (1 - 3 / 1999) ** 31, rel=1e-6)
    hits = 0.0
    for _ in range(200):
        y = many[torch.randperm(2000)[:32]]
        hits += float(((y[:, None] == y).sum(1) > 1).float().mean()) / 200
    assert share_with_positives(many, 32) == pytest.approx(hits, abs=0.02)
    data = Dataset("made", torch.randn(2000, 4), labels=many, classes=tuple(map(str, range(500))))
    run = override(Run(), {"batch_size": "32", "network.name": "mlp", "network.dimension": "4"})

    def warned(**settings: str) -> str | None:
        chosen = override(run, {name.replace("__", "."): value for name, value in settings.items()})
        parts = assemble(chosen, data, torch.device("cpu"))
        return sampler_warning(parts.objective, parts.sampler, data)

    assert "5% of the queries of a batch have a positive" in warned() and "sampler.name=per_class" in warned()
    assert warned(sampler__name="per_class") is None and warned(objective__name="arcface") is None
    assert warned(batch_size="2000") is None
    assert "0% of the queries" in warned(sampler__name="class_balanced"), "a class comes again after 499 others"
    assert "0% of the queries" in warned(sampler__name="per_class", sampler__options__per_class="1")
    assert warned(sampler__name="class_balanced", objective__name="cosface") is None
    assert warned(sampler__name="hard_classes") is None


def test_groups_of_the_data_can_be_sampled() -> None:
    data = Dataset("made", torch.randn(96, 4), labels=LABELS, classes=tuple(map(str, range(12))), groups=GROUPS)
    run = override(Run(), {"batch_size": "12", "network.name": "mlp", "network.dimension": "4", "sampler.name": "grouped"})
    assert isinstance(assemble(run, data, torch.device("cpu")).sampler, Grouped)
    without = Dataset("made", torch.randn(96, 4), labels=LABELS, classes=tuple(map(str, range(12))))
    with pytest.raises(ValueError, match="sampler 'grouped' needs groups, and made has none"):
        assemble(run, without, torch.device("cpu"))
