"""Training that starts from a pretrained encoder: found by name, its features computed once, never worse than frozen."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import nearkin
from nearkin.cli import main
from nearkin.data import Dataset
from nearkin.data.images import DamagedImageError
from nearkin.index import Where, build_index
from nearkin.models import build, encoders
from nearkin.models.encoders import find_encoder, installed_encoder
from nearkin.models.feature_cache import FeatureCache, file_digests
from nearkin.models.folder import reading
from nearkin.models.mobilenet import MobileNetV2
from nearkin.train import Run, override
from nearkin.train.encoder import Start, automatic, begins_with_features, start_of
from nearkin.train.linear_map import Whitening
from nearkin.train.recipes import in_bfloat16, suited
from nearkin.train.step import Step
from nearkin.train.training import train
from nearkin.train.tuning import add_checkpoints, blocks_of, choose_trained
from nearkin.train.whole_set import whole_set_gradient
from tests.train.test_training import Notes

SIDE = 32


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    network = MobileNetV2().eval()
    with torch.no_grad():  # random weights make tiny features: the last layer brings them to a usual size
        network.features[18][1].weight *= 0.5 / network(torch.randn(16, 3, 1, 1) + 0.3 * torch.randn(16, 3, SIDE, SIDE)).mean()
    path = tmp_path_factory.mktemp("w") / "mobilenet.safetensors"
    save_file(network.state_dict(), path)
    return path


@pytest.fixture
def photos(tmp_path) -> Path:
    generator = np.random.default_rng(0)
    for label, tint in (("red", (200, 40, 40)), ("blue", (40, 40, 200))):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(12):
            pixels = generator.integers(0, 60, (70 + number, 80, 3)) + np.array(tint)
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(tmp_path / "photos" / label / f"{number}.png")
    return tmp_path / "photos"


def settings(photos: Path, weights: Path, **more: str) -> Run:
    chosen = {"data.source": str(photos), "network.name": "mobilenet-v2", "network.pretrained": "true", "network.weights": str(weights)}
    return override(Run(), {**chosen, "data.size": str(SIDE), "network.dimension": "4", "epochs": "1", **more})


def test_features_are_computed_once_and_only_the_head_is_trained(tmp_path, photos, weights, monkeypatch):
    seen = []
    passing = MobileNetV2.forward
    monkeypatch.setattr(MobileNetV2, "forward", lambda self, images: seen.append(len(images)) or passing(self, images))
    notes = Notes()
    metrics = train(settings(photos, weights), tmp_path / "runs" / "a", reporter=notes, device="cpu")
    assert sum(seen) - 24 <= 2  # every image once, and the probe for the number of features
    assert any("frozen: 1-nn" in line for line in notes.lines) and any("frozen + linear map: 1-nn" in line for line in notes.lines)
    assert metrics["frozen"]["1-nn"] <= 1 and "kept" in metrics
    first, kept = load_file(weights), load_file(tmp_path / "runs" / "a" / "best.safetensors")
    assert all(torch.equal(kept[f"body.{name}"], value) for name, value in first.items())
    seen.clear()
    train(settings(photos, weights), tmp_path / "runs" / "b", reporter=notes, device="cpu")
    assert sum(seen) <= 2 and any("features of 24 of 24 images are in the cache" in line for line in notes.lines)
    model = nearkin.load(tmp_path / "runs" / "a", device="cpu")
    about = json.loads((tmp_path / "runs" / "a" / "model.json").read_text())
    assert about["framing"] == {"crop": 0.875, "interpolation": "bilinear"} and about["prepare"][0]["mean"] == [0.485, 0.456, 0.406]
    path = str(photos / "red" / "3.png")
    cache = FeatureCache(tmp_path / "runs" / "a", about["features"])
    with torch.no_grad():
        head = model.network.head(cache.get(file_digests([path])))
    np.testing.assert_allclose(model.encode([path]), head.numpy(), atol=1e-4)


def test_views_of_images_are_computed_once_and_a_step_takes_one_of_them(tmp_path, photos, weights, monkeypatch):
    seen, read = [], []
    passing, embed = MobileNetV2.forward, Step.embed
    monkeypatch.setattr(MobileNetV2, "forward", lambda self, images: seen.append(len(images)) or passing(self, images))

    def noted(self, ids, inputs=None):
        read.extend(zip(ids.tolist(), self.read(ids), strict=True))
        return embed(self, ids, inputs)

    monkeypatch.setattr(Step, "embed", noted)
    more = {"network.views": "3", "augment.name": "resized_crop", "epochs": "12", "data.test": "0", "data.validation": "0.25"}
    for name in "ab":
        seen.clear()
        train(settings(photos, weights, **more), tmp_path / "runs" / name, device="cpu")
        assert sum(seen) - (24 + 3 * 18 if name == "a" else 0) <= 2  # of the training part only, and once
    views = [torch.stack([row for at, row in read if at == one]).unique(dim=0) for one in (0, 7)]
    assert [len(some) for some in views] == [4, 4]
    assert nearkin.load(tmp_path / "runs" / "b", device="cpu").encode([str(photos / "red" / "3.png")]).shape == (1, 4)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"augment.name": "crop_flip"}, r"augment 'crop_flip' changes inputs in every step, .* set network.views=8"),
        ({"network.views": "2"}, r"network.views \(2\) are all equal without augmentation; set augment.name"),
        ({"network.views": "2", "augment.name": "shift", "network.tune": "all"}, r"network.views \(2\) are for a frozen encoder"),
        ({"network.views": "-1", "augment.name": "shift"}, r"network.views \(-1\)"),
    ],
)
def test_views_and_augmentation_belong_together(more, message, tmp_path, photos, weights):
    with pytest.raises(ValueError, match=message):
        train(settings(photos, weights, **more), tmp_path / "m", device="cpu")


def test_other_weights_and_other_files_are_other_features(tmp_path, photos, weights):
    train(settings(photos, weights), tmp_path / "r" / "a", device="cpu")
    other = tmp_path / "other.safetensors"
    save_file({name: value * (1.01 if name == "features.18.1.weight" else 1) for name, value in load_file(weights).items()}, other)
    Image.new("RGB", (80, 80), (1, 2, 3)).save(photos / "red" / "new.png")
    notes, more = Notes(), Notes()
    train(settings(photos, other), tmp_path / "r" / "b", device="cpu", reporter=notes)
    assert not any("in the cache" in line for line in notes.lines)
    train(settings(photos, weights), tmp_path / "r" / "c", device="cpu", reporter=more)
    assert any("features of 24 of 25 images are in the cache" in line for line in more.lines)


def test_a_damaged_part_of_the_cache_is_computed_again(tmp_path):
    cache = FeatureCache(tmp_path / "m", "key")
    cache.add([b"a" * 16], torch.ones(1, 3))
    cache.add([b"b" * 16], torch.zeros(1, 3))
    part = tmp_path / "m" / "features" / "key" / "part-00001.safetensors"
    part.write_bytes(part.read_bytes()[:20])
    again = FeatureCache(tmp_path / "m", "key")
    assert b"a" * 16 in again and b"b" * 16 not in again and again.get([b"a" * 16]).tolist() == [[1, 1, 1]]


def test_the_index_uses_the_features_that_training_kept(tmp_path, photos, weights, monkeypatch):
    train(settings(photos, weights), tmp_path / "m", device="cpu")
    model = nearkin.load(tmp_path / "m", device="cpu")
    want = {str(path): model.encode([str(path)])[0] for path in sorted(photos.rglob("*.png"))[::7]}
    Image.new("RGB", (90, 80), (9, 200, 9)).save(photos / "red" / "new.png")  # one that training has not seen
    want[str(photos / "red" / "new.png")] = model.encode([str(photos / "red" / "new.png")])[0]
    seen, passing = [], MobileNetV2.forward
    monkeypatch.setattr(MobileNetV2, "forward", lambda self, images: seen.append(len(images)) or passing(self, images))
    data = nearkin.data.open(photos, **reading(model.about))
    collection, added = build_index(tmp_path / "m", data, device="cpu")
    assert added.added == 25 and sum(seen) <= 2  # the probe for the number of features, and the new image
    entries = {entry.source: entry.id for entry in collection.index.page(Where(), 0, 100).entries}
    for source, embedding in want.items():
        np.testing.assert_allclose(collection.index.vectors([entries[source]])[0], embedding, atol=1e-4)


def test_features_of_an_encoder_that_is_trained_are_not_those_of_the_model(tmp_path, photos, weights):
    train(settings(photos, weights, **{"network.tune": "last-blocks=1"}), tmp_path / "m", device="cpu")
    assert "features" not in json.loads((tmp_path / "m" / "model.json").read_text())


def test_the_report_has_the_frozen_encoder_and_logistic_regression(tmp_path, photos, weights, capsys):
    train(settings(photos, weights), tmp_path / "m", device="cpu")
    assert main(["evaluate", str(tmp_path / "m"), "--no-pictures", "--device", "cpu"]) == 0
    page = json.loads((tmp_path / "m" / "evaluation.json").read_text())
    assert [row["name"] for row in page["comparisons"]] == ["frozen encoder", "frozen encoder + logistic regression"]
    assert page["comparisons"][0]["dimension"] == 1280 and "frozen encoder" in capsys.readouterr().out
    assert main(["evaluate", str(tmp_path / "m"), "--compare", "--no-pictures", "--device", "cpu"]) == 0
    names = [row["name"] for row in json.loads((tmp_path / "m" / "evaluation.json").read_text())["comparisons"]]
    assert names[:4] == ["frozen encoder", "frozen encoder + logistic regression", "raw pixels", "color histogram"]


def test_labels_are_predicted_without_an_index(tmp_path, photos, weights, capsys):
    train(settings(photos, weights), tmp_path / "m", device="cpu")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    capsys.readouterr()
    words = ["predict", str(tmp_path / "m"), str(photos / "red"), str(tmp_path / "broken.png"), "-k", "3", "--json", "--device", "cpu"]
    assert main(words) == 0
    output = capsys.readouterr()
    rows = json.loads(output.out)
    assert len(rows) == 12 and sum(row["label"] == "red" for row in rows) >= 10 and 0 < rows[0]["agreement"] <= 1
    assert "skipped: " in output.err and "broken.png" in output.err
    assert main(["predict", str(tmp_path / "m"), str(photos / "red" / "0.png"), "--device", "cpu"]) == 0
    assert "agreement" in capsys.readouterr().out


def test_without_training_the_features_are_the_embedding(tmp_path, photos, weights):
    metrics = train(settings(photos, weights, **{"network.tune": "none"}), tmp_path / "m", device="cpu")
    model = nearkin.load(tmp_path / "m", device="cpu")
    found = model.encode([str(photos / "red" / "0.png")])
    assert found.shape == (1, 1280) and np.linalg.norm(found) == pytest.approx(1, abs=1e-5)
    assert (
        metrics["weights"] == "frozen"
        and model.about["metric"] == "cosine"
        and model.predict([str(photos / "red" / "0.png")], 3) == ["red"]
    )


def test_photographs_without_labels_keep_the_frozen_features(tmp_path, photos, weights):
    flat = tmp_path / "flat"
    flat.mkdir()
    for path in photos.rglob("*.png"):
        (flat / f"{path.parent.name}-{path.name}").write_bytes(path.read_bytes())
    assert train(settings(flat, weights), tmp_path / "m", device="cpu")["weights"] == "frozen"


def test_the_frozen_encoder_stays_the_model_if_nothing_is_better(tmp_path, photos, weights, monkeypatch):
    monkeypatch.setattr(Start, "beats", lambda *_: True)
    notes = Notes()
    assert train(settings(photos, weights), tmp_path / "m", device="cpu", reporter=notes)["weights"] == "frozen"
    assert any("nothing is better than frozen: 1-nn" in line for line in notes.lines)
    assert nearkin.load(tmp_path / "m", device="cpu").encode([str(photos / "red" / "0.png")]).shape == (1, 1280)
    assert not (tmp_path / "m" / "best.safetensors").exists()
    monkeypatch.undo()
    assert (
        Start({"1-nn": 0.9}, {}, None).beats(0.8) and not Start({"1-nn": 0.9}, {}, None).beats(0.9) and not Start({}, {}, None).beats(0.0)
    )


def test_training_that_makes_the_linear_map_worse_is_not_kept(tmp_path, photos, weights):
    """Epoch 0 is the map: its weights stay the best ones, and the message says so."""
    ruinous = {"optimizer.name": "sgd", "optimizer.learning_rate": "1e4", "objective.name": "triplet", "batch_size": "8"}
    notes = Notes()
    metrics = train(settings(photos, weights, **ruinous), tmp_path / "m", device="cpu", reporter=notes)
    start = metrics["frozen + linear map"]["1-nn"]
    assert metrics["kept"]["epoch"] == 0 and metrics["kept"]["value"] == pytest.approx(start)
    assert any("kept the linear map of the frozen features: 1-nn" in line for line in notes.lines)
    best, last = (load_file(tmp_path / "m" / f"{name}.safetensors")["head.linear.weight"] for name in ("best", "weights"))
    assert not torch.equal(best, last)


def test_a_linear_map_helps_where_noise_hides_the_classes():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 3
    x = torch.randn(300, 20, generator=generator) * torch.cat([torch.ones(3), torch.full((17,), 8.0)])
    x[:, :3] += 4 * torch.nn.functional.one_hot(labels, 3)
    parts = [Dataset("t", x[rows], labels=labels[rows], classes=("a", "b", "c")) for rows in (slice(0, 200), slice(200, 300))]
    found = start_of(parts[0], parts[1], 5)
    assert found.linear["1-nn"] > found.frozen["1-nn"] + 0.3 and found.map is not None and found.map.weight.shape == (5, 20)
    within = Whitening(x, labels).map(20, 0.0)(x)
    means = torch.stack([within[labels == c].mean(0) for c in range(3)])
    scatter = (within - means[labels]).T @ (within - means[labels]) / 300
    assert torch.allclose(scatter, torch.eye(20), atol=1e-3)  # the scatter within classes is white


def test_few_points_give_the_same_map_as_the_whole_space():
    """Written out in all dimensions: shrink the scatter, whiten, and take the directions of largest variance."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(24) % 3
    x = torch.randn(24, 40, generator=generator).double() + 3 * torch.nn.functional.one_hot(labels, 40)
    means = torch.stack([x[labels == c].mean(0) for c in range(3)])
    scatter = (x - means[labels]).T @ (x - means[labels]) / 24
    values, vectors = torch.linalg.eigh(0.9 * scatter + 0.1 * scatter.trace() / 40 * torch.eye(40))
    white = (x - x.mean(0)) @ (vectors / values.sqrt())
    wide = white @ torch.linalg.eigh(white.T @ white)[1].flip(1)[:, :5]
    made = Whitening(x.float(), labels).map(5, 0.1)(x.float()).double()
    assert torch.allclose(made @ made.T, wide @ wide.T, rtol=1e-3, atol=1e-3)
    assert Whitening(x.float(), labels).map(30, 0.1).weight.shape == (30, 40)  # more dimensions than points


def test_last_blocks_are_trained_and_all_before_them_are_not(weights):
    network = nearkin.models.build("mobilenet-v2", image_shape=(3, SIDE, SIDE), weights=weights)
    assert len(blocks_of(network.body)) == 19
    choose_trained(network, "last-blocks=2")
    trained = {name.split(".")[1] for name, p in network.body.named_parameters() if p.requires_grad}
    assert trained == {"17", "18"} and all(p.requires_grad for p in network.head.parameters())
    with pytest.raises(ValueError, match=r"the encoder has 19 blocks; choose at most that many, or all"):
        choose_trained(network, "last-blocks=20")


def test_tuning_the_last_block_starts_from_the_map_and_moves_only_that_block(tmp_path, photos, weights):
    run = settings(photos, weights, **{"network.tune": "last-blocks=1", "network.layer_decay": "0.5", "optimizer.learning_rate": "0.01"})
    train(run, tmp_path / "m", device="cpu")
    first, last = load_file(weights), load_file(tmp_path / "m" / "weights.safetensors")
    moved = {name.split(".")[1] for name, value in first.items() if not torch.equal(last[f"body.{name}"], value)}
    assert moved == {"18"}
    with pytest.raises(ValueError, match=r"network.tune 'heads' is unknown; choose none, head, lora, lora=RANK, last-blocks=N or all"):
        train(settings(photos, weights, **{"network.tune": "heads"}), tmp_path / "n", device="cpu")


def test_a_batch_in_chunks_has_the_gradient_of_the_whole_batch():
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Dropout(0.0), torch.nn.Linear(16, 4))
    x, labels = torch.randn(96, 6), torch.arange(96) % 5
    step = Step(
        network,
        nearkin.NCA(),
        torch.optim.SGD(network.parameters(), lr=0.1),
        read=lambda ids: x[ids],
        answers=labels,
        prepare=lambda inputs: inputs,
        generator=torch.Generator(),
    )
    nearkin.NCA()(network(x), labels, ids=torch.arange(96)).backward()
    exact = [p.grad.clone() for p in network.parameters()]
    scale = max(float(g.abs().max()) for g in exact)
    for inputs in (None, x):  # read by the step, or handed in
        whole_set_gradient(step, torch.arange(96), 10, inputs)
        for p, want in zip(network.parameters(), exact, strict=True):
            assert (p.grad - want).abs().max() <= 1e-5 * scale


def test_checkpoints_keep_the_gradient_and_less_for_the_backward_pass():
    kept: list[int] = []

    def gradients(checkpoints: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        network = build("mobilenet-v2", image_shape=(3, 32, 32), dimension=4, normalize=True).eval()
        if checkpoints:
            add_checkpoints(network)
        images = torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(1))
        held: dict[int, int] = {}

        def keep(x: torch.Tensor) -> torch.Tensor:
            held[x.data_ptr()] = x.nbytes
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            loss = nearkin.NCA()(network(images), torch.arange(6) % 3)
        kept.append(sum(held.values()))
        loss.backward()
        return [p.grad for p in network.parameters()]

    for plain, again in zip(gradients(False), gradients(True), strict=True):
        torch.testing.assert_close(again, plain, rtol=1e-5, atol=1e-7)
    assert kept[1] < kept[0] / 3


def test_checkpointing_is_a_setting_and_saves_the_same_names(tmp_path, photos, weights):
    chosen = {"network.tune": "all", "network.statistics": "kept"}
    train(settings(photos, weights, **chosen), tmp_path / "m", device="cpu")
    train(settings(photos, weights, **chosen, **{"network.checkpointing": "true"}), tmp_path / "n", device="cpu")
    plain, again = (load_file(tmp_path / name / "weights.safetensors") for name in "mn")
    assert plain.keys() == again.keys()
    for name, value in plain.items():
        torch.testing.assert_close(again[name], value, rtol=1e-4, atol=1e-5)
    refused = {"data.source": "digits", "network.name": "resnet18", "network.checkpointing": "true"}
    with pytest.raises(ValueError, match=r"network.checkpointing \(true\) would change the statistics of batch normalization"):
        train(override(Run(), refused), tmp_path / "o", device="cpu")


def test_a_tuned_encoder_gets_a_careful_rate_unless_one_is_given(tmp_path, photos, weights):
    run = settings(photos, weights, **{"network.tune": "last-blocks=1"})
    for given, name, rate in ((("network.tune", "epochs"), "adam", 0.1), (("network.tune", "epochs", "optimizer.name"), "sgd", 1.0)):
        train(run, tmp_path / name, device="cpu", given=given)
        saved = json.loads((tmp_path / name / "run.json").read_text())
        assert saved["optimizer"]["name"] == name and saved["network"]["rate"] == rate


@pytest.mark.parametrize(
    ("tune", "on_gpu", "given", "expected"),
    [
        ("all", True, (), "bfloat16"),
        ("lora", True, ("epochs",), "bfloat16"),
        ("head", True, (), "float32"),
        ("all", False, (), "float32"),
        ("all", True, ("precision",), "float32"),
        ("all", True, None, "float32"),
    ],
)
def test_encoders_are_tuned_in_bfloat16_on_a_gpu_unless_the_precision_is_given(tune, on_gpu, given, expected):
    run, notes = override(Run(), {"network.pretrained": "true", "network.tune": tune}), Notes()
    assert in_bfloat16(run, on_gpu, given, notes).precision == expected
    assert len(notes.lines) == (expected == "bfloat16") and not any("precision=float32" not in line for line in notes.lines)
    assert in_bfloat16(override(Run(), {"network.tune": tune}), True, (), notes).precision == "float32"  # nothing pretrained


def test_images_that_are_far_too_small_for_an_encoder_are_mentioned(tmp_path, weights):
    generator = np.random.default_rng(0)
    for label in ("red", "blue"):
        (tmp_path / "tiny" / label).mkdir(parents=True)
        for number in range(8):
            Image.fromarray(generator.integers(0, 255, (8, 9, 3)).astype(np.uint8)).save(tmp_path / "tiny" / label / f"{number}.png")
    for size, warned in ((SIDE, True), (24, False)):
        notes = Notes()
        train(settings(tmp_path / "tiny", weights, **{"data.size": str(size)}), tmp_path / f"m{size}", device="cpu", reporter=notes)
        said = "warning: the short side of the images is 8 pixels (the median)"
        assert any(said in line and "--from-scratch" in line for line in notes.lines) == warned


def test_a_head_that_starts_from_the_map_ends_when_nothing_gets_better(tmp_path, photos, weights):
    run, notes = settings(photos, weights, epochs="60"), Notes()
    train(run, tmp_path / "m", device="cpu", given=("optimizer.name",), reporter=notes)
    saved = json.loads((tmp_path / "m" / "run.json").read_text())
    assert saved["patience"] == 10 and len(notes.epochs) < 60 and any("(patience)" in line for line in notes.lines)
    assert not any("the loss has risen" in line for line in notes.lines)  # from nothing to nothing


def test_chunks_are_a_setting_and_refused_where_they_would_mix_statistics(tmp_path, photos, weights):
    run = settings(photos, weights, chunk="5", **{"network.tune": "all", "network.statistics": "kept"})
    assert train(run, tmp_path / "m", device="cpu")["epochs"] == 1
    with pytest.raises(ValueError, match=r"chunk \(5\) would change the statistics of batch normalization; set network.statistics=kept"):
        train(override(Run(), {"data.source": "digits", "network.name": "resnet18", "chunk": "5"}), tmp_path / "n", device="cpu")


def test_damaged_photographs_are_named_together_or_left_out(tmp_path, photos, weights):
    for name in ("0", "1"):
        (photos / "red" / f"{name}.png").write_bytes(b"no picture")
    with pytest.raises(DamagedImageError, match=r"(?s)2 of 24 files cannot be read:.*--skip-damaged"):
        train(settings(photos, weights), tmp_path / "m", device="cpu")
    train(settings(photos, weights, **{"data.on_error": "skip"}), tmp_path / "m", device="cpu")
    assert len(load_file(tmp_path / "m" / "references.safetensors")["ids"]) < 22


def test_the_encoder_is_checked_before_any_image_is_read(tmp_path, photos, weights):
    (photos / "red" / "0.png").write_bytes(b"no picture")
    for name, broken, message in (
        ("mobilenet-v3", weights, "encoder 'mobilenet-v3' is unknown; choose mobilenet-v2"),
        ("mobilenet-v2", tmp_path / "none.pth", "is not a file; give a local"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            train(settings(photos, broken, **{"network.name": name}), tmp_path / "m", device="cpu")
    cut_off = tmp_path / "cut.safetensors"
    cut_off.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"cut.safetensors.? is not a complete safetensors file .*; fetch it again"):
        train(settings(photos, cut_off), tmp_path / "m", device="cpu")
    other = tmp_path / "other.safetensors"
    save_file({"conv1.weight": torch.ones(3)}, other)
    with pytest.raises(ValueError, match="are of another network"):
        train(settings(photos, other), tmp_path / "m", device="cpu")
    with pytest.raises(ValueError, match=r"is a file of an unknown network \(it has conv1.weight, ...\); name it: --encoder timm:NAME"):
        find_encoder(str(other))
    assert find_encoder(str(weights)).network == "mobilenet-v2"


def test_features_that_are_not_finite_name_the_first_image(tmp_path, photos, weights):
    broken = tmp_path / "nan.safetensors"
    save_file({name: value * np.nan if name == "features.18.1.weight" else value for name, value in load_file(weights).items()}, broken)
    with pytest.raises(ValueError, match=r"the encoder returns NaN or infinity for 24 of 24 images, first for .*png; check"):
        train(settings(photos, broken), tmp_path / "m", device="cpu")


def test_features_that_are_all_alike_are_refused(tmp_path, photos, weights):
    alike = tmp_path / "alike.safetensors"
    save_file({name: value * (name != "features.18.1.weight") for name, value in load_file(weights).items()}, alike)
    with pytest.raises(ValueError, match=r"the same features for all 24 images, up to rounding: .*check that the weights file belongs"):
        train(settings(photos, alike), tmp_path / "m", device="cpu")


def test_weights_are_found_in_torchs_cache_and_checked_by_the_hash_in_their_name(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(encoders, "find_spec", lambda _: None)
    with pytest.raises(FileNotFoundError, match=r"the weights of mobilenet-v2 are not on this machine: put https://.*pth at .*--weights"):
        find_encoder("mobilenet-v2")
    assert installed_encoder() is None
    monkeypatch.setattr(torch.hub, "download_url_to_file", lambda *_, **__: (_ for _ in ()).throw(OSError("no network")))
    with pytest.raises(FileNotFoundError, match=r"cannot be fetched \(OSError: no network\); put https://"):
        find_encoder("mobilenet-v2", download=True)
    content = b"weights"
    name = f"mobilenet_v2-{hashlib.sha256(content).hexdigest()[:8]}.pth"
    monkeypatch.setattr(encoders, "MOBILENET", f"https://x/{name}")
    (tmp_path / "checkpoints").mkdir(exist_ok=True)
    (tmp_path / "checkpoints" / name).write_bytes(content)
    found = installed_encoder()
    assert found is not None and found.network == "mobilenet-v2" and found.weights.name == name
    (tmp_path / "checkpoints" / name).write_bytes(b"other")
    with pytest.raises(ValueError, match="is damaged: its content does not match the hash in its name"):
        find_encoder("mobilenet-v2")


def test_an_encoder_on_this_machine_is_the_default_for_photographs(tmp_path, photos, weights, monkeypatch):
    notes, quick = Notes(), {"epochs": "1", "network.dimension": "4"}
    base = override(Run(), {**quick, "data.source": str(photos)})
    monkeypatch.setattr("nearkin.train.encoder.installed_encoder", lambda: None)
    train(base, tmp_path / "a", device="cpu", reporter=notes, given=list(quick))
    assert any("no pretrained encoder was found" in line and "--download" in line for line in notes.lines)
    found = find_encoder("mobilenet-v2", weights)
    small = found._replace(reading=encoders.Reading(encoders.Framing(SIDE), found.reading.standardize))
    monkeypatch.setattr("nearkin.train.encoder.installed_encoder", lambda: small)
    train(base, tmp_path / "b", device="cpu", reporter=notes, given=list(quick))
    assert any("starting from the pretrained encoder mobilenet-v2" in line and "--from-scratch" in line for line in notes.lines)
    assert nearkin.load(tmp_path / "b").about["network"]["name"] == "mobilenet-v2"
    train(override(base, {"network.scratch": "true"}), tmp_path / "c", device="cpu", given=[*quick, "network.scratch"])
    assert nearkin.load(tmp_path / "c").about["network"]["name"] == "convnet"


@pytest.mark.parametrize("points", [30, 400])
def test_the_shrinkage_is_estimated_as_scikit_learn_does(points):
    from sklearn.covariance import OAS

    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(points) % 5
    x = torch.randn(points, 40, generator=generator) * torch.linspace(0.2, 3, 40) + 4 * torch.randn(5, 40, generator=generator)[labels]
    means = torch.zeros(5, 40).index_add_(0, labels, x) / labels.bincount()[:, None]
    residues = (x - means[labels]).double().numpy()
    expected = OAS(assume_centered=True).fit(residues)
    found = Whitening(x, labels).shrinkage
    assert found == pytest.approx(expected.shrinkage_, rel=0.25)  # which counts all points as free, not all but one of each class
    assert found > Whitening(x.repeat(4, 1), labels.repeat(4)).shrinkage


def test_on_unseen_classes_the_frozen_features_stay_unless_something_is_better_by_more_than_noise():
    start = Start({"recall@1": 0.8}, {}, None, points=400)  # a standard error of 0.02
    assert start.beats(0.8) and start.beats(0.81) and not start.beats(0.83)
    assert Start({"recall@1": 1.0}, {}, None, points=80).beats(1.0)


def in_memory(photos: Path, unseen: bool = False) -> Dataset:
    """The photos as an array, with a validation part, which may be of other classes."""
    images = nearkin.data.open(photos, size=SIDE, channels=3)
    pixels, labels = images.read(images.ids), images.labels
    assert labels is not None
    if unseen:  # four classes by number, of which two are held out
        labels = torch.arange(len(images)) % 4
    held = labels >= 2 if unseen else torch.arange(len(images)) % 4 == 0
    found = Dataset("array", pixels, labels=labels, classes=tuple("abcd") if unseen else images.classes)
    return found.with_split(["validation" if one else "train" for one in held.tolist()])


def test_features_of_images_in_memory_are_computed_once_too(tmp_path, photos, weights, monkeypatch):
    seen, passing = [], MobileNetV2.forward
    monkeypatch.setattr(MobileNetV2, "forward", lambda self, images: seen.append(len(images)) or passing(self, images))
    data, notes = in_memory(photos), Notes()
    metrics = train(settings(photos, weights, epochs="3"), tmp_path / "r" / "a", data=data, device="cpu", reporter=notes)
    assert sum(seen) - 24 <= 2 and metrics["frozen"]["1-nn"] <= 1
    assert not any("columns of the vectors" in line for line in notes.lines)  # features are taken as they are
    train(settings(photos, weights), tmp_path / "r" / "b", data=data, device="cpu", reporter=notes)
    assert any("features of 24 of 24 images are in the cache" in line for line in notes.lines)


@pytest.mark.parametrize(
    ("frozen", "linear", "given", "alone"),
    [
        ({"1-nn": 0.9}, {"1-nn": 0.8}, ("network.tune",), True),
        ({"1-nn": 0.8}, {"1-nn": 0.8}, ("network.tune",), False),  # of equals the map, which is smaller
        ({"1-nn": 0.9}, {"1-nn": 0.8}, ("network.tune", "network.dimension"), False),
        ({"1-nn": 0.9}, {"1-nn": 0.8}, None, False),
        ({"recall@1": 0.9}, {"recall@1": 0.91}, ("network.tune",), True),  # not by more than noise
        ({}, {}, ("network.tune",), False),
    ],
)
def test_tuning_begins_with_the_features_where_they_are_better_than_the_map(frozen, linear, given, alone):
    run, start = override(Run(), {"network.tune": "all"}), Start(frozen, linear, None, points=100)
    assert begins_with_features(run, start, given) == alone
    assert not begins_with_features(override(run, {"network.tune": "head"}), start, given)


def test_an_encoder_whose_features_are_better_than_the_map_is_tuned_without_a_head(tmp_path, photos, weights, monkeypatch):
    monkeypatch.setattr("nearkin.train.training.begins_with_features", lambda *_: True)
    notes, more = Notes(), {"network.tune": "all", "least_steps": "2"}
    given = ("network.tune", "network.weights", "data.size", "epochs")
    train(settings(photos, weights, **more), tmp_path / "m", data=in_memory(photos, True), device="cpu", reporter=notes, given=given)
    assert any("they are the embedding that is tuned, of 1,280 numbers" in line for line in notes.lines)
    assert any("random crops and flips" in line for line in notes.lines)
    saved = json.loads((tmp_path / "m" / "run.json").read_text())
    assert saved["objective"]["name"] == "proxy_anchor" and json.loads((tmp_path / "m" / "model.json").read_text())["metric"] == "cosine"
    assert saved["network"]["options"]["head"] is False and saved["optimizer"]["learning_rate"] == 0.01 and saved["network"]["rate"] == 0.01
    assert nearkin.load(tmp_path / "m", device="cpu").encode([str(photos / "red" / "3.png")]).shape == (1, 1280)


def test_photos_are_tuned_in_batches_with_several_of_each_class(photos):
    data, run = in_memory(photos), override(Run(), {"network.tune": "all", "network.pretrained": "true"})
    suits = suited(run, data, ("network.tune",))
    assert suits.sampler.name == "per_class" and suits.batch_size == 24 and suits.sampler.options["per_class"] == 48
    assert suits.augment.name == "resized_crop" and suits.epochs == 6 and suits.least_steps == 150 and suits.validate_every == 30
    chosen = suited(run, data, ("network.tune", "batch_size", "augment.name"))
    assert chosen.sampler.name == "shuffled" and chosen.batch_size == 256 and chosen.augment.name == "auto"
    assert suited(override(run, {"network.tune": "head"}), data, ()).augment.name == "auto"
    rates = {tune: suited(override(run, {"network.tune": tune}), data, ()).network.rate for tune in ("all", "lora", "lora=4")}
    assert rates == {"all": 0.1, "lora": 1.0, "lora=4": 1.0}
    alike = Dataset("one", data.inputs, labels=torch.zeros(24, dtype=torch.int64), classes=("a",))
    assert suited(run, alike, ()).sampler.name == "shuffled"  # one class could fill a batch


@pytest.mark.parametrize(
    ("size", "tune", "pretrained"), [("64", "auto", True), ("40", "auto", False), ("40", "all", True), (None, "auto", True)]
)
def test_a_size_of_your_own_does_not_drop_the_encoder_unless_it_is_tiny(photos, weights, monkeypatch, size, tune, pretrained):
    monkeypatch.setattr("nearkin.train.encoder.installed_encoder", lambda: find_encoder("mobilenet-v2", weights))
    more = {"network.tune": tune} if tune != "auto" else {}
    more |= {"data.size": size} if size else {}
    notes, run = Notes(), override(Run(), more)
    found = automatic(run, nearkin.data.open(photos), list(more), notes)
    assert found.network.pretrained == pretrained and found.data.size == (int(size) if size else 224)
    assert any("--encoder NAME takes one all the same" in line for line in notes.lines) != pretrained
