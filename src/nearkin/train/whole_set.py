"""The whole training set as one batch, exactly, in bounded memory.

1. Embed all points without a graph.
2. Compute the gradient of the objective with respect to all embeddings, which the kernels do in O(n d) memory.
3. Embed again, chunk by chunk with a graph, and backpropagate each chunk's rows of that gradient.

The result is the gradient of one batch of all points. Random layers draw the same numbers in both passes; batch normalization
uses the statistics of each chunk. Several ranks divide the chunks of the second pass and sum their gradients.
"""

import torch
from torch import Tensor

from nearkin.train import ranks
from nearkin.train.optimizers import ConjugateGradient
from nearkin.train.step import Step


def whole_set_step(step: Step, ids: Tensor, chunk: int, inputs: Tensor | None = None) -> Tensor:
    """One step over all these points; returns the loss, detached. Pass `inputs` if they were read already."""
    if isinstance(step.optimizer, ConjugateGradient):
        drawn = _random_state(step)

        def closure() -> Tensor:
            _restore(step, drawn)  # every evaluation draws the same random numbers
            return whole_set_gradient(step, ids, chunk, inputs)[0]

        loss: Tensor = step.optimizer.step(closure)
        embeddings = whole_set_gradient(step, ids, chunk, inputs)[1]
    else:
        loss, embeddings = whole_set_gradient(step, ids, chunk, inputs)
        step.move(joined=True)
    step.objective.update(embeddings, None if step.answers is None else step.answers[ids], ids=ids)
    return loss


def whole_set_gradient(step: Step, ids: Tensor, chunk: int, inputs: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Loss and embeddings of all these points, detached; the gradients are left in the parameters."""
    step.optimizer.zero_grad(set_to_none=True)
    chunks = torch.split(ids, chunk)
    held = [None] * len(chunks) if inputs is None else torch.split(inputs, chunk)
    states, rows = [], []
    with torch.no_grad():
        for part, given in zip(chunks, held, strict=True):
            states.append(_random_state(step))
            rows.append(step.embed(part, given))
    embeddings = torch.cat(rows).requires_grad_()
    labels = None if step.answers is None else step.answers[ids]
    loss = step.loss(embeddings, labels, ids)
    loss.backward()  # type: ignore[no-untyped-call]
    assert embeddings.grad is not None
    after = _random_state(step)
    second_pass = list(zip(chunks, held, torch.split(embeddings.grad, chunk), states, strict=True))
    for part, given, gradient, state in second_pass[ranks.number() :: ranks.count()]:
        _restore(step, state)
        step.embed(part, given).backward(gradient)  # type: ignore[no-untyped-call]
    ranks.sum_gradients(step.network.parameters())
    _restore(step, after)
    return loss.detach(), embeddings.detach()


def _random_state(step: Step) -> tuple[Tensor, Tensor, Tensor | None]:
    cuda = torch.cuda.get_rng_state() if step.generator.device.type == "cuda" else None
    return torch.get_rng_state(), step.generator.get_state(), cuda


def _restore(step: Step, state: tuple[Tensor, Tensor, Tensor | None]) -> None:
    torch.set_rng_state(state[0])
    step.generator.set_state(state[1])
    if state[2] is not None:
        torch.cuda.set_rng_state(state[2])
