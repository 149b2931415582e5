"""Memories of earlier batches: delay, age, the last rows, a bank for each class, a momentum queue; and every objective with one."""

import re

import pytest
import torch
from torch import Tensor

import nearkin as nk
from nearkin.compose import (
    Anchors,
    BestK,
    Centers,
    ClassBank,
    CrossBatchMemory,
    InBatch,
    LabelDistance,
    MemoryBank,
    MomentumQueue,
    Points,
    SameId,
    SameLabel,
    any_positive,
    cosine,
    value_checks,
)
from nearkin.compose.points import EMPTY
from tests.batches import drawn
from tests.third_party.parts import NextLabel

Y, IDS = torch.arange(4).repeat(3), torch.arange(12)


def batch(start: int, n: int = 4, labels: Tensor | None = None) -> Points:
    ids = torch.arange(start, start + n)
    return Points(ids[:, None].double().repeat(1, 2), ids % 3 if labels is None else labels, ids)


def test_a_queue_smaller_than_the_batch_keeps_the_last_rows() -> None:
    memory = CrossBatchMemory(3, 2)
    memory.update(batch(0, 5))
    assert sorted(memory.ids.tolist()) == [2, 3, 4]
    memory.update(batch(5, 2))
    assert sorted(memory.ids.tolist()) == [4, 5, 6], "the oldest left"


def test_a_delayed_memory_counts_after_so_many_steps() -> None:
    memory = CrossBatchMemory(4, 2, delay=2)
    memory.update(batch(0))
    assert memory(batch(4)).labels.tolist()[4:] == [EMPTY] * 4 and memory(batch(4)).ids.tolist()[4:] == [EMPTY] * 4
    memory.update(batch(4))
    assert sorted(memory(batch(8)).ids.tolist()[4:]) == [4, 5, 6, 7]


def test_old_embeddings_no_longer_count() -> None:
    memory = CrossBatchMemory(8, 2, max_age=2)
    memory.update(batch(0, 2))
    memory.update(batch(2, 2))
    assert sorted(memory(batch(9, 1)).ids.tolist())[-5:] == [0, 1, 2, 3, 9]
    memory.update(batch(4, 2))
    assert {i for i in memory(batch(9, 1)).ids.tolist() if i != EMPTY} == {2, 3, 4, 5, 9}


def test_empty_slots_change_no_objective() -> None:
    """4.05 became 8.35: slots that were never filled counted as negatives."""
    z = drawn()
    for objective in (
        nk.NCA(),
        nk.NCA("expected"),
        nk.SupCon(),
        nk.MultiSimilarity(),
        nk.Circle(),
        nk.Triplet(),
        nk.FastAP(),
        nk.SmoothAP(0.1),
        nk.PrecisionAtK(2),
        nk.NTXent(),
    ):
        expected = objective(z, Y, ids=IDS)
        remembering = objective.choosing_among(CrossBatchMemory(32, 3)).double()
        torch.testing.assert_close(remembering(z, Y, ids=IDS), expected)
        if remembering.engine == "auto" and getattr(objective.criterion, "form", None):
            remembering.engine = "torch"
            torch.testing.assert_close(remembering(z, Y, ids=IDS), expected)
        memory = CrossBatchMemory(32, 3).double()
        torch.testing.assert_close(objective(z, Y, ids=IDS, references=memory(Points(z, Y, IDS))), expected)
    numbers = drawn(12, 2, 5)
    regression = nk.NCARegression()
    remembering = regression.choosing_among(CrossBatchMemory(7, 3, targets=2)).double()
    for engine in ("dense", "torch"):
        remembering.engine = engine
        torch.testing.assert_close(remembering(z, numbers, ids=IDS), regression(z, numbers))
    itself = nk.NeighborhoodObjective(InBatch(), cosine(), SameId(), any_positive)
    torch.testing.assert_close(
        itself.choosing_among(CrossBatchMemory(7, 3)).double()(z, ids=IDS),
        itself(z, ids=IDS),
    )


def test_empty_slots_are_no_candidates_of_relations_that_do_not_know_them() -> None:
    """A relation of another package: labels that differ by one are positives, and it takes any other label for a negative."""
    z = drawn()
    for criterion in (any_positive, BestK(2)):
        plain = nk.NeighborhoodObjective(InBatch(), cosine(), NextLabel(), criterion)
        expected = plain(z, Y, ids=IDS)
        remembering = plain.choosing_among(CrossBatchMemory(32, 3)).double()
        torch.testing.assert_close(remembering(z, Y, ids=IDS), expected)
        memory = CrossBatchMemory(32, 3).double()
        torch.testing.assert_close(plain(z, Y, ids=IDS, references=memory(Points(z, Y, IDS))), expected)


@pytest.mark.parametrize("name", ["precision_at_k", "supcon", "circle", "margin_loss", "nca", "multi_similarity", "nt_xent", "fast_ap"])
def test_a_memory_is_the_earlier_batches(name: str) -> None:
    from nearkin.train.objective_choice import build

    z, old = drawn(), drawn(12, 3, 7)
    facts = {"num_classes": 4, "dimension": 3, "size": 24}
    objective = build(name, {"memory": 12, "memory_delay": 1}, **facts).double()
    plain = build(name, {}, **facts).double()
    torch.testing.assert_close(objective(z, Y, ids=IDS), plain(z, Y, ids=IDS))
    objective.update(old, Y, ids=IDS + 12)
    both = Points(torch.cat([z, old]), torch.cat([Y, Y]), torch.arange(24))
    torch.testing.assert_close(objective(z, Y, ids=IDS), plain(z, Y, ids=IDS, references=both))
    with pytest.raises(ValueError, match="ArcFace has references of its own, Proxies, and cannot choose among others"):
        build("arcface", {"memory": 12}, **facts)
    with pytest.raises(ValueError, match="Angular compares points within the batch only and takes no memory"):
        build("angular", {"memory": 12}, **facts)
    with pytest.raises(ValueError, match="Angular compares points within the batch only and cannot choose among others"):
        nk.Angular().choosing_among(CrossBatchMemory(5, 2))
    with pytest.raises(ValueError, match="memory_delay and memory_age belong to a memory"):
        build("nca", {"memory_delay": 12}, **facts)
    assert isinstance(build("nca", {"memory_per_class": 2}, **facts).references, ClassBank)


def test_a_class_bank_keeps_the_last_of_every_class() -> None:
    bank = ClassBank(3, 2, per_class=2)
    bank.update(batch(0, 5, torch.tensor([0, 0, 0, 1, 0])))
    assert bank.ids.reshape(3, 2).sort(1).values.tolist() == [[2, 4], [EMPTY, 3], [EMPTY, EMPTY]]
    bank.update(batch(5, 3, torch.tensor([2, 0, 1])))
    assert bank.ids.reshape(3, 2).sort(1).values.tolist() == [[4, 6], [3, 7], [EMPTY, 5]]
    assert bank.labels.tolist() == [0, 0, 1, 1, 2, EMPTY] and bank.vectors[bank.ids == 6].tolist() == [[6.0, 6.0]]
    found = bank(batch(20, 2, torch.tensor([0, 1])))
    assert SameLabel()(batch(20, 2, torch.tensor([0, 1])), found).candidate.sum() == 2 * 6
    assert repr(bank) == "ClassBank(size=6, dimension=2)" and bank.known_classes() == 3
    again = ClassBank(3, 2, per_class=2)
    again.load_state_dict(bank.state_dict())
    assert torch.equal(again(batch(20, 2)).ids, bank(batch(20, 2)).ids)


def test_references_that_an_objective_cannot_fill_are_refused() -> None:
    queue = MomentumQueue(torch.nn.Linear(4, 3), 8, 3)
    with pytest.raises(ValueError, match=r"MomentumQueue embeds the inputs itself.*pass references=queue\(keys\)"):
        nk.SupCon().choosing_among(queue)
    with pytest.raises(ValueError, match=r"MemoryBank keeps no labels, and SupCon compares labels; use CrossBatchMemory"):
        nk.SupCon().choosing_among(MemoryBank(10, 3))


def test_a_criterion_that_returns_a_tensor_is_told_of_outcomes() -> None:
    objective = nk.NeighborhoodObjective(InBatch(), cosine(0.07), SameLabel(), lambda affinity, _: -affinity.logsumexp(1))  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match=r"returned a tensor; return nearkin.compose.Outcome, with a value"):
        objective(drawn(4, 3, 0), torch.tensor([0, 0, 1, 1]))


def test_a_momentum_queue_is_moco() -> None:
    torch.manual_seed(0)
    network = torch.nn.Linear(4, 3).double()
    queue = MomentumQueue(network, 8, 3, momentum=0.9).double()
    objective = nk.NeighborhoodObjective(InBatch(), cosine(0.07), SameId(), any_positive)
    first, second, ids = drawn(5, 4, 1), drawn(5, 4, 2), torch.arange(5)
    queue.update(Points(old := drawn(4, 3, 3), None, torch.arange(20, 24)))
    keys = queue.keys(second)
    assert not keys.requires_grad and torch.equal(keys, network(second).detach())
    loss = objective(network(first), ids=ids, references=queue(Points(keys, None, ids)))
    q, k, n = (torch.nn.functional.normalize(x) for x in (network(first), keys, old))
    logits = torch.cat([q @ k.T, q @ n.T], 1) / 0.07
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits, ids))
    before = queue.copy.weight.clone()
    with torch.no_grad():
        network.weight += 1
    queue.follow(network)
    torch.testing.assert_close(queue.copy.weight, before + 0.1)


def test_views_are_positives_in_a_memory_too() -> None:
    """Rows of a batch are numbered apart from the samples of a memory, whose ids begin at 0."""
    z, old, ids = drawn(12), drawn(12, 3, 7), torch.arange(6).repeat(2)
    both = torch.cat([z, old])
    for make, labels in ((lambda: nk.NTXent(0.3, positives="views"), None), (lambda: nk.SupCon(0.3, views=True), ids % 3)):
        objective = make().choosing_among(CrossBatchMemory(12, 3)).double()
        objective.update(old, labels, ids=ids)
        found = objective(z, labels, ids=ids, reduction="none")
        kinds = ids if labels is None else labels
        plain = (nk.NTXent(0.3) if labels is None else nk.SupCon(0.3))(both, torch.cat([kinds, kinds]), reduction="none")
        torch.testing.assert_close(found, plain[:12])


@pytest.mark.parametrize("line", ["queue.update(keys)", "queue.follow(network)"])
def test_a_momentum_queue_says_which_line_was_forgotten(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_checks, "_told", set())
    network = torch.nn.Linear(4, 3)
    queue = MomentumQueue(network, 8, 3)

    def steps(count: int, forgotten: str) -> None:
        for _ in range(count):
            keys = Points(queue.keys(torch.ones(2, 4)), None, torch.arange(2))
            if forgotten != "queue.follow(network)":
                queue.follow(network)
            if forgotten != "queue.update(keys)":
                queue.update(keys)

    steps(value_checks.UNMOVED + 10, "")  # a warning would be an error here
    with pytest.warns(
        UserWarning, match=rf"gave keys {value_checks.UNMOVED} times and `{re.escape(line)}` was never called; add this line"
    ) as told:
        steps(value_checks.UNMOVED + 30, line)
    assert len(told) == 1


def test_memories_say_what_is_wrong_and_how_large_they_are() -> None:
    assert repr(CrossBatchMemory(5, 2)) == "CrossBatchMemory(size=5, dimension=2)"
    assert repr(CrossBatchMemory(5, 2, delay=3, max_age=4)) == "CrossBatchMemory(size=5, dimension=2, delay=3, max_age=4)"
    assert repr(MemoryBank(5, 2)) == "MemoryBank(size=5, dimension=2, momentum=0.5)"
    assert repr(Centers(4, 2)) == "Centers(num_classes=4, dimension=2, rate=0.5)"
    assert repr(Anchors(torch.eye(3, 4))) == "Anchors(num_classes=3, dimension=4)"
    assert repr(nk.NormalizedSoftmax(7, 3).references) == "Proxies(num_classes=7, dimension=3, columns=3)"
    with pytest.raises(ValueError, match=r"delay \(-1\) must be a whole number of at least 0: it is the number of steps before"):
        CrossBatchMemory(5, 2, delay=-1)
    with pytest.raises(ValueError, match=r"labels have shape \(4, 1\) and the memory was built with targets=2; make them agree"):
        CrossBatchMemory(5, 2, targets=2)(batch(0, 4, torch.zeros(4, 1)))
    assert (
        not LabelDistance()(batch(0, 4, torch.zeros(4, 1)), CrossBatchMemory(2, 2, targets=1)(batch(0, 4, torch.zeros(4, 1))))
        .candidate[:, 4:]
        .any()
    )


def test_a_sum_gives_every_term_a_memory() -> None:
    z, old = drawn(), drawn(12, 3, 7)
    terms = {"a": (0.5, nk.SupCon()), "b": (2.0, nk.Circle())}
    both = nk.WeightedSum(terms).choosing_among(CrossBatchMemory(12, 3, delay=1)).double()
    torch.testing.assert_close(both(z, Y, ids=IDS), nk.WeightedSum(terms)(z, Y, ids=IDS))
    both.update(old, Y, ids=IDS + 12)
    among = Points(torch.cat([z, old]), torch.cat([Y, Y]), torch.arange(24))
    torch.testing.assert_close(both(z, Y, ids=IDS), nk.WeightedSum(terms)(z, Y, ids=IDS, references=among))
    assert both.terms["a"].references is not both.terms["b"].references  # both are filled once in a step
    with pytest.raises(ValueError, match="term 'head': ArcFace has references of its own, Proxies.*before you add them up"):
        nk.WeightedSum({"head": (1.0, nk.ArcFace(4, 3)), "a": (1.0, nk.SupCon())}).choosing_among(CrossBatchMemory(12, 3))


def test_every_prefix_has_its_columns_of_the_memory() -> None:
    from nearkin.train.objective_choice import build

    z, old = drawn(), drawn(12, 3, 7)
    plain = nk.Matryoshka(nk.SupCon(), (2, 3))
    objective = plain.choosing_among(CrossBatchMemory(12, 3)).double()
    trained = build("matryoshka", {"of": "supcon", "dimensions": (2, 3), "memory": 12}, num_classes=4, dimension=3, size=24).double()
    among = Points(torch.cat([z, old]), torch.cat([Y, Y]), torch.arange(24))
    for remembering in (objective, trained):
        remembering.update(old, Y, ids=IDS + 12)
        torch.testing.assert_close(remembering(z, Y, ids=IDS), plain(z, Y, ids=IDS, references=among))
    with pytest.raises(ValueError, match="a memory of 3 columns holds no 4; build it for the whole embedding"):
        nk.Matryoshka(nk.SupCon(), (2, 4)).choosing_among(CrossBatchMemory(12, 3))
    with pytest.raises(ValueError, match="InBatch cannot be cut to 2 coordinates; pass Matryoshka a function of the dimension"):
        nk.Matryoshka(nk.SupCon(), (2,)).choosing_among(InBatch())


def test_two_sides_take_no_memory() -> None:
    with pytest.raises(ValueError, match=r"takes the other one in every call: pass references=Points\(texts, None, ids\)"):
        nk.InfoNCE().choosing_among(CrossBatchMemory(12, 3))
