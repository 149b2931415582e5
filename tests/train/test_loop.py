"""The plain training loop: it learns, is reproducible, and calls objective and reporter as documented."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from nearkin.compose.points import Points
from nearkin.evaluate import knn_accuracy
from nearkin.models.small_convnet import convnet
from nearkin.objectives import NCA, InstanceDiscrimination, Objective, Softmax
from nearkin.train.loop import Epoch, embed, fit, one_cycle, save

CLASSES = 3


def bars(n: int = 60, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Noisy 8 x 8 images: an upright bar, a lying one, or a square, anywhere."""
    random = torch.Generator().manual_seed(seed)
    images = 0.2 * torch.rand(n, 1, 8, 8, generator=random)
    labels = torch.arange(n) % CLASSES
    for image, label, (top, left) in zip(images, labels, torch.randint(0, 3, (n, 2), generator=random).tolist(), strict=True):
        high, wide = [(6, 1), (1, 6), (3, 3)][int(label)]
        image[0, top : top + high, left : left + wide] += 0.8
    return images, labels


def network(seed: int = 0, dimension: int = 2) -> nn.Module:
    torch.manual_seed(seed)
    return convnet((1, 8, 8), dimension, widths=(4, 8), hidden=8)


def train(objective: Objective, seed: int = 0, **options: Any) -> tuple[nn.Module, list[float]]:
    images, labels = bars()
    made = network()
    settings: dict[str, Any] = {"epochs": 3, "batch_size": 20, "learning_rate": 0.02, **options}
    return made, fit(made, objective, images, labels, seed=seed, **settings)


@pytest.mark.parametrize("make", [NCA, lambda: Softmax(CLASSES, 2)])
def test_it_learns(make: Any) -> None:
    torch.manual_seed(0)
    made, losses = train(make(), epochs=12)
    assert losses[-1] < 0.5 * losses[0]
    known, queries = (Points(embed(made, images), labels) for images, labels in (bars(), bars(seed=1)))
    assert knn_accuracy(queries, known, 1) > 0.85


def test_the_same_seed_gives_the_same_weights_bit_for_bit_and_another_does_not() -> None:
    first, losses = train(NCA(), seed=5)
    torch.rand(7)  # whatever else draws from torch's generator in between
    second, again = train(NCA(), seed=5)
    other, _ = train(NCA(), seed=6)
    assert losses == again
    assert all(torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True))
    assert not torch.equal(next(first.parameters()), next(other.parameters()))


def test_dropout_follows_the_seed_and_the_global_generator_is_unchanged() -> None:
    images, labels = bars()

    def weights() -> Tensor:
        torch.manual_seed(0)
        made = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 2))
        torch.manual_seed(123)
        expected = torch.random.get_rng_state()
        fit(made, NCA(), images, labels, epochs=1, batch_size=20, learning_rate=0.1, seed=1)
        assert torch.equal(torch.random.get_rng_state(), expected)
        torch.rand(3)
        return made[2].weight

    assert torch.equal(weights(), weights())


class Recorder(Objective):
    """An objective that records its calls: which ids, in which order."""

    def __init__(self) -> None:
        super().__init__()
        self.real = NCA()
        self.scale = nn.Parameter(torch.ones(()))
        self.calls: list[tuple[str, list[int], list[int]]] = []

    @property
    def supervision(self) -> Any:
        return "classes"

    def outcome(self, batch: Points, references: Points | None) -> Any:
        assert batch.labels is not None and batch.ids is not None
        self.calls.append(("loss", batch.ids.tolist(), batch.labels.tolist()))
        return self.real.outcome(batch._replace(embeddings=batch.embeddings * self.scale), references)

    def update(self, embeddings: Tensor, labels: Any = None, *, ids: Any = None) -> None:
        assert not embeddings.requires_grad
        self.calls.append(("update", ids.tolist(), labels.tolist()))


def test_every_image_comes_once_an_epoch_with_its_id_and_the_update_follows_the_step() -> None:
    objective = Recorder()
    train(objective, epochs=2, batch_size=25)
    labels = bars()[1].tolist()
    valid = [call for call in objective.calls if call[0] == "loss"]
    assert [len(ids) for _, ids, _ in valid] == [20] * 6  # even batches: 60 in 3, not 25 + 25 + 10
    for epoch in (valid[:3], valid[3:]):
        assert sorted(i for _, ids, _ in epoch for i in ids) == list(range(60))
    assert valid[0][1] != valid[3][1]
    assert all(labels[i] == label for _, ids, here in valid for i, label in zip(ids, here, strict=True))
    assert [name for name, _, _ in objective.calls] == ["loss", "update"] * 6
    assert objective.scale.item() != 1  # the objective's own parameters are trained, too


def test_a_memory_bank_is_moved_to_the_embeddings() -> None:
    images, _ = bars()
    torch.manual_seed(0)
    objective = InstanceDiscrimination(len(images), 4)
    made = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    fit(made, objective, images, None, epochs=12, batch_size=20, learning_rate=1e-6, seed=0)  # the network all but stands still
    bank = objective.references(Points(embed(made, images), ids=torch.arange(60))).embeddings
    assert float(nn.functional.cosine_similarity(bank, embed(made, images)).min()) > 0.999


def test_every_epoch_is_reported() -> None:
    heard: list[Epoch] = []
    _, losses = train(NCA(), epochs=3, report=heard.append)
    assert [(epoch.number, epoch.of) for epoch in heard] == [(1, 3), (2, 3), (3, 3)]
    assert [epoch.loss for epoch in heard] == losses


def test_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    train(NCA(), epochs=1)
    assert capsys.readouterr() == ("", "")


def test_the_learning_rate_rises_to_its_peak_and_falls_to_zero() -> None:
    rates = [one_cycle(step, 100) for step in range(101)]
    assert rates[0] < 0.05 and rates[30] == 1.0 and max(rates) == 1.0 and abs(rates[100]) < 1e-12
    assert rates[:31] == sorted(rates[:31]) and rates[30:] == sorted(rates[30:], reverse=True)
    assert all(0 <= one_cycle(step, steps) <= 1 for steps in range(1, 12) for step in range(steps))
    assert one_cycle(0, 1) > 0


def test_embed_works_in_parts_in_evaluation_mode_and_restores_the_mode() -> None:
    made, (images, _) = network(), bars()
    made.train()
    whole, parts = embed(made, images), embed(made, images, batch_size=7)
    torch.testing.assert_close(whole, parts)
    assert made.training and not whole.requires_grad
    torch.testing.assert_close(whole, made.eval()(images).detach())


def test_save_writes_what_is_needed_to_rebuild_the_network(tmp_path: Path) -> None:
    made, (images, labels) = network(), bars()
    options = {"widths": [4, 8], "hidden": 8}
    save(tmp_path / "new", made, {"network": options}, Points(embed(made, images), labels))
    about = json.loads((tmp_path / "new" / "model.json").read_text())
    again = convnet((1, 8, 8), 2, **about["network"])
    again.load_state_dict(load_file(tmp_path / "new" / "weights.safetensors"))
    references = load_file(tmp_path / "new" / "references.safetensors")
    assert torch.equal(embed(again, images), references["embeddings"]) and torch.equal(references["labels"], labels)
    save(tmp_path / "bare", made, {})
    assert not (tmp_path / "bare" / "references.safetensors").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, r"epochs \(0\) must be a whole number of at least 1"),
        ({"batch_size": 1}, r"batch_size \(1\) must be a whole number of at least 2"),
        ({"learning_rate": 0.0}, r"learning_rate \(0.0\) must be a finite number above 0"),
        ({"learning_rate": float("nan")}, r"learning_rate \(nan\) must be a finite number above 0"),
    ],
)
def test_errors_in_the_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(NCA(), **options)


def test_errors_in_the_data() -> None:
    images, labels = bars()
    settings: dict[str, Any] = {"epochs": 1, "batch_size": 10, "learning_rate": 0.1, "seed": 0}
    with pytest.raises(ValueError, match="labels has 59 entries for 60 images"):
        fit(network(), NCA(), images, labels[1:], **settings)
    with pytest.raises(ValueError, match="images has 1 entries; give at least 2"):
        fit(network(), NCA(), images[:1], labels[:1], **settings)
