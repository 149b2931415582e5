"""A step that a CUDA graph records must not read values back to the host, and must not send any to the device.

Meta tensors detect this without a GPU: reading one raises, and so does mixing it with a tensor that has values.
"""

from contextlib import nullcontext

import pytest
import torch

from nearkin.compose import routes
from nearkin.data import Dataset
from nearkin.kernels import class_order
from nearkin.kernels.autograd import Soft
from nearkin.objectives import NCA, NeighborhoodDiscovery, WeightedSum, streaming
from nearkin.train.assemble import assemble
from nearkin.train.config import Run, override
from nearkin.train.objective_choice import OBJECTIVES
from papers.huang2019_trials import TRIALS

SETTINGS = {trial.name: trial.settings for trial in TRIALS}
POINTS, BATCH = 64, 16


@pytest.fixture
def valueless(monkeypatch):
    """Meta tensors stand for those of a GPU that is recording; the kernels, which have tests of their own, for their shapes."""

    def kernels(work, form, temperature, **more):
        return Soft(work.queries.sum(1), torch.ones_like(work.queries[:, 0], dtype=torch.bool))

    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    monkeypatch.setattr(routes, "MANY_PAIRS", 0)
    monkeypatch.setattr(routes, "MANY_ON_CUDA", 0)
    monkeypatch.setattr(class_order, "has_triton", lambda: False)
    monkeypatch.setattr(streaming, "soft_neighbors", kernels)


def assembled(settings):
    pixels = torch.randint(0, 256, (POINTS, 3, 32, 32), dtype=torch.uint8)
    data = Dataset("made", pixels, labels=torch.arange(POINTS) % 4, classes=tuple("abcd"))
    run = override(Run(), {**settings, "compile": "false", "batch_size": str(BATCH), "preprocess.name": "cifar"})
    parts = assemble(run, data, torch.device("cpu"))
    step, resident = parts.step, parts.loader.resident.to("meta")
    parts.network.to("meta")
    parts.objective.to("meta")
    if step.teacher is not None:
        step.teacher.to("meta")
    step.read, step.answers = resident.__getitem__, data.labels.to("meta")
    step.optimizer = torch.optim.SGD([*parts.network.parameters(), *parts.objective.parameters()], 0.1, momentum=0.9, nesterov=True)
    return step


def sent(*_, **__):
    raise AssertionError("a transfer cannot be recorded")


@pytest.mark.parametrize(
    "name",
    [
        "goal12",
        "base",
        "k5",
        "opt-views",
        "opt-weighted",
        "opt-each",
        "semi-ten",
        "semi-each-ten",
        "instance",
        "cluster",
        "noise",
        "alex10-and",
        "cub-and",
    ],
)
def test_nothing_of_a_step_is_read_back(name, request, monkeypatch):
    step = assembled(SETTINGS[f"and-{name}"])
    request.getfixturevalue("valueless")
    ids = torch.empty(BATCH, dtype=torch.int64, device="meta")
    step(ids)  # makes momenta, and sends what is kept on the device
    monkeypatch.setattr(torch, "tensor", sent)
    monkeypatch.setattr(torch, "from_numpy", sent)
    loss = step(ids)
    assert loss.shape == () and loss.device.type == "meta"


OTHERS = {"nca_regression", "direct_regression", "nca_of_sets"}  # take other labels than classes


@pytest.mark.parametrize("many", [0, 2**22], ids=["streamed", "small"])
@pytest.mark.parametrize("name", sorted({*OBJECTIVES} - OTHERS))
def test_what_is_said_to_be_recordable_is(name, many, request, monkeypatch):
    augment = "crop_flip" if name == "neighbor_targets" else "none"  # it needs two views
    step = assembled({"network.name": "mlp", "network.dimension": "8", "objective.name": name, "augment.name": augment})
    step.views = 2 if name in ("vicreg", "barlow_twins") else 1
    request.getfixturevalue("valueless")
    monkeypatch.setattr(routes, "MANY_PAIRS", many)
    monkeypatch.setattr(routes, "MANY_ON_CUDA", many)
    ids = torch.empty(BATCH, dtype=torch.int64, device="meta")
    assert step.objective.recordable(BATCH)
    step(ids)
    monkeypatch.setattr(torch, "tensor", sent)
    assert step(ids).shape == ()


def test_a_sum_is_recorded_if_all_of_its_terms_can_be(monkeypatch):
    nca, bank = NCA(), NeighborhoodDiscovery(50_000, 8)
    both = WeightedSum({"near": (1.0, nca), "bank": (0.1, bank)})
    assert both.recordable(2048)
    monkeypatch.setattr(nca, "recordable", lambda _: False)
    assert not both.recordable(2048)


def test_a_step_that_reads_back_is_noticed(request):
    step = assembled(SETTINGS["and-goal12"])
    request.getfixturevalue("valueless")
    step.prepare = lambda inputs: inputs[inputs[:, 0, 0, 0] > 0]
    with pytest.raises((RuntimeError, NotImplementedError)):
        step(torch.empty(BATCH, dtype=torch.int64, device="meta"))
