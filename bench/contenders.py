"""NCA loss and gradient, the same work done by us and by every peer.

A contender is made once from embeddings and labels, and each call of what it returns evaluates the mean loss and its
gradient from scratch. All take the log form, but scikit-learn, whose evaluation is the expected one (one minus the
mean chance), with the gradient in the transformation as its L-BFGS needs it.
"""

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nearkin.kernels.autograd import soft_neighbors
from nearkin.kernels.contract import Form, Work

Evaluate = Callable[[], tuple[Tensor, Tensor]]
INSTALL = "pip install -c constraints.txt -e '.[bench]'"


class Contender(NamedTuple):
    make: Callable[[Tensor, Tensor], Evaluate]
    needs: str = "torch"
    threads: int = 1
    form: Form = "log"
    largest: int = 1 << 30  # queries beyond which it is not asked, for want of memory or patience


def spans(labels: Tensor) -> Tensor:
    """(n, 2) where each label of a sorted list stands."""
    return torch.stack([torch.searchsorted(labels, labels), torch.searchsorted(labels, labels, right=True)], 1)


def differentiated(loss_of: Callable[[Tensor], Tensor], embeddings: Tensor) -> Evaluate:
    def evaluate() -> tuple[Tensor, Tensor]:
        live = embeddings.detach().requires_grad_()
        loss = loss_of(live)
        return loss.detach(), torch.autograd.grad(loss, live)[0]

    return evaluate


def evaluated(work: Work, form: Form, engine: str, precision: str = "highest") -> Evaluate:
    """Any work through one of our engines, sorted beforehand as an objective would."""

    def loss_of(live: Tensor) -> Tensor:
        return soft_neighbors(work._replace(queries=live), form, 1.0, engine=engine, precision=precision).values.mean()

    return differentiated(loss_of, work.queries)


def ours(engine: str, precision: str = "highest", form: Form = "log") -> Callable[[Tensor, Tensor], Evaluate]:
    def make(embeddings: Tensor, labels: Tensor) -> Evaluate:
        skip = torch.arange(len(labels), device=labels.device)[:, None]
        return evaluated(Work(embeddings, None, True, span=spans(labels), skip=skip), form, engine, precision)

    return make


def metric_learning(embeddings: Tensor, labels: Tensor) -> Evaluate:
    """pytorch-metric-learning's NCALoss with squared, un-normalized distances."""
    from pytorch_metric_learning.distances import LpDistance  # type: ignore[import-untyped]
    from pytorch_metric_learning.losses import NCALoss  # type: ignore[import-untyped]

    criterion = NCALoss(distance=LpDistance(normalize_embeddings=False, power=2))
    return differentiated(lambda live: criterion(live, labels), embeddings)


def plain_loss(live: Tensor, labels: Tensor) -> Tensor:
    """What one writes without a library: distances from a matrix product, two log-sum-exps."""
    lengths = live.square().sum(1)
    affinity = 2 * live @ live.T - lengths[:, None] - lengths
    affinity = affinity.masked_fill(torch.eye(len(live), dtype=torch.bool, device=live.device), -torch.inf)
    right = affinity.masked_fill(labels[:, None] != labels, -torch.inf)
    return (torch.logsumexp(affinity, 1) - torch.logsumexp(right, 1)).mean()


def plain(embeddings: Tensor, labels: Tensor) -> Evaluate:
    return differentiated(lambda live: plain_loss(live, labels), embeddings)


def compiled(embeddings: Tensor, labels: Tensor) -> Evaluate:
    faster: Callable[[Tensor, Tensor], Tensor] = torch.compile(plain_loss)
    return differentiated(lambda live: faster(live, labels), embeddings)


def scikit_learn(embeddings: Tensor, labels: Tensor) -> Evaluate:
    """One evaluation inside NeighborhoodComponentsAnalysis.fit, from the identity, as its optimizer asks for it."""
    import numpy as np
    from sklearn.neighbors import NeighborhoodComponentsAnalysis

    model: Any = NeighborhoodComponentsAnalysis()
    model.n_iter_ = 1
    x, y = embeddings.numpy(), labels.numpy()
    mask = y[:, None] == y
    start = np.eye(x.shape[1]).ravel()

    def evaluate() -> tuple[Tensor, Tensor]:
        chance, gradient = model._loss_grad_lbfgs(start, x, mask, 1.0)
        return torch.tensor(1 - chance / len(x)), -torch.from_numpy(gradient) / len(x)

    return evaluate


def keops(embeddings: Tensor, labels: Tensor) -> Evaluate:
    """KeOps' lazy matrices: penalties instead of masks, two log-sum-exp reductions."""
    from pykeops.torch import LazyTensor  # type: ignore[import-untyped]

    names, places = labels.float()[:, None], torch.arange(len(labels), dtype=torch.float32, device=labels.device)[:, None]
    other = (LazyTensor(names[:, None]) - LazyTensor(names[None])) ** 2
    apart = (LazyTensor(places[:, None]) - LazyTensor(places[None])) ** 2
    itself = (-apart).ifelse(-1e6 + 0 * apart, 0 * apart)

    def loss_of(live: Tensor) -> Tensor:
        affinity = itself - ((LazyTensor(live[:, None]) - LazyTensor(live[None])) ** 2).sum(-1)
        total, right = affinity.logsumexp(dim=1), (affinity - 1e6 * other).logsumexp(dim=1)
        loss: Tensor = (total - right).mean()
        return loss

    return differentiated(loss_of, embeddings)


CPU = {
    "nearkin numba": Contender(ours("numba"), "numba"),
    "nearkin numba, 2 threads": Contender(ours("numba"), "numba", threads=2),
    "nearkin torch tiles": Contender(ours("torch")),
    "pytorch-metric-learning NCALoss": Contender(metric_learning, "pytorch_metric_learning", largest=20_000),
    "scikit-learn NCA, one evaluation": Contender(scikit_learn, "sklearn", form="expected", largest=20_000),
    "plain torch": Contender(plain, largest=20_000),
    "torch.compile of the same": Contender(compiled, largest=20_000),
    "KeOps": Contender(keops, "pykeops", largest=2_048),
}

CUDA = {
    **{f"nearkin triton, {precision}": Contender(ours("triton", precision), "triton") for precision in ("highest", "high", "fast")},
    "pytorch-metric-learning NCALoss": Contender(metric_learning, "pytorch_metric_learning"),
    "plain torch": Contender(plain),
    "torch.compile of the same": Contender(compiled),
    "KeOps": Contender(keops, "pykeops", largest=16_384),
}
SLOW_TO_COMPILE = ("KeOps", "torch.compile of the same")


def left_out(contenders: dict[str, Contender], without: Sequence[str], quick: bool) -> dict[str, str]:
    """Who of all contenders is not asked in this run, and why, in words."""
    unknown = sorted(set(without) - set(contenders))
    if unknown:
        raise SystemExit(f"--without {', '.join(unknown)}: unknown here; the contenders are {', '.join(contenders)}")
    slow = {name: "compiles for longer than a quick run may take" for name in contenders if quick and name in SLOW_TO_COMPILE}
    absent = {name: f"{contenders[name].needs} is not installed on this machine" for name in without if _absent(contenders[name])}
    return {**slow, **dict.fromkeys(without, "left out by --without"), **absent}


def _absent(contender: Contender) -> bool:
    return importlib.util.find_spec(contender.needs) is None


def missing(contenders: dict[str, Contender]) -> list[str]:
    """Modules that some contender needs and nobody has installed."""
    return sorted({c.needs for c in contenders.values() if _absent(c)})


def drawn(n: int, d: int, classes: int = 10, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Standard normal embeddings and sorted labels."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(n, d, generator=generator)
    return embeddings.to(device), torch.randint(classes, (n,), generator=generator).sort().values.to(device)


def siblings(n: int, d: int, device: str = "cpu") -> dict[str, tuple[Work, Form]]:
    """The label form and its siblings on the same points: label distances and neighbor lists."""
    embeddings, labels = drawn(n, d, device=device)
    generator = torch.Generator().manual_seed(1)
    base = Work(embeddings, None, True, skip=torch.arange(n, device=device)[:, None])
    works: dict[str, tuple[Work, Form]] = {"classes": (base._replace(span=spans(labels)), "log")}
    for t in (1, 2, 3):
        targets = torch.randn(n, t, generator=generator).to(device)
        works[f"label distance, t = {t}"] = (base._replace(targets=(targets, targets)), "expected")
    for k in (1, 5, 10):
        works[f"lists of {k}"] = (base._replace(listed=torch.randint(n, (n, k), generator=generator).to(device)), "log")
    return works
