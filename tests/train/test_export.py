"""ONNX: the exported network equals the model."""

import numpy as np
import pytest
import torch

import nearkin
from nearkin.data import Dataset
from nearkin.data import open as open_data
from nearkin.train.config import Run, override
from nearkin.train.export import to_onnx
from nearkin.train.training import train

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.filterwarnings("ignore")  # the exporter's own


def test_images_from_raw_pixels_to_embeddings(tmp_path):
    digits = open_data("digits")
    run = override(Run(), {"epochs": "1", "network.dimension": "8", "network.normalize": "true"})
    train(run, tmp_path / "m", data=digits.subset(torch.arange(300)))
    model = nearkin.load(tmp_path / "m")
    report = to_onnx(model, tmp_path / "deep" / "m.onnx")
    assert report["parity"] < 1e-4
    session = onnxruntime.InferenceSession(str(tmp_path / "deep" / "m.onnx"), providers=["CPUExecutionProvider"])
    pixels = digits.inputs[:7]
    found = session.run(None, {"inputs": pixels.float().numpy()})[0]
    np.testing.assert_allclose(found, model.encode(pixels.numpy()), atol=1e-4)


def test_vectors(tmp_path):
    x = torch.randn(200, 6, generator=torch.Generator().manual_seed(0))
    train(override(Run(), {"epochs": "1", "network.dimension": "3"}), tmp_path / "m", data=Dataset("made", x, labels=(x[:, 0] > 0).long()))
    assert to_onnx(nearkin.load(tmp_path / "m"), tmp_path / "m.onnx")["parity"] < 1e-4
