"""Samplers that draw by the embeddings are shown them again before every epoch, by `train` and by `nearkin train`, and resume."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nearkin.cli import main
from nearkin.data import Dataset, HardClasses, NearNeighbors, near_classes
from nearkin.train.assemble import assemble
from nearkin.train.config import Run, override
from nearkin.train.state import capture_state, restore_state
from nearkin.train.training import train

SETTINGS = {"batch_size": "12", "epochs": "3", "network.name": "mlp", "network.dimension": "4", "data.validation": "0", "data.test": "0"}


def points() -> Dataset:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(8).repeat(9)
    x = torch.randn(8, 6, generator=generator)[labels] + 0.3 * torch.randn(72, 6, generator=generator)
    return Dataset("made", x, labels=labels, classes=tuple("abcdefgh"), split=np.full(72, "train"))


@pytest.mark.parametrize("name", ["hard_classes", "near_neighbors"])
def test_training_shows_the_embeddings_before_every_epoch(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def spy(kind: type) -> None:
        before = kind.look

        def look(self, embeddings, neighbors):  # type: ignore[no-untyped-def]
            before(self, embeddings, neighbors)
            seen.append((self, embeddings, neighbors(2), self.tensors()))

        monkeypatch.setattr(kind, "look", look)

    spy(HardClasses)
    spy(NearNeighbors)
    data = points()
    train(override(Run(), {**SETTINGS, "sampler.name": name}), tmp_path / "run", data=data, device="cpu")
    assert len(seen) == 3 and not torch.equal(seen[0][1], seen[2][1])  # three epochs, and the network has moved
    for sampler, embeddings, near, kept in seen:
        apart = torch.cdist(embeddings, embeddings).fill_diagonal_(torch.inf)
        assert torch.equal(near[:, 0].cpu(), apart.argmin(1))
        if name == "hard_classes":
            assert torch.equal(kept["near"], near_classes(embeddings, sampler.labels)[:, : kept["near"].shape[1]])
        else:
            assert torch.equal(kept["table"][:, :2], near.cpu())


@pytest.mark.parametrize("name", ["hard_classes", "near_neighbors"])
def test_what_a_sampler_saw_is_in_the_checkpoint(name: str) -> None:
    run = override(Run(), {**SETTINGS, "sampler.name": name})
    one, other = (assemble(run, points(), torch.device("cpu")) for _ in range(2))
    generator = torch.Generator().manual_seed(1)
    one.sampler.look(torch.randn(72, 4, generator=generator), lambda k: torch.randint(72, (72, k), generator=generator))
    running = iter(one.sampler)
    next(running)
    restore_state(other, *capture_state(one))
    assert torch.equal(next(running), next(iter(other.sampler)))


def test_the_command_line_takes_them(tmp_path: Path) -> None:
    data = points()
    assert isinstance(data.inputs, torch.Tensor) and data.labels is not None
    np.savez(tmp_path / "v.npz", x=data.inputs.numpy(), y=data.labels.numpy())
    words = [f"--set={leaf}={value}" for leaf, value in {**SETTINGS, "sampler.name": "hard_classes"}.items()]
    assert main(["train", str(tmp_path / "v.npz"), "--out", str(tmp_path / "run"), "--device", "cpu", *words]) == 0
    assert '"hard_classes"' in (tmp_path / "run" / "run.json").read_text()
