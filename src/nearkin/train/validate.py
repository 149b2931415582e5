"""Are the neighbors right on the validation part? The figure that training may look at."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from nearkin.compose.affinity import InnerProduct, cosine, signs
from nearkin.compose.metrics import METRICS
from nearkin.compose.points import Points
from nearkin.data.dataset import Dataset
from nearkin.data.loader import Loader
from nearkin.evaluate import collapse, knn_accuracy, weighted_knn_predict
from nearkin.objectives import WeightedSum
from nearkin.search import nearest
from nearkin.train.assemble import Parts
from nearkin.train.objective_choice import Built, without_labels
from nearkin.train.rank_shards import everyone_reads, mine, put_back
from nearkin.train.spread_bank import whole_bank

CHUNK = 1024
VOTERS, VOTING_TEMPERATURE = 200, 0.1  # of the weighted vote, as [huang2019and] released it; the text says 0.07


@torch.no_grad()
def embed_all(network: nn.Module, loader: Loader, prepare: "object", ids: Tensor | None = None) -> Tensor:
    """Embeddings of every point the loader serves (or of `ids`), in evaluation mode and float32 as when deployed, in that order."""
    assert callable(prepare)
    chosen = loader.data.ids if ids is None else ids
    if everyone_reads(loader.data, chosen):
        own = mine(loader.data, chosen)
        return put_back(_embedded(network, loader, prepare, own), own, chosen)
    return _embedded(network, loader, prepare, chosen)


def _embedded(network: nn.Module, loader: Loader, prepare: Callable[[Tensor], Tensor], ids: Tensor) -> Tensor:
    mode = network.training
    network.eval()
    try:
        rows = []
        for inputs, _ in loader(torch.split(ids, CHUNK)):
            rows.append(network(prepare(inputs)).float())
        return torch.cat(rows)
    finally:
        network.train(mode)


def points_of(data: Dataset, embeddings: Tensor) -> Points:
    """Embeddings with what is known of them."""
    answers = data.point_labels
    return Points(embeddings, None if answers is None else answers.to(embeddings.device), data.ids.to(embeddings.device))


def neighbor_figures(queries: Points, references: Points, supervision: str, metric: str) -> dict[str, float]:
    """1-NN and 10-NN accuracy, or the error of 10-NN regression; by leave-one-out when the classes were never trained on."""
    affinity = METRICS[metric]
    if supervision == "classes":
        assert queries.labels is not None and references.labels is not None
        if not bool(torch.isin(queries.labels, references.labels).any()):
            return {"recall@1": knn_accuracy(queries, queries, 1, affinity, exclude_same_id=True)}
        k = min(10, len(references.embeddings))
        return {"1-nn": knn_accuracy(queries, references, 1, affinity), f"{k}-nn": knn_accuracy(queries, references, k, affinity)}
    if supervision == "numbers":
        assert queries.labels is not None and references.labels is not None
        found = nearest(queries.embeddings, references.embeddings, min(10, len(references.embeddings)), affinity)
        error = references.labels[found.positions].mean(1) - queries.labels
        return {"mean_absolute_error": float(error.abs().mean()), "root_mean_square_error": float(error.square().mean().sqrt())}
    return {}


def by_class_vectors(objective: Built, embeddings: Tensor) -> Tensor | None:
    """The class whose vector (anchor or proxy) is nearest by the objective's own affinity, (n,); None where it has no such vectors."""
    for part in objective.named_objectives().values() if isinstance(objective, WeightedSum) else [objective]:
        slot = getattr(part, "references", None)
        if getattr(slot, "predicts", False):
            assert slot is not None
            if slot.known_dimension() not in (None, embeddings.shape[1]):  # they are behind a projection that is left out here
                return None
            vectors = slot(Points(embeddings[:1]))
            affinity = getattr(part, "affinity", InnerProduct())
            nearest_one: Tensor = vectors.labels[affinity(embeddings, vectors.embeddings).argmax(1)]
            return nearest_one
    return None


def reported(data: Dataset) -> str:
    """What figures of these data compare: their answers, or classes that nothing is learned from."""
    return "classes" if data.supervision == "ids" and data.labels is not None else data.supervision


def weighted_accuracy(queries: Points, references: Points) -> float:
    """Accuracy of the weighted vote of the 200 nearest. [wu2018instance] [huang2019and]"""
    assert queries.labels is not None
    chosen = weighted_knn_predict(queries, references, VOTERS, cosine(VOTING_TEMPERATURE))
    return float((chosen == queries.labels).double().mean())


def against_bank(parts: Parts, train: Dataset, test: Dataset, loader: Loader) -> float:
    """The weighted vote of the bank's vectors for the test part: how the authors' code measured itself, on every epoch."""
    bank = getattr(parts.objective, "references", None)
    assert bank is not None and train.labels is not None and test.labels is not None
    queried = points_of(test, embed_all(parts.network, loader, parts.step.prepare))
    return weighted_accuracy(*_of_known_classes(parts, (test, queried), (train, Points(whole_bank(bank)))))


def _of_known_classes(parts: Parts, queried: tuple[Dataset, Points], known: tuple[Dataset, Points]) -> tuple[Points, Points]:
    """The queries and references whose class is known and, in semi-supervised training, used."""
    used = getattr(getattr(parts.objective, "relation", None), "labels", None)
    return _with_classes(queried[1], queried[0].labels), _with_classes(known[1], known[0].labels if used is None else used)


def _with_classes(points: Points, labels: Tensor | None) -> Points:
    """Those of the points whose class is not -1."""
    assert labels is not None
    labels = labels.to(points.embeddings.device)
    known = labels >= 0
    ids = None if points.ids is None else points.ids[known]
    return Points(points.embeddings[known], labels[known], ids)


def figures_of(parts: Parts, queried: tuple[Dataset, Points], known: tuple[Dataset, Points]) -> dict[str, float]:
    """The neighbors' figures of a part of the data against the training part.

    Objectives with a vector for each class add the accuracy of choosing the nearest of those; those without labels the weighted vote,
    which comes first. Points whose class is not known are left out.
    """
    kind = reported(known[0])
    queries, references = queried[1], known[1]
    if kind == "classes":
        queries, references = _of_known_classes(parts, queried, known)
        if not len(queries.embeddings) or not len(references.embeddings):
            return {}
    found = neighbor_figures(queries, references, kind, parts.about["metric"])
    if "1-nn" in found and without_labels(parts.objective):
        found = {"weighted-nn": weighted_accuracy(queries, references), **found}
    outputs = queries.embeddings if parts.step.pull is None else signs(queries.embeddings)
    chosen = by_class_vectors(parts.objective, outputs)
    if "1-nn" in found and chosen is not None and queries.labels is not None:
        found["class vectors"] = float((chosen == queries.labels).double().mean())
    return found


def validate(parts: Parts, train: Dataset, validation: Dataset | None, loader: Loader | None) -> dict[str, float]:
    """The validation part against the training part; nothing when there is no such part or nothing to compare."""
    if validation is None or loader is None or reported(validation) == "ids":
        return {}
    known = points_of(train, embed_all(parts.network, parts.loader, parts.step.prepare))
    queried = points_of(validation, embed_all(parts.network, loader, parts.step.prepare))
    return figures_of(parts, (validation, queried), (train, known))


def dimensions_used(parts: Parts) -> float:
    """The effective rank of the embeddings of some training points, spread over the set; near 1 or 0 the embedding has collapsed.

    Of an eighth of the points, so that small sets are not looked at for as long as they are learned from; 256 to 2,000 of them.
    """
    ids = parts.loader.data.ids
    found = embed_all(parts.network, parts.loader, parts.step.prepare, _spread(ids, min(max(len(ids) // 8, 256), 2000)))
    return collapse(found, draws=0)["effective_rank"].value


def all_alike(parts: Parts, most: int = 2000) -> bool:
    """Whether the inputs of those training points are the same, number for number."""
    first: Tensor | None = None
    for inputs, _ in parts.loader(torch.split(_spread(parts.loader.data.ids, most), CHUNK)):
        first = inputs[:1] if first is None else first
        if not torch.equal(inputs, first.expand_as(inputs)):
            return False
    return True


def _spread(ids: Tensor, most: int) -> Tensor:
    return ids[:: max(len(ids) // most, 1)]


FEW = 200  # validation points below which two epochs may differ by chance alone


def known_points(data: Dataset | None) -> int:
    """How many points of a part can be counted: those of known class, where classes are compared."""
    if data is None:
        return 0
    return len(data) if data.labels is None or reported(data) != "classes" else int((data.labels >= 0).sum())


def noise(figures: dict[str, float], points: int) -> float:
    """By how much the first figure, an accuracy on few points, may fall short of the best and still count as equal: one standard error."""
    name, value = next(iter(figures.items()))
    if name.endswith("error") or not 0 < points < FEW:
        return 0.0
    return math.sqrt(value * (1 - value) / points)


def at_chance(figures: dict[str, float], train: Dataset, part: Dataset | None) -> str:
    """What to say where the first figure, an accuracy, is within noise of always guessing the largest class; '' where it is better."""
    if not figures or part is None or part.labels is None or train.labels is None:
        return ""
    name, value = next(iter(figures.items()))
    if not name.endswith("-nn"):
        return ""
    labels = part.labels[part.labels >= 0]
    guess = train.labels[train.labels >= 0].bincount().argmax()
    chance = float((labels == guess).double().mean())
    if value == 1 > chance or value > chance + 2 * math.sqrt(max(chance * (1 - chance), 1 / len(labels)) / len(labels)):
        return ""
    return (
        f"{name} is {value:.1%} of {len(labels):,} points, no better than guessing the largest class ({chance:.1%}): the model has not "
        "learned to tell the classes apart; give more images for each class, more --epochs, or a pretrained --encoder"
    )


def score(figures: dict[str, float]) -> float | None:
    """One number to choose by, larger is better: the first accuracy, or minus the error."""
    if not figures:
        return None
    name, value = next(iter(figures.items()))
    return -value if name.endswith("error") else value
