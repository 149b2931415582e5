"""The contest of encoders: parts that share nothing, rows that are saved, and a page with all of them."""

import json
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
import torch

from nearkin.data import Dataset
from nearkin.data.pixels import Framing
from nearkin.data.preprocess import IMAGENET
from nearkin.models.encoders import Encoder, Reading
from nearkin.models.mobilenet import MobileNetV2
from nearkin.train import recipes
from papers import contest, encoder_tuning, encoders, tuning

OTHERS = ("all", "PML triplet", "PML proxy anchor", "PML multi-similarity")


class Here:
    """A pool that runs its jobs in this process."""

    def __init__(self, *_: object) -> None: ...
    def __enter__(self) -> "Here":
        return self

    def __exit__(self, *_: object) -> None: ...
    def submit(self, function: Callable[..., Any], *given: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(function(*given))
        except Exception as error:
            done.set_exception(error)
        return done


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    monkeypatch.setattr(contest, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # the program divides them among its processes
    yield
    encoders.kept_features.cache_clear()


@pytest.fixture
def features() -> Dataset:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(240) % 12
    x = torch.randn(240, 16, generator=generator) * torch.linspace(0.5, 4, 16) + 3 * torch.eye(16)[labels]
    return Dataset("toy", x, labels=labels, classes=tuple("abcdefghijkl"))


@pytest.mark.parametrize(("kind", "labels"), [("seen", 5), ("seen", None), ("unseen", None)])
def test_parts_share_no_point_and_unseen_classes_are_not_trained_on(features, kind, labels):
    task = encoders.task_of(features, kind, labels, 0)
    parts = [{tuple(row) for row in part.inputs.tolist()} for part in (task.train, task.validation, task.test)]
    assert not (parts[0] & parts[1] or parts[0] & parts[2] or parts[1] & parts[2])
    trained, held, tested = (set(part.labels.tolist()) for part in (task.train, task.validation, task.test))
    assert (tested == trained) == (kind == "seen") and bool(trained & held) == (kind == "seen") and (kind == "seen" or not trained & tested)
    if labels is not None:
        assert task.train.labels.bincount().tolist() == [labels] * 12
    assert encoders.task_of(features, kind, labels, 1).test.ids.tolist() != task.test.ids.tolist() or kind == "unseen"


def test_every_row_is_saved_once_and_on_the_page(features, tmp_path, monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(encoders, "features_of", lambda *_: calls.append(1) or features)
    monkeypatch.setattr(encoders, "SEEDS", (0,))
    monkeypatch.setattr(encoders, "EPOCHS", 1)
    words = ["--sets", "toy", "--out", str(tmp_path / "results"), "--work", str(tmp_path / "work")]
    assert encoders.main(words) == 0 and encoders.main(words) == 0 and len(calls) == 1  # the second time nothing is missing
    saved = json.loads((tmp_path / "results" / "encoders.json").read_text())
    assert set(saved) == set(encoders.keys("toy", list(encoders.METHODS))) and len(saved) == 23
    assert saved["toy/seen/all/linear map/0"]["scores"]["map@r"] > saved["toy/seen/all/frozen/0"]["scores"]["map@r"]
    page = (tmp_path / "papers" / "encoders.md").read_text()
    assert "## toy, seen classes, 5 labels a class" in page and "## toy, unseen classes" in page and "(its accuracy)" in page


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """Small images of ten classes beside features of them, and an encoder with random weights; returns the words of a command."""
    draw, labels = np.random.default_rng(0), np.arange(60) % 10
    pixels = (draw.integers(0, 60, (60, 3, 40, 40)) + 18 * labels[:, None, None, None]).astype(np.uint8)
    torch.manual_seed(0)
    torch.save(MobileNetV2().state_dict(), tmp_path / "weights.pth")
    small = Encoder("mobilenet-v2", tmp_path / "weights.pth", Reading(Framing(32, 0.8, "bilinear"), IMAGENET))
    monkeypatch.setattr(tuning, "find_encoder", lambda *_: small)
    monkeypatch.setattr(encoders, "SEEDS", (0,))
    monkeypatch.setattr(encoders, "LABELS", (3,))
    monkeypatch.setattr(encoder_tuning, "STEPS", 2)
    monkeypatch.setattr(encoder_tuning, "EPOCHS", 1)
    monkeypatch.setattr(recipes, "PHOTOS", {**recipes.PHOTOS, "least_steps": "2", "epochs": "1"})
    work = tmp_path / "work"
    work.mkdir()
    np.save(work / "toy-mobilenet-v2.npy", pixels)
    (work / "toy-mobilenet-v2.json").write_text(json.dumps({"labels": labels.tolist(), "classes": list("abcdefghij")}))
    np.savez(work / "toy-features.npz", features=draw.standard_normal((60, 1280)).astype(np.float32), labels=labels)
    return ["--sets", "toy", "--out", str(tmp_path / "results"), "--work", str(work), "--device", "cpu", "--batch", "8"]


@pytest.mark.parametrize("method", ["LoRA", "kept triplet", *(pytest.param(name, marks=pytest.mark.soak) for name in OTHERS)])
def test_rows_that_train_the_encoder(pictures, tmp_path, method):
    if method.startswith("PML"):
        pytest.importorskip("pytorch_metric_learning")
    assert encoders.main([*pictures, "--methods", method]) == 0
    saved = json.loads((tmp_path / "results" / "encoders.json").read_text())
    assert set(saved) == {f"toy/seen/3/{method}/0", f"toy/unseen/all/{method}/0"}
    assert all(0 <= row["scores"]["1-nn"] <= 1 and row["points"]["train"] >= 16 for row in saved.values())
    assert encoders.ABOUT[method] in (tmp_path / "papers" / "encoders.md").read_text()


def trained(one: float, mean: float, kept: str) -> dict[str, Any]:
    """A saved row."""
    return {"scores": {"1-nn": one, "map@r": one}, "validation": {"1-nn": mean, "map@r": mean}, "kept": kept, "seconds": 1.0}


def test_the_objective_is_chosen_on_the_validation_part_of_each_seed(monkeypatch):
    monkeypatch.setattr(encoders, "SEEDS", (0, 1))
    group, names = "toy/seen/3", list(encoder_tuning.OBJECTIVES)
    saved = {f"{group}/kept {name}/0": trained(at / 10, 0.9 if at == 1 else 0.5, "map") for at, name in enumerate(names)}
    saved |= {f"{group}/kept {name}/1": trained(at / 10, 0.9 if at == 3 else 0.5, "frozen") for at, name in enumerate(names)}
    assert [row["scores"]["1-nn"] for row in encoders.chosen(saved, group)] == [0.1, 0.3]
    page = encoders.page_of(saved)
    assert "| the same with the objective that the validation part chooses (ours) | 20.0" in page
    assert "| toy, seen classes, 3 labels a class | 50.0 (1, 1, 0) | 70.0 (1, 1, 0) |" in page
    del saved[f"{group}/kept {names[0]}/1"]
    assert len(encoders.chosen(saved, group)) == 1  # of a seed for which one was not run nothing is chosen


def test_a_training_takes_enough_steps_and_batches_that_its_classes_can_fill():
    many, few = torch.arange(60).repeat(40), torch.arange(8).repeat(5)
    assert encoder_tuning.plan_of(many, 96) == (96, 4, 6)
    plan = encoder_tuning.plan_of(few, 96)
    assert plan == (40, 12, 150) and len(encoder_tuning.PerClass(few, plan.batch, per_class=plan.per_class, seed=0)) == 1


def test_no_row_starts_after_the_time_and_a_failing_row_stops_no_other(tmp_path, capsys):
    saved = contest.Rows(tmp_path / "rows.json")
    assert contest.run_rows(saved, ["a", "b"], lambda key: {"is": key}, seconds=0) == 0 and not saved

    def row(key):
        return {"is": key, "inverse": 1 / len(key)}

    assert contest.run_rows(saved, ["a", "", "b"], row) == 1
    assert set(contest.Rows(tmp_path / "rows.json")) == {"a", "b"} and " failed: ZeroDivisionError" in capsys.readouterr().out
