"""Soft neighbors of table rows: the loss of a training step, and exact prediction over all training rows in blocks."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from nearkin.search.soft_tiles import tiled_mean

SMALLEST = 1e-20  # sums of shares above it have all digits in float32
BLOCK = 2**23  # distances that are held at once


class Votes(NamedTuple):
    """The references of soft neighbors: who votes, with which target and which weight."""

    embeddings: Tensor  # (m, d)
    targets: Tensor  # (m, t): one-hot classes, or numbers
    log_weights: Tensor  # (m,)


def affinities(queries: Tensor, references: Tensor, distance: str, temperature: float) -> Tensor:
    """Minus the distances over the temperature (n, m)."""
    if distance == "euclidean":
        return -torch.cdist(queries, references) / temperature
    squares = queries.square().sum(1)[:, None] + references.square().sum(1) - 2 * queries @ references.T
    return -squares.clamp_min(0) / temperature


def log_loss(affinity: Tensor, queries: Tensor, references: Tensor, weights: Tensor) -> Tensor:
    """The weighted mean of -log P(own class), over the rows with a reference of their class; classes (b,) and (m,).

    Both sums stay logarithms, so that no probability is rounded to 0.
    """
    same = queries[:, None] == references
    known = (same & (affinity > -torch.inf)).any(1)
    if not bool(known.any()):
        return affinity.new_zeros(()) * affinity[affinity > -torch.inf].sum()
    top = affinity.detach().amax(1, keepdim=True)
    shares = (affinity - top).exp()
    own = (shares * same).sum(1)
    near = own > SMALLEST  # elsewhere the own class is so far away that only sums of logarithms are exact
    far = known & ~near
    lost = affinity.new_zeros(len(affinity)).masked_scatter(near, shares.sum(1)[near].log() - own[near].log())
    if bool(far.any()):
        kept, same = affinity[far], same[far]
        exact = torch.logsumexp(kept, 1) - torch.logsumexp(kept.masked_fill(~same, -torch.inf), 1)
        lost = lost.masked_scatter(far, exact)
    return (lost * weights)[known].sum() / weights[known].sum()


def squared_error(affinity: Tensor, queries: Tensor, references: Tensor, weights: Tensor) -> Tensor:
    """The weighted mean squared error of the soft mean; targets (b, t) and (m, t)."""
    errors = (torch.softmax(affinity, 1) @ references - queries).square().mean(1)
    return (errors * weights).sum() / weights.sum()


def vote(
    queries: Tensor, votes: Votes, distance: str, temperature: float, without: Tensor | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """The soft shares of the references (b, m) and the positions of the queries (b,), block by block.

    `without` (n,) is for each query the position of a reference that does not count, itself, or -1.
    """
    rows = max(1, BLOCK // max(len(votes.embeddings), 1))
    for at in torch.split(torch.arange(len(queries)), rows):
        affinity = affinities(queries[at], votes.embeddings, distance, temperature) + votes.log_weights
        if without is not None:
            own = without[at].to(affinity.device)
            counted = own >= 0
            affinity[torch.arange(len(at), device=affinity.device)[counted], own[counted]] = -torch.inf
        yield torch.softmax(affinity, 1), at


@torch.no_grad()
def soft_mean(
    queries: Tensor, votes: Votes, distance: str, temperature: float, without: Tensor | None = None, targets: Tensor | None = None
) -> Tensor:
    """(n, t): the mean target of the soft neighbors; `targets` (m, t) replaces those of the votes."""
    wanted = votes.targets if targets is None else targets
    if queries.device.type == "cpu":
        squared = distance == "squared_euclidean"
        return tiled_mean(queries, votes.embeddings, votes.log_weights, wanted, squared=squared, temperature=temperature, without=without)
    found = queries.new_empty(len(queries), wanted.shape[1])
    for shares, at in vote(queries, votes, distance, temperature, without):
        found[at] = shares @ wanted
    return found
