"""Are the neighbours right on the validation part? The figure that training may look at."""

import torch
from torch import Tensor, nn

from nearkin.affinity import InnerProduct
from nearkin.codes import signs
from nearkin.data.dataset import Dataset
from nearkin.data.loader import Loader
from nearkin.evaluate import collapse, knn_accuracy
from nearkin.objectives import NeighbourhoodObjective, WeightedSum
from nearkin.points import Points
from nearkin.references import Anchors, Proxies
from nearkin.search import nearest
from nearkin.search.contract import METRICS
from nearkin.train.assemble import Parts
from nearkin.train.choose import Built

CHUNK = 1024


@torch.no_grad()
def embed_all(network: nn.Module, loader: Loader, prepare: "object", ids: Tensor | None = None) -> Tensor:
    """Embeddings of every point the loader serves (or of `ids`), in evaluation mode and float32 as when deployed, in that order."""
    assert callable(prepare)
    mode = network.training
    network.eval()
    try:
        rows = []
        for inputs, _ in loader(torch.split(loader.data.ids if ids is None else ids, CHUNK)):
            rows.append(network(prepare(inputs)).float())
        return torch.cat(rows)
    finally:
        network.train(mode)


def points_of(data: Dataset, embeddings: Tensor) -> Points:
    """Embeddings with what is known of them."""
    answers = data.answers
    return Points(embeddings, None if answers is None else answers.to(embeddings.device), data.ids.to(embeddings.device))


def neighbour_figures(queries: Points, references: Points, supervision: str, metric: str) -> dict[str, float]:
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
        if isinstance(slot, Anchors | Proxies):
            vectors = slot(Points(embeddings[:1]))
            assert vectors.labels is not None
            affinity = part.affinity if isinstance(part, NeighbourhoodObjective) else InnerProduct()
            nearest_one: Tensor = vectors.labels[affinity(embeddings, vectors.embeddings).argmax(1)]
            return nearest_one
    return None


def figures_of(parts: Parts, queries: Points, references: Points, supervision: str) -> dict[str, float]:
    """The neighbours' figures, and for objectives with a vector for each class the accuracy of choosing the nearest of those."""
    found = neighbour_figures(queries, references, supervision, parts.about["metric"])
    outputs = queries.embeddings if parts.step.pull is None else signs(queries.embeddings)
    chosen = by_class_vectors(parts.objective, outputs)
    if "1-nn" in found and chosen is not None and queries.labels is not None:
        found["class vectors"] = float((chosen == queries.labels).double().mean())
    return found


def validate(parts: Parts, train: Dataset, validation: Dataset | None, loader: Loader | None) -> dict[str, float]:
    """The validation part against the training part; nothing when there is no such part or nothing to compare."""
    if validation is None or loader is None or validation.supervision == "ids":
        return {}
    known = points_of(train, embed_all(parts.network, parts.loader, parts.step.prepare))
    asked = points_of(validation, embed_all(parts.network, loader, parts.step.prepare))
    return figures_of(parts, asked, known, train.supervision)


def dimensions_used(parts: Parts, most: int = 2000) -> float:
    """The effective rank of the embeddings of some training points, spread over the set; near 1 or 0 the embedding has collapsed."""
    ids = parts.loader.data.ids
    some = ids[:: max(len(ids) // most, 1)]
    found = embed_all(parts.network, parts.loader, parts.step.prepare, some)
    return collapse(found, draws=0)["effective_rank"].value


def score(figures: dict[str, float]) -> float | None:
    """One number to choose by, larger is better: the first accuracy, or minus the error."""
    if not figures:
        return None
    name, value = next(iter(figures.items()))
    return -value if name.endswith("error") else value
