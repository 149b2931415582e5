"""Rounds of discovery: which points are trusted when, and how the schedule follows."""

from functools import partial

import pytest
import torch

from nearkin.compose.affinity import unit
from nearkin.data import open as open_data
from nearkin.objectives import DeepCluster, NeighborhoodDiscovery
from nearkin.train import training
from nearkin.train.config import DiscoveryChoice, Run, ScheduleChoice, override
from nearkin.train.discovery import discover, trusted, weights
from nearkin.train.optimizers import make_schedule
from nearkin.train.rounds import look_for_neighbors, rounds_of, steering_of
from nearkin.train.training import train
from papers.after_training import discovery_figures

BASE = {
    "network.name": "mlp",
    "network.dimension": "8",
    "network.options.hidden": "[32]",
    "objective.name": "neighborhood_discovery",
    "batch_size": "100",
    "data.validation": "0",
    "data.test": "0",
}


class Watch:
    """Records the messages and learning rates of a training."""

    def __init__(self):
        self.lines, self.rates = [], []

    def message(self, line):
        self.lines.append(line)

    def started(self, steps, done): ...

    def step(self, done, figures):
        self.rates.append(figures["rate"])

    def epoch(self, figures): ...


def watched(tmp_path, settings, count=300):
    watch = Watch()
    digits = open_data("digits").subset(torch.arange(count)).renumbered()
    train(override(Run(), {**BASE, **settings}), tmp_path / "m", data=digits, reporter=watch)
    return watch


def test_epochs_are_divided_evenly():
    rounds = rounds_of(DiscoveryChoice(), 10)
    assert rounds.shares == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert [rounds.of(e) for e in range(10)] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert [rounds.first_epoch(r) for r in range(5)] == [0, 2, 4, 6, 8]
    uneven = rounds_of(DiscoveryChoice(rounds=2), 7)
    assert [uneven.of(e) for e in range(7)] == [0, 0, 0, 1, 1, 2, 2] and [uneven.first_epoch(r) for r in range(3)] == [0, 3, 5]
    assert rounds_of(DiscoveryChoice(rounds=2, instance_round=False, one_off=True), 4).shares == (1.0, 1.0)
    assert rounds_of(DiscoveryChoice(refresh="epoch"), 10).due(3) == 3 and rounds.due(3) == 2
    with pytest.raises(ValueError, match=r"epochs \(3\) are fewer than the rounds \(5\)"):
        rounds_of(DiscoveryChoice(), 3)


def test_every_round_is_reported_and_the_schedule_restarts(tmp_path):
    watch = watched(tmp_path, {"epochs": "6", "discovery.rounds": "2", "schedule.warmup": "0"})
    lines = [line for line in watch.lines if line.startswith("round ")]
    assert [line.split(";")[0] for line in lines] == [
        "round 0 of 2: 0 neighborhoods trusted",
        "round 1 of 2: 150 neighborhoods trusted",
        "round 2 of 2: 300 neighborhoods trusted",
    ]
    assert "share the class" in lines[1]
    assert watch.rates[:6] == watch.rates[6:12] == watch.rates[12:] and watch.rates[0] > watch.rates[5]
    once = watched(tmp_path / "once", {"epochs": "6", "discovery.rounds": "2", "discovery.restart": "false", "schedule.warmup": "0"})
    assert all(a > b for a, b in zip(once.rates, once.rates[1:], strict=False))


def test_growing_shares_and_weights_are_reported(tmp_path):
    growing = {"epochs": "6", "discovery.rounds": "2", "discovery.refresh": "epoch", "discovery.gradual": "true"}
    lines = [line.split(";")[0] for line in watched(tmp_path, growing).lines if line.startswith("round ")]
    assert lines == [
        "round 0 of 2: 0 neighborhoods trusted",
        "round 1 of 2: 75 neighborhoods trusted, growing to 50% of all",
        "round 2 of 2: 225 neighborhoods trusted, growing to 100% of all",
    ]
    weighted = {"epochs": "3", "discovery.rounds": "2", "objective.options.weighted": "true"}
    lines = [line for line in watched(tmp_path / "w", weighted).lines if line.startswith("round ")]
    assert lines[0] == "round 0 of 2: 0 neighborhoods trusted"
    assert lines[1].startswith("round 1 of 2: every neighborhood counts, by 50% on average; ")
    assert lines[1].endswith("% of those of the 150 that weigh most share the class")


@pytest.mark.parametrize(
    ("epochs", "settings", "lengths"),
    [("7", {"discovery.rounds": "2"}, (3, 2, 2)), ("6", {}, (2, 1, 1, 1, 1)), ("6", {"discovery.instance_round": "false"}, (2, 1, 2, 1))],
)
def test_every_round_anneals_however_long_it_is(tmp_path, epochs, settings, lengths):
    watch = watched(tmp_path, {"epochs": epochs, "schedule.warmup": "0", "batch_size": "10", **settings})
    rates = torch.tensor(watch.rates).split([30 * length for length in lengths])
    for number, some in enumerate(rates):
        cosine = 0.05 * (1 + torch.cos(torch.pi * torch.arange(len(some)) / len(some)))
        assert torch.allclose(some, cosine, atol=1e-6), number
        assert some[0] == pytest.approx(0.1) and some[-1] < 0.003 * some[0]


@pytest.mark.parametrize("name", ["constant", "cosine", "one_cycle", "milestones", "plateau"])
def test_the_schedule_of_a_round_is_that_of_a_training_of_its_length(name):
    choice = ScheduleChoice(name, 0.1, (0.5,), 0.1)
    rounds, whole = rounds_of(DiscoveryChoice(rounds=2), 7), make_schedule(choice, 7, 10)
    found = [rounds.rate_factor(whole, step, 10) for step in range(70)]
    assert found == [make_schedule(choice, epochs, 10).factor(step) for epochs in (3, 2, 2) for step in range(10 * epochs)]


def over(vectors, **more):
    """Discovery with these vectors in its bank."""
    objective = NeighborhoodDiscovery(*vectors.shape, **more)
    objective.references.vectors.copy_(unit(vectors))
    return objective


def some_vectors(count=200):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 8, generator=generator), torch.randint(0, 10, (count,), generator=generator)


def test_purity_of_mutual_neighbors_counts_those_that_are_kept():
    vectors, labels = some_vectors()
    objective = over(vectors, k=3)
    found = look_for_neighbors(objective, 1.0, True, labels)
    table, own = objective.relation.table, torch.arange(200)[:, None]
    kept = table != own
    assert not kept.all() and found["pairs"] == int(kept.sum()) and found["trusted"] == int(kept.any(1).sum())
    assert found["agreement"] == pytest.approx(float((labels[table] == labels[:, None])[kept].double().mean()))
    figures = discovery_figures({"rounds": [{"round": 1, **found}]})
    assert figures["round 1 consistent"] + figures["round 1 inconsistent"] == pytest.approx(found["pairs"])


@pytest.mark.parametrize("weighted", [False, True])
def test_points_whose_class_is_used_do_not_count_in_the_share(weighted):
    vectors, labels = some_vectors()
    used = torch.where(torch.arange(200) < 80, labels, -1)
    objective = over(vectors, weighted=weighted, labels=used)
    found = look_for_neighbors(objective, 0.5, False, labels)
    entropy = discover(vectors).entropy[80:]
    lowest = trusted(entropy, 0.5)
    assert found["trusted"] == found["pairs"] == 60
    table = objective.relation.table[80:, 0]
    assert found["agreement"] == pytest.approx(float((labels[table] == labels[80:])[lowest].double().mean()))
    if weighted:
        assert torch.allclose(objective.relation.weight, torch.cat([torch.zeros(80), weights(entropy, 0.5)]))
    else:
        assert objective.relation.trusted.tolist() == [False] * 80 + lowest.tolist()
    assert look_for_neighbors(objective, 0.5, False, used) == {"trusted": 60}  # no class is known
    assert look_for_neighbors(over(vectors, weighted=weighted, labels=labels), 1.0, False, labels) == {"trusted": 0}


def test_patience_ends_the_last_round_and_no_other(tmp_path, monkeypatch):
    figures = iter([0.9, *[0.5] * 11, 0.4, 0.6, *[0.5] * 4])
    monkeypatch.setattr(training, "score", lambda _: next(figures))
    settings = {"epochs": "18", "discovery.rounds": "2", "patience": "2", "data.validation": "0.2"}
    watch = watched(tmp_path, settings)
    lines = [line for line in watch.lines if line.startswith(("round ", "stopped"))]
    assert [line.split(":")[0] for line in lines[:3]] == [f"round {number} of 2" for number in range(3)]
    assert lines[3:] == ["stopped after epoch 16 of 18 (patience): validation was best after epoch 14"]


@pytest.mark.parametrize("maker", [partial(torch.optim.SGD, lr=0.1, momentum=0.9), partial(torch.optim.Adam, lr=0.1)])
def test_a_reset_head_has_no_old_momentum(maker):
    """And the tensors that a recorded step reads stay in place."""

    def step(optimizer):
        optimizer.zero_grad()
        objective(body(vectors), ids=torch.arange(40)).backward()
        optimizer.step()

    vectors = some_vectors(40)[0]
    body, objective = torch.nn.Linear(8, 8), DeepCluster(40, 8, clusters=4)
    parameters = [*body.parameters(), *objective.parameters()]
    optimizer = maker(parameters)
    step(optimizer)
    objective.update(vectors, ids=torch.arange(40))  # what `look` clusters
    before = {
        parameter: {name: (value.data_ptr(), value.clone()) for name, value in optimizer.state[parameter].items()}
        for parameter in parameters
    }
    steering_of(Run(), objective, optimizer, None).look(1)
    for parameter in parameters:
        for name, value in optimizer.state[parameter].items():
            place, old = before[parameter][name]
            assert value.data_ptr() == place
            assert torch.equal(value, old) if parameter in set(body.parameters()) else not value.any()
    fresh = {name: value.clone() for name, value in objective.head.state_dict().items()}
    body_before = {name: value.clone() for name, value in body.state_dict().items()}
    step(optimizer)
    found = objective.head.weight.detach().clone()
    objective.head.load_state_dict(fresh)
    body.load_state_dict(body_before)
    step(maker(parameters))
    assert torch.allclose(objective.head.weight, found)  # the first step of a new optimizer


def test_mutual_neighbors_and_refreshing_every_epoch(tmp_path):
    watch = watched(tmp_path, {"epochs": "4", "discovery.rounds": "1", "discovery.mutual": "true", "discovery.refresh": "epoch"})
    [line] = [line for line in watch.lines if line.startswith("round 1 of 1: ")]
    assert 0 < int(line.split()[4]) < 300  # some neighborhoods have no mutual neighbor
