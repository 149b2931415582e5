"""Poses as numbers, the splits of the tasks, and every method of Taylor et al. from end to end on a handful of images."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from nearkin.compose.points import Points
from papers import taylor2010 as t
from papers.cell import Trial
from papers.pose import (
    degrees_between,
    degrees_between_own_zero,
    degrees_of,
    fitting_temperature,
    measure_pose,
    pixels_between,
    soft_prediction,
    turns,
)
from tests.data.picture_files import save_tree


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_turns_and_degrees_are_each_other_undone() -> None:
    degrees = torch.arange(0, 360, 5.0)
    torch.testing.assert_close(degrees_of(3 * turns(degrees)).float(), degrees, atol=1e-4, rtol=0)
    assert turns(torch.tensor([90.0]))[0].tolist() == pytest.approx([1, 0], abs=1e-6)


@pytest.mark.parametrize(("a", "b", "apart"), [(0, 355, 5), (10, 190, 180), (350, 20, 30), (45, 45, 0), (0, 90, 90)])
def test_degrees_between_go_the_short_way_round(a: float, b: float, apart: float) -> None:
    for x, y in ((a, b), (b, a)):
        found = degrees_between(turns(torch.tensor([float(x)])), turns(torch.tensor([float(y)])))
        assert float(found) == pytest.approx(apart, abs=1e-4)


def test_an_objects_own_zero_is_forgiven_and_nothing_else() -> None:
    true = torch.tensor([0.0, 90, 200, 10, 50, 350])
    objects = torch.tensor([0, 0, 0, 1, 1, 1])
    shifted = turns(true + torch.where(objects == 0, 70.0, -160.0))
    assert float(degrees_between(shifted, turns(true)).mean()) == pytest.approx(115, abs=1e-3)
    assert float(degrees_between_own_zero(shifted, turns(true), objects).max()) < 1e-3
    backwards = turns(-true[:3])
    assert float(degrees_between_own_zero(backwards, turns(true[:3]), objects[:3]).mean()) > 20


def test_pixels_between_is_the_mean_distance_of_the_places() -> None:
    true = torch.zeros(2, 4)
    predicted = torch.tensor([[3.0, 4.0, 0.0, 0.0], [0.0, 1.0, 5.0, 12.0]])
    assert pixels_between(predicted, true).tolist() == [2.5, 7.0]


def test_soft_prediction_equals_the_loop() -> None:
    z, x, y, temperature = random(7, 3), random(4, 3, seed=1), random(7, 2, seed=2), 1.7
    expected = []
    for query in x:
        weights = [math.exp(-sum((a - b) ** 2 for a, b in zip(query.tolist(), one.tolist(), strict=True)) / temperature) for one in z]
        expected.append([sum(w * v for w, v in zip(weights, y[:, c].tolist(), strict=True)) / sum(weights) for c in range(2)])
    torch.testing.assert_close(soft_prediction(x, Points(z, y), temperature), torch.tensor(expected, dtype=torch.float64))
    alone = soft_prediction(z[:1], Points(z, y), temperature, own=torch.tensor([0]))
    torch.testing.assert_close(alone, soft_prediction(z[:1], Points(z[1:], y[1:]), temperature))


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    known, queries = Points(random(9, 3), random(9, 2, seed=1)), random(8, 3, seed=2)
    whole = soft_prediction(queries, known, 0.5)
    monkeypatch.setattr("papers.pose.CHUNK", 3)
    torch.testing.assert_close(soft_prediction(queries, known, 0.5), whole)


def test_a_temperature_is_found_whatever_the_scale() -> None:
    z = random(300, 1, seed=3)
    known = Points(z, z + 0.3 * random(300, 1, seed=4))
    heat = fitting_temperature(known)
    assert fitting_temperature(Points(10 * z, known.labels)) == pytest.approx(100 * heat, rel=1e-3)
    nearest_alone = float((soft_prediction(z, known, 1e-9, torch.arange(300)) - known.labels).square().mean())
    assert float((soft_prediction(z, known, heat, torch.arange(300)) - known.labels).square().mean()) < nearest_alone


def test_measured_poses_of_a_perfect_and_of_a_blind_embedding() -> None:
    known, queries = torch.arange(0, 360, 10.0), torch.arange(5, 360, 10.0)
    perfect = measure_pose(Points(turns(queries), turns(queries)), Points(turns(known), turns(known)), "degrees")
    assert perfect["1-nn degrees"] == pytest.approx(5, abs=1e-3) and perfect["soft degrees"] < 0.1
    blind = measure_pose(Points(random(36, 2), turns(queries)), Points(random(36, 2, seed=1), turns(known)), "degrees", 1.0)
    assert 60 < blind["1-nn degrees"] < 120
    places = Points(random(5, 3), random(5, 6, seed=1))
    assert measure_pose(places, places, "pixels", 1e-6) == pytest.approx({"1-nn pixels": 0, "soft pixels": 0}, abs=1e-9)
    with pytest.raises(ValueError, match="labels are None; poses are measured against the true ones"):
        measure_pose(Points(random(5, 3)), places, "pixels")


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root with 20 objects at 8 turns each, and tasks of the same kinds on it and on a few figures."""
    rows = [(f"obj{number:02}", degrees) for number in range(1, 21) for degrees in (0, 5, 10, 15, 20, 25, 30, 40)]
    save_tree(tmp_path / "coil20", *(f"{name}_{degrees}.png" for name, degrees in rows), channels=1)
    lines = [f"{name}_{degrees}.png,{name},{degrees}" for name, degrees in rows]
    (tmp_path / "coil20" / "manifest.csv").write_text("\n".join(["path,object,degrees", *lines]) + "\n")
    monkeypatch.setattr(
        t,
        "TASKS",
        {
            "figures": t.Task("pixels", 64, "figures", 60, 20),
            "angles": t.Task("degrees", 64, "angles"),
            "objects": t.Task("degrees", 64, "objects"),
        },
    )
    t._posed.cache_clear()
    return tmp_path


def test_cuts_never_mix(few: Path) -> None:
    angles = t._posed("angles", str(few))
    degrees = degrees_of(angles.targets).round().long() % 360
    test = torch.from_numpy(angles.split == "test")
    assert set(degrees[test].tolist()) == {5, 15, 25} and set(degrees[~test].tolist()) == {0, 10, 20, 30, 40}
    held = t._held_out(t.TASKS["angles"], angles)
    assert len(held) == int((~test).sum())
    inner = degrees_of(held.part("test").targets).round().long() % 360
    assert set(inner.tolist()) == {10, 30}
    objects = t._posed("objects", str(few))
    assert set(objects.part("test").labels.tolist()) == set(t.UNSEEN_OBJECTS)
    inner_objects = t._held_out(t.TASKS["objects"], objects)
    seen = set(inner_objects.part("train").labels.tolist())
    assert set(inner_objects.part("test").labels.tolist()) == set(t.VALIDATION_OBJECTS)
    assert not seen & (set(t.UNSEEN_OBJECTS) | set(t.VALIDATION_OBJECTS)) and len(seen) == 12
    figures = t._posed("figures", str(few))
    assert t._held_out(t.TASKS["figures"], figures).parts == {"train": 45, "test": 15}


def test_the_opposite_of_a_view_is_never_a_reference_neither_when_testing_nor_when_choosing() -> None:
    """Objects that look alike from behind would be taken for their back, and the two errors could not be compared."""
    circle = t.Dataset("circle", torch.zeros(72, 1, 32, 32, dtype=torch.uint8), targets=turns(torch.arange(0, 360, 5.0)))
    whole = circle.with_split(np.where(np.arange(72) % 2 == 1, "test", "train"))
    for data in (whole, t._held_out(t.Task("degrees", 32, "angles"), whole)):
        known, queries = (set((degrees_of(data.part(name).targets).round().long() % 360).tolist()) for name in ("train", "test"))
        assert len(known) == len(queries) and not {(degrees + 180) % 360 for degrees in queries} & known


LINEAR = ("linear_nca_regression", "mlkr")


@pytest.mark.parametrize("method", ["chance", "pixels", "pca", *LINEAR])
def test_methods_without_a_network(few: Path, method: str) -> None:
    settings = {"method": method, "dimension": "4", "first": "8", "iterations": "3", "preprocess": "local_contrast"}
    for data, unit in (("figures", "pixels"), ("objects", "degrees")):
        found = t.perform(Trial("x", data, settings, method="pose"), 0, {}, few, "cpu")
        assert {f"1-nn {unit}", f"soft {unit}"} <= set(found) and all(np.isfinite(value) for value in found.values())
        again = t.perform(Trial("x", data, settings, method="pose"), 0, {}, few, "cpu")
        assert again == pytest.approx(found, rel=1e-4)


@pytest.mark.parametrize("row", ["c-ncar", "direct"])
@pytest.mark.parametrize("short", ["figures", "angles"])
def test_trials_with_a_network(few: Path, row: str, short: str) -> None:
    whole = next(one for one in t.TRIALS if one.name == f"taylor2010-{short}-{row}")
    trial = Trial(whole.name, short, {**whole.settings, "epochs": "2", "batch_size": "20"}, tuning_epochs=1, method="pose")
    chosen = {"optimizer.learning_rate": "0.01"}
    found = t.perform(trial, 0, chosen, few, "cpu")
    unit = "pixels" if short == "figures" else "degrees"
    assert {f"1-nn {unit}", f"soft {unit}"} <= set(found) and (f"direct {unit}" in found) == (row == "direct")
    assert all(0 <= value < 180 for value in found.values())
    held = t.perform(trial, 0, chosen, few, "cpu", validation=True)
    assert set(held) == set(found) and held != found


def test_the_test_part_is_not_looked_at_when_choosing(few: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stands in the test part, validation figures stay."""
    trial = Trial("x", "figures", {"method": "pca", "dimension": "4"}, method="pose")
    data = t._posed("figures", str(few))
    before = t.perform(trial, 0, {}, few, "cpu", validation=True)
    spoilt = data.inputs.clone()
    spoilt[torch.from_numpy(data.split == "test")] = 0
    monkeypatch.setattr(t, "_posed", lambda *_: t.replace(data, inputs=spoilt))
    assert t.perform(trial, 0, {}, few, "cpu", validation=True) == before


def test_every_cell_asks_for_a_trial_that_is_there() -> None:
    names = [trial.name for trial in t.TRIALS]
    assert len(set(names)) == len(names) and all(trial.data in t.TASKS and trial.method == "pose" for trial in t.TRIALS)
    assert {cell.trial for cell in t.CELLS} == set(names)
    assert all(cell.printed is None and cell.unit == t.TASKS[_data(cell.trial)].unit and cell.smaller_is_better for cell in t.CELLS)


def _data(name: str | None) -> str:
    return next(trial.data for trial in t.TRIALS if trial.name == name)
