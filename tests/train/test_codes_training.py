"""Binary codes from a Run to a model folder, an index and an evaluation: any objective, one bit per dimension."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from nearkin import cli
from nearkin.data import open as open_data
from nearkin.index.collection import build_index
from nearkin.models.folder import load
from nearkin.search.packing import pack
from nearkin.train.config import Run, override
from nearkin.train.training import train

QUICK = {"data.source": "digits", "network.name": "mlp", "network.dimension": "16", "epochs": "3", "codes.learn": "true"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("codes") / "model"
    assert cli.main(["train", "digits", "--out", str(folder), "--network", "mlp", "--dimension", "16", "--epochs", "3", "--codes"]) == 0
    return folder


def test_the_model_folder_stores_packed_codes_and_returns_signs(folder: Path) -> None:
    model, images = load(folder, device="cpu"), open_data("digits")
    some = images.read(images.ids[:20])
    codes = torch.as_tensor(model.encode(some))
    assert model.about["metric"] == "hamming" and set(codes.unique().tolist()) == {-1.0, 1.0}
    assert np.array_equal(model.codes(some), pack(codes)) and model.codes(some).shape == (20, 2)
    kept = load_file(folder / "references.safetensors")
    assert "embeddings" not in kept and kept["codes"].dtype == torch.uint8 and kept["codes"].shape[1] == 2
    assert model.references is not None and np.array_equal(pack(model.references.embeddings), kept["codes"].numpy())
    labels = images.labels
    assert labels is not None and float((torch.as_tensor(model.predict(some, numbers=True)) == labels[:20]).double().mean()) > 0.8
    assert "Hamming distance" in (folder / "README.md").read_text(encoding="utf-8")


def test_the_index_holds_two_bytes_per_point_and_is_searchable(folder: Path) -> None:
    collection, added = build_index(folder, open_data("digits"), device="cpu")
    now = collection.index.snapshot
    assert added.added == len(now) == 1797 and sum(part["vectors"].nbytes for part in now.segments) == 2 * 1797
    right = []
    for entry in collection.index.entries(range(100, 140)):
        hits = collection.search(entry.id, 10).hits
        assert len(hits) == 10 and all(hit.id != entry.id and hit.affinity == int(hit.affinity) for hit in hits)
        right += [hit.label == entry.label for hit in hits]
    assert np.mean(right) > 0.7
    assert collection.index.calibration is not None


@pytest.mark.soak
def test_codes_are_evaluated_like_any_model(folder: Path, capsys) -> None:
    assert cli.main(["evaluate", str(folder), "--no-pictures", "--device", "cpu"]) == 0
    assert "Hamming distance" in (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["softmax", "proxy_nca", "triplet", "precision_at_k", "instance_discrimination"])
def test_any_objective_can_learn_codes(tmp_path: Path, name: str) -> None:
    run = override(Run(), {**QUICK, "objective.name": name, "epochs": "1"})
    metrics = train(run, tmp_path / "m", device="cpu")
    assert load(tmp_path / "m", device="cpu").binary
    if name == "softmax":
        assert metrics["test"]["10-nn"] > 0.5


def test_the_pull_moves_outputs_to_the_corners(tmp_path: Path) -> None:
    gaps = []
    for pull in ("0", "5"):
        run = override(Run(), {**QUICK, "codes.pull": pull, "references": "training_set", "epochs": "10"})
        train(run, tmp_path / pull, device="cpu")
        model, data = load(tmp_path / pull, device="cpu"), open_data("digits")
        with torch.no_grad():
            outputs = model.network(model._prepared(data.read(data.ids[:300]))).tanh()
        gaps.append(float((1 - outputs.abs()).square().mean()))
    assert gaps[1] < 0.8 * gaps[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"network.normalize": "true"}, "set network.normalize=false"),
        ({"codes.pull": "-1.0"}, r"codes.pull \(-1.0\) must not be negative"),
        ({"codes.bits": "8"}, "setting 'codes.bits' is unknown"),
    ],
)
def test_impossible_settings_are_refused(tmp_path: Path, settings: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(override(Run(), {**QUICK, **settings}), tmp_path / "m", device="cpu")
