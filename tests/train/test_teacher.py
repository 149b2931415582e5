"""A teacher follows its student, embeds the second view of every point in training, and is in every checkpoint."""

from pathlib import Path

import pytest
import torch
from torch import nn

from nearkin import load
from nearkin.data import Dataset
from nearkin.data.augment import ColorJitter, Grayscale, HorizontalFlip, RandomResizedCrop, Swap, geometric
from nearkin.objectives import NeighborTargets
from nearkin.train import Run, Teacher, override, train
from nearkin.train.assemble import assemble
from nearkin.train.recipes import settings_for
from nearkin.train.step import Step
from nearkin.train.training import Loop

SETTINGS = {"network.name": "convnet", "network.dimension": "8", "objective.name": "neighbor_targets", "batch_size": "16", "epochs": "4"}
CPU = torch.device("cpu")


def images(n: int = 64) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (n, 3, 12, 12), dtype=torch.uint8, generator=generator)
    return Dataset("made", pixels, labels=torch.arange(n) % 4, classes=tuple("abcd"))


def run_of(**more: str) -> Run:
    return override(Run(), {**SETTINGS, **{name.replace("__", "."): value for name, value in more.items()}})


def test_a_teacher_moves_by_its_share_and_takes_no_gradient() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    teacher = Teacher(network, 0.9)
    before = {name: value.clone() for name, value in teacher.network.state_dict().items()}
    with torch.no_grad():
        for value in network.state_dict().values():
            value.add_(1)
    teacher.follow(network)
    for name, value in teacher.network.state_dict().items():
        expected = 0.9 * before[name] + 0.1 * network.state_dict()[name] if value.is_floating_point() else before[name]
        torch.testing.assert_close(value, expected)
    assert not teacher(torch.randn(5, 3)).requires_grad
    assert not any(parameter.requires_grad for parameter in teacher.parameters())


def test_the_view_of_the_teacher_keeps_the_colors() -> None:
    crop, flip = RandomResizedCrop(), HorizontalFlip()
    assert geometric((flip, crop, ColorJitter(), Grayscale(0.2))) == (flip, crop)
    assert geometric((Swap(0.3),)) == ()


@pytest.mark.parametrize("views", [1, 2])
def test_a_step_is_that_of_a_plain_loop(views: int) -> None:
    """One look of the teacher, an update for each view of the student, and what the teacher saw goes into the bank at the end."""
    torch.manual_seed(1)
    network, inputs = nn.Linear(5, 3).double(), torch.randn(12, 5, dtype=torch.float64)
    twin = nn.Linear(5, 3).double()
    twin.load_state_dict(network.state_dict())
    objectives = [NeighborTargets(12, 3, steps=4).double() for _ in range(2)]
    objectives[1].load_state_dict(objectives[0].state_dict())
    teachers = Teacher(network, 0.8), Teacher(twin, 0.8)
    optimizers = [torch.optim.SGD(one.parameters(), 0.1, momentum=0.9) for one in (network, twin)]
    step = Step(
        network, objectives[0], optimizers[0], read=inputs.__getitem__, answers=None, prepare=lambda x: x,
        generator=torch.Generator(), teacher=teachers[0], views=views,
    )  # fmt: skip
    for ids in torch.arange(12).split(4):
        step(ids)
        known, twice = teachers[1](inputs[ids]), torch.cat([ids, ids])
        for _ in range(views):
            both = torch.cat([twin(inputs[ids]), known])
            optimizers[1].zero_grad()
            objectives[1](both, ids=twice).backward()
            optimizers[1].step()
            teachers[1].follow(twin)
        objectives[1].update(both, ids=twice)
    torch.testing.assert_close(network.weight, twin.weight)
    torch.testing.assert_close(teachers[0].network.weight, teachers[1].network.weight)
    torch.testing.assert_close(objectives[0].bank.vectors, objectives[1].bank.vectors)


class CutError(Exception):
    pass


def test_a_training_that_was_cut_ends_as_if_it_had_not_been(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, data = run_of(checkpoint_seconds="0", views="2"), images()
    whole = train(run, tmp_path / "whole", data=data, device="cpu")
    ended = Loop._end_of_epoch

    def cut(self: Loop, points: int) -> None:
        ended(self, points)
        if self.epoch == 3:
            raise CutError

    monkeypatch.setattr(Loop, "_end_of_epoch", cut)
    with pytest.raises(CutError):
        train(run, tmp_path / "cut", data=data, device="cpu")
    monkeypatch.undo()
    again = train(run, tmp_path / "cut", data=data, device="cpu", resume=True)
    assert [one["loss"] for one in again["curve"]] == [one["loss"] for one in whole["curve"]]
    assert (tmp_path / "cut" / "weights.safetensors").read_bytes() == (tmp_path / "whole" / "weights.safetensors").read_bytes()
    assert whole["images"] == (run.views + 1) * whole["steps"] * 16  # the views of the teacher count


def test_the_objective_knows_the_length_of_the_training() -> None:
    parts = assemble(run_of(epochs="5"), images(70), CPU)
    assert parts.objective.steps == 5 * len(parts.sampler) == 20
    assert parts.step.teacher is not None and parts.step.teacher.training
    assert assemble(run_of(objective__name="instance_discrimination"), images(), CPU).step.teacher is None


def test_the_recipe_trains_with_a_projection_that_the_model_does_not_have(tmp_path: Path) -> None:
    """The bank holds what the projection gives; the embedding is the features before it, and the nearest class vector is not asked."""
    recipe = {**settings_for("discovery", "photos", {}), "epochs": "1", "least_steps": "0", "batch_size": "16"}
    run = override(Run(), recipe)
    parts = assemble(run, images(), CPU)
    assert parts.objective.known_dimension() == 128
    train(run, tmp_path / "model", data=images(), device="cpu")
    assert load(tmp_path / "model").encode(images().inputs).shape == (64, 512)
    proxies = override(run, {"objective.name": "proxy_anchor"})
    found = train(proxies, tmp_path / "proxies", data=images(), device="cpu")
    assert "class vectors" not in found["test"]


def test_another_network_leaves_out_the_options_of_the_recipes_own() -> None:
    assert "network.options.projection" in settings_for("discovery", "photos", {})
    assert "network.options.projection" not in settings_for("discovery", "photos", {"network.name": "convnet"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"augment__name": "none"}, "two views of every point, which are equal without augmentation; set augment.name"),
        ({"references": "training_set"}, r"references \(training_set\) does not go with neighbor_targets"),
        ({"chunk": "8", "network__name": "mlp"}, r"chunk \(8\) does not go with neighbor_targets.*leave it at 0"),
    ],
)
def test_what_does_not_go_with_a_teacher_is_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        assemble(run_of(**settings), images(), CPU)
