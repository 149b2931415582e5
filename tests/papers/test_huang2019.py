"""The cells of neighborhood discovery: what is run, how long, and that an interrupted run resumes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nearkin.data import Dataset
from nearkin.train.config import Run, override
from nearkin.train.recipes import RECIPES
from nearkin.train.rounds import rounds_for
from nearkin.train.training import train
from papers import trial_run
from papers.after_training import discovery_figures
from papers.claim import decide
from papers.claims import CLAIMS
from papers.huang2019 import CELLS
from papers.huang2019_trials import CHOSEN, COMPARED, ELSEWHERE, SIZES, TRIALS, WAYS
from papers.ledger import Job, Ledger
from papers.pictures import CELL_CURVES, draw, picture_lines
from papers.tables import chosen, verdicts
from papers.trial_run import Place, perform, unfinished
from papers.verdict import HELD_OUT_SIZE, TEST_SIZE

RESULTS = Path(__file__).resolve().parents[2] / "docs/results"
BY_NAME = {trial.name: trial for trial in TRIALS}
TRAIN = 50_000


def images(trial):
    """Millions through the network while it trains on CIFAR."""
    run = override(Run(), trial.settings)
    return run.epochs * (TRAIN // run.batch_size) * run.batch_size * run.views / 1e6


def test_names_choose_one_trial_each():
    assert all([one.name for one in chosen([trial.name])[0]] == [trial.name] for trial in TRIALS)


def test_every_trial_has_its_cells_and_the_other_way_round():
    assert {cell.trial for cell in CELLS if cell.trial} == set(BY_NAME)


def test_trainings_stay_within_their_images():
    assert 12.4 < images(BY_NAME["and-goal12"]) <= 12.5 and 24.8 < images(BY_NAME["and-goal25"]) <= 25
    targets = {(cell.trial, cell.unit): cell.target for cell in CELLS if cell.target is not None}
    assert targets["and-goal12", "accuracy %"] == 83.3 and targets["and-goal12", "million images"] == 12.5
    assert targets["and-goal25", "accuracy %"] == 86.5 and targets["and-goal25", "seconds"] == 600


def test_rows_that_are_compared_see_the_same_images():
    short = [trial for trial in TRIALS if trial.data == "cifar10" and trial.settings.get("network.name") == "resnet18"]
    compared = [trial for trial in short if "checkpoint_seconds" not in trial.settings]
    compared.remove(BY_NAME["and-twice"])
    changed = [trial for trial in compared if trial.name.startswith("and-change-")]
    for rows, least in ((changed, 5), ([trial for trial in compared if trial not in changed], 20)):
        assert len(rows) > least and max(map(images, rows)) - min(map(images, rows)) < 0.03


def test_networks_that_a_claim_compares_were_trained_as_long_and_alike():
    """A stronger network that is behind after half the epochs says nothing about networks."""
    by_label = {one.label: one for claim in CLAIMS["huang2019"] for one in claim.differences}
    for label in ("ResNet-18 minus the AlexNet stand-in, 12 epochs per round", "ResNet-101 minus ResNet-18, 200 epochs per round"):
        one = by_label[label]
        deep, shallow = (BY_NAME[trial].settings for ((trial, _),) in (one.plus, one.minus))
        assert {leaf for leaf in deep.keys() | shallow.keys() if deep.get(leaf) != shallow.get(leaf)} == {"network.name"}, label


def test_the_released_recipe_is_the_authors():
    run = override(Run(), BY_NAME["and-e200"].settings)
    assert (run.batch_size, run.optimizer.learning_rate, run.schedule.milestones, run.epochs) == (128, 0.03, (0.6, 0.8), 1000)
    assert run.optimizer.nesterov and run.optimizer.weight_decay == 5e-4 and run.discovery.restart and run.discovery.refresh == "round"
    assert run.objective.options["start"] == "released" and dict(run.augment.options) == {}


def test_the_longer_trainings_take_what_the_first_chose_on_held_out_images():
    first, *longer = (BY_NAME[f"and-{name}"] for name in ("goal12", "goal25", "best"))
    assert Ledger.read(RESULTS, first).chosen == CHOSEN
    for trial in longer:
        assert trial.settings == {**first.settings, **CHOSEN, "epochs": trial.settings["epochs"]}


def test_what_is_changed_is_our_recipe_and_one_of_the_rows_is_that_recipe():
    goal = {**BY_NAME["and-goal12"].settings, **CHOSEN}
    for trial in (trial for trial in TRIALS if trial.name.startswith("and-change-")):
        other = {leaf for leaf in goal.keys() | trial.settings.keys() if goal.get(leaf) != trial.settings.get(leaf)}
        assert trial.held_out and (other == {"epochs", "checkpoint_seconds"}) == (trial.name == "and-change-nothing")


def test_options_differ_from_their_base_in_one_thing_and_never_see_the_test_part():
    """And the row of one that our recipe takes says so."""
    base, goal = (BY_NAME[name].settings for name in ("and-opt-base", "and-goal25"))
    cells = {cell.trial: cell for cell in CELLS}
    for trial in (trial for trial in TRIALS if trial.name.startswith("and-opt-")):
        changed = {leaf: value for leaf, value in trial.settings.items() if base.get(leaf) != value}
        changed = {leaf: value for leaf, value in changed.items() if leaf not in ("compile", "epochs")}  # two views: half the epochs
        assert trial.held_out and len(changed.keys() - {"discovery.refresh"}) <= 1, trial.name  # a share that grows needs refreshing
        taken = bool(changed) and changed.items() <= goal.items()
        assert cells[trial.name].note.endswith("; in our recipe") == taken, trial.name


def test_long_runs_can_resume_and_networks_of_many_trials_are_compiled():
    for trial in (trial for trial in TRIALS if trial.method == "train"):
        run = override(Run(), trial.settings)
        assert run.compile or trial.data in ("cub-200-2011", "dogs") or run.views == 2 or run.objective.name == "deep_cluster"
        assert ("checkpoint_seconds" in trial.settings) == (run.epochs >= 250 or "-by-" in trial.name or "-recipe" in trial.name)


def test_other_data_take_the_shipped_recipe_and_all_ways_as_many_views():
    shipped = RECIPES["discovery"].settings
    for short, (_, data, _, _) in ELSEWHERE.items():
        ways = {way: BY_NAME[f"and-{short}-by-{way}"] for way in WAYS}
        changed = {leaf for leaf, value in shipped.items() if ways["recipe"].settings[leaf] != value}
        assert changed <= {"epochs", "least_steps"} and {trial.data for trial in ways.values()} == {data}
        runs = {way: override(Run(), trial.settings) for way, trial in ways.items()}
        assert runs["recipe"].epochs * (runs["recipe"].views + 1) == runs["rounds"].epochs == runs["instance"].epochs
    assert BY_NAME["and-recipe25"].settings["epochs"] == shipped["epochs"]


def tiny(name, data_root, size=None):
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 200, (60, 3, 16, 16), generator=generator, dtype=torch.uint8)
    labels = torch.arange(60) % 3
    pixels[:, 0] += (20 * labels[:, None, None]).to(torch.uint8)
    return Dataset(name, pixels, labels=labels, classes=("a", "b", "c"), split=np.array(["train"] * 45 + ["test"] * 15))


def small(name, **settings):
    quick = {"network.name": "mlp", "network.options.hidden": "[16]", "epochs": "5", "batch_size": "15", "precision": "float32"}
    kept = {key: value for key, value in BY_NAME[name].settings.items() if key not in ("compile",)}
    return replace(BY_NAME[name], settings={**kept, **quick, **settings})


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.setattr(trial_run, "_opened", tiny)
    return Place("nowhere", "cpu", str(tmp_path))


def test_a_run_has_images_rounds_and_the_authors_protocol(here):
    figures = perform(Job(small("and-e50"), {}, 0), here)["figures"]
    assert figures["images"] == 5 * 45 and figures["round 4 trusted"] == 45 and figures["round 0 trusted"] == 0
    assert figures["round 4 consistent"] + figures["round 4 inconsistent"] == pytest.approx(45)
    assert 0 < figures["released protocol"] <= 1 and "weighted-nn" in figures


def test_the_attention_of_rounds_is_saved_and_drawn(here, tmp_path):
    trial = small("and-base", **{"network.name": "convnet", "network.options.hidden": "16", "network.options.widths": "[4, 8]"})
    perform(Job(trial, {}, 0), here)
    kept = dict(np.load(tmp_path / "and-base.npz"))
    assert kept["images"].shape == (3, 3, 16, 16) and kept["heat"].shape == (5, 3, 16, 16) and kept["right"].shape == (5, 3)
    assert float(kept["heat"].min()) >= 0
    pytest.importorskip("matplotlib")
    assert [path.name for path in draw(tmp_path)] == ["huang2019-figure-7.png"]


def save_run(folder, name, **figures):
    ledger = Ledger.read(folder, BY_NAME[name])
    ledger.runs = [{"seed": 0, "figures": figures, "seconds": 1.0, "device": "CPU"}]
    ledger.save(folder)


def test_figures_4_to_6_are_drawn_once_all_their_points_are_there(tmp_path):
    pytest.importorskip("matplotlib")
    counted = {f"round {r} {word}": 100.0 * r * much for r in range(1, 5) for word, much in (("consistent", 3), ("inconsistent", 1))}
    save_run(tmp_path, "and-base", **{"weighted-nn": 0.8, **counted})
    for name in ("and-k5", "and-k20", "and-r1", "and-r2"):
        save_run(tmp_path, name, **{"weighted-nn": 0.79})
    assert [path.name for path in draw(tmp_path)] == ["huang2019-figure-6.png"]
    save_run(tmp_path, "and-k100", **{"weighted-nn": 0.7})
    save_run(tmp_path, "and-r8", **{"weighted-nn": 0.81})
    save_run(tmp_path, "and-goal12", **counted)
    assert [path.name for path in draw(tmp_path)] == [f"huang2019-figure-{number}.png" for number in (4, 5, 6)]
    save_run(tmp_path, "and-e50", **counted)
    assert [path.name for path in draw(tmp_path)] == [f"huang2019-figure-{name}.png" for name in (4, 5, 6, "6-longer")]
    for name in ("goal12", "goal25", "most", "alone12", "alone25", *(f"long-{row}" for row in ("base", *COMPARED))):
        save_run(tmp_path, f"and-{name}", **{"weighted-nn": 0.85, **counted})
    longer = {"huang2019-figure-4-longer.png", "huang2019-figure-5-longer.png"}
    assert longer <= (drawn := {path.name for path in draw(tmp_path)}) and "huang2019-discovery-adds.png" not in drawn
    save_run(tmp_path, "and-alone80", **{"weighted-nn": 0.85})
    assert "huang2019-discovery-adds.png" in [path.name for path in draw(tmp_path)]
    assert set(picture_lines(tmp_path)) == {curve.table for curve in CELL_CURVES}


def test_curves_have_the_points_and_margins_of_their_cells(tmp_path):
    pytest.importorskip("matplotlib")
    for k, value in zip(SIZES, (0.8, 0.79, 0.78, 0.7), strict=True):
        save_run(tmp_path, "and-base" if k == 1 else f"and-k{k}", **{"weighted-nn": value})
    [curve] = [one for one in CELL_CURVES if one.name == "huang2019-figure-4"]
    [axes] = curve.draw(verdicts([cell for cell in CELLS if cell.table == curve.table], tmp_path)).axes
    assert axes.lines[0].get_xdata().tolist() == list(SIZES) and axes.get_xscale() == "log"
    assert axes.lines[0].get_ydata().tolist() == pytest.approx([80, 79, 78, 70])
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx(80 + 196 * np.sqrt(0.8 * 0.2 / 10_000)) and band.min() == pytest.approx(
        70 - 196 * np.sqrt(0.21 / 10_000)
    )


def test_every_curve_has_cells_whose_rows_are_numbers():
    for curve in CELL_CURVES:
        rows = [cell.row for cell in CELLS if cell.table == curve.table]
        assert rows and all(float(row.partition(" = ")[2]) > 0 for row in rows)


def test_what_is_held_out_is_a_tenth_and_has_the_margin_of_a_tenth(tmp_path):
    assert {HELD_OUT_SIZE[trial.data] for trial in TRIALS if trial.held_out} == {TRAIN // 10}
    for name in ("and-opt-base", "and-base"):
        save_run(tmp_path, name, **{"weighted-nn": 0.8})
    margins = {cell.trial: verdict.margin for cell, verdict in verdicts(CELLS, tmp_path) if cell.figure == "weighted-nn" and verdict.mean}
    assert margins["and-opt-base"] == pytest.approx(np.sqrt(2) * margins["and-base"])
    assert {trial.data for trial in TRIALS} <= set(TEST_SIZE)


def test_claims_have_the_printed_differences_of_the_tables(tmp_path):
    found = {(cell.trial, cell.figure): one for one in verdicts(CELLS, tmp_path) if (cell := one[0]).printed is not None}
    printed = {
        one.label: decide(one, found).printed
        for claim in CLAIMS["huang2019"]
        for one in claim.differences
        if {*one.plus, *one.minus} <= set(found)
    }
    for length in ("6", "50"):
        assert printed[f"{length} epochs per round: curriculum minus one-off"] == pytest.approx(2.1)
        assert printed[f"{length} epochs per round: instance round minus random start"] == pytest.approx(0.6)
    assert printed["CIFAR-10, weighted kNN: AND minus Instance"] == pytest.approx(14.5)
    assert printed["ResNet-18 minus the AlexNet stand-in, 12 epochs per round"] == pytest.approx(11.5)
    assert printed["CUB-200: AND minus Instance"] == pytest.approx(2.8) and printed["100 minus 50"] == pytest.approx(1.5)
    ours = [label for label in printed if "AND minus" in label and "minus the same" not in label]
    assert len(ours) == 21 and min(printed[label] for label in ours) > 0  # the negative one is left out, as in the text


def test_short_rows_have_ablations_that_have_rows():
    shown_here = {(cell.trial, cell.figure): cell.unit for cell in CELLS}
    listed = [(cell, one) for cell in CELLS for one in cell.ablations]
    assert all(shown_here[one.trial, one.figure] == cell.unit and one.trial != cell.trial for cell, one in listed)
    could_be_short = {cell.row for cell in CELLS if cell.trial and cell.printed is not None and cell.column != "released protocol"}
    assert could_be_short - {cell.row for cell, _ in listed} == {"ResNet-101, 200"}  # nothing else here has that network


def test_notes_name_the_length_of_a_training():
    for cell in CELLS:
        if cell.trial is None or "epochs" not in cell.note:
            continue
        run = override(Run(), BY_NAME[cell.trial].settings)
        if "in all" in cell.note:
            assert cell.note == f"{run.epochs} epochs in all"
            continue
        rounds = rounds_for(run, run.objective.name == "neighborhood_discovery")
        lengths = {rounds.first_epoch(number + 1) - rounds.first_epoch(number) for number in range(len(rounds.shares))}
        words = f"{run.epochs} epochs in {len(rounds.shares)} rounds" if len(lengths) > 1 else f"{lengths.pop()} epochs"
        assert cell.note.startswith(words) or f" {words}" in cell.note.partition("printed")[0], (cell.row, cell.note)


def test_options_are_measured_on_what_was_left_out(here):
    figures = perform(Job(small("and-opt-base"), {}, 0), here)["figures"]
    assert "weighted-nn" in figures and figures["images"] == 5 * 30  # 4 of 45 are left out, and batches are whole


@pytest.mark.soak
def test_no_option_is_idle(tmp_path):
    """Each of them ends with weights of its own."""
    found = {}
    for name in (name for name in BY_NAME if name.startswith("and-opt-")):
        settings = {**small(name).settings, "epochs": "10", "data.validation": "0", "validate_every": "100"}
        train(override(Run(), settings), tmp_path / name, data=tiny(name, ""), device="cpu")
        found[(tmp_path / name / "weights.safetensors").read_bytes()] = name
    assert sorted(found.values()) == sorted(name for name in BY_NAME if name.startswith("and-opt-"))


def test_a_linear_probe(here):
    trial = small("and-alex10-and", **{"network.name": "convnet", "network.options.hidden": "16", "network.options.widths": "[4, 8]"})
    figures = perform(Job(replace(trial, probe="conv2"), {}, 0), here)["figures"]
    assert 0 < figures["linear conv2"] <= 1


def test_the_voters_are_the_points_whose_labels_a_semi_supervised_run_uses(here):
    figures = perform(Job(replace(small("and-semi-ten"), voters=("0.1", "1.0")), {}, 0), here)["figures"]
    assert figures["weighted-nn of 0.1"] == figures["weighted-nn"] != figures["weighted-nn of 1.0"]
    used, left = BY_NAME["and-semi-ten"], BY_NAME["and-base"]
    assert used.settings == {**left.settings, "discovery.labeled": "0.1"} and left.voters == ("0.01", "0.1")


def test_photographs_are_opened_at_the_size_in_the_table(monkeypatch, tmp_path):
    seen = []

    def opened(name, data_root, size=None):
        seen.append(size)
        return tiny(name, data_root)

    monkeypatch.setattr(trial_run, "_opened", opened)
    for name in ("and-cub-and", "and-dogs-instance", "and-oneoff"):
        trial = small(name)
        plain = {leaf: value for leaf, value in trial.settings.items() if leaf != "network.options.stem"}
        perform(Job(replace(trial, settings=plain), {}, 0), Place("nowhere", "cpu", str(tmp_path)))
    assert seen == [128, 128, None]


class Interrupt:
    """Stops a training after eight steps, as a Ctrl-C would."""

    def message(self, line): ...

    def started(self, steps, done): ...

    def epoch(self, figures): ...

    def step(self, done, figures):
        if done == 8:
            raise KeyboardInterrupt


def test_an_interrupted_run_resumes_inside_its_training(here, tmp_path, monkeypatch):
    trial = small("and-oneoff", checkpoint_seconds="0")
    whole = perform(Job(trial, {}, 0), replace(here, results=str(tmp_path / "whole")))["figures"]
    real, seen = trial_run.train, []

    def killed(run, folder, **more):
        return real(run, folder, reporter=Interrupt(), **more)

    monkeypatch.setattr(trial_run, "train", killed)
    with pytest.raises(KeyboardInterrupt):
        perform(Job(trial, {}, 0), here)
    assert list(unfinished(tmp_path, trial).glob("seed-0/checkpoints/step-*"))
    page = unfinished(tmp_path, trial) / "seed-0" / "run.json"
    begun = json.loads(page.read_text())
    del begun["data"]["path_column"]  # saved by a version without this leaf
    page.write_text(json.dumps(begun))

    def resumed(run, folder, **more):
        seen.append(more.get("resume"))
        return real(run, folder, **more)

    monkeypatch.setattr(trial_run, "train", resumed)
    assert perform(Job(trial, {}, 0), here)["figures"] == whole and seen == [True]
    assert not (unfinished(tmp_path, trial) / "seed-0").exists()


def test_an_unfinished_run_of_other_settings_starts_again(here, tmp_path):
    trial = small("and-oneoff")
    folder = unfinished(tmp_path, trial) / "seed-0"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"epochs": 1}))
    assert perform(Job(trial, {}, 0), here)["figures"]["images"] == 5 * 45


def test_trainings_without_rounds_have_no_figures_of_rounds():
    assert discovery_figures({"images": 10}) == {"images": 10.0}
