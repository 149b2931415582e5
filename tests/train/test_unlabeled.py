"""Training without labels, or with some: every option of discovery through the Run, its baselines, and what is refused or defined."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from nearkin import load
from nearkin.data import Dataset
from nearkin.data import open as open_data
from nearkin.objectives import DeepCluster
from nearkin.report.subject import embedded
from nearkin.train import checkpoint
from nearkin.train.assemble import assemble
from nearkin.train.config import DiscoveryChoice, Run, override
from nearkin.train.rounds import labels_used, rounds_of
from nearkin.train.training import TrainingStopped, train
from tests.train.test_training import Notes
from tests.train.unlabeled import BASE, digits, photographs


def trained(folder, settings=(), data=None, **more):
    return train(override(Run(), {**BASE, **dict(settings)}), folder, data=data or digits(), device="cpu", **more)


@pytest.mark.parametrize(
    "settings",
    [
        {"views": "2"},
        {"discovery.refresh": "epoch", "discovery.gradual": "true", "discovery.restart": "false"},
        {"discovery.mutual": "true"},
        {"objective.options.weighted": "true"},
        {"objective.options.quantifier": "each", "discovery.labeled": "0.1"},
        {"objective.options.start": "released", "objective.options.k": "3"},
        {"discovery.instance_round": "false", "discovery.one_off": "true"},
        {"objective.name": "instance_discrimination"},
        {"objective.name": "deep_cluster", "objective.options.clusters": "20"},
        {"objective.name": "noise_as_targets", "objective.options.every": "2"},
    ],
    ids=lambda settings: next(iter(settings.values())),
)
def test_every_option_trains_and_is_measured_without_choosing_by_labels(tmp_path, settings):
    found = trained(tmp_path / "m", settings, digits(by="ids"))
    assert next(iter(found["test"])) == "weighted-nn" and found["weights"] == "last"
    assert not (tmp_path / "m" / "best.safetensors").exists()
    looked = 200 if settings.get("objective.name") in ("deep_cluster", "noise_as_targets") else 0  # at the first weights
    assert found["images"] == 5 * 200 * int(settings.get("views", 1)) + looked
    assert all(torch.isfinite(value).all() for value in load_file(tmp_path / "m" / "weights.safetensors").values())


def test_few_images_without_labels_are_said_to_be_few(tmp_path):
    notes = Notes()
    settings = {**BASE, "data.source": str(photographs(tmp_path / "photos", 60))}
    train(override(Run(), settings), tmp_path / "m", device="cpu", reporter=notes)
    said = [line for line in notes.lines if "60 images without labels are few" in line]
    assert len(said) == 1 and "no better than raw pixels" in said[0] and "--encoder" not in said[0]  # for 8 x 8 pixels there is none
    settings["data.source"] = "digits"
    train(override(Run(), settings), tmp_path / "n", device="cpu", reporter=notes)
    assert sum("are few" in line for line in notes.lines) == 1


@pytest.mark.parametrize("objective", ["neighborhood_discovery", "instance_discrimination", "deep_cluster", "noise_as_targets"])
def test_labels_that_nothing_is_learned_from_change_nothing(tmp_path, objective):
    """The weights do not depend on the labels, even with one class for all points and validation in every epoch."""
    data, split = digits(), np.array(["train"] * 200 + ["validation"] * 30 + ["test"] * 30)
    settings = {"validate_every": "1", "objective.name": objective}
    for name, labels in (("a", data.labels), ("b", torch.zeros_like(data.labels))):
        metrics = trained(tmp_path / name, settings, Dataset("digits", data.inputs, labels=labels, classes=data.classes, split=split))
        assert all("weighted-nn" in epoch for epoch in metrics["curve"])
    assert (tmp_path / "a" / "weights.safetensors").read_bytes() == (tmp_path / "b" / "weights.safetensors").read_bytes()


def test_validation_is_the_weighted_vote_and_the_released_protocol_is_separate(tmp_path):
    settings = {"data.validation": "0.2", "validate_every": "1", "discovery.released_protocol": "true"}
    found = trained(tmp_path / "m", settings)
    assert all("weighted-nn" in epoch for epoch in found["curve"])
    assert [("test, against the bank" in epoch) for epoch in found["curve"]] == [False] * 4 + [True]
    assert found["released protocol"] == found["curve"][-1]["test, against the bank"] and "released protocol" not in found["test"]


STILL = {
    "optimizer.learning_rate": "0.01",
    "objective.options.momentum": "1",
    "augment.name": "none",
    "schedule.name": "milestones",
    "schedule.milestones": "[0.5]",
    "schedule.factor": "0",
    "discovery.restart": "false",
    "discovery.released_protocol": "true",
}


def mixed(labels=None):
    """Training and test points in turn, so that a place in the whole set is never one in the training part."""
    data = digits(1300, 0)
    split = np.array(["test" if row % 13 < 3 else "train" for row in range(len(data))])
    return Dataset("digits", data.inputs, labels=data.labels if labels is None else labels, classes=data.classes, split=split)


@pytest.mark.parametrize("labeled", [{}, {"discovery.labeled": "0.3"}], ids=["without", "some"])
def test_accuracy_against_the_bank_equals_that_of_recomputed_features_if_the_network_is_fixed(tmp_path, labeled):
    """Slot i is row i of the training part: any other order of slots and labels would have the figure of chance."""
    settings = {name: value for name, value in BASE.items() if not name.startswith("augment")} | STILL | labeled
    found = train(override(Run(), settings), tmp_path / "m", data=mixed(), device="cpu")
    assert found["curve"][-1]["test, against the bank"] == found["test"]["weighted-nn"] > 0.3
    bank = load_file(tmp_path / "m" / "objective.safetensors")["references.vectors"]
    fresh = load_file(tmp_path / "m" / "references.safetensors")["embeddings"]
    torch.testing.assert_close(bank, torch.nn.functional.normalize(fresh, dim=1), atol=1e-6, rtol=0)


def test_points_of_unknown_class_do_not_count_in_the_released_protocol(tmp_path):
    labels = torch.where(torch.arange(1300) % 5 < 4, digits(1300, 0).labels, -1)
    settings = {name: value for name, value in BASE.items() if not name.startswith("augment")} | STILL
    found = train(override(Run(), settings), tmp_path / "m", data=mixed(labels), device="cpu")
    assert found["curve"][-1]["test, against the bank"] == found["test"]["weighted-nn"] > 0.3


def test_the_share_grows_with_every_epoch():
    rounds = rounds_of(DiscoveryChoice(refresh="epoch", gradual=True), 10)
    assert [round(rounds.share(epoch), 3) for epoch in range(10)] == [0, 0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1]
    alone = rounds_of(DiscoveryChoice(refresh="epoch", gradual=True, instance_round=False), 4)
    assert [alone.share(epoch) for epoch in range(4)] == [0.25, 0.5, 0.75, 1.0]


class Interrupt:
    """Stops the training after so many steps, as a Ctrl-C would."""

    def __init__(self, after):
        self.after = after

    def message(self, line): ...

    def started(self, steps, done): ...

    def epoch(self, figures): ...

    def step(self, done, figures):
        if done >= self.after:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"objective.options.weighted": "true", "discovery.refresh": "epoch", "discovery.labeled": "0.1", "views": "2"},
        {"objective.name": "deep_cluster", "objective.options.clusters": "20"},
        {"epochs": "7"},
    ],
    ids=["released", "options", "clusters", "uneven"],
)
def test_a_training_stopped_inside_round_2_ends_with_the_same_weights(tmp_path, settings):
    rounds = {} if "objective.name" in settings else {"discovery.rounds": "2"}  # clusters are of every epoch
    settings = {"epochs": "6", **settings, **rounds, "checkpoint_seconds": "0"}
    begun = rounds_of(DiscoveryChoice(rounds=2), int(settings["epochs"])).first_epoch(2)
    whole = trained(tmp_path / "whole", settings)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "cut", settings, reporter=Interrupt(4 * begun + 3))  # epochs of four steps: in round 2
    written = json.loads((max((tmp_path / "cut" / "checkpoints").glob("step-*")) / "state.json").read_text())
    assert json.loads(written["body"])["state"]["loop"]["epoch"] == begun
    again = trained(tmp_path / "cut", settings, resume=True)
    for name in ("weights.safetensors", "objective.safetensors", "references.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes(), name
    assert again["images"] == whole["images"] and again.get("rounds") == whole.get("rounds")


def test_a_training_resumes_on_another_kind_of_device(tmp_path):
    """The generator of a GPU has 16 bytes of state, which a CPU cannot load: other numbers are drawn, but always the same ones."""
    for name in ("once", "again"):
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / name, {"checkpoint_seconds": "0"}, reporter=Interrupt(6))
        found = checkpoint.newest(tmp_path / name / "checkpoints")
        of_a_gpu = {"random.augment": torch.arange(16, dtype=torch.uint8), "random.cuda": torch.zeros(16, dtype=torch.uint8)}
        checkpoint.save(tmp_path / name / "checkpoints", found.step + 1, found.tensors | of_a_gpu, found.state)
        trained(tmp_path / name, {"checkpoint_seconds": "0"}, resume=True)
    assert (tmp_path / "once" / "weights.safetensors").read_bytes() == (tmp_path / "again" / "weights.safetensors").read_bytes()


def test_a_training_stopped_before_its_first_checkpoint_starts_over_and_reports_it(tmp_path):
    trained(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "cut", reporter=Interrupt(3))
    trained(tmp_path / "cut", resume=True)
    assert (
        "no checkpoint to resume from: starting from the beginning, with the same settings" in (tmp_path / "cut" / "log.jsonl").read_text()
    )
    assert (tmp_path / "whole" / "weights.safetensors").read_bytes() == (tmp_path / "cut" / "weights.safetensors").read_bytes()


def test_every_round_leaves_a_checkpoint_that_resumes_to_the_same_weights(tmp_path):
    settings, folder = {"checkpoint_seconds": "0", "epochs": "6", "discovery.rounds": "2"}, tmp_path / "m"
    with pytest.raises(KeyboardInterrupt):
        trained(folder, settings, reporter=Interrupt(9))  # the first step of round 1
    ended, kept = (load_file(folder / "checkpoints" / name / "tensors.safetensors") for name in ("step-00000008", "step-00000008-round-0"))
    assert kept.keys() == ended.keys() and all(torch.equal(kept[name], value) for name, value in ended.items())
    trained(folder, settings, resume=True)
    saved = sorted((folder / "checkpoints").iterdir())
    assert [path.name for path in saved] == ["step-00000008-round-0", "step-00000016-round-1", "step-00000023", "step-00000024"]
    files = [*(path / "tensors.safetensors" for path in (*saved[:2], saved[-1])), folder / "weights.safetensors"]
    heads = [load_file(file)[name] for file, name in zip(files, [*["network.head.linear.weight"] * 3, "head.linear.weight"], strict=True)]
    assert not torch.equal(heads[0], heads[1]) and not torch.equal(heads[1], heads[2]) and torch.equal(heads[2], heads[3])
    whole = (folder / "weights.safetensors").read_bytes()
    for newer in saved[1:]:
        shutil.rmtree(newer)
    (folder / "weights.safetensors").unlink()
    trained(folder, settings, resume=True)
    assert '"resuming after step 8"' in (folder / "log.jsonl").read_text() and (folder / "weights.safetensors").read_bytes() == whole


def test_time_spent_inside_an_epoch_is_not_forgotten(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "cut", {"checkpoint_seconds": "0"}, reporter=Interrupt(3))
    written = json.loads((max((tmp_path / "cut" / "checkpoints").glob("step-*")) / "state.json").read_text())
    standing = json.loads(written["body"])["state"]["loop"]
    assert standing["epoch"] == 0 and standing["seconds"] > 0
    assert trained(tmp_path / "cut", {"checkpoint_seconds": "0"}, resume=True)["seconds"] > standing["seconds"]


def test_a_share_of_the_labels_is_even_over_classes_and_used(tmp_path):
    run = override(Run(), {**BASE, "discovery.labeled": "0.1"})
    data = digits().part("train").renumbered()
    used = labels_used(run, data)
    counts = torch.bincount(data.labels, minlength=10)
    assert torch.bincount(used[used >= 0], minlength=10).tolist() == [max(1, round(0.1 * int(count))) for count in counts]
    assert torch.equal(used[used >= 0], data.labels[used >= 0])
    assert torch.equal(assemble(run, data, torch.device("cpu")).objective.relation.labels, used)
    assert labels_used(override(Run(), BASE), data) is None
    metrics = trained(tmp_path / "m", {"discovery.labeled": "0.1"})
    assert metrics["test"]["weighted-nn"] > 0.2  # among the twenty whose label is known


def test_missing_labels_are_enough_to_train_and_predict(tmp_path):
    data = digits()
    some = torch.where(torch.rand(len(data), generator=torch.Generator().manual_seed(0)) < 0.3, data.labels, -1)
    missing = int((some[:200] < 0).sum())
    partly = Dataset("digits", data.inputs, labels=some, classes=data.classes, split=data.split)
    found = trained(tmp_path / "m", {"objective.name": "auto"}, partly)
    about = json.loads((tmp_path / "m" / "model.json").read_text())
    assert about["objective"] == "neighborhood_discovery" and "classes for some points" in about["why"]
    assert found["test"]["weighted-nn"] > 0.2
    model = load(tmp_path / "m", device="cpu")
    assert model.predict(data.inputs[:20], numbers=True).min() >= 0  # those whose class is not known have no vote
    assert torch.equal(labels_used(override(Run(), BASE), partly.part("train")), some[:200])
    with pytest.raises(ValueError, match=rf"{missing} of the 200 training points of digits have no class, and nca needs one for each; use"):
        trained(tmp_path / "n", {"objective.name": "nca"}, partly)


def test_a_table_with_empty_labels_from_the_command_line(tmp_path, capsys):
    from nearkin import cli

    data = digits(60, 0)
    lines = ["path,label"]
    for row, image in enumerate(data.inputs[:, 0].numpy()):
        Image.fromarray(image).save(tmp_path / f"{row}.png")
        lines.append(f"{row}.png,{'d' + str(int(data.labels[row])) if row % 3 == 0 else ''}")
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    words = ["train", str(tmp_path / "table.csv"), "--out", str(tmp_path / "m"), "--device", "cpu", "--epochs", "5", "--network", "mlp"]
    assert cli.main([*words, "--set", "batch_size=16", "--set", "data.test=0.3", "--set", "data.validation=0"]) == 0
    assert "have no 'label'; their class is unknown" in " ".join(capsys.readouterr().err.split())
    assert "weighted-nn" in json.loads((tmp_path / "m" / "metrics.json").read_text())["test"]
    side = embedded(load(tmp_path / "m", device="cpu"), open_data(tmp_path / "table.csv"), "table")
    assert len(side) == 20 and side.left_out == {"class not known": 40}
    assert cli.main(["evaluate", str(tmp_path / "m"), str(tmp_path / "table.csv"), "--no-pictures", "--device", "cpu"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "40 (class not known) of 60 points." in output and "label more of the others" in output and "Repair or remove" not in output


def test_identical_images_train_to_something_finite(tmp_path):
    same = Dataset("same", torch.full((40, 1, 8, 8), 7, dtype=torch.uint8))
    settings = {"batch_size": "20", "data.test": "0", "data.leaks": "allow"}
    found = trained(tmp_path / "m", {**settings, "augment.options.pixels": "0"}, same)
    assert np.isfinite(found["curve"][-1]["loss"]) and found["rounds"][-1]["trusted"] == 40
    output = (tmp_path / "m" / "log.jsonl").read_text()
    assert "has collapsed: after epoch 5" in output and "all images are the same, and nothing can tell them apart" in output
    assert "pushes apart" not in output
    nearly = same.inputs.clone()
    nearly[0, 0, 0, 0] = 8
    trained(tmp_path / "n", {**settings, "optimizer.learning_rate": "1e-6"}, Dataset("nearly", nearly))
    output = (tmp_path / "n" / "log.jsonl").read_text()
    assert "lower the learning rate, and see whether the images differ enough to be told apart" in output and "the same" not in output


def test_a_single_cluster_stops_the_training(tmp_path, monkeypatch):
    """No gradient leads out of a single cluster, so more epochs would change nothing."""
    clusters = {"objective.name": "deep_cluster", "objective.options.clusters": "20"}
    same = Dataset("same", torch.full((40, 1, 8, 8), 7, dtype=torch.uint8))
    settings = {**clusters, "batch_size": "20", "data.test": "0", "data.leaks": "allow", "augment.options.pixels": "0"}
    with pytest.raises(TrainingStopped, match="before epoch 1 all training points lie in one cluster; all images are the same"):
        trained(tmp_path / "same", settings, same)

    def dies_in_epoch_2(objective, seed):
        if seed == Run().seed + 2:
            objective.seen.fill_(0.5)
        return refresh(objective, seed)

    refresh = DeepCluster.refresh
    monkeypatch.setattr(DeepCluster, "refresh", dies_in_epoch_2)
    with pytest.raises(TrainingStopped, match="before epoch 3 all training points lie in one cluster; lower the learning rate"):
        trained(tmp_path / "dead", clusters)


def test_points_that_do_not_fill_a_last_batch_wait_for_another_epoch(tmp_path):
    found = trained(tmp_path / "m", {"batch_size": "64"})  # 200 = 3 x 64 + 8
    assert found["steps"] == 15 and found["images"] == 5 * 192
    begun = assemble(override(Run(), {**BASE, "batch_size": "64"}), digits().part("train").renumbered(), torch.device("cpu")).objective
    moved = load_file(tmp_path / "m" / "objective.safetensors")["references.vectors"] != begun.references.vectors
    assert bool(moved.any(1).all())  # every point is used at some time


def test_the_card_names_the_released_protocol(tmp_path):
    found = trained(tmp_path / "m", {"discovery.released_protocol": "true"})
    card = (tmp_path / "m" / "README.md").read_text()
    assert "| test, as released, last epoch | test, against the bank |" in card
    assert f"after every epoch of the last round: {found['released protocol']:.4f} at best." in card


def test_a_folder_with_unreadable_files(tmp_path):
    photos = photographs(tmp_path / "photos", 30)
    (photos / "broken.png").write_bytes(b"\x89PNG nothing more")
    (photos / "gone.png").symlink_to(tmp_path / "nowhere.png")
    run = override(Run(), {**BASE, "data.source": str(photos), "batch_size": "10", "data.test": "0"})
    fix = r"(?s)2 of 32 files cannot be read:.*broken.png cannot .*gone.png .*; remove them, or pass on_error='skip' .*--skip-damaged"
    with pytest.raises(ValueError, match=fix):
        train(run, tmp_path / "a", device="cpu")
    found = train(override(run, {"data.on_error": "skip"}), tmp_path / "b", device="cpu")
    assert found["images"] == 5 * 30 and len(load_file(tmp_path / "b" / "references.safetensors")["ids"]) == 30
    (photos / "broken.png").unlink()
    with pytest.raises((ValueError, FileNotFoundError), match="gone.png"):
        train(run, tmp_path / "c", device="cpu")


def test_a_bank_of_another_size_than_the_data_is_refused_and_the_model_stays_what_it_was(tmp_path):
    """Preprocessing constants and epochs of the other data must not replace those of the saved weights."""
    settings, folder = {"checkpoint_seconds": "0", "batch_size": "50", "least_steps": "20"}, tmp_path / "m"
    trained(folder, settings)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name not in ("log.jsonl", ".lock")}
    with pytest.raises(
        ValueError, match="the 100 points to learn from are not those of the checkpoint: it started with 200. Resume with the data"
    ):
        trained(folder, settings, digits(100), resume=True)
    with pytest.raises(
        ValueError, match=r"relation.table has shape \(200, 1\) in the checkpoint and \(200, 2\) in this run; resume with the data"
    ):
        trained(folder, {**settings, "objective.options.k": "2"}, resume=True)
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert trained(folder, settings, resume=True)["epochs"] == 5


@pytest.mark.parametrize("change", ["numbers", "answers"])
def test_resume_refuses_other_points_of_the_same_number(change, tmp_path):
    settings, folder, data = {"checkpoint_seconds": "0"}, tmp_path / "m", digits()
    trained(folder, settings, data)
    other = replace(data, inputs=255 - data.inputs) if change == "numbers" else replace(data, labels=data.labels.roll(1))
    with pytest.raises(ValueError, match="the 200 points to learn from are not those of the checkpoint: .* Resume with the data that"):
        trained(folder, settings, other, resume=True)
    assert trained(folder, settings, data, resume=True)["epochs"] == 5


def test_resume_accepts_moved_images_but_not_renamed_ones(tmp_path):
    old, new = photographs(tmp_path / "photos", 30), tmp_path / "elsewhere"
    run = override(Run(), {**BASE, "data.source": str(old), "batch_size": "10", "data.test": "0", "checkpoint_seconds": "0"})
    train(run, tmp_path / "m", device="cpu")
    old.rename(new)
    moved = override(run, {"data.source": str(new)})
    assert train(moved, tmp_path / "m", device="cpu", resume=True)["epochs"] == 5
    (new / "07.png").rename(new / "70.png")
    with pytest.raises(ValueError, match="the 30 points to learn from are not those of the checkpoint"):
        train(moved, tmp_path / "m", device="cpu", resume=True)


def test_a_batch_that_the_data_cannot_fill_holds_them_all_and_is_counted_as_it_is(tmp_path):
    found = trained(tmp_path / "m", {"batch_size": "1000000"})
    assert found["steps"] == 5 and found["images"] == 5 * 200
    assert all(epoch["points_per_second"] < 5_000_000 for epoch in found["curve"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"objective.options.k": "200"}, r"k \(200\) must be below the number of samples \(200\): .* lower k, or train on more"),
        ({"views": "0"}, r"views \(0\) must be a whole number of at least 1"),
        (
            {"objective.options.size": "300"},
            r"neighborhood_discovery has no option 'size'; its options are k, temperature",
        ),
        ({"objective.options.weighted": "no"}, r"objective neighborhood_discovery: weighted \('no'\) must be true or false"),
        (
            {"augment.name": "discovery", "augment.options.pixels": None, "augment.options.flip": "no"},
            r"augment discovery: flip \('no'\) must be true or false",
        ),
        ({"sampler.options.reshuffle": "no"}, r"sampler shuffled: reshuffle \('no'\) must be true or false"),
        (
            {"batch_size": "1", "network.name": "convnet", "network.options.hidden": None},
            r"batch_size \(1\) leaves one image a step, and convnet normalizes over the batch: take at least 2",
        ),
        ({"views": "2", "augment.name": "none", "augment.options.pixels": None}, r"views \(2\) are all equal without augmentation"),
        ({"views": "2", "references": "training_set"}, "set views=1"),
        ({"discovery.gradual": "true"}, "discovery.gradual trusts a few more in every epoch: it needs discovery.refresh=epoch"),
        ({"discovery.labeled": "2"}, r"discovery.labeled \(2.0\) must lie between 0 and 1"),
        (
            {"discovery.labeled": "0.1", "objective.name": "nca"},
            "an option of neighborhood_discovery, not of nca; use .*, or leave it at 0",
        ),
        ({"discovery.refresh": "epoch", "objective.name": "nca"}, r"discovery.refresh \(epoch\) is an option of .*, or leave it at round"),
        ({"discovery.released_protocol": "true", "objective.name": "noise_as_targets"}, "noise_as_targets has none; use .*, or leave it"),
        ({"epochs": "3"}, r"epochs \(3\) are fewer than the rounds \(5\)"),
        ({"augment.name": "discovery", "augment.options.pixels": None, "augment.options.color": "true"}, "saturation .* need 3"),
    ],
)
def test_errors(tmp_path, settings, words):
    kept = {name: value for name, value in {**BASE, **settings}.items() if value is not None}
    with pytest.raises(ValueError, match=words):
        train(override(Run(), kept), tmp_path / "m", data=digits(), device="cpu")


def test_a_labeled_share_of_data_without_labels_is_refused(tmp_path):
    bare = Dataset("bare", digits().inputs)
    with pytest.raises(ValueError, match=r"discovery.labeled \(0.1\) needs classes, but bare has none; leave it at 0"):
        trained(tmp_path / "m", {"discovery.labeled": "0.1", "data.test": "0"}, bare)
