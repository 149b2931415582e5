"""Are the neighbours right on the validation part? The figure that training may look at."""

import torch
from torch import Tensor, nn

from nearkin.data.dataset import Dataset
from nearkin.data.loader import Loader
from nearkin.evaluate.neighbours import knn_accuracy
from nearkin.model import METRICS
from nearkin.points import Points
from nearkin.search import nearest
from nearkin.train.assemble import Parts

CHUNK = 1024


@torch.no_grad()
def embed_all(network: nn.Module, loader: Loader, prepare: "object", bfloat16: bool = False) -> Tensor:
    """Embeddings of every point the loader serves, in evaluation mode, in the order of their ids."""
    assert callable(prepare)
    mode = network.training
    network.eval()
    try:
        rows = []
        for inputs, _ in loader(torch.split(loader.data.ids, CHUNK)):
            with torch.autocast(inputs.device.type, dtype=torch.bfloat16, enabled=bfloat16):
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


def validate(parts: Parts, train: Dataset, validation: Dataset | None, loader: Loader | None) -> dict[str, float]:
    """The validation part against the training part; nothing when there is no such part or nothing to compare."""
    if validation is None or loader is None or validation.supervision == "ids":
        return {}
    bfloat16 = parts.step.bfloat16
    known = points_of(train, embed_all(parts.network, parts.loader, parts.step.prepare, bfloat16))
    asked = points_of(validation, embed_all(parts.network, loader, parts.step.prepare, bfloat16))
    return neighbour_figures(asked, known, train.supervision, parts.about["metric"])


def score(figures: dict[str, float]) -> float | None:
    """One number to choose by, larger is better: the first accuracy, or minus the error."""
    if not figures:
        return None
    name, value = next(iter(figures.items()))
    return -value if name.endswith("error") else value
