"""What makes neighbors teach: targets of learning without labels, compared in one loop on CIFAR-10.

    python -m papers neighbor-targets --data-root data --device cuda --only soft instance --images 2700000

Every finished row is saved in neighbor-targets.json of --out; the same command continues. A row of 2.7 million images took four minutes
on a GPU that other trainings shared.

Protocol. ResNet-18, batches of 256, SGD with momentum 0.9, one cosine after a warm-up of a twentieth of the steps, bfloat16. A tenth of the
training part is held out; every row is measured there by the weighted vote (200 neighbors, temperature 0.1) of the other nine tenths; the
test part is read only with --test. Images are counted by the views that pass through a network, the teacher's included.

The student sees a view of every image with crop, flip, color and gray. The teacher is a running mean of the student's weights; it sees a
second view of the image, by default with crop and flip only, and its embeddings fill the bank. The target of an image is a mixture:

- its own: the teacher's embedding of the second view (instance discrimination, as MoCo has it; He et al., 2020), and
- its neighbors: softmax over the bank of the teacher's similarities at a lower temperature (ReSSL; Zheng et al., 2021); at a
  temperature near 0 the single nearest neighbor (as NNCLR has it; Dwibedi et al., 2021).

Without a teacher the target is the image's own slot in a bank of the student's earlier embeddings (Wu et al., 2018).
"""

import copy
import math
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from nearkin.compose.points import Points
from nearkin.data import open as open_data
from nearkin.data import partition
from nearkin.data.augment import ColorJitter, Grayscale, HorizontalFlip, RandomResizedCrop, Step, augmented
from nearkin.data.preprocess import CIFAR
from nearkin.models.resnet import WIDTHS, resnet18
from nearkin.train.folder import device_name
from nearkin.train.validate import weighted_accuracy
from papers.contest import Rows, run_rows, spread

PARTS = {"held out": "a tenth of the training part held out", "test": "test part"}
BATCH, DIMENSION, HIDDEN, WARMUP = 256, 128, 512, 0.05
_CROP = RandomResizedCrop(scale=(0.2, 1.0))
WEAK: tuple[Step, ...] = (_CROP, HorizontalFlip())
STRONG: tuple[Step, ...] = (_CROP, ColorJitter(0.4, 0.4, 0.4, 0.1), Grayscale(0.2), HorizontalFlip())


@dataclass(frozen=True)
class Target:
    """What an image is drawn to: `own` is the share of the image itself, the rest goes to its neighbors in the bank."""

    title: str
    own: float = 0.0
    teacher: bool = True
    weak: bool = True
    bank: int = 0  # newest embeddings; 0 keeps one of every image
    sharp: float = 0.04  # temperature of the neighbors' shares
    temperature: float = 0.1
    inertia: float = 0.99  # of the teacher's weights
    rate: float = 0.06
    decay: float = 5e-4
    head: bool = True


TARGETS: Mapping[str, Target] = {
    "slot": Target("own slot in the bank, no teacher", own=1.0, teacher=False, head=False, decay=1e-3),
    "slot-head": Target("own slot in the bank, no teacher, features before a head", own=1.0, teacher=False),
    "instance": Target("own second view", own=1.0),
    "instance-queue": Target("own second view, bank of 4,096", own=1.0, bank=4096),
    "soft": Target("neighbors"),
    "soft-queue": Target("neighbors, bank of 4,096", bank=4096),
    "soft-strong": Target("neighbors, second view as strong as the first", weak=False),
    "nearest": Target("nearest neighbor", sharp=1e-3),
    "mixed": Target("half own second view, half neighbors", own=0.5),
    "soft-rate": Target("neighbors, twice the rate", rate=0.12),
    "soft-slow": Target("neighbors, slower teacher", inertia=0.996),
    "soft-decay": Target("neighbors, twice the weight decay", decay=1e-3),
    "soft-blunt": Target("neighbors, temperature 0.05", sharp=0.05),
}


class Learner(nn.Module):
    """A body and its head: `features` are searched, the head's unit vectors are compared in training."""

    def __init__(self, head: bool) -> None:
        super().__init__()
        whole = resnet18((3, 32, 32), DIMENSION)
        self.body = nn.Sequential(*[part for name, part in whole.named_children() if name != "head"], nn.Flatten())
        features = WIDTHS[-1]
        layers = (nn.Linear(features, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, DIMENSION))
        self.head = nn.Sequential(*layers) if head else nn.Linear(features, DIMENSION)
        self.searched = not head  # without a hidden layer the embedding itself is searched

    def forward(self, images: Tensor) -> Tensor:
        return functional.normalize(self.head(self.body(images)).float(), dim=1)

    def features(self, images: Tensor) -> Tensor:
        return self(images) if self.searched else functional.normalize(self.body(images).float(), dim=1)


def target_loss(student: Tensor, own: Tensor, teacher: Tensor, bank: Tensor, mine: Tensor, target: Target) -> Tensor:
    """Cross entropy between the target and the student's soft choice among the image's own vector and the bank.

    Parameters
    ----------
    student, own, teacher : Tensor of shape (b, d)
        The student's embeddings, the vectors that stand for the images themselves, and those whose neighbors are looked up.
    bank : Tensor of shape (m, d)
        References.
    mine : Tensor of shape (b, m)
        Booleans: slots that hold the query's own image, which are left out.
    target : Target
        The mixture.
    """
    among = (student @ bank.T / target.temperature).masked_fill(mine, -math.inf)
    alone = (student * own).sum(1, keepdim=True) / target.temperature
    if target.own:
        among = torch.cat([alone, among], 1)
    chosen = among.log_softmax(1)
    loss = -target.own * chosen[:, 0] if target.own else student.new_zeros(len(student))
    if target.own < 1:
        shares = (teacher @ bank.T / target.sharp).masked_fill(mine, -math.inf).softmax(1)
        others = chosen[:, 1:] if target.own else chosen
        loss = loss - (1 - target.own) * (shares * others.masked_fill(mine, 0.0)).sum(1)
    return loss.mean()


class Training:
    """One training: `step` takes a batch; on CUDA it is recorded once and replayed."""

    def __init__(self, images: Tensor, target: Target, steps: int, seed: int) -> None:
        torch.manual_seed(seed)
        self.images, self.target, self.steps, self.seed, self.device = images, target, steps, seed, images.device
        self.student = Learner(target.head).to(self.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        size = target.bank or len(images)
        self.bank = functional.normalize(torch.randn(size, DIMENSION, device=self.device, generator=self.generator), dim=1)
        self.owners = torch.arange(size, device=self.device) if not target.bank else torch.full((size,), -1, device=self.device)
        self.parameters = list(self.student.parameters())
        self.momenta = [torch.zeros_like(p) for p in self.parameters]
        self.rate = torch.zeros((), device=self.device)
        self.ids = torch.zeros(BATCH, dtype=torch.long, device=self.device)
        self.slots = torch.zeros(BATCH, dtype=torch.long, device=self.device)
        self.loss = torch.zeros((), device=self.device)
        self.taken = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def step(self, ids: Tensor) -> None:
        """Take one batch of ids."""
        self.ids.copy_(ids)
        start = self.taken * BATCH
        slots = ids if not self.target.bank else torch.arange(start, start + BATCH, device=self.device) % self.target.bank
        self.slots.copy_(slots)
        warm = max(1, round(WARMUP * self.steps))
        left = (self.taken - warm) / max(1, self.steps - warm)
        self.rate.fill_(self.target.rate * (self.taken + 1) / warm if left < 0 else self.target.rate * 0.5 * (1 + math.cos(math.pi * left)))
        if self.device.type != "cuda":
            self._take()
        elif self.taken < 3:
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self._take()
            torch.cuda.current_stream().wait_stream(stream)
        else:
            if self.graph is None:
                self.graph = torch.cuda.CUDAGraph()
                self.graph.register_generator_state(self.generator)
                with torch.cuda.graph(self.graph):
                    self._take()
            self.graph.replay()
        self.taken += 1

    def _view(self, steps: tuple[Step, ...]) -> Tensor:
        seen: Tensor = CIFAR(augmented(self.images[self.ids], steps, self.generator))
        return seen.contiguous(memory_format=torch.channels_last)

    def _take(self) -> None:
        target = self.target
        with torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False):
            student = self.student(self._view(STRONG))
            with torch.no_grad():
                teacher = self.teacher(self._view(WEAK if target.weak else STRONG)) if target.teacher else student.detach()
        own = teacher if target.teacher else self.bank[self.slots]
        loss = target_loss(student, own, teacher, self.bank, self.owners == self.ids[:, None], target)
        gradients = torch.autograd.grad(loss, self.parameters)
        with torch.no_grad():
            moved = torch._foreach_add(gradients, self.parameters, alpha=target.decay)
            torch._foreach_mul_(self.momenta, 0.9)
            torch._foreach_add_(self.momenta, moved)
            torch._foreach_sub_(self.parameters, torch._foreach_mul(self.momenta, self.rate))
            torch._foreach_lerp_(list(self.teacher.parameters()), self.parameters, 1 - target.inertia)
            newest = teacher if target.teacher else functional.normalize((own + student) / 2, dim=1)
            self.bank.index_copy_(0, self.slots, newest)
            self.owners.index_copy_(0, self.slots, self.ids)
            self.loss.copy_(loss)

    @torch.no_grad()
    def embedded(self, images: Tensor) -> Tensor:
        """Unit features of images, without augmentation."""
        self.student.eval()
        parts = [self.student.features(CIFAR(part).contiguous(memory_format=torch.channels_last)) for part in torch.split(images, 1000)]
        self.student.train()
        return torch.cat(parts)


def row(key: str, data_root: str, device: str) -> dict[str, Any]:
    """Train with the target, images and seed that the key names, and measure on the part that it names."""
    part, name, images, seed = key.split("/")
    target = TARGETS[name]
    data = open_data("cifar10", data_root=data_root)
    if part == "held out":
        own = data.part("train").renumbered()
        data = own.with_split(partition(own, None, {"train": 0.9, "test": 0.1}, 0).names)
    train, asked = data.part("train").renumbered(), data.part("test").renumbered()
    assert train.labels is not None and asked.labels is not None
    if torch.device(device).type == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
    pixels = train.read(train.ids).to(device)
    views = 2 if target.teacher else 1
    training = Training(pixels, target, max(1, int(images) // (views * BATCH)), int(seed))
    began = time.perf_counter()
    curve = list(epochs(training))
    return {
        "accuracy": weighted_accuracy(
            Points(training.embedded(asked.read(asked.ids).to(device)), asked.labels.to(device)),
            Points(training.embedded(pixels), train.labels.to(device)),
        ),
        "images": training.steps * BATCH * views,
        "seconds": round(time.perf_counter() - began, 1),
        "loss": [round(loss, 3) for loss in curve[:: max(1, len(curve) // 8)]],
        "settings": asdict(target),
        "device": device_name(torch.device(device)),
    }


def epochs(training: Training) -> Iterator[float]:
    """Train to the end; yields the loss after every epoch."""
    n, order = len(training.images), torch.Generator().manual_seed(training.seed)
    while training.taken < training.steps:
        left = training.steps - training.taken
        for ids in torch.split(torch.randperm(n, generator=order).to(training.device), BATCH)[: n // BATCH][:left]:
            training.step(ids)
        loss = float(training.loss)
        if not math.isfinite(loss):
            raise ValueError(f"the loss is {loss} after {training.taken} steps; lower the rate")
        yield loss


def main(words: Sequence[str]) -> int:
    """Run what is missing."""
    made = ArgumentParser("python -m papers neighbor-targets", description=__doc__.partition("\n")[0] if __doc__ else "")
    made.add_argument("--data-root", default="data", metavar="FOLDER")
    made.add_argument("--only", nargs="*", default=list(TARGETS), choices=list(TARGETS), metavar="NAME")
    made.add_argument("--images", type=int, default=2_700_000, metavar="N", help="views that pass through a network (default: %(default)s)")
    made.add_argument("--seeds", type=int, nargs="*", default=[0], metavar="N")
    made.add_argument("--test", action="store_true", help="train on the whole training part and measure on the test part")
    made.add_argument("--at-once", type=int, default=1, metavar="N", help="rows in parallel, each in a process of its own")
    made.add_argument("--seconds", type=float, default=math.inf, help="start no row after so many seconds")
    made.add_argument("--page", action="store_true", help="run nothing, write the page from what is saved")
    made.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    made.add_argument("--out", default="docs/results", metavar="FOLDER")
    asked = made.parse_args(words)
    saved = Rows(Path(asked.out) / "neighbor-targets.json")
    part = "test" if asked.test else "held out"
    keys = [f"{part}/{name}/{asked.images}/{seed}" for seed in asked.seeds for name in asked.only if not asked.page]
    failed = run_rows(saved, keys, row, asked.data_root, asked.device, at_once=asked.at_once, seconds=asked.seconds)
    saved.write_page(page_of(saved))
    return 1 if failed else 0


def page_of(saved: Mapping[str, Any]) -> str:
    """The page: one table for each part and number of images, the best row first."""
    groups: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = {}
    for key, found in saved.items():
        part, name, views, _ = key.split("/")
        groups.setdefault((part, int(views)), {}).setdefault(name, []).append(found)
    lines = ["# What makes neighbors teach", "", *(__doc__ or "").partition("Protocol. ")[2].splitlines()]
    for (part, images), rows in sorted(groups.items()):
        lines += [
            "",
            f"## {images / 1e6:g} million images, {PARTS[part]}",
            "",
            "| target | weighted kNN | seeds | seconds |",
            "|---|---|---|---|",
        ]
        means = {name: float(np.mean([one["accuracy"] for one in found])) for name, found in rows.items()}
        for name in sorted(rows, key=lambda name: -means[name]):
            seconds = f"{np.mean([one['seconds'] for one in rows[name]]):.0f}"
            lines.append(f"| {TARGETS[name].title} | {spread([one['accuracy'] for one in rows[name]])} | {len(rows[name])} | {seconds} |")
    devices = sorted({one["device"] for one in saved.values()})
    return "\n".join([*lines, "", f"Accuracy in %, mean and standard deviation over the seeds. Measured on {', '.join(devices)}.", ""])
