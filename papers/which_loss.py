"""Which loss? Every objective for classes on four data sets, with equal tuning: classes that training has seen, and classes it has not.

    python -m papers which-loss --data packed --device cuda --at-once 8 --seconds 500

A row is one objective. On every set all rows have the same network, batches, number of steps and number of tuning runs: two learning rates
by two values of a setting of their own, or four rates if they have none. One training serves both questions. Seen classes: held-out images
of the training classes ask all training images, and the nearest neighbor answers (1-NN). Unseen classes: every image of the other classes
asks all others of them (P@1, MAP@R). Settings are selected by the mean of 1-NN and MAP@R on images and classes held out of the training
part; then three seeds are trained on the whole training part and measured once. Nothing is chosen on the test parts. COIL-20 is the set on
which nothing was ever developed. Neighbors are by cosine.

Every finished run is saved in which-loss.json of --out; the same command continues an interrupted contest, set by set.
"""

import json
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, product
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nearkin.compose.affinity import cosine
from nearkin.compose.points import Points
from nearkin.compose.validation import check_choice, check_whole
from nearkin.data import Dataset, Loader
from nearkin.data.disk import replacing
from nearkin.evaluate import classification, retrieval
from nearkin.train.assemble import assemble, captured, set_training
from nearkin.train.config import Run, override
from nearkin.train.folder import device_name
from nearkin.train.optimizers import make_schedule, set_rate
from nearkin.train.validate import embed_all
from papers.cell import Settings
from papers.which_loss_data import SETS as PACKED
from papers.which_loss_data import Parts, pack, parts_of

SEEDS, TUNING_SEED = 3, 1000
PATIENCE = 120.0  # seconds for one training
_OWN = "objective.options."


class Contender(NamedTuple):
    """A row: the objective, and the setting of its own that is tuned."""

    row: str
    settings: Settings
    tuned: str = ""
    values: tuple[str, ...] = ()


def _contender(row: str, objective: str, tuned: str = "", values: tuple[str, ...] = (), *, unit: bool = True, **options: str) -> Contender:
    settings = {"objective.name": objective, "network.normalize": str(unit).lower()}
    return Contender(row, settings | {_OWN + name: value for name, value in options.items()}, _OWN + tuned if tuned else "", values)


_COLD = ("0.05", "0.1")
_SCALES = ("0.03125", "0.0625")  # 1/32 and 1/16: the papers' 1/64 is for tens of thousands of classes
CONTENDERS: Mapping[str, Contender] = {
    "softmax": _contender("Softmax", "softmax", unit=False),
    "normalized-softmax": _contender("Normalized softmax", "normalized_softmax", "temperature", _COLD),
    "nearest-mean": _contender("Nearest class mean, fixed anchors", "nearest_class_mean", "scale", ("5.0", "20.0"), anchors="random"),
    "center": _contender("Center loss", "center_loss", "weight", ("0.003", "0.03"), unit=False),
    "hinge": _contender("Hinge", "hinge", "margin", ("1.0", "5.0"), unit=False),
    "l-softmax": _contender("Large-margin softmax", "large_margin_softmax", "m", ("2", "4"), unit=False, gamma="0.12", power="1.0"),
    "sphereface": _contender("SphereFace", "sphereface", "m", ("2", "4")),
    "arcface": _contender("ArcFace", "arcface", "temperature", _SCALES, margin="0.3"),
    "cosface": _contender("CosFace", "cosface", "temperature", _SCALES, margin="0.2"),
    "sub-center": _contender("Sub-center ArcFace", "sub_center_arcface", "temperature", _SCALES, margin="0.3"),
    "adacos": _contender("AdaCos", "adacos"),
    "soft-triple": _contender("SoftTriple", "soft_triple", "temperature", _COLD, per_class="5"),
    "proxy-anchor": _contender("Proxy-Anchor", "proxy_anchor", "temperature", _SCALES),
    "proxy-nca": _contender("Proxy-NCA", "proxy_nca", "temperature", ("0.333", "0.111")),
    "nca": _contender("NCA on cosines", "nca", "temperature", _COLD, metric="cosine", engine="dense"),
    "supcon": _contender("SupCon", "supcon", "temperature", _COLD, engine="dense"),
    "nt-xent": _contender("NT-Xent", "nt_xent", "temperature", _COLD),
    "n-pair": _contender("N-pair", "npair", "l2", ("0.002", "0.02"), unit=False),
    "multi-similarity": _contender("Multi-similarity", "multi_similarity", "base", ("0.5", "0.8")),
    "circle": _contender("Circle", "circle", "margin", ("0.25", "0.4")),
    "tuplet": _contender("Tuplet margin", "tuplet_margin", "temperature", _SCALES),
    "margin": _contender("Margin loss, learned beta", "margin_loss", "margin", ("0.1", "0.2")),
    "ranked-list": _contender("Ranked list", "ranked_list", "sharpness", ("1.0", "10.0")),
    "histogram": _contender("Histogram", "histogram"),
    "snr": _contender("SNR contrastive", "signal_to_noise_contrastive", "margin", ("0.5", "1.0")),
    "fast-ap": _contender("FastAP", "fast_ap", "bins", ("10", "20")),
    "smooth-ap": _contender("Smooth-AP", "smooth_ap", "temperature", ("0.01", "0.05")),
    "recall": _contender("Recall@k surrogate", "recall_at_k", "temperature", ("0.01", "0.05")),
    "prec5": _contender("Prec@5", "precision_at_k", "margin", ("0.1", "0.3")),
    "triplet": _contender("Semi-hard triplets", "triplet", "margin", ("0.1", "0.3")),
    "contrastive": _contender("Contrastive", "contrastive", "margin", ("0.5", "1.0")),
    "lifted": _contender("Lifted structure", "lifted_structure", "margin", ("0.5", "1.0")),
    "angular": _contender("Angular", "angular", "alpha", ("36.0", "45.0")),
}


class Setting(NamedTuple):
    """What all rows of a set share."""

    title: str
    settings: Settings
    rates: tuple[str, str, str, str]
    steps: int
    tuning_steps: int


_SHARED: Settings = {
    "optimizer.name": "adam",
    "optimizer.weight_decay": "1e-4",
    "batch_size": "64",
    "sampler.name": "per_class",
    "sampler.options.per_class": "4",
    "network.dimension": "64",
}
_SMALL: Settings = {
    **_SHARED,
    "network.name": "convnet",
    "network.options.widths": "[64, 64, 64, 64]",
    "network.options.hidden": "128",
    "augment.name": "affine",
}
_CIFAR: Settings = {
    **_SHARED,
    "network.name": "convnet",
    "network.options.widths": "[64, 128, 256, 256]",
    "network.options.hidden": "256",
    "preprocess.name": "cifar",
    "augment.name": "crop_flip",
    "precision": "bfloat16",
}
_GENTLE = ("0.00025", "0.0005", "0.001", "0.002")
_USUAL = ("0.001", "0.002", "0.004", "0.008")
SETS: Mapping[str, Setting] = {
    "cub": Setting(
        "CUB-200-2011: a linear map of frozen MobileNetV2 features, kept in 8 bits",
        {**_SHARED, "network.name": "linear", "network.dimension": "128"},
        _GENTLE,
        600,
        300,
    ),
    "omniglot": Setting("Omniglot at 28 px: four convolutions", _SMALL, _USUAL, 600, 300),
    "cifar": Setting("CIFAR-100 at 32 px, 200 training images a class: four convolutions", _CIFAR, _GENTLE, 600, 300),
    "coil": Setting(  # tuning has 8 classes for a batch of 64
        "COIL-20 at 32 px, on which nothing was developed: four convolutions",
        {**_SMALL, "sampler.options.per_class": "8"},
        _USUAL,
        300,
        150,
    ),
}


@dataclass(frozen=True)
class Job:
    """One training: number `number` of the tuning runs, or of the seeds."""

    set: str
    row: str
    kind: str  # "tuning" or "seed"
    number: int
    steps: int
    settings: tuple[tuple[str, str], ...]

    @property
    def key(self) -> str:
        """Its name in the file of results."""
        return f"{self.set}/{self.row}/{self.kind}/{self.number}"


def candidates(name: str, row: str) -> list[Settings]:
    """The four combinations of settings that tuning tries."""
    contender, rates = CONTENDERS[row], SETS[name].rates
    if not contender.tuned:
        return [{"optimizer.learning_rate": rate} for rate in rates]
    return [{"optimizer.learning_rate": rate, contender.tuned: value} for rate, value in product(rates[1::2], contender.values)]


def figure(result: Mapping[str, Any]) -> float:
    """What a tuning run is selected by: the mean of 1-NN of seen and MAP@R of unseen classes; below all others if it diverged."""
    figures = result.get("figures", {})
    return (figures["seen 1-nn"] + figures["unseen map@r"]) / 2 if figures else -1.0


def chosen(saved: Mapping[str, Any], name: str, row: str) -> Settings | None:
    """The settings with the best figure; None before all were tried, or if all diverged."""
    found = [(saved.get(f"{name}/{row}/tuning/{number}"), one) for number, one in enumerate(candidates(name, row))]
    if any(result is None for result, _ in found):
        return None
    best, settings = max(found, key=lambda entry: figure(entry[0] or {}))
    return settings if best and best.get("figures") else None


def waiting(saved: Mapping[str, Any], sets: Sequence[str], rows: Sequence[str], shorter: int = 1) -> Iterator[Job]:
    """The jobs that can start, set by set: the tuning of all rows, then the first seed of all rows, the second, the third."""
    for name in sets:
        for row in rows:
            for number, one in enumerate(candidates(name, row)):
                yield from _missing(saved, Job(name, row, "tuning", number, SETS[name].tuning_steps // shorter, tuple(one.items())))
        for number in range(SEEDS):
            for row in rows:
                if (one_chosen := chosen(saved, name, row)) is not None:
                    yield from _missing(saved, Job(name, row, "seed", number, SETS[name].steps // shorter, tuple(one_chosen.items())))


def _missing(saved: Mapping[str, Any], job: Job) -> Iterator[Job]:
    """The job, unless it is saved with the same settings and length."""
    found = saved.get(job.key)
    if found is None or found["settings"] != dict(job.settings) or found["steps"] != job.steps:
        yield job


@lru_cache(2)
def _parts(name: str, folder: Path, device: torch.device, tuning: bool) -> Parts:
    return parts_of(name, folder, device, tuning=tuning)


def perform(job: Job, folder: Path, device: torch.device, *, capture: bool = True) -> dict[str, Any]:
    """Train and measure; without figures if the training diverged."""
    started, tuning = time.perf_counter(), job.kind == "tuning"
    parts = _parts(job.set, folder, device, tuning)
    leaves = {**SETS[job.set].settings, **CONTENDERS[job.row].settings, **dict(job.settings)}
    leaves |= {"seed": str(TUNING_SEED if tuning else job.number), "capture": str(capture).lower()}
    run = override(Run(), leaves)
    try:
        found = _figures(run, parts, device, job.steps)
    except ValueError as error:
        if "NaN or infinity" not in str(error):
            raise
        found = {}
    return {"figures": found, "settings": dict(job.settings), "steps": job.steps, "seconds": round(time.perf_counter() - started, 2)}


def _figures(run: Run, parts: Parts, device: torch.device, steps: int) -> dict[str, float]:
    made = assemble(run, parts.train, device)
    step, schedule = captured(run, made), make_schedule(run.schedule, 1, steps)
    batches = torch.stack(list(islice(made.sampler.endless(), steps))).to(device)
    set_training(made.network, run.network)
    for done, ids in enumerate(batches):
        set_rate(made.optimizer, run.optimizer.learning_rate * schedule.factor(done))
        step(ids)
    train, seen, unseen = (_embedded(made, part, device) for part in parts)
    if not all(bool(torch.isfinite(points.embeddings).all()) for points in (train, seen, unseen)):
        return {}
    asked = classification(seen, train, cosine(), (1,), draws=0)
    found = retrieval(unseen, None, cosine(), (1,), draws=0)
    return {
        "seen 1-nn": round(asked["1-nn"].value, 4),
        "unseen p@1": round(found["precision@1"].value, 4),
        "unseen map@r": round(found["map@r"].value, 4),
    }


def _embedded(made: Any, data: Dataset, device: torch.device) -> Points:
    x: Tensor = embed_all(made.network, Loader(data, device=device, resident_bytes=1 << 40), made.step.prepare)
    assert data.labels is not None
    return Points(x, data.labels.to(device))


def _work(pipe: Connection, folder: Path, device: str) -> None:
    """A process that trains what it is sent. After an error it ends: a failed recording can leave the device unusable."""
    torch.set_num_threads(1)
    place = torch.device(device)
    name = device_name(place)
    while (sent := pipe.recv()) is not None:
        job, capture = sent
        try:
            pipe.send({**perform(job, folder, place, capture=capture), "device": name})
        except Exception as error:
            pipe.send({"error": f"{type(error).__name__}: {error}"[:500]})
            return


class _Worker:
    """One process, and the job it has."""

    def __init__(self, folder: Path, device: str) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_work, args=(theirs, folder, device), daemon=True)
        self.process.start()
        theirs.close()
        self.job: Job | None = None
        self.since = 0.0

    def start(self, job: Job, capture: bool) -> None:
        self.job, self.since = job, time.monotonic()
        self.pipe.send((job, capture))

    def result(self) -> dict[str, Any] | None:
        """What its job came to; None while it is running."""
        if self.pipe.poll():
            try:
                found: dict[str, Any] = self.pipe.recv()
                return found
            except EOFError:
                return {"error": f"the process ended with exit status {self.process.exitcode}"}
        return {"error": f"it took more than {PATIENCE:.0f} s"} if time.monotonic() - self.since > PATIENCE else None

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def compete(saved: dict[str, Any], target: Path, arguments: Namespace) -> bool:
    """Train what is missing; False if no time was left. A training that fails is tried once more without a recorded step."""
    folder, ends = Path(arguments.data), time.monotonic() + arguments.seconds
    if next(waiting(saved, arguments.sets, arguments.rows, arguments.shorter), None) is None:
        return True
    workers = [_Worker(folder, arguments.device) for _ in range(arguments.at_once)]
    plain: set[str] = set()  # rows that cannot be recorded
    written = time.monotonic()
    try:
        while True:
            running = [worker.job for worker in workers if worker.job is not None]
            queue = (job for job in waiting(saved, arguments.sets, arguments.rows, arguments.shorter) if job not in running)
            left = list(islice(queue, len(workers)))
            for worker in workers:
                if worker.job is None and left and time.monotonic() < ends:
                    job = left.pop(0)
                    worker.start(job, arguments.device != "cpu" and job.row not in plain)
            busy = [worker for worker in workers if worker.job is not None]
            if not busy:
                break
            wait([worker.pipe for worker in busy], timeout=1.0)
            for place, worker in enumerate(workers):
                if worker.job is None or (result := worker.result()) is None:
                    continue
                job, worker.job = worker.job, None
                if "error" in result:
                    print(f"{job.key} failed: {result['error']}", flush=True)
                    worker.end()
                    workers[place] = _Worker(folder, arguments.device)
                    if job.row in plain or arguments.device == "cpu":
                        saved[job.key] = {"figures": {}, "settings": dict(job.settings), "steps": job.steps, **result}
                    plain.add(job.row)
                    continue
                saved[job.key] = result
                print(f"{job.key}: {result['figures']} ({result['seconds']} s)", flush=True)
            if time.monotonic() - written > 10:
                save(saved, target)
                written = time.monotonic()
    finally:
        save(saved, target)
        for worker in workers:
            worker.end()
    return not left


def save(saved: Mapping[str, Any], target: Path) -> None:
    """Write the results, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as file:
        file.write((json.dumps(saved, indent=0, sort_keys=True) + "\n").encode())


def main(words: Sequence[str]) -> int:
    """Pack the data, or run what is missing and write the page."""
    from papers.which_loss_page import write_page

    made = ArgumentParser("python -m papers which-loss", description=(__doc__ or "").partition("\n")[0])
    made.add_argument("--data", default="data/which-loss", metavar="FOLDER", help="the packed data (default: %(default)s)")
    made.add_argument("--pack", action="store_true", help="write the packed data from --data-root and end")
    made.add_argument("--data-root", default="data", metavar="FOLDER", help="the data sets, for --pack (default: %(default)s)")
    made.add_argument("--encoder", default="mobilenet-v2", metavar="NAME", help="of the features of CUB, for --pack")
    made.add_argument("--weights", metavar="FILE", help="weights of the encoder, for --pack")
    made.add_argument("--sets", nargs="*", default=list(SETS), metavar="SET", help="data sets, in this order (default: all)")
    made.add_argument("--rows", nargs="*", default=list(CONTENDERS), metavar="ROW", help="objectives (default: all)")
    made.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", metavar="NAME")
    made.add_argument("--at-once", type=int, default=1, metavar="N", help="trainings at once, each in its own process (default: 1)")
    made.add_argument("--seconds", type=float, default=float("inf"), metavar="S", help="start no training after this time (default: none)")
    made.add_argument("--shorter", type=int, default=1, metavar="N", help="an N-th of the steps, for a trial (default: 1)")
    made.add_argument("--out", default="docs/results", metavar="FOLDER", help="folder of which-loss.json (default: %(default)s)")
    arguments = made.parse_args(words)
    if arguments.pack:
        pack(arguments)
        return 0
    for given, known in ((arguments.sets, PACKED), (arguments.rows, CONTENDERS)):
        for name in given:
            check_choice("SET" if known is PACKED else "ROW", name, tuple(known))
    check_whole("--at-once", arguments.at_once)
    check_whole("--shorter", arguments.shorter)
    target = Path(arguments.out) / "which-loss.json"
    saved: dict[str, Any] = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
    saved = {key: entry for key, entry in saved.items() if "error" not in entry}  # those are tried again
    if not compete(saved, target, arguments):
        print("the time is used up; the same command continues with what is missing")
    print(f"wrote {write_page(saved, target.parent.parent / 'papers' / 'which_loss.md')}")
    return 0
