"""Every loss that pytorch-metric-learning has, too: `python -m bench.losses [--device cuda] [--peers FOLDER] [--out FILE.json]`.

Loss and gradients, those of learned class vectors among them, of a batch with four points a class, d = 128 and 768. Both must return the
same value before either is timed, but for the contrastive loss, which is another function there. Softmax has no peer there and is compared
with torch's own. Best of interleaved rounds: one thread's CPU seconds, or seconds until the device is idle. Operators are counted, too,
without those that only look at memory in another way: on a GPU each is a launch.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import nearkin
from bench.contenders import Evaluate
from bench.kernels import processor, versions
from bench.measure import interleaved

SIZES = (64, 256, 1024)
CLASSES = (100, 1000, 10_000)
DIMENSIONS = (128, 768)
ROUNDS, PATIENCE, AT_ONCE = 40, 10.0, 256
VIEWS = ("t", "transpose", "view", "expand", "unsqueeze", "select", "slice", "detach", "alias", "permute", "squeeze", "split", "unbind")
VIEWS += ("_unsafe_view", "as_strided", "lift_fresh", "_local_scalar_dense", "view_as", "diagonal")
Loss = Callable[[Tensor], Tensor]


class Pair(NamedTuple):
    name: str
    ours: Loss
    theirs: Loss
    learned: tuple[list[Tensor], list[Tensor]] = ([], [])
    equal: bool = True


class Operators(TorchDispatchMode):
    """Counts the operators that compute something, forwards and backwards."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.overloadpacket.__name__ not in VIEWS
        return func(*args, **(kwargs or {}))


def batch(n: int, classes: int, device: str, d: int) -> tuple[Tensor, Tensor]:
    """Unit vectors near their class's and the labels of `classes` classes in turn, in no order."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n).remainder(classes)[torch.randperm(n, generator=generator)]
    centers, noise = torch.randn(classes, d, generator=generator), torch.randn(n, d, generator=generator)
    return torch.nn.functional.normalize(centers[labels] + noise).to(device), labels.to(device)


def of_batches(labels: Tensor) -> Iterator[Pair]:
    """Losses whose references are the batch."""
    from pytorch_metric_learning import distances, losses, miners, reducers  # type: ignore[import-untyped]

    cosine = {"margin": 0.2, "distance": distances.CosineSimilarity(), "reducer": reducers.MeanReducer()}
    hard = miners.BatchHardMiner(distance=distances.CosineSimilarity())
    triplets = losses.TripletMarginLoss(**cosine)
    contrastive = losses.ContrastiveLoss()
    n = len(labels)
    both: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {"NCA": (nearkin.NCA(), losses.NCALoss())}
    if n <= AT_ONCE:  # theirs hold every pair of pairs, or every triplet
        both["LiftedStructure"] = nearkin.LiftedStructure(), losses.LiftedStructureLoss()
        both["Angular"] = nearkin.Angular(), losses.AngularLoss(alpha=45)
        both["Triplet, uniform"] = nearkin.Triplet("uniform"), triplets
    both["Triplet, hard"] = nearkin.Triplet("hard"), lambda live, y: triplets(live, y, hard(live, y))
    for name, (ours, theirs) in both.items():
        yield Pair(name, partial(_called, ours, labels), partial(_called, theirs, labels))
    yield Pair("Contrastive", partial(_called, nearkin.Contrastive(), labels), partial(_called, contrastive, labels), equal=False)


def of_pairs(labels: Tensor) -> Iterator[Pair]:
    """Losses that want two points a class."""
    from pytorch_metric_learning import losses

    yield Pair("NPair", partial(_called, nearkin.NPair(l2=0), labels), partial(_called, losses.NPairsLoss(), labels))


def of_classes(labels: Tensor, classes: int, d: int) -> Iterator[Pair]:
    """Losses against one learned vector a class."""
    from pytorch_metric_learning import losses

    device = labels.device
    made: dict[str, tuple[Any, Any]] = {
        "ProxyNCA": (nearkin.ProxyNCA(classes, d, form="softmax"), losses.ProxyNCALoss(classes, d, softmax_scale=3)),
        "NormalizedSoftmax": (nearkin.NormalizedSoftmax(classes, d), losses.NormalizedSoftmaxLoss(classes, d)),
        "LargeMarginSoftmax": (nearkin.LargeMarginSoftmax(classes, d, base=0.0), losses.LargeMarginSoftmaxLoss(classes, d)),
    }
    for name, (ours, theirs) in made.items():
        weight = theirs.proxies if name == "ProxyNCA" else theirs.W.T
        ours.references.vectors.data.copy_(weight.data)
        ours.to(device), theirs.to(device)
        learned = list(ours.parameters()), list(theirs.parameters())
        yield Pair(name, partial(_called, ours, labels), partial(_called, theirs, labels), learned)
    ours, head = nearkin.Softmax(classes, d).to(device), torch.nn.Linear(d, classes).to(device)
    ours.references.vectors.data.copy_(head.weight.data)
    ours.affinity.bias.data.copy_(head.bias.data)

    def plain(live: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(head(live), labels)

    yield Pair("Softmax", partial(_called, ours, labels), plain, (list(ours.parameters()), list(head.parameters())))


def _called(loss: Callable[..., Tensor], labels: Tensor, live: Tensor) -> Tensor:
    return loss(live, labels)


def evaluated(loss_of: Loss, embeddings: Tensor, learned: list[Tensor]) -> Evaluate:
    def evaluate() -> tuple[Tensor, Tensor]:
        live = embeddings.detach().requires_grad_()
        loss = loss_of(live)
        gradients = torch.autograd.grad(loss, [live, *learned])
        if embeddings.is_cuda:
            torch.cuda.synchronize()
        return loss.detach(), gradients[0]

    return evaluate


def measured(pair: Pair, embeddings: Tensor, rounds: int) -> dict[str, Any]:
    """Milliseconds of both, and how many times ours the other's are."""
    tasks = {
        name: evaluated(getattr(pair, name), embeddings, learned) for name, learned in zip(("ours", "theirs"), pair.learned, strict=True)
    }
    values = [task()[0] for task in tasks.values()]
    if pair.equal:
        torch.testing.assert_close(*values, rtol=1e-4, atol=1e-5, msg=lambda words: f"{pair.name}: {words}")
    operators = {}
    for name, task in tasks.items():
        with Operators() as counted:
            task()
        operators[name] = counted.count
    times = interleaved({name: (task, 1) for name, task in tasks.items()}, rounds, PATIENCE)
    ours, theirs = (1e3 * times[name]["wall_s" if embeddings.is_cuda else "cpu_s"] for name in tasks)
    counts = {"ours_operators": operators["ours"], "peer_operators": operators["theirs"]}
    return {"ours_ms": round(ours, 3), "peer_ms": round(theirs, 3), "times": round(theirs / ours, 2), **counts}


def rows(device: str, rounds: int, d: int) -> Iterator[dict[str, Any]]:
    for n in SIZES:
        for each, kinds in ((4, of_batches), (2, of_pairs)):
            embeddings, labels = batch(n, n // each, device, d)
            for pair in kinds(labels):
                yield {"loss": pair.name, "n": n, "d": d, **measured(pair, embeddings, rounds)}
    for classes in CLASSES:
        embeddings, labels = batch(AT_ONCE, classes, device, d)
        for pair in of_classes(labels, classes, d):
            yield {"loss": pair.name, "n": AT_ONCE, "d": d, "classes": classes, **measured(pair, embeddings, rounds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--peers", type=Path, help="a folder with pytorch_metric_learning, where it is not installed")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--dimensions", type=int, nargs="+", default=list(DIMENSIONS))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.peers:
        sys.path.insert(0, str(arguments.peers))
    device = processor() if arguments.device == "cpu" else torch.cuda.get_device_name()
    where = "" if arguments.device == "cpu" else f" --device {arguments.device}"
    about = {"command": f"python -m bench.losses{where}", "device": device, "date": datetime.now(UTC).isoformat(timespec="seconds")}
    found = []
    for d in arguments.dimensions:
        for row in rows(arguments.device, arguments.rounds, d):
            print(json.dumps(row), flush=True)
            found.append(row)
    if arguments.out:
        arguments.out.write_text(json.dumps({**about, "versions": versions(), "rows": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
