"""Tuning for unseen classes: a whole run on small images, continued without training again, and the page."""

import json
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from nearkin.data.pixels import Framing
from nearkin.data.preprocess import IMAGENET
from nearkin.models.encoders import Encoder, Reading
from nearkin.models.mobilenet import MobileNetV2
from papers import tuning

CLASSES = 6


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    draw = np.random.default_rng(0)
    for at in range(CLASSES):
        (tmp_path / "cub200" / f"bird {at}").mkdir(parents=True)
        for number in range(6):
            pixels = draw.integers(0, 60, (40, 48, 3)) + 30 * at
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "cub200" / f"bird {at}" / f"{number}.png")
    torch.manual_seed(0)
    weights = tmp_path / "weights.pth"
    torch.save(MobileNetV2().state_dict(), weights)
    small = Encoder("mobilenet-v2", weights, Reading(Framing(32, 0.8, "bilinear"), IMAGENET))
    monkeypatch.setattr(tuning, "find_encoder", lambda *_: small)
    monkeypatch.setattr(tuning, "ProcessPoolExecutor", Here)
    places = ["--data-root", str(tmp_path), "--work", str(tmp_path / "work"), "--out", str(tmp_path / "docs" / "results")]
    return [*places, "--device", "cpu", "--epochs", "1", "--batch", "8", "--rates", "0.001", "--objectives", "proxy-anchor"]


class Here:
    """A pool that runs its jobs in this process, where the small encoder is known."""

    def __init__(self, *_: object) -> None: ...
    def __enter__(self) -> "Here":
        return self

    def __exit__(self, *_: object) -> None: ...
    def submit(self, function: Callable[[tuning.Job], dict[str, Any]], job: tuning.Job) -> Future[dict[str, Any]]:
        done: Future[dict[str, Any]] = Future()
        done.set_result(function(job))
        return done


@pytest.mark.soak
def test_a_run_is_saved_and_continues(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tuning.main([*words, "--seeds", "1", "--changes", "head"]) == 0
    saved = json.loads((tmp_path / "docs" / "results" / "tuning.json").read_text())
    trials = [key for key in saved if key.startswith("mobilenet-v2/validation/")]
    assert len(trials) == 2 and {"1", "0.5"} < set(saved[trials[0]]["scores"])
    assert saved["mobilenet-v2/untouched"]["features"] == 1280
    page = (tmp_path / "docs" / "papers" / "tuning.md").read_text()
    assert "| untouched |" in page and "head of 512" in page
    monkeypatch.setattr(tuning, "row_of", lambda _: pytest.fail("a saved row is trained again"))
    assert tuning.main([*words, "--seeds", "1", "--changes", "head"]) == 0


def test_settings_and_shares_are_chosen_on_validation_classes_and_tested_once(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def row(job: tuning.Job) -> dict[str, Any]:
        asked.append((job.part, job.setting.rate, job.setting.change, job.seed, tuple(job.shares)))
        value = {"0.0001": 0.6, "0.001": 0.7}[job.setting.rate] + (0.1 if job.setting.change == "longer" else 0)
        scores = {share: {"p@1": value - abs(float(share) - 0.75), "map@r": 0.1} for share in job.shares}
        return {"scores": scores, "loss": 1.0, "seconds": 1.0, "device": "none"}

    monkeypatch.setattr(tuning, "row_of", row)
    assert tuning.main([*words, "--rates", "0.0001,0.001", "--changes", "longer,head"]) == 0
    tried = [("0.0001", "none"), ("0.001", "none"), ("0.001", "longer"), ("0.001", "head")]
    trials = [("validation", *setting, 0, tuning.SHARES) for setting in tried]
    assert asked == [*trials, *(("test", "0.001", "longer", seed, ("0.75", "1")) for seed in (0, 1, 2))]


def test_parts_are_whole_classes_and_all_of_them(words: list[str]) -> None:
    arguments = tuning.parser().parse_args(words)
    tuning.store(arguments)
    parts = {name: tuning.images_of(arguments, name) for name in ("train", "validation", "both", "test")}
    assert {name: part.classes for name, part in parts.items()} == {
        "train": ("bird 0", "bird 1"),
        "validation": ("bird 2",),
        "both": ("bird 0", "bird 1", "bird 2"),
        "test": ("bird 3", "bird 4", "bird 5"),
    }
    assert all(len(part) == 6 * len(part.classes) for part in parts.values())


def test_a_mean_of_weights_leaves_the_head_as_it_was_trained() -> None:
    first = {"body.a": torch.zeros(2), "body.count": torch.tensor(3), "head.a": torch.zeros(2)}
    last = {"body.a": torch.full((2,), 4.0), "body.count": torch.tensor(5), "head.a": torch.ones(2)}
    found = dict(tuning.mixed(first, last, 0.25))
    assert found["body.a"].tolist() == [1, 1] and found["body.count"] == 5 and found["head.a"].tolist() == [1, 1]


def test_of_equal_shares_the_larger_is_taken() -> None:
    assert tuning.best_share({"scores": {"0.5": {"p@1": 0.7}, "1": {"p@1": 0.7}, "0.25": {"p@1": 0.6}}}) == ("1", 0.7)
