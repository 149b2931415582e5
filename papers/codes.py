"""Binary codes of 16 to 128 bits beside the float embedding they replace: MNIST and CIFAR-10, a table of our own.

Every row of a data set has the same network, sampler, augmentation and number of epochs, close to the quick cells of
[ren2014convolutional], with as many outputs as there are bits. "learned" was trained as a code; the three others are one training with
plain NCA: its numbers, their signs, and their signs after iterative quantization [gong2011iterative], fitted on the training part.
"""

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
from papers import ren2014
from papers.cell import Cell, Settings, Trial

BITS = (16, 32, 64, 128)
DATA = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
EPOCHS = {"mnist": 8, "cifar10": 16}
KINDS = ("float", "sign", "itq", "learned")
SAID = {"float": "float embedding", "sign": "sign of the float embedding", "itq": "iterative quantization of it", "learned": "learned code"}
KNOWN, ASKED, TRIES = 60_000, 500, 3  # of the speed cells


def _trials() -> tuple[Trial, ...]:
    found = []
    for data in DATA:
        for bits in BITS:
            settings: Settings = {**ren2014.FAST[data], "network.dimension": str(bits), "epochs": str(EPOCHS[data])}
            found.append(Trial(f"codes-{data}-{bits}-float", data, settings, figure="10-nn", method="codes"))
            learned = {**settings, "codes.learn": "true"}
            found.append(Trial(f"codes-{data}-{bits}-learned", data, learned, figure="10-nn", method="codes"))
    found += [Trial(f"codes-speed-{bits}", "none", {"bits": str(bits)}, seeds=1, method="codes_speed") for bits in BITS]
    return tuple(found)


TRIALS = _trials()


def bytes_a_point(kind: str, bits: int) -> int:
    """Of the embedding alone: four a number, or one for eight bits."""
    return 4 * bits if kind == "float" else (bits + 7) // 8


def _cells() -> tuple[Cell, ...]:
    found = []
    for data, name in DATA.items():
        for bits in BITS:
            for kind in KINDS:
                trial = f"codes-{data}-{bits}-{'learned' if kind == 'learned' else 'float'}"
                note = f"{bytes_a_point(kind, bits)} bytes a point"
                for figure, said in (("10-nn", "10-NN accuracy"), ("p@10", "P@10")):
                    row = f"{bits} bits, {SAID[kind]}: {said}"
                    found.append(Cell(f"Binary codes, {name} (ours)", row, None, "accuracy %", trial, f"{kind} {figure}", note=note))
    for bits in BITS:
        for kind, said in (("float", "numbers"), ("code", "code")):
            note = f"{bytes_a_point(kind, bits)} bytes a point, {KNOWN:,} points, exact, k = 10, searched on one of the threads"
            row = f"{bits} {said if kind == 'float' else 'bits'}"
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
    known, asked = (_embedded(model, data.part(name)) for name in ("train", "test"))
    if run.codes.learn:
        return _figures("learned", known, asked, Hamming())
    turned = IterativeQuantization(run.network.dimension, seed=seed).fit(known[0])
    return {
        **_figures("float", known, asked, SquaredEuclidean()),
        **_figures("sign", known, asked, Hamming()),
        **_figures("itq", (turned.transform(known[0]), known[1]), (turned.transform(asked[0]), asked[1]), Hamming()),
    }


def _embedded(model: Model, part: Dataset) -> tuple[Tensor, Tensor]:
    """Embeddings (n, d) and labels (n,), where the model is."""
    assert part.labels is not None
    rows = [torch.as_tensor(model.encode(part.read(ids).to(model.device))) for ids in torch.split(part.ids, 5000)]
    return torch.cat(rows), part.labels.to(model.device)


def _figures(kind: str, known: tuple[Tensor, Tensor], asked: tuple[Tensor, Tensor], affinity: Affinity) -> dict[str, float]:
    theirs = known[1][nearest(asked[0], known[0], 10, affinity).positions]  # (n, 10)
    right = (vote(theirs) == asked[1]).double().mean()
    return {f"{kind} 10-nn": float(right), f"{kind} p@10": float((theirs == asked[1][:, None]).double().mean())}


def speed(trial: Trial, seed: int) -> dict[str, float]:
    """Queries a second of exact search on one thread of the CPU, over numbers and over codes of as many bits, the best of a few tries."""
    bits, rng = int(trial.settings["bits"]), np.random.default_rng(seed)
    known, asked = (rng.normal(size=(n, bits)).astype(np.float32) for n in (KNOWN, ASKED))
    numbers, codes = [torch.from_numpy(x) for x in (asked, known)], [pack(x) for x in (asked, known)]
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
    return ASKED / min(took)
