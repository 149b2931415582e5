"""Binary codes of 16 to 128 bits next to the float embedding they replace: MNIST and CIFAR-10, a table of our own."""

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity, Hamming, SquaredEuclidean
from nearkin.data import Dataset
from nearkin.models.folder import Model, load
from nearkin.search import nearest
from nearkin.search.hamming import nearest_codes
from nearkin.search.packing import pack
from nearkin.search.voting import vote
from nearkin.train.config import Run, override
from nearkin.train.iterative_quantization import IterativeQuantization
from nearkin.train.training import train
from papers.cell import Cell, Settings, Trial
from papers.ren2014_trials import FAST

BITS = (16, 32, 64, 128)
DATA = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
EPOCHS = {"mnist": 8, "cifar10": 16}
KINDS = ("float", "sign", "itq", "learned")
LABEL = {
    "float": "float embedding",
    "sign": "sign of the float embedding",
    "itq": "iterative quantization of it",
    "learned": "learned code",
}
REFERENCES, QUERIES, TRIES = 60_000, 500, 3  # of the speed cells
ABOUT = (
    "Every row of a data set has the same network, sampler, augmentation and number of epochs, like the times to accuracy of Ren et "
    "al., "
    'with as many outputs as there are bits. Nothing is tuned. The "learned code" was trained as a code. The three other kinds are '
    "one training with plain NCA: its numbers, their signs, and their signs after iterative quantization, fitted on the training part.",
)


def _trials() -> tuple[Trial, ...]:
    found = []
    for data in DATA:
        for bits in BITS:
            settings: Settings = {**FAST[data], "network.dimension": str(bits), "epochs": str(EPOCHS[data])}
            found.append(Trial(f"codes-{data}-{bits}-float", data, settings, figure="10-nn", method="codes"))
            learned = {**settings, "codes.learn": "true"}
            found.append(Trial(f"codes-{data}-{bits}-learned", data, learned, figure="10-nn", method="codes"))
    found += [Trial(f"codes-speed-{bits}", "none", {"bits": str(bits)}, seeds=1, method="codes_speed") for bits in BITS]
    return tuple(found)


TRIALS = _trials()


def bytes_per_point(kind: str, bits: int) -> int:
    """Of the embedding alone: four per number, or one for eight bits."""
    return 4 * bits if kind == "float" else (bits + 7) // 8


def _cells() -> tuple[Cell, ...]:
    found = []
    for data, name in DATA.items():
        for bits in BITS:
            for kind in KINDS:
                trial = f"codes-{data}-{bits}-{'learned' if kind == 'learned' else 'float'}"
                note = f"{bytes_per_point(kind, bits)} bytes per point"
                for figure, label in (("10-nn", "10-NN accuracy"), ("p@10", "P@10")):
                    row = f"{bits} bits, {LABEL[kind]}: {label}"
                    found.append(Cell(f"Binary codes, {name} (ours)", row, None, "accuracy %", trial, f"{kind} {figure}", note=note))
    for bits in BITS:
        for kind in ("float", "code"):
            note = f"{bytes_per_point(kind, bits)} bytes per point, {REFERENCES:,} points, exact, k = 10, searched on one of the threads"
            row = f"{bits} {'numbers' if kind == 'float' else 'bits'}"
            found.append(Cell("Binary codes, speed (ours)", row, None, "queries/s", f"codes-speed-{bits}", kind, note=note))
    return tuple(found)


CELLS = _cells()


def perform(trial: Trial, seed: int, data: Dataset, device: str) -> dict[str, float]:
    """Train on the training part; 10-NN accuracy and P@10 of the test part, for the learned code or for the other three kinds."""
    plain = {
        "data.source": trial.data,
        "validate_every": "1000000",
        "checkpoint_seconds": "1e9",
        "data.validation": "0",
        "data.leaks": "allow",
    }
    run = override(Run(), {**plain, **trial.settings, "seed": str(seed)})
    with TemporaryDirectory() as folder:
        train(run, Path(folder) / "model", data=data, device=device)
        model = load(Path(folder) / "model", device=device)
    references, queries = (_embedded(model, data.part(name)) for name in ("train", "test"))
    if run.codes.learn:
        return _figures("learned", references, queries, Hamming())
    rotated = IterativeQuantization(run.network.dimension, seed=seed).fit(references[0])
    return {
        **_figures("float", references, queries, SquaredEuclidean()),
        **_figures("sign", references, queries, Hamming()),
        **_figures("itq", (rotated.transform(references[0]), references[1]), (rotated.transform(queries[0]), queries[1]), Hamming()),
    }


def _embedded(model: Model, part: Dataset) -> tuple[Tensor, Tensor]:
    """Embeddings (n, d) and labels (n,), where the model is."""
    assert part.labels is not None
    rows = [torch.as_tensor(model.encode(part.read(ids).to(model.device))) for ids in torch.split(part.ids, 5000)]
    return torch.cat(rows), part.labels.to(model.device)


def _figures(kind: str, references: tuple[Tensor, Tensor], queries: tuple[Tensor, Tensor], affinity: Affinity) -> dict[str, float]:
    labels = references[1][nearest(queries[0], references[0], 10, affinity).positions]  # (n, 10)
    right = (vote(labels) == queries[1]).double().mean()
    return {f"{kind} 10-nn": float(right), f"{kind} p@10": float((labels == queries[1][:, None]).double().mean())}


def speed(trial: Trial, seed: int) -> dict[str, float]:
    """Queries per second of exact search on one CPU thread, over numbers and over codes of as many bits: the best of a few tries."""
    bits, rng = int(trial.settings["bits"]), np.random.default_rng(seed)
    references, queries = (rng.normal(size=(n, bits)).astype(np.float32) for n in (REFERENCES, QUERIES))
    numbers, codes = [torch.from_numpy(x) for x in (queries, references)], [pack(x) for x in (queries, references)]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return {
            "float": _rate(lambda: nearest(numbers[0], numbers[1], 10)),
            "code": _rate(lambda: nearest_codes(codes[0], codes[1], 10)),
        }
    finally:
        torch.set_num_threads(threads)


def _rate(search: Callable[[], object]) -> float:
    search()  # compiles
    took = []
    for _ in range(TRIES):
        started = time.perf_counter()
        search()
        took.append(time.perf_counter() - started)
    return QUERIES / min(took)
