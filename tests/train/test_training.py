"""From a Run to a model folder, and back."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import nearkin
from nearkin.data import Dataset
from nearkin.data import open as open_data
from nearkin.models.mobilenet import MobileNetV2
from nearkin.train.assemble import deployed
from nearkin.train.config import Run, override
from nearkin.train.objective_choice import OBJECTIVES, build, choose
from nearkin.train.training import TrainingStopped, train

BASE = {
    "network.name": "mlp",
    "network.dimension": "8",
    "network.options.hidden": "[32]",
    "epochs": "3",
    "batch_size": "100",
    "optimizer.learning_rate": "0.05",
}


class Notes:
    def __init__(self):
        self.lines, self.epochs, self.steps = [], [], []

    def message(self, line):
        self.lines.append(line)

    def started(self, steps, done):
        self.total = steps

    def step(self, done, figures):
        self.steps.append((done, figures))

    def epoch(self, figures):
        self.epochs.append(figures)


@pytest.fixture(scope="module")
def digits():
    return open_data("digits")


def test_a_model_folder_is_complete(tmp_path, digits):
    notes = Notes()
    metrics = train(override(Run(), {**BASE, "epochs": "3"}), tmp_path / "m", data=digits, reporter=notes)
    assert metrics["test"]["1-nn"] > 0.9
    assert any("objective nca: the data have classes" in line for line in notes.lines)
    assert [e["epoch"] for e in notes.epochs] == [1, 2, 3]
    assert notes.steps[-1][0] == notes.total
    names = {p.name for p in (tmp_path / "m").iterdir()}
    assert {"model.json", "run.json", "weights.safetensors", "best.safetensors", "objective.safetensors", "references.safetensors"} <= names
    assert {"split.json", "metrics.json", "log.jsonl", "README.md", "checkpoints"} <= names
    assert json.loads((tmp_path / "m" / "metrics.json").read_text())["test"] == metrics["test"]
    card = (tmp_path / "m" / "README.md").read_text()
    assert "evaluated once" in card
    assert "| network.options.hidden | `[32]` |" in card  # what was set, and nothing that was not
    assert "| seed |" not in card
    assert "3 of 3 epochs" in card
    assert "| epoch | loss |" in card
    assert not list((tmp_path / "m").rglob("*.pkl")) + list((tmp_path / "m").rglob("*.pt"))

    model = nearkin.load(tmp_path / "m", which="last")
    some = digits.inputs[:50]
    embeddings = model.encode(some)
    assert isinstance(embeddings, torch.Tensor)
    assert embeddings.shape == (50, 8)
    assert isinstance(model.encode(some.numpy()), np.ndarray)
    np.testing.assert_allclose(model.encode(some.numpy()), embeddings.numpy())
    torch.testing.assert_close(model.encode(some, batch_size=7), embeddings, rtol=1e-4, atol=1e-4)
    assert float((model.predict(some, numbers=True) == digits.labels[:50]).double().mean()) > 0.85
    assert model.neighbors(some, 3).positions.shape == (50, 3)
    with pytest.raises(ValueError, match=r"inputs have shape \(2, 1, 9, 9\); this model reads"):
        model.encode(torch.zeros(2, 1, 9, 9))


def test_encode_accepts_arrays_images_and_paths(tmp_path, digits):
    train(override(Run(), {**BASE, "epochs": "1"}), tmp_path / "m", data=digits)
    model = nearkin.load(tmp_path / "m")
    pixels = digits.inputs[:3].numpy()
    expected = model.encode(pixels)
    pictures = [Image.fromarray(one[0]) for one in pixels]
    pictures[1].save(tmp_path / "1.png")
    forms = {
        "pictures": pictures,
        "a file among pictures": [pictures[0], tmp_path / "1.png", pictures[2]],
        "a list of arrays": list(pixels),
        "no channels": pixels[:, 0],
        "channels last": pixels.transpose(0, 2, 3, 1),
        "floats": pixels.astype(np.float32) / 255,
        "turned round twice": np.ascontiguousarray(pixels[:, :, ::-1])[:, :, ::-1],
    }
    for name, form in forms.items():
        np.testing.assert_allclose(model.encode(form), expected, atol=1e-4, err_msg=name)
    np.testing.assert_allclose(model.encode(pictures[0]), expected[:1], atol=1e-4)
    np.testing.assert_allclose(model.encode(np.array([str(tmp_path / "1.png")])), expected[1:2], atol=1e-4)
    with pytest.raises(ValueError, match=r"inputs reach 255, but pixels as floats must be in 0..1; divide them by 255, or pass uint8"):
        model.encode(255.0 * torch.ones(2, 1, 8, 8))
    with pytest.raises(ValueError, match=r"inputs have shape \(0,\); this model reads \(n, 1, 8, 8\)"):
        model.encode([])
    assert repr(model) == "<Model mlp: images 1 x 8 x 8 to 8 numbers, 1,258 references>"


def test_loaded_weights_come_with_their_own_references(tmp_path, digits):
    metrics = train(override(Run(), {**BASE, "epochs": "4"}), tmp_path / "m", data=digits)
    assert metrics["weights"] == "best"
    for which in ("best", "last"):
        model = nearkin.load(tmp_path / "m", which=which)
        apart = torch.cdist(model.references.embeddings[:50], model.encode(digits.inputs)).amin(1)
        assert float(apart.max()) < 1e-2, which  # every reference is some digit by these very weights


def test_images_that_are_not_square(tmp_path):
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (80, 1, 8, 12), generator=generator, dtype=torch.uint8)
    settings = {"epochs": "1", "network.dimension": "4", "batch_size": "20"}
    train(override(Run(), settings), tmp_path / "m", data=Dataset("wide", pixels, labels=torch.arange(80) % 2))
    model = nearkin.load(tmp_path / "m")
    Image.fromarray(pixels[0, 0].numpy()).save(tmp_path / "wide.png")
    Image.fromarray(pixels[0, 0].numpy().T).save(tmp_path / "tall.png")
    np.testing.assert_allclose(model.encode(tmp_path / "wide.png"), model.encode(pixels[:1].numpy()), atol=1e-5)
    with pytest.raises(ValueError, match=r"inputs have shape \(1, 1, 12, 8\); this model reads \(n, 1, 8, 12\)"):
        model.encode(tmp_path / "tall.png")


def test_vectors_and_numbers(tmp_path):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 6, generator=generator)
    data = Dataset("made", x, targets=x[:, :2].clone(), target_names=("a", "b"))
    metrics = train(override(Run(), {**BASE, "epochs": "8"}), tmp_path / "m", data=data)
    assert json.loads((tmp_path / "m" / "model.json").read_text())["objective"] == "nca_regression"
    assert metrics["test"]["mean_absolute_error"] < 0.6
    model = nearkin.load(tmp_path / "m")
    assert model.predict(x[:4]).shape == (4, 2)


def test_training_without_labels(tmp_path, digits):
    data = Dataset("unlabeled", digits.inputs[:300])
    notes = Notes()
    settings = {**BASE, "data.validation": "0", "data.test": "0", "epochs": "5"}
    train(override(Run(), settings), tmp_path / "m", data=data, reporter=notes)
    rounds = [line for line in notes.lines if line.startswith("round ")]
    assert rounds[0] == "round 0 of 4: 0 neighborhoods trusted" and rounds[-1] == "round 4 of 4: 300 neighborhoods trusted"
    assert [p.name.split("-", 2)[2] for p in sorted((tmp_path / "m" / "checkpoints").glob("*-round-*"))] == [f"round-{r}" for r in range(4)]
    model = nearkin.load(tmp_path / "m")
    assert model.about["objective"] == "neighborhood_discovery"
    assert model.about["metric"] == "cosine"
    with pytest.raises(ValueError, match="trained without labels"):
        model.predict(digits.inputs[:2])


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("nca", {"temperature": 0.5}, {"metric": "squared_euclidean", "temperature": 0.5}),
        ("nca", {"metric": "cosine", "temperature": 0.2}, {"metric": "cosine", "temperature": 0.2}),
        ("proxy_nca", {"temperature": 0.5}, {"metric": "cosine", "temperature": 0.25}),  # -|q - r|^2 = 2 cos - 2
        ("instance_discrimination", {}, {"metric": "cosine", "temperature": 0.1}),
        ("precision_at_k", {"k": 2}, {"metric": "cosine"}),  # it ranks, and has no softmax
        ("softmax", {}, {"metric": "squared_euclidean"}),
    ],
)
def test_the_temperature_of_a_softmax_is_remembered(name, options, expected):
    assert deployed(build(name, options, num_classes=3, dimension=4, size=9)) == expected


def test_the_whole_training_set_as_references(tmp_path, digits):
    settings = {**BASE, "references": "training_set", "epochs": "4", "optimizer.learning_rate": "0.2"}
    notes = Notes()
    train(override(Run(), settings), tmp_path / "m", data=digits.subset(torch.arange(400)), reporter=notes)
    assert notes.total == 4
    assert notes.epochs[-1]["loss"] < notes.epochs[0]["loss"]


def test_early_stopping_and_schedules(tmp_path, digits):
    small = digits.subset(torch.arange(300))
    settings = {**BASE, "patience": "1", "epochs": "50", "optimizer.learning_rate": "0.0001", "schedule.name": "plateau"}
    notes = Notes()
    metrics = train(override(Run(), settings), tmp_path / "m", data=small, reporter=notes)
    assert metrics["epochs"] < 50
    [line] = [line for line in notes.lines if line.startswith("stopped")]
    ended = metrics["epochs"]
    assert line == f"stopped after epoch {ended} of 50 (patience): validation was best after epoch {ended - 1}"


def test_the_later_of_equally_good_epochs_is_kept_and_patience_still_ends(tmp_path, digits, monkeypatch):
    monkeypatch.setattr("nearkin.train.training.validate", lambda *_: {"1-nn": 0.5})
    small = digits.subset(torch.arange(300))
    train(override(Run(), {**BASE, "epochs": "3"}), tmp_path / "m", data=small)
    assert (tmp_path / "m" / "best.safetensors").read_bytes() == (tmp_path / "m" / "weights.safetensors").read_bytes()
    assert train(override(Run(), {**BASE, "epochs": "9", "patience": "2"}), tmp_path / "p", data=small)["epochs"] == 3


def test_nan_stops_and_keeps_the_last_checkpoint(tmp_path, digits):
    settings = {**BASE, "optimizer.learning_rate": "1e30", "schedule.warmup": "0", "checkpoint_seconds": "0"}
    with pytest.raises(TrainingStopped, match=r"NaN or infinity at step \d+|the loss is .* near step"):
        train(override(Run(), settings), tmp_path / "m", data=digits.subset(torch.arange(300)))


def test_folders_are_not_overwritten(tmp_path, digits):
    small = digits.subset(torch.arange(200))
    run = override(Run(), {**BASE, "epochs": "1"})
    train(run, tmp_path / "m", data=small)
    with pytest.raises(FileExistsError, match="already holds a training; choose another folder, or resume it: `nearkin train --resume "):
        train(run, tmp_path / "m", data=small)
    with pytest.raises(FileNotFoundError, match="holds no training to resume"):
        train(run, tmp_path / "n", data=small, resume=True)
    with pytest.raises(FileNotFoundError, match="is no model folder: it has no model.json"):
        nearkin.load(tmp_path / "n")


def test_every_objective_can_be_named():
    for name in OBJECTIVES:
        built = build(name, {}, num_classes=5, dimension=8, size=200)
        assert isinstance(built, torch.nn.Module)
    assert choose("auto", "numbers")[0] == "nca_regression"
    with pytest.raises(ValueError, match="objective 'ncaa' is unknown .did you mean 'nca'"):
        choose("ncaa", "classes")
    with pytest.raises(ValueError, match="objective nca has no option 'margin'; its options are form, temperature"):
        build("nca", {"margin": 1}, num_classes=5, dimension=8, size=20)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("augment.name", "twirl", "augment 'twirl' is unknown"),
        ("augment.options.pixels", "3", "augment none has no option 'pixels'; it has none"),
        ("preprocess.name", "zca", "preprocess 'zca' is unknown"),
        ("preprocess.options.per_chanel", "true", r"standardize has no option 'per_chanel' \(did you mean 'per_channel'\?\)"),
        ("preprocess.options.mean", "0.5", "preprocess.options.mean and preprocess.options.std belong together"),
        ("sampler.name", "fair", "sampler 'fair' is unknown; choose one of shuffled, per_class, class_balanced, grouped"),
        (
            "sampler.options.droplast",
            "true",
            r"shuffled has no option 'droplast' \(did you mean 'drop_last'\?\); its options are drop_last",
        ),
        ("objective.options.temprature", "2", r"nca has no option 'temprature' \(did you mean 'temperature'\?\)"),
    ],
)
def test_unknown_parts_are_named(tmp_path, digits, setting, value, message):
    with pytest.raises(ValueError, match=message):
        train(override(Run(), {**BASE, setting: value}), tmp_path / "m", data=digits.subset(torch.arange(200)))


def test_given_constants_prepare_the_images(tmp_path, digits):
    settings = {**BASE, "epochs": "1", "preprocess.options.mean": "0.25", "preprocess.options.std": "[0.5]"}
    train(override(Run(), settings), tmp_path / "m", data=digits.subset(torch.arange(200)))
    assert json.loads((tmp_path / "m" / "model.json").read_text())["prepare"][0]["mean"] == [0.25]


@pytest.mark.soak
def test_a_model_folder_does_not_need_the_initial_weights(tmp_path):
    first = tmp_path / "first.safetensors"
    body = MobileNetV2(3).state_dict()
    save_file(body, first)
    pictures = Dataset("noise", torch.randint(0, 256, (40, 3, 32, 32), dtype=torch.uint8), labels=torch.arange(40) % 2, classes=("a", "b"))
    settings = {"network.name": "mobilenet-v2", "network.weights": str(first), "network.tune": "head", "network.dimension": "4"}
    train(override(Run(), {**settings, "epochs": "1", "batch_size": "20"}), tmp_path / "m", data=pictures)
    first.unlink()
    kept = nearkin.load(tmp_path / "m").network.state_dict()
    name = next(iter(body))
    assert torch.equal(kept[f"body.{name}"], body[name])


@pytest.mark.soak
@pytest.mark.parametrize("statistics", ["batch", "kept"])
def test_statistics_of_batch_normalization_are_those_of_the_batch_or_kept(statistics, tmp_path):
    first = tmp_path / "first.safetensors"
    body = MobileNetV2(3).state_dict()
    save_file(body, first)
    pictures = Dataset("noise", torch.randint(0, 256, (40, 3, 32, 32), dtype=torch.uint8), labels=torch.arange(40) % 2, classes=("a", "b"))
    settings = {"network.name": "mobilenet-v2", "network.weights": str(first), "network.statistics": statistics, "network.dimension": "4"}
    train(override(Run(), {**settings, "epochs": "1", "batch_size": "20"}), tmp_path / "m", data=pictures)
    found = nearkin.load(tmp_path / "m").network.state_dict()
    same = [torch.equal(found[f"body.{name}"], value) for name, value in body.items() if "running_" in name]
    assert len(same) > 100 and all(one == (statistics == "kept") for one in same)
    moved = [not torch.equal(found[f"body.{name}"], value) for name, value in body.items() if name.endswith("weight")]
    assert all(moved)  # the weights are trained either way
    with pytest.raises(ValueError, match="there are none: set network.weights"):
        train(override(Run(), {"network.statistics": "kept", "epochs": "1"}), tmp_path / "n", data=pictures)


def test_conjugate_gradient_over_the_whole_training_set(tmp_path, digits):
    small = digits.subset(torch.arange(200))
    settings = {**BASE, "references": "training_set", "optimizer.name": "conjugate_gradient", "optimizer.iterations": "4"}
    notes = Notes()
    train(override(Run(), settings), tmp_path / "m", data=small, reporter=notes)
    losses = [epoch["loss"] for epoch in notes.epochs]
    assert losses[2] < losses[1] < losses[0]  # line searches never rise
    with pytest.raises(ValueError, match="needs references=training_set"):
        train(override(Run(), {**BASE, "optimizer.name": "conjugate_gradient"}), tmp_path / "n", data=small)


def test_random_crops_train_and_middle_crops_are_deployed(tmp_path, digits):
    settings = {**BASE, "network.name": "convnet", "epochs": "1"}
    del settings["network.options.hidden"]
    settings |= {"augment.name": "crop", "augment.options.size": "6", "preprocess.options.crop": "6"}
    train(override(Run(), settings), tmp_path / "m", data=digits.subset(torch.arange(200)))
    model = nearkin.load(tmp_path / "m")
    inner = digits.inputs[:5].clone()
    inner[:, :, 0], inner[:, :, :, 0] = 77, 77  # the rim is cut away
    torch.testing.assert_close(model.encode(inner), model.encode(digits.inputs[:5]))
    with pytest.raises(ValueError, match="augment shift has no option 'size'"):
        train(override(Run(), {**BASE, "augment.name": "shift", "augment.options.size": "6"}), tmp_path / "n", data=digits)


def test_a_set_that_does_not_fit_streams_to_the_same_weights(tmp_path, digits):
    small = digits.subset(torch.arange(250))
    weights = []
    for name, gigabytes in (("held", "4"), ("streamed", "0")):
        train(override(Run(), {**BASE, "data.resident_gigabytes": gigabytes, "epochs": "2"}), tmp_path / name, data=small)
        weights.append(nearkin.load(tmp_path / name, which="last").network.state_dict())
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def test_queries_without_positives_are_warned_about(tmp_path, digits):
    lonely = Dataset("lonely", digits.inputs[:200], labels=torch.arange(200) % 100)
    notes = Notes()
    settings = {**BASE, "batch_size": "16", "epochs": "1", "data.validation": "0", "data.test": "0"}
    train(override(Run(), settings), tmp_path / "m", data=lonely, reporter=notes)
    assert any("queries have a right neighbor in their batch; use larger batches or sampler.name=per_class" in line for line in notes.lines)


def test_gradients_that_are_all_zero_are_warned_about(tmp_path, digits):
    notes = Notes()
    settings = {
        **BASE,
        "objective.name": "nca",
        "objective.options.form": "expected",
        "objective.options.temperature": "1e-9",
        "epochs": "1",
    }
    train(override(Run(), settings), tmp_path / "m", data=digits.subset(torch.arange(300)), reporter=notes)
    assert any("all gradients are zero" in line for line in notes.lines)


def test_a_collapse_is_warned_about_once(tmp_path, digits):
    notes = Notes()
    settings = {**BASE, "objective.name": "center_pull", "optimizer.learning_rate": "0.5", "epochs": "6"}  # nothing pushes apart
    train(override(Run(), settings), tmp_path / "m", data=digits.subset(torch.arange(400)), reporter=notes)
    warned = [line for line in notes.lines if "the embedding has collapsed" in line]
    assert len(warned) == 1
    assert notes.epochs[-1]["dimensions used"] < 1.5


def test_two_points_may_use_one_dimension(tmp_path, digits):
    notes, two = Notes(), Dataset("two", digits.inputs[:2])
    settings = {"network.name": "mlp", "batch_size": "2", "epochs": "5", "checkpoint_seconds": "1e9"}
    train(override(Run(), settings), tmp_path / "m", data=two, reporter=notes)
    assert notes.epochs[-1]["dimensions used"] < 1.5 and not any("collapsed" in line for line in notes.lines)


@pytest.mark.parametrize(
    ("options", "unit_length", "length", "scale"),
    [
        ({}, False, 4.8029, 1.0),  # the anchors are placed farther out
        ({}, True, 1.0, 4.8029),  # but not for embeddings that cannot follow them
        ({"metric": "cosine"}, False, 1.0, 6.7923),
        ({"length": 1.0}, False, 1.0, 4.8029),
        ({"scale": 1.0}, False, 1.0, 1.0),  # as printed
    ],
)
def test_anchors_are_placed_where_a_point_is_sure_of_its_class(options, unit_length, length, scale):
    made = build("nearest_class_mean", options, num_classes=10, dimension=16, size=1, unit_length=unit_length)
    assert made.references.vectors.norm(dim=1).tolist() == pytest.approx([length] * 10, abs=1e-4)
    assert 1 / made.affinity.temperature == pytest.approx(scale, abs=1e-4)


def test_class_vectors_answer_for_themselves(tmp_path, digits):
    small = digits.subset(torch.arange(600))
    for objective in ("softmax", "nearest_class_mean", "large_margin_softmax", "center_loss"):
        settings = {**BASE, "objective.name": objective, "network.dimension": "16", "epochs": "12", "optimizer.learning_rate": "0.2"}
        settings["data.validation"] = "0"
        assert train(override(Run(), settings), tmp_path / objective, data=small)["test"]["class vectors"] > 0.7, objective
    assert "class vectors" not in train(override(Run(), {**BASE, "epochs": "1"}), tmp_path / "nca", data=small)["test"]
