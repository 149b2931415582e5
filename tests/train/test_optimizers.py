import math

import numpy as np
import pytest
import torch
from torch import nn

from nearkin.train.config import OptimizerChoice, ScheduleChoice
from nearkin.train.optimizers import conjugate_gradient, flat, make_optimizer, make_schedule, set_rate, steady_rate, unflat

CPU = torch.device("cpu")


def factors(choice, epochs=10, each=10):
    schedule = make_schedule(choice, epochs, each)
    return [schedule.factor(step) for step in range(epochs * each)]


def test_constant_and_warm_up():
    values = factors(ScheduleChoice("constant", warmup=0.1))
    assert values[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert set(values[10:]) == {1.0}


def test_cosine_falls_to_zero():
    values = factors(ScheduleChoice("cosine", warmup=0.0))
    assert values[0] == 1.0
    assert values[50] == pytest.approx(0.5)
    assert values[-1] < 0.001
    assert all(a > b for a, b in zip(values, values[1:], strict=False))


def test_one_cycle_rises_then_falls():
    values = factors(ScheduleChoice("one_cycle"))
    top = values.index(max(values))
    assert max(values) <= 1.0
    assert 20 < top < 40
    assert values[-1] < 0.05


def test_milestones_are_shares_of_the_epochs():
    values = factors(ScheduleChoice("milestones", warmup=0.0, milestones=(0.6, 0.8)))
    assert values[59] == 1.0
    assert values[60] == pytest.approx(0.1)
    assert values[80] == pytest.approx(0.01)


def test_the_released_schedule_of_neighborhood_discovery():
    """lr(0) = lr(119) = .03, lr(120) = .003, lr(160) = .0003 of 200 epochs."""
    schedule = make_schedule(ScheduleChoice("milestones", warmup=0.0, milestones=(0.6, 0.8)), 200, 1)
    rates = [0.03 * schedule.factor(epoch) for epoch in (0, 119, 120, 159, 160, 199)]
    assert rates == pytest.approx([0.03, 0.03, 0.003, 0.003, 0.0003, 0.0003])


def test_plateau_waits_and_remembers():
    schedule = make_schedule(ScheduleChoice("plateau", warmup=0.0, patience=2), 10, 1)
    for value in (3.0, 2.0, 2.5, 2.5):
        schedule.epoch_ended(value)
    assert schedule.factor(4) == pytest.approx(0.1)
    other = make_schedule(ScheduleChoice("plateau", warmup=0.0, patience=2), 10, 1)
    other.restore(schedule.state())
    assert other.factor(4) == schedule.factor(4)
    assert other.state() == schedule.state()


def test_groups_keep_their_share_of_the_rate():
    a, b = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    optimizer = make_optimizer(OptimizerChoice("sgd", momentum=0.0), [{"params": [a], "rate": 0.1}, {"params": [b], "rate": 1.0}], CPU)
    set_rate(optimizer, 0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [0.05, 0.5]


def test_adam_and_unknown():
    parameter = nn.Parameter(torch.ones(2))
    optimizer = make_optimizer(OptimizerChoice("adam", epsilon=1e-2), [{"params": [parameter]}], CPU)
    assert optimizer.param_groups[0]["eps"] == 1e-2
    with pytest.raises(ValueError, match=r"optimizer.iterations \(0\) must be at least 1"):
        make_optimizer(OptimizerChoice("conjugate_gradient", iterations=0), [{"params": [parameter]}], CPU)


def test_conjugate_gradient_as_a_torch_optimizer_needs_a_closure_and_finds_the_minimum():
    parameter, still = nn.Parameter(torch.ones(3, dtype=torch.float64)), nn.Parameter(torch.ones(2))
    optimizer = make_optimizer(OptimizerChoice("conjugate_gradient", iterations=30), [{"params": [parameter, still]}], CPU)
    with pytest.raises(ValueError, match="pass a closure"):
        optimizer.step()

    def closure():
        optimizer.zero_grad()
        loss = (torch.tensor([1.0, 10.0, 100.0]) * parameter**2).sum()
        loss.backward()
        return loss.detach()

    assert float(optimizer.step(closure)) < 1e-6
    assert parameter.abs().max() < 1e-3
    assert bool((still == 1).all())


def test_conjugate_gradient_never_rises_and_finds_the_minimum():
    matrix = np.diag([1.0, 10.0, 100.0])

    def bowl(x):
        return float(x @ matrix @ x), 2 * matrix @ x

    found, trace = conjugate_gradient(bowl, np.ones(3), 50)
    assert np.abs(found).max() < 1e-3
    assert all(a >= b for a, b in zip(trace, trace[1:], strict=False))


def test_conjugate_gradient_does_not_take_a_small_gradient_for_a_minimum():
    """SciPy's own tolerance, 1e-5, would end it at the start."""
    bowl = np.array([1.0, 10.0, 100.0])
    found, trace = conjugate_gradient(lambda x: (1e-9 * float(bowl @ x**2), 2e-9 * bowl * x), np.ones(3), 50)
    assert np.abs(found).max() < 1e-3 and len(trace) > 1


def test_conjugate_gradient_decreases_nca_regression_on_a_network():
    from nearkin import NCARegression

    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    x, y = torch.randn(30, 4, dtype=torch.float64), torch.randn(30, 2, dtype=torch.float64)
    parameters, objective = list(network.parameters()), NCARegression()

    def loss(vector):
        unflat(vector, parameters)
        network.zero_grad()
        loss = objective(network(x), y)
        loss.backward()
        return float(loss.detach()), np.concatenate([p.grad.reshape(-1).numpy() for p in parameters])

    start = flat(parameters)
    before, _ = loss(start)
    _, trace = conjugate_gradient(loss, start, 20)
    assert trace[-1] < 0.9 * before
    assert all(a >= b - 1e-12 for a, b in zip(trace, trace[1:], strict=False))


def test_steady_rate_is_below_where_the_objective_turns():
    rates = [10 ** (-4 + 4 * i / 99) for i in range(100)]
    objectives = [1 - 0.5 * math.log10(r / 1e-4) / 3 if r < 0.1 else 1 + 10 * (r - 0.1) for r in rates]
    assert 0.02 < steady_rate(rates, objectives) < 0.1
    assert steady_rate(rates, [*objectives[:-1], math.nan]) == steady_rate(rates, [*objectives[:-1], objectives[-1]])
