"""The learning-rate finder."""

import json
import math

import pytest
import torch

from nearkin.data import open as open_data
from nearkin.train.assemble import cut
from nearkin.train.config import Run, override
from nearkin.train.rate_finder import HIGHEST, LOWEST, find_rate

CPU = torch.device("cpu")
BASE = {"network.name": "mlp", "network.dimension": "8", "network.options.hidden": "[32]", "batch_size": "200"}


def sweep(settings, steps=40):
    run = override(Run(), {**BASE, **settings})
    return find_rate(run, cut(run, open_data("digits")).train, CPU, steps=steps)


def test_the_found_rate_lies_where_the_objective_fell(tmp_path):
    found = sweep({})
    assert LOWEST < found.rate < HIGHEST
    assert all(a < b for a, b in zip(found.rates, found.rates[1:], strict=False))
    at = min(range(len(found.rates)), key=lambda i: abs(found.rates[i] - found.rate))
    assert found.objectives[at] < found.objectives[0]
    found.save(tmp_path / "deep" / "learning_rate.json")
    assert json.loads((tmp_path / "deep" / "learning_rate.json").read_text())["rate"] == found.rate


def test_the_sweep_is_the_same_twice_and_leaves_the_run_alone():
    assert sweep({}, steps=12) == sweep({}, steps=12)


def test_a_diverging_loss_ends_the_sweep_early_and_is_written_as_a_number():
    found = sweep({"optimizer.name": "sgd", "objective.options.temperature": "0.001"}, steps=60)
    assert all(math.isfinite(value) for value in found.objectives)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="needs no learning rate"):
        sweep({"optimizer.name": "conjugate_gradient"})
    with pytest.raises(ValueError, match=r"steps \(1\) must be at least 2"):
        sweep({}, steps=1)
