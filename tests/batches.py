"""Drawn batches, and the comparison of an objective with its oracle on them.

Batches hold singletons, classes that are missing, identical embeddings, samples that stand twice, and small whole
numbers, which tie. Values are compared everywhere, gradients wherever the function has one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import torch
from torch import Tensor

from tests import oracles as o

Rows = list[o.Row]
CLASSES = 4
BANK = 7


@dataclass(frozen=True)
class Batch:
    """A drawn batch and, for the objectives that need them, class vectors, a bank and a table of neighbors."""

    z: Tensor  # (n, d)
    labels: list[int]
    samples: list[int]  # which sample each row is
    targets: Tensor  # (n, 2)
    sets: Tensor  # (n, 3)
    vectors: Tensor  # (CLASSES, d + 1)
    bank: Tensor  # (BANK, d)
    table: Tensor  # (BANK, 2)
    trusted: Tensor  # (BANK,)

    @property
    def d(self) -> int:
        return self.z.shape[1]

    def crowd(self, z: list[o.Row], y: Any = None) -> o.Crowd:
        return o.Crowd(z, self.labels if y is None else y, self.samples)

    def anchors(self) -> Tensor:
        return self.vectors[:, : self.d]


def labels_of(samples: list[int], class_of: list[int]) -> list[int]:
    """At least two classes: a batch of one class is refused at the door."""
    labels = [class_of[s] for s in samples]
    if len(set(labels)) == 1:
        labels = [(label + 1) % CLASSES if s == samples[0] else label for s, label in zip(samples, labels, strict=True)]
    return labels


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    n, d = draw(st.integers(2, 6)), draw(st.integers(2, 3))
    samples = draw(st.one_of(st.just(list(range(n))), st.lists(st.integers(0, n - 1), min_size=n, max_size=n)))
    if len(set(samples)) == 1:
        samples[0] = (samples[0] + 1) % n
    labels = labels_of(samples, draw(st.lists(st.integers(0, CLASSES - 1), min_size=n, max_size=n)))
    whole = draw(st.lists(st.integers(-2, 2), min_size=n * d, max_size=n * d))
    twins = draw(st.one_of(st.just([]), st.lists(st.integers(1, n - 1), max_size=2)))
    noise = draw(st.sampled_from([0.3, 0.3, 0.3, 0.0]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))

    def whole_numbers(*shape: int, low: int = -2) -> Tensor:
        x = torch.randint(low, 3, shape, generator=generator).double()
        return x + noise * torch.randn(shape, generator=generator, dtype=torch.float64)

    z = torch.tensor(whole, dtype=torch.float64).reshape(n, d)
    z = z + noise * torch.randn(n, d, generator=generator, dtype=torch.float64)
    for row in twins:
        z[row] = z[row - 1]
    return Batch(
        z=z,
        labels=labels,
        samples=samples,
        targets=whole_numbers(n, 2),
        sets=torch.randint(0, 2, (n, 3), generator=generator),
        vectors=whole_numbers(CLASSES, d + 1),
        bank=whole_numbers(BANK, d) / 2,
        table=torch.randint(0, BANK, (BANK, 2), generator=generator),
        trusted=torch.randint(0, 2, (BANK,), generator=generator).bool(),
    )


def close(found: Tensor, expected: Tensor, atol: float = 1e-11) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=atol)


def reduced(valid: o.Values, alive: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Values, mean and sum of an oracle; `alive` keeps the graph when no query is valid."""
    values = torch.stack([torch.as_tensor(value, dtype=torch.float64) for value, _ in valid]) + 0 * alive.sum()
    weight = torch.tensor([weight for _, weight in valid], dtype=torch.float64)
    total = (weight * values).sum()
    return values, total / max(float(weight.sum()), 1e-300), total


def compare(call: Callable[..., Tensor], leaves: list[Tensor], oracle: Callable[[list[Rows]], o.Values]) -> bool:
    """Values, mean, sum, and the gradient of a mixture of them in every leaf; False where there is no gradient."""
    o.fresh()
    copies = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    expected = reduced(oracle([o.scalars(copy) for copy in copies]), copies[0])
    found = [call(reduction=reduction) for reduction in ("none", "mean", "sum")]
    if o.steady():
        for ours, theirs in zip(found, expected, strict=True):
            close(ours, theirs)
    if not o.smooth():
        return False
    mixture = 1 + torch.arange(len(expected[0]), dtype=torch.float64)  # tells queries apart
    ours = torch.autograd.grad((mixture * found[0]).sum() + found[1], leaves, allow_unused=True, materialize_grads=True)
    theirs = torch.autograd.grad((mixture * expected[0]).sum() + expected[1], copies, allow_unused=True, materialize_grads=True)
    for a, b in zip(ours, theirs, strict=True):
        close(a, b, atol=1e-10)
    return True


def near(found: Tensor, expected: object, digits: float) -> None:
    """A printed answer, to its last digit."""
    expected = torch.as_tensor(expected, dtype=found.dtype)
    torch.testing.assert_close(found.detach().reshape(expected.shape), expected, rtol=0, atol=digits)


def drawn(n: int = 12, d: int = 3, seed: int = 0) -> Tensor:
    return torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
