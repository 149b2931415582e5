"""Image encoders of transformers from a local folder: features and preprocessing as the library's own, training, and bad folders."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import nearkin
from nearkin.data.pixels import decode_file
from nearkin.models import build
from nearkin.models.encoders import find_encoder
from nearkin.train import Run, override
from nearkin.train.export import to_onnx
from nearkin.train.training import train

transformers = pytest.importorskip("transformers")
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "image_size": 32, "patch_size": 8}


def made(kind: str) -> Any:
    """A model with random weights."""
    torch.manual_seed(0)
    if kind == "vit":
        return transformers.ViTForImageClassification(transformers.ViTConfig(**SMALL))  # its file has the prefix vit. and a classifier
    if kind == "dinov2":
        return transformers.Dinov2Model(transformers.Dinov2Config(**SMALL, mlp_ratio=1))
    if kind == "convnext":
        return transformers.ConvNextModel(transformers.ConvNextConfig(depths=[1, 1, 1, 1], hidden_sizes=[4, 8, 8, 16], image_size=32))
    text = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 50000}
    return transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=SMALL))


def own_features(kind: str, model: Any, pixels: torch.Tensor) -> torch.Tensor:
    """What a user of transformers takes for features."""
    if kind == "vit":
        return model.vit(pixels).last_hidden_state[:, 0]
    return (model.vision_model if kind == "clip" else model)(pixels).pooler_output


def folder_of(kind: str, folder: Path) -> Path:
    made(kind).save_pretrained(folder)
    read = {"vit": transformers.ViTImageProcessorPil(size={"height": 32, "width": 32})}.get(kind)
    (read or transformers.CLIPImageProcessorPil(size={"shortest_edge": 36}, crop_size=32)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of("vit", tmp_path_factory.mktemp("vit"))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    for at, name in enumerate(("red", "green", "blue")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(12):
            pixels = draw.integers(0, 120, (70, 80, 3))
            pixels[..., at] += 120
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


@pytest.mark.parametrize("kind", ["vit", "dinov2", "convnext", "clip"])
def test_features_are_those_of_the_library(kind: str, tmp_path: Path) -> None:
    encoder = find_encoder(f"hf:{folder_of(kind, tmp_path)}")
    body = build(encoder.network, image_shape=(3, 32, 32), weights=str(encoder.weights), head=False, **encoder.options).eval()
    pixels = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(body(pixels), own_features(kind, made(kind).eval(), pixels))


@pytest.mark.parametrize("kind", ["vit", "clip"])
def test_preprocessing_is_that_of_the_library(kind: str, tmp_path: Path) -> None:
    folder = folder_of(kind, tmp_path / "model")
    smooth = np.linspace(0, 255, 48)[None, :, None] * np.linspace(0.2, 1, 48)[:, None, None] * np.array([1, 0.5, 0.8])
    Image.fromarray(smooth.astype(np.uint8)).save(tmp_path / "a.png")
    reading = find_encoder(f"hf:{folder}").reading
    ours = reading.standardize(torch.from_numpy(decode_file((tmp_path / "a.png").read_bytes(), 3, reading.framing))[None])
    processor = (transformers.ViTImageProcessorPil if kind == "vit" else transformers.CLIPImageProcessorPil).from_pretrained(folder)
    theirs = torch.from_numpy(np.asarray(processor(Image.open(tmp_path / "a.png"))["pixel_values"]))
    torch.testing.assert_close(ours, theirs.reshape(ours.shape), atol=0.02, rtol=0)  # one level of 255


@pytest.mark.soak
def test_training_keeps_preprocessing_and_weights_and_exports(vit: Path, photos: Path, tmp_path: Path) -> None:
    settings = {
        "data.source": str(photos),
        "network.name": f"hf:{vit}",
        "network.pretrained": "true",
        "network.dimension": "4",
        "epochs": "2",
    }
    metrics = train(override(Run(), settings), tmp_path / "m", device="cpu")
    assert "frozen" in metrics and metrics["test"]["1-nn"] > 0.5
    about = json.loads((tmp_path / "m" / "model.json").read_text())
    assert about["shape"] == [3, 32, 32] and about["prepare"][0]["mean"] == [0.5, 0.5, 0.5]
    model = nearkin.load(tmp_path / "m", device="cpu")
    files = sorted(str(path) for path in (photos / "red").iterdir())
    assert model.predict(files[:1]) == ["red"]
    pytest.importorskip("onnxruntime")
    assert to_onnx(model, tmp_path / "m.onnx")["parity"] < 1e-4


def test_all_weights_can_be_tuned_at_another_size(vit: Path, photos: Path, tmp_path: Path) -> None:
    settings = {"data.source": str(photos), "data.size": "48", "network.name": f"hf:{vit}", "network.pretrained": "true"}
    run = override(Run(), {**settings, "network.tune": "all", "network.dimension": "4", "epochs": "1", "optimizer.learning_rate": "0.01"})
    train(run, tmp_path / "m", device="cpu")
    saved = json.loads((tmp_path / "m" / "run.json").read_text())
    assert saved["network"]["tune"] == "all" and saved["data"]["size"] == 48


def test_bad_folders_are_named_with_the_fix(vit: Path, tmp_path: Path) -> None:
    folder = folder_of("vit", tmp_path / "vit")
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"preprocessor_config.json is missing; put the preprocessor_config.json of the model there"
    ):
        find_encoder(f"hf:{folder}")
    (folder / "preprocessor_config.json").write_text('{"do_rescale": false}')
    with pytest.raises(ValueError, match="scales pixels in its own way, which is not supported"):
        find_encoder(f"hf:{folder}")
    bert = tmp_path / "bert"
    transformers.BertModel(
        transformers.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    ).save_pretrained(bert)
    with pytest.raises(ValueError, match=r"reads texts \(bert\), not images"):
        find_encoder(f"hf:{bert}")
    with pytest.raises(FileNotFoundError, match=r"the files of hf:a/b are not on this machine: put config.json"):
        find_encoder("hf:a/b")
    other = folder_of("convnext", tmp_path / "convnext")
    (other / "model.safetensors").write_bytes((vit / "model.safetensors").read_bytes())
    encoder = find_encoder(f"hf:{other}")
    with pytest.raises(ValueError, match="are of another network"):
        build(encoder.network, image_shape=(3, 32, 32), weights=str(encoder.weights), **encoder.options)
