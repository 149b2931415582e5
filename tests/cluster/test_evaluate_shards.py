"""Evaluation over shards says what evaluation in memory says, of everything the nearest few decide."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from nearkin import cli
from nearkin.affinity import SquaredEuclidean
from nearkin.cluster.evaluate import judge, without
from nearkin.points import Points
from nearkin.run import Run, override
from nearkin.search import Neighbours
from nearkin.train.training import train
from tests.search.test_exact_shards import sharded

pytest.importorskip("pyarrow")

DIGITS = load_digits()


def trained(folder: Path, name: str, **arrays: Any) -> tuple[Path, Path]:
    """(model folder, its data): two epochs on a few digits, whose test part is given."""
    source = folder / f"{name}.npz"
    split = np.array(["train"] * 300 + ["test"] * 60)
    np.savez(source, x=(DIGITS.images[:360] * 15).astype(np.uint8), split=split, **arrays)
    settings = {"network.dimension": "6", "epochs": "1", "batch_size": "64", "checkpoint_seconds": "9999", "data.validation": "0"}
    train(override(Run(), {**settings, "data.source": str(source)}), folder / name, device="cpu")
    return folder / name, source


def page_of(model: Path, *options: str) -> dict[str, Any]:
    assert cli.main(["evaluate", str(model), "--device", "cpu", "--no-pictures", *options]) == 0
    page: dict[str, Any] = json.loads((model / "evaluation.json").read_text())
    return page


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """(model, data, shards of all data)."""
    folder = tmp_path_factory.mktemp("classes")
    model, source = trained(folder, "digits", labels=DIGITS.target[:360])
    assert cli.main(["embed", str(model), str(source), "--out", str(folder / "shards"), "--shard-rows", "100", "--device", "cpu"]) == 0
    return model, source, folder / "shards"


def test_shards_of_the_training_part_say_what_the_training_part_says(classes: tuple[Path, Path, Path], tmp_path: Path) -> None:
    model, source, _ = classes
    with np.load(source) as held:
        np.savez(tmp_path / "digits.npz", x=held["x"][:300], labels=held["labels"][:300])
    assert cli.main(["embed", str(model), str(tmp_path / "digits.npz"), "--out", str(tmp_path / "s"), "--shard-rows", "70"]) == 0
    # The test part's rows have numbers from 300, so nobody here is their own neighbour.
    in_memory, over = page_of(model)["by_k"], page_of(model, "--shards", str(tmp_path / "s"))["scores"]["prediction from neighbours"]
    assert set(over) == {f"{k}-nn" for k in in_memory} and len(over) == 8
    for k, score in in_memory.items():
        assert score["value"] == over[f"{k}-nn"]["value"] and score["low"] == over[f"{k}-nn"]["low"]


def test_a_query_that_is_in_the_shards_is_not_its_own_neighbour(
    classes: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    model, _, shards = classes
    page = page_of(model, "--shards", str(shards))
    assert page["references"]["points"] == 360 and page["queries"]["points"] == 60
    assert page["scores"]["prediction from neighbours"]["1-nn"]["value"] < 1  # each would be right by itself
    assert "60 queries (test) answered by 360 points" in capsys.readouterr().out


def test_numbers_are_judged_by_their_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, source = trained(tmp_path, "numbers", targets=DIGITS.target[:360].astype(np.float32))
    assert cli.main(["embed", str(model), str(source), "--out", str(tmp_path / "s"), "--device", "cpu"]) == 0
    found = page_of(model, "--shards", str(tmp_path / "s"))["scores"]["prediction from neighbours"]
    assert {"mae", "rmse", "r2"} <= set(found) and found["mae"]["value"] < found["mae"]["chance"]


def test_vectors_of_another_model_are_refused(classes: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, source, shards = classes
    other, _ = trained(tmp_path, "other", labels=DIGITS.target[:360] % 2)
    assert cli.main(["evaluate", str(other), str(source), "--shards", str(shards), "--device", "cpu"]) == 1
    assert "holds vectors of other weights" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["--compare"], "--compare needs the references in memory"),
        (["--address", "h:1"], "--address is of a Ray cluster; give --engine ray, too"),
    ],
)
def test_options_that_do_not_go_together(
    classes: tuple[Path, Path, Path], options: list[str], match: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evaluate", str(classes[0]), "--shards", str(classes[2]), *options]) == 1
    assert match in capsys.readouterr().err


def test_shards_without_labels_cannot_judge(tmp_path: Path) -> None:
    found = sharded(tmp_path / "s", np.eye(4, dtype=np.float32), [4])
    with pytest.raises(ValueError, match="has no labels to judge neighbours by: it knows only ids"):
        judge(Points(torch.eye(4), torch.arange(4)), ["?"] * 4, found, SquaredEuclidean())


def test_ones_own_position_is_left_out_and_the_rest_keeps_its_order() -> None:
    found = Neighbours(torch.tensor([[4, 7, 1], [2, 0, 9]]), -torch.arange(6.0).reshape(2, 3))
    left = without(found, torch.tensor([7, -1]), 2)
    assert left.positions.tolist() == [[4, 1], [2, 0]] and left.affinity.tolist() == [[0, -2], [-3, -4]]
