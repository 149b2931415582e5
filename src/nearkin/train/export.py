"""Export a model to ONNX and compare the result with the model."""

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from nearkin.data.disk import sync
from nearkin.models.folder import Model, framing_of

TOLERANCE = 1e-4  # largest difference, relative to the largest output


class _Whole(nn.Module):
    """Preprocessing and network as one graph, from raw pixels in 0..255 (or vectors) to embeddings."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.network = model.network
        self.steps = model.prepare

    def forward(self, inputs: Tensor) -> Tensor:
        x = inputs / 255 if inputs.ndim == 4 else inputs
        for step in self.steps:
            x = step(x)
        embeddings: Tensor = self.network(x)
        return embeddings


def to_onnx(model: Model, path: Path) -> dict[str, Any]:
    """Write the ONNX file; returns its path and the largest difference to the model on random inputs, or why it was not measured."""
    if model.reads_texts:
        raise ValueError("ONNX export is for images and vectors, and this model reads texts; use it in Python (nearkin.load), or serve it")
    if "table" in model.about:
        raise ValueError("ONNX export is for images and vectors, and this model reads rows; use it in Python (nearkin.load), or serve it")
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise ImportError("ONNX export needs the onnx package: pip install 'nearkin[onnx]'") from error
    whole = _Whole(model).eval()
    shape = tuple(model.about["shape"])
    example = torch.rand(2, *shape) * (255 if len(shape) == 3 else 1)
    batch = torch.export.Dim("batch", min=1)
    names = {"input_names": ["inputs"], "output_names": ["embeddings"]}
    with _quiet():
        program = torch.onnx.export(
            whole,
            (example,),
            dynamo=True,
            verbose=False,
            dynamic_shapes=({0: batch},),
            **names,  # type: ignore[arg-type]
        )
    assert program is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        program.save(str(Path(folder) / path.name))
        _describe(Path(folder) / path.name, model)
        measured = _parity(whole, Path(folder) / path.name, shape)
        for made in sorted(Path(folder).iterdir(), key=lambda file: file.name == path.name):  # large weights are a file beside it
            sync(made)
            made.replace(path.with_name(made.name))
    sync(path.parent)
    return {"file": str(path), **measured}


def _describe(path: Path, model: Model) -> None:
    """Write into the file what its input must be: preprocessing other than resizing is part of the graph."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False)
    shape, framing = model.about["shape"], framing_of(model.about)
    about = {"input": f"vectors of {shape[0]} numbers, float32"}
    if len(shape) == 3:
        color = {1: "gray", 3: "RGB"}.get(shape[0], f"{shape[0]} channels")
        pixels = f"pixels 0..255 as float32, {color}, channels first, {shape[1]} x {shape[2]}"
        about["input"] = f"{pixels}; scaling and standardizing are in the graph"
    if framing is not None:
        about["resize"] = f"short side to {framing.short} ({framing.interpolation}), then the center {framing.size} x {framing.size}"
    onnx.helper.set_model_props(graph, {**about, "classes": json.dumps(list(model.classes)), "metric": str(model.about["metric"])})
    onnx.save(graph, str(path))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings and log lines of the exporter; its errors are still raised."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)


def _parity(whole: nn.Module, path: Path, shape: tuple[int, ...]) -> dict[str, Any]:
    try:
        import onnxruntime
    except ImportError:
        return {"parity": "not measured: onnxruntime is not installed"}
    inputs = torch.rand(5, *shape) * (255 if len(shape) == 3 else 1)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    theirs = torch.from_numpy(session.run(None, {"inputs": inputs.numpy()})[0])
    with torch.no_grad():
        mine = whole(inputs)
    difference = float((mine - theirs).abs().max() / mine.abs().max().clamp_min(1e-12))
    if difference > TOLERANCE:
        raise ValueError(
            f"the exported network differs from the model by {difference:.1e} of the largest value, and was not written; "
            "export it with another version of torch or onnx"
        )
    return {"parity": difference}
