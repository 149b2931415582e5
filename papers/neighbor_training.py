"""A loop of learning without labels in which the target of an image mixes the image itself and its neighbors in a bank."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from nearkin.data.augment import ColorJitter, Grayscale, HorizontalFlip, RandomResizedCrop, Step, augmented
from nearkin.data.preprocess import CIFAR
from nearkin.models.resnet import WIDTHS, resnet18
from nearkin.train import Teacher

BATCH, DIMENSION, WARMUP = 256, 128, 0.05
CHUNK = 1000  # images that are embedded at a time
_CROP = RandomResizedCrop(scale=(0.2, 1.0))
WEAK: tuple[Step, ...] = (_CROP, HorizontalFlip())
STRONG: tuple[Step, ...] = (_CROP, ColorJitter(0.4, 0.4, 0.4, 0.1), Grayscale(0.2), HorizontalFlip())


@dataclass(frozen=True)
class Target:
    """What an image is drawn to.

    `own` is the share of the image itself; the rest goes to its neighbors in the bank. With `until` it begins at 1 and falls to `own` over
    this part of the training. `bank_of` says what the bank holds: "slots", running means of the student's own embeddings; "steps", the
    teacher's embeddings of a second view of every image of a step; or "epochs", its embeddings of all images as they are, made again every
    `every` epochs. `memory` is the share of a slot's earlier vector that stays when a new one comes; with the teacher's embeddings, the
    mean of both is also what the student is drawn to and whose neighbors are looked up.
    """

    title: str
    own: float = 0.0
    until: float = 0.0
    bank_of: Literal["slots", "steps", "epochs"] = "steps"
    every: int = 2
    views: int = 1  # of an image for the student, each a step of its own, for one of the teacher's
    before_head: bool = False  # neighbors are looked up by the teacher's features, less their mean, and not by what the head makes of them
    memory: float = 0.0
    weak: bool = True
    bank: int = 0  # newest embeddings; 0 keeps one of every image
    sharp: float = 0.04  # temperature of the neighbors' shares
    temperature: float = 0.1
    inertia: float = 0.99  # of the teacher's weights
    rate: float = 0.06
    decay: float = 5e-4
    hidden: int = 512  # of the head; without any, the head is linear and its vectors themselves are searched
    predictor: bool = False  # layers after the head that the student alone has, and that only its training sees

    def share(self, done: float) -> float:
        """The share of the image itself after this part of the training."""
        left = max(0.0, 1 - done / self.until) if self.until else 0.0
        return self.own + (1 - self.own) * left

    def steps(self, images: int, n: int) -> int:
        """Steps in which so many images pass through a network, the teacher's included."""
        views = {"slots": 1.0, "steps": 1.0 + self.views, "epochs": 1 + 1 / self.every}[self.bank_of]
        return max(1, int(images / views) // BATCH)


def _hidden(features: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(features, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, DIMENSION))


class Learner(nn.Module):
    """A body and its head: `features` are searched, the head's unit vectors are compared in training."""

    def __init__(self, hidden: int, predictor: bool) -> None:
        super().__init__()
        whole = resnet18((3, 32, 32), DIMENSION)
        self.body = nn.Sequential(*[part for name, part in whole.named_children() if name != "head"], nn.Flatten())
        self.head = _hidden(WIDTHS[-1], hidden) if hidden else nn.Linear(WIDTHS[-1], DIMENSION)
        self.predictor = _hidden(DIMENSION, hidden) if predictor else nn.Identity()
        self.searched = not hidden

    def forward(self, images: Tensor, predicted: bool = False) -> tuple[Tensor, Tensor]:
        features = self.body(images)
        found = self.head(features)
        return functional.normalize((self.predictor(found) if predicted else found).float(), dim=1), features.float()

    def features(self, images: Tensor) -> Tensor:
        found, features = self(images)
        return found if self.searched else functional.normalize(features, dim=1)


def neighbor_shares(teacher: Tensor, bank: Tensor, mine: Tensor, sharp: float) -> Tensor:
    """(b, m) the share of each slot of the bank among the neighbors, none for slots of the image itself."""
    return (teacher @ bank.T / sharp).masked_fill(mine, -math.inf).softmax(1)


def target_loss(student: Tensor, own: Tensor, near: Tensor, bank: Tensor, mine: Tensor, share: Tensor | float, target: Target) -> Tensor:
    """Cross entropy between the target and the student's soft choice among the image's own vector and the bank.

    Parameters
    ----------
    student, own : Tensor of shape (b, d)
        The student's embeddings, and the vectors that stand for the images themselves.
    near : Tensor of shape (b, m)
        The share of each slot of the bank among the image's neighbors.
    bank : Tensor of shape (m, d)
        References.
    mine : Tensor of shape (b, m)
        Booleans: slots that hold the query's own image, which are left out.
    share : Tensor of shape () or float
        Of the image itself. Where it ends at 0 without having begun above, its own vector is not among the choices.
    target : Target
        The temperatures.
    """
    among = (student @ bank.T / target.temperature).masked_fill(mine, -math.inf)
    if target.own or target.until:
        alone = (student * own).sum(1, keepdim=True) / target.temperature
        chosen = torch.cat([alone, among], 1).log_softmax(1)
        loss, others = -share * chosen[:, 0], chosen[:, 1:]
    else:
        loss, others = student.new_zeros(len(student)), among.log_softmax(1)
    if target.own < 1:
        loss = loss - (1 - share) * (near * others.masked_fill(mine, 0.0)).sum(1)
    return loss.mean()


class Training:
    """One training: `step` takes a batch; on CUDA it is recorded once and replayed."""

    def __init__(self, images: Tensor, target: Target, steps: int, seed: int) -> None:
        torch.manual_seed(seed)
        self.images, self.target, self.steps, self.seed, self.device = images, target, steps, seed, images.device
        self.student = Learner(target.hidden, target.predictor).to(self.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.teacher = Teacher(self.student, target.inertia)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        size = target.bank or len(images)
        self.bank = functional.normalize(torch.randn(size, DIMENSION, device=self.device, generator=self.generator), dim=1)
        self.features = torch.randn(size if target.before_head else 0, WIDTHS[-1], device=self.device, generator=self.generator)
        self.owners = torch.arange(size, device=self.device) if not target.bank else torch.full((size,), -1, device=self.device)
        self.parameters = list(self.student.parameters())
        self.momenta = [torch.zeros_like(p) for p in self.parameters]
        cuda = self.device.type == "cuda"
        self.seen_by_student = torch.compile(self.student, dynamic=False) if cuda else self.student
        self.seen_by_teacher = torch.compile(self.teacher, dynamic=False) if cuda else self.teacher
        self.rate = torch.zeros((), device=self.device)
        self.share = torch.zeros((), device=self.device)
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
        self.rate.fill_(self._rate())
        self.share.fill_(self.target.share(self.taken / self.steps))
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

    def _rate(self) -> float:
        """Of this step: a line from 0 at first, then one cosine."""
        warm = max(1, round(WARMUP * self.steps))
        left = (self.taken - warm) / max(1, self.steps - warm)
        return self.target.rate * ((self.taken + 1) / warm if left < 0 else 0.5 * (1 + math.cos(math.pi * left)))

    def _view(self, steps: tuple[Step, ...]) -> Tensor:
        seen: Tensor = CIFAR(augmented(self.images[self.ids], steps, self.generator))
        return seen.contiguous(memory_format=torch.channels_last)

    def _mean(self, earlier: Tensor, newest: Tensor) -> Tensor:
        return functional.normalize(torch.lerp(newest, earlier, self.target.memory), dim=1) if self.target.memory else newest

    def _take(self) -> None:
        target = self.target
        own, features = self.bank[self.slots], self.features[:0]
        if target.bank_of == "steps":
            with torch.no_grad(), self._autocast():
                newest, features = self.seen_by_teacher(self._view(WEAK if target.weak else STRONG))
                own = self._mean(own, newest)
        mine = self.owners == self.ids[:, None]
        with torch.no_grad():
            near = self.near(features if target.before_head else own, mine)
        student = own
        for _ in range(target.views):
            student = self._taught(own, near, mine)
        if target.bank_of != "epochs":
            self.bank.index_copy_(0, self.slots, own if target.bank_of == "steps" else self._mean(own, student))
            self.owners.index_copy_(0, self.slots, self.ids)
            if target.before_head:
                self.features.index_copy_(0, self.slots, features)

    def near(self, vectors: Tensor, mine: Tensor) -> Tensor:
        """The share of each slot of the bank among the neighbors of what the teacher knows of some images."""
        bank = self.bank
        if self.target.before_head:
            center = self.features.mean(0)
            vectors, bank = functional.normalize(vectors - center, dim=1), functional.normalize(self.features - center, dim=1)
        return neighbor_shares(vectors, bank, mine, self.target.sharp)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)

    def _taught(self, own: Tensor, near: Tensor, mine: Tensor) -> Tensor:
        """Take one step of the student on a view of its own; returns its embeddings."""
        with self._autocast():
            student: Tensor = self.seen_by_student(self._view(STRONG), predicted=True)[0]
        loss = target_loss(student, own, near, self.bank, mine, self.share, self.target)
        gradients = torch.autograd.grad(loss, self.parameters)
        with torch.no_grad():
            moved = torch._foreach_add(gradients, self.parameters, alpha=self.target.decay)
            torch._foreach_mul_(self.momenta, 0.9)
            torch._foreach_add_(self.momenta, moved)
            torch._foreach_sub_(self.parameters, torch._foreach_mul(self.momenta, self.rate))
            self.teacher.follow(self.student)
            self.loss.copy_(loss)
        return student.detach()

    @torch.no_grad()
    def embedded(self, images: Tensor, searched: bool = True, averaged: bool = False) -> Tensor:
        """Unit vectors of images, without augmentation: those that are searched, or those that are compared in training."""
        network = cast(Learner, self.teacher.network) if averaged else self.student
        network.eval()
        parts = []
        for part in torch.split(images, CHUNK):
            with torch.autocast(self.device.type, torch.bfloat16, enabled=not searched):
                seen = CIFAR(part).contiguous(memory_format=torch.channels_last)
                parts.append(network.features(seen) if searched else network(seen)[0])
        network.train()
        return torch.cat(parts)

    def fill(self) -> None:
        """Embed all images into the bank."""
        self.bank.copy_(self.embedded(self.images, searched=False, averaged=True))


def epochs(training: Training) -> Iterator[float]:
    """Train to the end; yields the loss after every epoch."""
    n, order, target = len(training.images), torch.Generator().manual_seed(training.seed), training.target
    epoch = 0
    while training.taken < training.steps:
        if target.bank_of == "epochs" and epoch % target.every == 0:
            training.fill()
        left = training.steps - training.taken
        for ids in torch.split(torch.randperm(n, generator=order).to(training.device), BATCH)[: n // BATCH][:left]:
            training.step(ids)
        epoch += 1
        yield _waited(training.loss)
        if not math.isfinite(float(training.loss)):
            raise ValueError(f"the loss is {float(training.loss)} after {training.taken} steps; lower the rate")


def _waited(loss: Tensor) -> float:
    """The loss, without a processor that spins until it is there."""
    if loss.is_cuda:
        done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        done.record()
        done.synchronize()
    return float(loss)
