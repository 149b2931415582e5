import inspect
import json
import re
from pathlib import Path

import pytest
import torch

from nearkin import data
from nearkin.data.samplers import ClassBalanced, PerClass, Sampler, Shuffled

SIZES = (30, 20, 3, 11, 12, 1, 25)  # images of the classes 0..6
LABELS = torch.cat([torch.full((n,), c) for c, n in enumerate(SIZES)])[
    torch.randperm(sum(SIZES), generator=torch.Generator().manual_seed(0))
]
MAKERS = {
    "shuffled": lambda seed=0: Shuffled(len(LABELS), 16, seed=seed, labels=LABELS),
    "dropping": lambda seed=0: Shuffled(len(LABELS), 16, seed=seed, drop_last=True),
    "per_class": lambda seed=0: PerClass(LABELS, 16, per_class=5, seed=seed),
    "balanced": lambda seed=0: ClassBalanced(LABELS, 16, seed=seed),
}
every = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


def lists(batches):
    return [ids.tolist() for ids in batches]


@every
def test_an_epoch_has_its_length_and_epochs_differ(make):
    sampler = make()
    first, second = lists(sampler), lists(sampler)
    assert len(first) == len(second) == len(sampler)
    assert first != second and sampler.epoch == 2
    assert all(0 <= i < len(LABELS) for ids in first for i in ids)
    assert next(iter(make())).dtype == torch.int64


@every
def test_the_seed_decides(make):
    assert lists(make(3)) == lists(make(3))
    assert lists(make(3)) != lists(make(4))
    assert lists(make(-1)) != lists(make(1))


@every
def test_every_batch_mixes_classes(make):
    sampler = make()
    for _ in range(20):
        assert all(len(LABELS[ids].unique()) > 1 for ids in sampler)


@every
def test_resumes_inside_an_epoch_with_the_next_batch(make):
    whole = make()
    expected = [lists(whole) for _ in range(3)]
    sampler = make()
    for stop in range(len(sampler) + 1):
        sampler.load_state_dict({**make().state_dict(), "epoch": 1})
        walk = iter(sampler)
        got = [next(walk).tolist() for _ in range(stop)]
        again = make()
        again.load_state_dict(json.loads(json.dumps(sampler.state_dict())))
        got += lists(again)
        assert got == expected[1]
        assert lists(again) == expected[2]


def test_shuffled_yields_every_point_once():
    sampler = Shuffled(10, 4, seed=0)
    assert [len(ids) for ids in sampler] == [4, 4, 2] and len(sampler) == 3
    assert sorted(i for ids in lists(sampler) for i in ids) == list(range(10))
    dropping = Shuffled(10, 4, seed=0, drop_last=True)
    assert [len(ids) for ids in dropping] == [4, 4] and len(dropping) == 2


def test_shuffled_draws_again_when_a_batch_would_hold_one_class():
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    sampler = Shuffled(6, 2, seed=0, labels=labels)
    plain = Shuffled(6, 2, seed=0)
    assert all(len(labels[ids].unique()) == 2 for _ in range(20) for ids in sampler)
    assert any(len(labels[ids].unique()) == 1 for _ in range(20) for ids in plain)


def test_shuffled_raises_when_batches_of_one_class_cannot_be_avoided():
    labels = torch.tensor([0] * 7 + [1])
    with pytest.raises(ValueError, match=r"batch \(2\) is too small: all of 100 orders of the 8 points had batches of one class"):
        lists(Shuffled(8, 2, seed=0, labels=labels))


def test_per_class_as_in_lu2019():
    """Batch 64 of 11 each: five whole classes and nine of a sixth; small classes give all their points; no point twice."""
    labels = torch.arange(100).repeat_interleave(12)
    sampler = PerClass(labels, 64, seed=0)
    assert len(sampler) == 1200 // 64
    for ids in sampler:
        assert len(ids) == 64 and len(ids.unique()) == 64
        names, counts = torch.unique_consecutive(labels[ids], return_counts=True)
        assert counts.tolist() == [11] * 5 + [9] and len(names.unique()) == 6


def test_per_class_takes_small_classes_whole_and_cuts_the_last():
    sampler, seen = PerClass(LABELS, 16, per_class=5, seed=0), set()
    for _ in range(30):
        for ids in sampler:
            names, counts = torch.unique_consecutive(LABELS[ids], return_counts=True)
            assert len(ids.unique()) == 16 and len(names.unique()) == len(names)
            for name, count in list(zip(names.tolist(), counts.tolist(), strict=True))[:-1]:
                assert count in (min(5, SIZES[name]), 4)  # 4 where the last one had a single point otherwise
            seen.update(names.tolist())
    assert seen == set(range(7))


@pytest.mark.parametrize(("per_class", "batch"), [(4, 9), (3, 7), (2, 7), (2, 5)])
def test_per_class_leaves_no_point_of_a_large_class_alone(per_class, batch):
    labels = torch.arange(6).repeat_interleave(10)
    for ids in PerClass(labels, batch, per_class=per_class, seed=0):
        counts = labels[ids].bincount()
        assert len(ids.unique()) == batch and counts[counts > 0].min() > 1 and counts.max() <= max(per_class, 3)


def test_per_class_leaves_a_point_alone_where_nothing_else_can_be_drawn():
    pairs, two = torch.arange(4).repeat(2), torch.arange(2).repeat(9)
    assert sorted(pairs[next(iter(PerClass(pairs, 5, per_class=2, seed=0)))].bincount().tolist())[-3:] == [1, 2, 2]  # no class has a third
    assert sorted(two[next(iter(PerClass(two, 3, per_class=2, seed=0)))].bincount().tolist()) == [1, 2]  # one class would be left
    assert two[next(iter(PerClass(two, 2, per_class=1, seed=0)))].bincount().tolist() == [1, 1]  # as asked for


def test_per_class_draws_classes_and_points_uniformly():
    labels = torch.arange(6).repeat_interleave(8)
    sampler, counts = PerClass(labels, 8, per_class=4, seed=0), torch.zeros(48)
    for _ in range(200):
        for ids in sampler:
            counts[ids] += 1
    assert counts.sum() == 200 * 6 * 8
    assert counts.min() > 150 and counts.max() < 260  # 200 each on average


@pytest.mark.parametrize("batch", [2, 3, 7, 16, 21, 50])
def test_balanced_gives_every_class_its_share(batch):
    sampler = ClassBalanced(LABELS, batch, seed=0)
    for _ in range(5):
        total = torch.zeros(7, dtype=torch.int64)
        for ids in sampler:
            assert len(ids) == batch
            counts = torch.bincount(LABELS[ids], minlength=7)
            assert counts.min() >= batch // 7 and counts.max() <= -(-batch // 7)
            total += counts
        assert total.max() - total.min() <= 1
        assert total.sum() == len(LABELS) // batch * batch


def test_balanced_uses_all_points_of_a_class_before_it_repeats_one():
    sampler = ClassBalanced(LABELS, 14, seed=0)
    ids = torch.cat(list(sampler))
    for c, size in enumerate(SIZES):
        own = ids[LABELS[ids] == c].tolist()
        for start in range(0, len(own), size):
            part = own[start : start + size]
            assert len(set(part)) == len(part)


ONE = torch.zeros(8, dtype=torch.int64)
TWO = torch.tensor([0, 1] * 10)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Shuffled(8, 4, seed=0, labels=ONE), r"labels hold one class only \(0\), so there would be no negatives"),
        (lambda: PerClass(ONE, 4, seed=0), r"labels hold one class only \(0\)"),
        (lambda: ClassBalanced(ONE, 4, seed=0), r"labels hold one class only \(0\)"),
        (
            lambda: PerClass(TWO, 10, per_class=10, seed=0),
            r"batch \(10\) can be filled by one class \(per_class is 10\).*raise batch above 10",
        ),
        (lambda: PerClass(TWO, 8, per_class=11, seed=0), r"batch \(8\) can be filled by one class.*raise batch above 10"),
        (lambda: PerClass(TWO, 12, per_class=5, seed=0), r"batch \(12\) is more than 2 classes have at 5 each \(10\); lower batch"),
        (lambda: PerClass(TWO, 12, per_class=0, seed=0), r"per_class \(0\) must be a whole number of at least 1"),
        (lambda: Shuffled(20, 1, seed=0, labels=TWO), r"batch \(1\) always holds one class; raise it to at least 2"),
        (lambda: ClassBalanced(TWO, 1, seed=0), r"batch \(1\) always holds one class"),
        (lambda: ClassBalanced(TWO, 21, seed=0), r"batch \(21\) is larger than the data set \(20\)"),
        (
            lambda: Shuffled(20, 19, seed=0, labels=TWO),
            r"batch \(19\) leaves one point of 20 .*drop_last=True .nearkin train: --set sampler.options.drop_last",
        ),
        (lambda: Shuffled(20, 21, seed=0, drop_last=True), r"batch \(21\) is larger than the data set \(20\), and drop_last"),
        (lambda: Shuffled(9, 4, seed=0, labels=TWO), "labels has 20 entries for 9 points"),
        (lambda: Shuffled(9, 0, seed=0), r"batch \(0\) must be a whole number of at least 1"),
        (lambda: Shuffled(0, 4, seed=0), "the data set is empty"),
        (lambda: PerClass(TWO[:, None], 4, seed=0), r"labels has shape \(20, 1\); give one class for each point"),
    ],
)
def test_errors(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_labels_must_be_classes():
    with pytest.raises(TypeError, match=r"labels must be a tensor of integer classes, not torch.float32; encode names with nearkin"):
        PerClass(TWO.float(), 4, seed=0)
    with pytest.raises(TypeError, match="labels must be a tensor of integer classes, not list; encode names with nearkin"):
        PerClass(["a", "b"] * 10, 4, per_class=2, seed=0)


def test_arrays_and_lists_of_classes_are_labels():
    first = next(iter(PerClass(TWO, 4, per_class=2, seed=0)))
    for labels in (TWO.numpy(), TWO.tolist()):
        assert torch.equal(next(iter(PerClass(labels, 4, per_class=2, seed=0))), first)


def test_a_state_of_another_sampler_raises():
    state = MAKERS["per_class"]().state_dict()
    with pytest.raises(ValueError, match="the saved sampler has per_class 5 and this one 6; use the same, or start again"):
        PerClass(LABELS, 16, per_class=6, seed=0).load_state_dict(state)
    with pytest.raises(ValueError, match="the saved sampler has sampler 'PerClass' and this one 'ClassBalanced'"):
        MAKERS["balanced"]().load_state_dict(state)
    with pytest.raises(ValueError, match="the saved sampler is at epoch 0, batch 99, but an epoch has 6 batches"):
        MAKERS["per_class"]().load_state_dict({**state, "position": 99})


def test_the_signatures_on_the_page_are_those_of_the_code():
    text = (Path(__file__).parents[2] / "docs/how-to/batches.md").read_text(encoding="utf-8")
    written = dict(re.findall(r"\| `(\w+)` \| `\1(\(.*?\))` \|", text))
    kinds = {name: kind for name in data.__all__ if inspect.isclass(kind := getattr(data, name)) and issubclass(kind, Sampler)}
    assert written.keys() == kinds.keys() - {"Sampler"}
    for name, signature in written.items():
        own = inspect.signature(kinds[name])
        bare = [parameter.replace(annotation=parameter.empty) for parameter in own.parameters.values()]
        assert str(own.replace(parameters=bare, return_annotation=own.empty)) == signature
