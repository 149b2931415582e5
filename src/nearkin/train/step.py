"""One training step, from ids to updated weights, and the same step as a CUDA graph."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nearkin.data.augment import augmented, geometric
from nearkin.objectives import Objective, WeightedSum
from nearkin.train import ranks
from nearkin.train.relaxation import quantization_gap, relaxed
from nearkin.train.teacher import Teacher


class _Learned(NamedTuple):
    """The whole batch of an update, and its loss."""

    embeddings: Tensor
    labels: Tensor | None
    ids: Tensor
    loss: Tensor


class Step:
    """Read, augment, embed, compute the loss, update the weights, update the references: in that order.

    `read` returns the inputs of a batch of ids, on the device. The network may run in bfloat16; objectives get float32. With
    several `views`, every point appears that many times in the step, augmented independently, always with the same id. A `teacher`
    embeds one more view of every point, of which only the geometry changes; each of the student's views is then an update of its own.
    """

    def __init__(
        self,
        network: nn.Module,
        objective: Objective | WeightedSum,
        optimizer: torch.optim.Optimizer,
        *,
        read: Callable[[Tensor], Tensor],
        answers: Tensor | None,
        prepare: Callable[[Tensor], Tensor],
        augment: Sequence[Any] = (),
        generator: torch.Generator,
        bfloat16: bool = False,
        clip: float = 0.0,
        compiled: bool = False,
        pull: float | None = None,
        views: int = 1,
        teacher: Teacher | None = None,
    ) -> None:
        self.forward: Callable[[Tensor], Tensor] = torch.compile(network, dynamic=False) if compiled else network
        self.taught: Callable[[Tensor], Tensor] | None = torch.compile(teacher, dynamic=False) if teacher and compiled else teacher
        self.network, self.objective, self.optimizer = network, objective, optimizer
        self.read, self.answers, self.prepare = read, answers, prepare
        self.augment, self.generator = augment, generator
        self.bfloat16, self.clip = bfloat16, clip
        self.pull = pull  # weight of the pull to +1 and -1 for binary codes; None for plain embeddings
        self.views, self.teacher = views, teacher

    def embed(self, ids: Tensor, inputs: Tensor | None = None) -> Tensor:
        """Embeddings (b, d) of these points, float32, with a graph; pass `inputs` if they were read already."""
        return self._embedded(self.read(ids) if inputs is None else inputs, self.augment, self.forward)

    def _embedded(self, inputs: Tensor, augment: Sequence[Any], forward: Callable[[Tensor], Tensor]) -> Tensor:
        if augment:
            inputs = augmented(inputs, augment, self.generator)
        inputs = self.prepare(inputs)
        with torch.autocast(inputs.device.type, dtype=torch.bfloat16, enabled=self.bfloat16):
            embeddings = forward(inputs)
        embeddings = embeddings.float() if self.bfloat16 else embeddings
        return embeddings if self.pull is None else relaxed(embeddings)

    def loss(self, embeddings: Tensor, labels: Tensor | None, ids: Tensor) -> Tensor:
        """The loss of the objective, plus the pull to +1 and -1 for binary codes."""
        loss: Tensor = self.objective(embeddings, labels, ids=ids)
        return loss if self.pull is None else loss + self.pull * quantization_gap(embeddings)

    def __call__(self, mine: Tensor, inputs: Tensor | None = None) -> Tensor:
        """Update once on this rank's share of the batch; returns the loss of the whole batch, detached."""
        if self.teacher is not None and self.taught is not None:
            inputs = self.read(mine) if inputs is None else inputs
            known = self._embedded(inputs, geometric(self.augment), self.taught)
            for _ in range(self.views):
                batch = self._learned(lambda: torch.cat([self.embed(mine, inputs), known]), mine.repeat(2))
                self.teacher.follow(self.network)
        else:
            if self.views > 1:
                mine, inputs = mine.repeat(self.views), None if inputs is None else torch.cat([inputs] * self.views)
            batch = self._learned(lambda: self.embed(mine, inputs), mine)
        self.objective.update(batch.embeddings, batch.labels, ids=batch.ids)
        return batch.loss

    def _learned(self, embed: Callable[[], Tensor], mine: Tensor) -> "_Learned":
        """Embed these ids, and update the weights once."""
        self.optimizer.zero_grad(set_to_none=True)
        embeddings, ids = ranks.gather(embed()), ranks.gather(mine)
        labels = None if self.answers is None else self.answers[ids]
        loss = self.loss(embeddings, labels, ids)
        loss.backward()  # type: ignore[no-untyped-call]
        self.move()
        return _Learned(embeddings.detach(), labels, ids, loss.detach())

    def move(self, *, joined: bool = False) -> None:
        """Sum the gradients of the ranks (unless `joined`), clip them and step the optimizer."""
        if not joined:
            ranks.sum_gradients(self.network.parameters())
        if self.clip:
            parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
            nn.utils.clip_grad_norm_(parameters, self.clip, foreach=True)
        self.optimizer.step()


class CapturedStep:
    """The whole step as one CUDA graph: for data on the device, where kernel launches cost more than arithmetic.

    The graph is recorded for one batch size, after a few ordinary steps. Other sizes take the ordinary step.
    """

    WARM = 3  # ordinary steps on a side stream, which allocate what a graph must not (optimizer state, workspaces)

    def __init__(self, step: Step, batch_size: int) -> None:
        self.step, self.batch_size = step, batch_size
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.graph: torch.cuda.CUDAGraph | None = None
        self.ids: Tensor | None = None
        self.loss: Tensor | None = None
        self.taken = 0

    def __call__(self, ids: Tensor, inputs: Tensor | None = None) -> Tensor:
        """Update once; the loss is only valid until the next call, as it lives in the graph's memory."""
        if len(ids) != self.batch_size or inputs is not None:
            return self.step(ids, inputs)
        if self.taken < self.WARM:
            self.taken += 1
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream), _fastest_convolutions():
                loss = self.step(ids)
            torch.cuda.current_stream().wait_stream(self.stream)
            return loss
        if self.graph is None:
            self._record(ids)
        assert self.graph is not None and self.ids is not None and self.loss is not None
        self.ids.copy_(ids, non_blocking=True)
        self.graph.replay()
        return self.loss

    def _record(self, ids: Tensor) -> None:
        self.ids = ids.clone()
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(self.step.generator)
        with torch.cuda.graph(self.graph), _fastest_convolutions():
            self.loss = self.step(self.ids)


@contextmanager
def _fastest_convolutions() -> Iterator[None]:
    """Let cuDNN time its algorithms in the first steps; the graph keeps the fastest."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
