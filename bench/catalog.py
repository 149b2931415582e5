"""Every objective of the library, built from its signature, with a batch that it takes.

An objective that is added to `nearkin.objectives` is found here by itself: sizes are filled in by the names of its arguments, and each
choice of a Literal or bool argument is a case of its own. One that needs another argument is an error that says so.
"""

import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nearkin import objectives
from nearkin.objectives import NCA, Objective, WeightedSum

CLASSES, DIMENSION, MEMORY = 4, 16, 96
SIZE = 2304  # samples of a memory bank: more than the largest batch that is tried
BASES = ("Objective", "NeighborhoodObjective", "WeightedSum")
TWO_SIDED = ("InfoNCE",)  # takes the embeddings of a second encoder as references=, which other objectives do without
SIZES: dict[str, Callable[[], Any]] = {
    "num_classes": lambda: CLASSES,
    "dimension": lambda: DIMENSION,
    "size": lambda: SIZE,
    "steps": lambda: 1000,
    "anchors": lambda: torch.eye(CLASSES, DIMENSION),
    "objective": NCA,
    "dimensions": lambda: (DIMENSION // 2, DIMENSION),
    "terms": lambda: {"nca": (1.0, NCA())},
}
NOT_CASES = ("engine", "precision")


class Case(NamedTuple):
    """An objective under one of its options."""

    name: str
    build: Callable[[], Any]


class Batch(NamedTuple):
    """What a call takes."""

    embeddings: Tensor
    labels: Tensor | None
    ids: Tensor

    def loss(self, objective: Any, **more: Any) -> Tensor:
        found: Tensor = objective(self.embeddings, self.labels, ids=self.ids, **more)
        return found


def kinds() -> dict[str, type]:
    """The classes by name, without those that others are made from."""
    found = {name: getattr(objectives, name) for name in objectives.__all__ if name not in (*BASES, *TWO_SIDED)}
    return {name: kind for name, kind in found.items() if isinstance(kind, type) and issubclass(kind, Objective | WeightedSum)}


def arguments(kind: type) -> dict[str, Any]:
    """Values of the arguments that stand for sizes, and of those that have no default."""
    found = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if name in SIZES:
            found[name] = SIZES[name]()
        elif parameter.default is inspect.Parameter.empty and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"{kind.__name__} needs {name!r}, which bench/catalog.py does not know; add it to SIZES")
    return found


def cases(options: bool = True) -> list[Case]:
    """Every objective with its defaults and, with `options`, once more with each other choice of an argument."""
    found = []
    for name, kind in kinds().items():
        found.append(Case(name, _build(kind, {})))
        if options:
            found += [
                Case(f"{name}, {key}={value}", _build(kind, {key: value})) for key, value in _choices(kind) if _allowed(kind, key, value)
            ]
    return found


def _build(kind: type, more: dict[str, Any]) -> Callable[[], Any]:
    return lambda: kind(**{**arguments(kind), **more})


def _choices(kind: type) -> Iterator[tuple[str, Any]]:
    hints = typing.get_type_hints(kind.__init__)
    for name, parameter in inspect.signature(kind).parameters.items():
        if name in NOT_CASES or parameter.default is inspect.Parameter.empty:
            continue
        literal = next((h for h in (hints.get(name), *typing.get_args(hints.get(name))) if typing.get_origin(h) is typing.Literal), None)
        values = (not parameter.default,) if isinstance(parameter.default, bool) else typing.get_args(literal)
        for value in values:
            if value != parameter.default:
                yield name, value
    if "memory" in hints:
        yield "memory", MEMORY


def _allowed(kind: type, key: str, value: Any) -> bool:
    """Whether the constructor takes this choice beside its defaults."""
    try:
        _build(kind, {key: value})()
    except ValueError:
        return False
    return True


def batch(supervision: str | None, n: int = 32, d: int = DIMENSION, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Batch:
    """n points near the centers of their classes, with what `supervision` reads as labels, and ids."""
    generator = torch.Generator().manual_seed(n)
    classes = torch.arange(n) % CLASSES
    centers = torch.randn(CLASSES, d, generator=torch.Generator().manual_seed(0))
    embeddings = (centers[classes] + torch.randn(n, d, generator=generator)).to(device, dtype)
    labels = {
        "numbers": torch.randn(n, generator=generator),
        "sets": torch.nn.functional.one_hot(classes, CLASSES),
        "ids": None,
    }.get(supervision or "classes", classes)
    ids = torch.arange(n) % (n // 2 if supervision == "ids" else SIZE)  # without labels, two views of every sample
    return Batch(embeddings, None if labels is None else labels.to(device), ids.to(device))


def leaves(objective: Any, embeddings: Tensor) -> list[Tensor]:
    """What a gradient is taken of."""
    return [embeddings, *objective.parameters()]
