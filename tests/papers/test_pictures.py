"""The arrays that runs save for pictures, and the pictures made of them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from papers import pictures, running, trial_run
from papers.cell import Trial
from papers.ledger import Job, Ledger
from papers.picture_data import extent, map_arrays, picture_file, spread
from papers.pictures import PICTURES, Picture
from papers.running import run_trials
from papers.tables import TABLES
from papers.trial_run import Place

SMALL = {"network.name": "convnet", "network.dimension": "2", "objective.name": "nearest_class_mean", "objective.options.anchors": "circle"}
TRIAL = Trial("made", "digits", {**SMALL, "epochs": "2"}, figure="class vectors", seeds=1)


def kept(trial: Trial, folder: Path) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    assert run_trials([trial], folder, Place("data", "cpu", str(folder)), [].append)
    return dict(np.load(picture_file(trial, folder))), Ledger.read(folder, trial).runs[0]["figures"]


def test_a_map_has_points_labels_anchors_and_its_extent(tmp_path: Path) -> None:
    arrays, figures = kept(replace(TRIAL, keep="map"), tmp_path)
    assert arrays["embeddings"].shape == (len(arrays["labels"]), 2) and arrays["anchors"].shape == (10, 2)
    assert set(arrays["labels"]) == set(range(10))
    assert figures["length"] == pytest.approx(np.sqrt((arrays["embeddings"] ** 2).sum(1).mean()), rel=1e-6)
    assert 0 < figures["spread about the mean"] <= figures["length"]
    assert {"1-nn", "class vectors"} <= set(figures)


def test_one_point_off_the_origin_has_a_length_and_no_spread() -> None:
    assert extent(np.full((5, 2), 3.0)) == {"length": pytest.approx(18**0.5), "spread about the mean": 0.0}
    two = extent(np.array([[1.0, 0.0], [-1.0, 0.0]]))
    assert two == {"length": 1.0, "spread about the mean": 1.0}


def test_a_collapsed_map_is_a_spot_in_the_frame_of_the_anchors() -> None:
    pytest.importorskip("matplotlib")
    generator = np.random.default_rng(0)
    labels, circle = np.arange(100) % 10, np.stack([np.cos(np.arange(10)), np.sin(np.arange(10))], 1)
    found = {
        "SoftMax": {"embeddings": generator.normal(size=(100, 2)), "labels": labels},
        "E-NCM": {"embeddings": circle[labels], "labels": labels, "anchors": circle},
        pictures.COLLAPSED: {"embeddings": np.full((100, 2), 0.2) + 1e-4 * generator.normal(size=(100, 2)), "labels": labels},
    }
    *_, last = pictures.flat(found).axes
    low, high = last.get_xlim()
    assert high == -low == pytest.approx(1.12 * np.abs(circle).max()) and not last.texts


def test_a_map_of_softmax_has_no_anchors(tmp_path: Path) -> None:
    settings = {"network.name": "convnet", "network.dimension": "2", "objective.name": "softmax", "epochs": "1"}
    arrays, _ = kept(replace(TRIAL, settings=settings, keep="map"), tmp_path)
    assert set(arrays) == {"embeddings", "labels"}


def test_filters_are_those_of_the_first_layer(tmp_path: Path) -> None:
    arrays, _ = kept(replace(TRIAL, keep="filters"), tmp_path)
    assert arrays["filters"].ndim == 4 and arrays["filters"].shape[1] == 1
    assert arrays["images"].dtype == np.uint8 and arrays["images"].shape[0] == 36


def test_a_curve_is_measured_without_the_test_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def train(run, folder, *, data, device):  # type: ignore[no-untyped-def]
        seen.append(set(data.parts))
        return real(run, folder, data=data, device=device)

    real = trial_run.train
    monkeypatch.setattr(trial_run, "train", train)
    settings = {**TRIAL.settings, "validate_every": "1"}
    arrays, figures = kept(replace(TRIAL, settings=settings, keep="curve"), tmp_path)
    assert seen == [{"train"}]
    assert arrays["class vectors"].shape == (2,) and figures["class vectors"] == pytest.approx(float(arrays["class vectors"][-1]))


def test_lost_arrays_are_made_again_and_both_trainings_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = replace(TRIAL, keep="map", seeds=2)
    kept(trial, tmp_path)
    done = []

    def perform(job: Job, _: Place) -> dict[str, object]:
        done.append(job.seed)
        return {"figures": {"1-nn": 0.5}, "seconds": 1.0}

    monkeypatch.setattr(running, "perform", perform)
    place = Place("data", "cpu", str(tmp_path))
    assert run_trials([trial], tmp_path, place, [].append) and done == []
    picture_file(trial, tmp_path).unlink()
    assert run_trials([trial], tmp_path, place, [].append) and done == [0]
    assert [(run["seed"], "earlier" in run) for run in Ledger.read(tmp_path, trial).runs] == [(0, True), (0, False), (1, False)]


def test_every_picture_has_trials_that_keep_what_it_needs() -> None:
    trials = {trial.name: trial for some, _ in TABLES.values() for trial in some}
    tables = {cell.table for _, cells in TABLES.values() for cell in cells}
    needs = {
        pictures.maps: "map",
        pictures.flat: "map",
        pictures.first_filters: "filters",
        pictures.convergence: "curve",
        pictures.attention: "rounds",
    }
    for picture in PICTURES:
        assert picture.table in tables
        assert {trials[name].keep for name in picture.trials} == {needs[picture.draw]}


def test_pictures_are_drawn_once_all_arrays_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    generator = np.random.default_rng(0)
    picture = Picture("drawn", "A table", "Two maps.", {"one": "first", "two": "second"}, pictures.maps)
    monkeypatch.setattr(pictures, "PICTURES", (picture,))
    points, labels = generator.normal(size=(500, 2)), generator.integers(0, 10, 500)
    np.savez(tmp_path / "one.npz", **map_arrays(points, labels))
    assert pictures.draw(tmp_path) == [] and pictures.picture_lines(tmp_path) == {}
    np.savez(tmp_path / "two.npz", **map_arrays(points, labels))
    assert pictures.draw(tmp_path) == [tmp_path / "drawn.png"]
    assert pictures.picture_lines(tmp_path)["A table"] == [f"![Two maps.](../{tmp_path.name}/drawn.png)", "", "Two maps.", ""]


def test_the_other_pictures_draw() -> None:
    pytest.importorskip("matplotlib")
    generator = np.random.default_rng(0)
    kernels, images = generator.normal(size=(32, 3, 5, 5)).astype(np.float16), generator.integers(0, 255, (36, 3, 32, 32), dtype=np.uint8)
    assert pictures.first_filters({"CIFAR-10": {"filters": kernels, "images": images}})
    assert pictures.convergence({"E-NCM": {"class vectors": np.linspace(0.9, 0.99, 10)}})


def test_rows_are_spread_evenly() -> None:
    assert spread(10, 4).tolist() == [0, 3, 6, 9] and spread(3, 10).tolist() == [0, 1, 2]
