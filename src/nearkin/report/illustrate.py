"""The pictures of a report, each with a caption on how to read it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nearkin.compose.points import Points
from nearkin.data.progress import Report, inform
from nearkin.models.folder import about_of, load
from nearkin.report.curves import PairCurves, Series, line, pr_roc, predicted_against_true, training_curves
from nearkin.report.drawing import as_bytes
from nearkin.report.flow import neighbor_flow
from nearkin.report.grad_cam import grad_cam, last_maps
from nearkin.report.image_grids import Hit, attention, attention_by_stage, contact_sheet, filters, gallery
from nearkin.report.inspection import Sanity
from nearkin.report.maps import Panel, embedding_map, number_map
from nearkin.report.measure import NEAR, PROBES, Measured, worst_queries
from nearkin.report.projection import Metric, fit
from nearkin.report.stages import heat_of_nearest, load_weights, saved_weights
from nearkin.report.subject import Side, Subject, prepared
from nearkin.report.training_log import learning_rates, read_log
from nearkin.train.saved_run import read_run

ROWS, FOUND = 6, 8  # queries in a gallery, and neighbors of each
MAPPED = 1500  # queries and references in a map
POINTS = 2000  # of a curve at most
SUSPECTED = 7  # suspected labels in each of two rows
DECISIONS = 4  # neighbor decisions with heat maps
STAGES, REFERENCES = 7, 500  # stages of a training in one row, and references of each


@dataclass(frozen=True, eq=False)
class Illustration:
    """A figure with its place in the report; `caption` says how to read it, `alt` describes it for screen readers.

    Each format is drawn once, however often it is written.
    """

    name: str
    section: str
    figure: Any
    alt: str
    caption: str

    @cached_property
    def png(self) -> bytes:
        """The content of a PNG file."""
        return as_bytes(self.figure)

    @cached_property
    def svg(self) -> bytes:
        """The content of an SVG file."""
        return as_bytes(self.figure, ".svg")


def illustrate(
    subject: Subject, measured: Measured, sanity: Sanity, folder: Path | None = None, report: Report | None = None
) -> Iterator[Illustration]:
    """Every picture that the subject allows; `folder` is the model folder, for the curves and stages of its training."""
    makers: list[tuple[str, Callable[[], Iterator[Illustration]]]] = [
        ("drawing near-duplicates", lambda: _duplicates(subject, sanity)),
        ("drawing suspected labels", lambda: _suspects(subject, sanity)),
        ("drawing galleries", lambda: _galleries(subject, measured)),
        ("drawing the flow of wrong neighbors", lambda: _flow(subject, measured)),
        ("drawing a map of the embedding", lambda: _map(subject)),
        ("drawing curves", lambda: _curves(subject, measured)),
        ("drawing filters and heat maps", lambda: _network(subject, measured)),
        ("drawing the probes", lambda: _probes(measured)),
        ("drawing the training", lambda: _training(folder)),
        ("drawing the stages of the training", lambda: _stages(subject, folder)),
    ]
    for what, maker in makers:
        inform(report, what)
        yield from maker()


def _duplicates(subject: Subject, sanity: Sanity) -> Iterator[Illustration]:
    pairs = sanity.duplicates
    if pairs is None or not len(pairs.queries) or subject.queries.data.kind != "images":
        return
    some = min(len(pairs.queries), ROWS)
    left, right = (_read(side, rows[:some]) for side, rows in ((subject.queries, pairs.queries), (subject.references, pairs.references)))
    hits = []
    for i in range(some):
        hits += [Hit(left[i], f"query {i + 1}"), Hit(right[i], f"differs by {100 * pairs.distance[i]:.1f} %")]
    caption = "The most similar pairs of a query and a reference. Are they the same image?"
    across = "" if subject.gallery is None else " across splits"
    figure = contact_sheet(hits, 6, title=f"Near-duplicates{across}: each query with its reference")
    yield Illustration("duplicates", "sanity", figure, f"{some} pairs of nearly equal images", caption)


def _suspects(subject: Subject, sanity: Sanity) -> Iterator[Illustration]:
    if not sanity.suspects or subject.queries.data.kind != "images":
        return
    hits = []
    for part, _, suspect in sanity.suspects[: 2 * SUSPECTED]:
        side = next(one for one in (subject.queries, subject.references, *subject.others) if one.name == part)
        hits.append(
            Hit(_read(side, np.array([suspect.row]))[0], f"{subject.classes[suspect.label]}\nor {subject.classes[suspect.neighbors_say]}?")
        )
    caption = "The most certain of the list above. Is the label right, or the suggestion?"
    figure = contact_sheet(hits, SUSPECTED, title="Suspected labels: the label, or the suggestion?")
    yield Illustration("suspects", "sanity", figure, "images whose labels may be wrong", caption)


def _galleries(subject: Subject, measured: Measured) -> Iterator[Illustration]:
    found = measured.found
    if found is None or subject.queries.data.kind != "images":
        return
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randperm(len(subject.queries), generator=generator)[:ROWS].sort().values
    right = right_neighbors(subject, found.positions)
    marks = (
        "A green frame with a tick is a right neighbor, of the query's class; a red frame with a cross is a wrong one."
        if right is not None
        else ""
    )
    figure = gallery(_rows(subject, measured, drawn, right), title=f"{len(drawn)} random queries and their nearest references")
    caption = f"Each row shows a query, then its neighbors, the nearest first. {marks} The queries were drawn at random."
    yield Illustration("gallery", "neighbors", figure, "random queries and their nearest neighbors", caption)
    if right is None or bool(right.all()):
        return
    worst = worst_queries(right.cpu(), found.affinity.cpu())[:ROWS]
    figure = gallery(_rows(subject, measured, worst, right), title="The queries with the most wrong neighbors")
    caption = f"The queries with the fewest right neighbors among their {right.shape[1]} nearest."
    yield Illustration("worst", "neighbors", figure, "the queries with the fewest right neighbors", caption)


def right_neighbors(subject: Subject, positions: Tensor) -> Tensor | None:
    """(n, k) whether each neighbor is of the query's class; None without classes."""
    labels, known = subject.queries.points.labels, subject.references.points.labels
    if subject.supervision != "classes" or labels is None or known is None:
        return None
    return (known[positions.clamp_min(0)] == labels[:, None]) & (positions >= 0)


def _rows(subject: Subject, measured: Measured, which: Tensor, right: Tensor | None) -> list[tuple[Hit, list[Hit]]]:
    assert measured.found is not None
    images = _read(subject.queries, which.numpy())
    rows = []
    for at, image in zip(which.tolist(), images, strict=True):
        near = [position for position in measured.found.positions[at].tolist() if position >= 0][:FOUND]
        found = _read(subject.references, np.array(near, dtype=np.int64))
        hits = [
            Hit(shown, _caption(subject, subject.references, position), None if right is None else bool(right[at, rank]))
            for rank, (position, shown) in enumerate(zip(near, found, strict=True))
        ]
        rows.append((Hit(image, _caption(subject, subject.queries, at)), hits))
    return rows


def _caption(subject: Subject, side: Side, row: int) -> str:
    labels = side.points.labels
    if labels is None:
        return f"no. {int(side.data.ids[row])}"
    if subject.supervision == "classes":
        return subject.classes[int(labels[row])]
    if subject.supervision == "sets":
        return ", ".join(side.data.classes[i] for i in labels[row].nonzero()[:, 0].tolist()) or "none"
    return ", ".join(f"{value:.3g}" for value in labels[row].flatten().tolist())


def _read(side: Side, rows: np.ndarray) -> list[np.ndarray]:
    """The unprepared images at these rows, in this order."""
    return [side.data.read(side.data.ids[[int(row)]])[0].cpu().numpy() for row in rows]


def _flow(subject: Subject, measured: Measured) -> Iterator[Illustration]:
    if measured.flow is None:
        return
    caption = (
        f"The wrong neighbors among the {NEAR} nearest of every query: a band runs from the query's class to the neighbor's class, and its "
        "width is their number. Wide bands are classes that the embedding confuses, or that are not labeled consistently."
    )
    figure = neighbor_flow(measured.flow.cpu().numpy(), subject.classes)
    yield Illustration("flow", "neighbors", figure, "which classes are confused with which", caption)


def _map(subject: Subject) -> Iterator[Illustration]:
    reference_rows, query_rows = _sample(len(subject.references)), _sample(len(subject.queries))
    fitted = subject.references.points.embeddings.cpu()[reference_rows]
    # Euclidean distance ranks codes of -1 and 1 as Hamming distance does.
    metric: Metric = "squared_euclidean" if subject.model.binary else subject.model.about["metric"]
    flat = fitted.shape[1] <= 2
    try:
        projection = fit(fitted, "pca" if flat or len(fitted) < 5 else "tsne", metric)
        how = "PCA" if flat or len(fitted) < 5 else "t-SNE"
    except ImportError as error:
        projection, how = fit(fitted, "pca", metric), f"PCA ({error})"
    own = subject.gallery is None
    placed = projection.points if own else projection.place(subject.queries.points.embeddings.cpu()[query_rows])
    rows = reference_rows if own else query_rows
    caption = f"{how} of the embedding. " + (
        "" if own else f"Fitted on {len(reference_rows):,} references; the {len(rows):,} queries were placed as new points. "
    )
    caption += (
        "Points that are near here are near in the embedding; distances between far groups mean little." if how.startswith("t-SNE") else ""
    )
    figure = _drawn_map(subject, projection.points, reference_rows, placed, rows)
    yield Illustration("map", "embedding", figure, "a map of the embedding", caption)


def _drawn_map(subject: Subject, references: np.ndarray, reference_rows: np.ndarray, queries: np.ndarray, rows: np.ndarray) -> Any:
    labels = subject.queries.points.labels
    if subject.supervision == "numbers" and labels is not None:
        names = subject.queries.data.target_names
        first = labels.cpu().numpy().reshape(len(labels), -1)[rows, 0]
        return number_map(queries, first, "queries, colored by their target", names[0] if names else "target")
    if subject.supervision != "classes" or labels is None:
        return embedding_map([Panel("queries", queries)], width=700)
    table = np.array(subject.classes)
    panels = [Panel("queries", queries, table[labels.cpu().numpy()[rows]])]
    reference_labels = subject.references.points.labels
    if subject.gallery is not None and reference_labels is not None:
        panels.insert(0, Panel("references", references, table[reference_labels.cpu().numpy()[reference_rows]]))
    return embedding_map(panels, width=700 * len(panels))


def _sample(count: int) -> np.ndarray:
    if count <= MAPPED:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, MAPPED, replace=False))


def _curves(subject: Subject, measured: Measured) -> Iterator[Illustration]:
    if len(measured.by_k) > 1:
        yield _by_k(subject, measured)
    if measured.predicted is not None and subject.queries.points.labels is not None:
        names = subject.queries.data.target_names
        truth = subject.queries.points.labels.cpu().numpy().reshape(len(subject.queries), -1)[:, 0]
        figure = predicted_against_true(
            truth, measured.predicted.cpu().numpy().reshape(len(truth), -1)[:, 0], names[0] if names else "target"
        )
        caption = "The number predicted from the nearest references against the true one, for each query. On the line they agree."
        yield Illustration("predicted", "choices", figure, "predicted against true targets", caption)
    if measured.curves is not None:
        pr, roc = measured.curves
        curves = PairCurves("model", *_thinned(pr.x, pr.y), *_thinned(roc.x, roc.y), pr.area.value, roc.area.value)
        caption = (
            "Over all pairs of a query and a reference, with one threshold on affinity that accepts or rejects each. Positive pairs are of "
            "one class, negative pairs of two. Left: precision against recall. Right: accepted positive against accepted negative pairs."
        )
        figure = pr_roc([curves], positive_share=pr.area.chance or 0.0)
        yield Illustration("pairs", "choices", figure, "precision-recall curve and ROC curve of pairs", caption)


def _by_k(subject: Subject, measured: Measured) -> Illustration:
    scores = list(measured.by_k.values())
    classes = subject.supervision == "classes"
    what = "accuracy" if classes else "mean absolute error"
    y, low, high = ([getattr(score, name) for score in scores] for name in ("value", "low", "high"))
    series = Series(f"{what} of k-NN", y, low, high)
    figure = line(
        list(measured.by_k),
        [series],
        title=f"{what.capitalize()} against k",
        x_label="k neighbors",
        y_label=what,
        chance=scores[0].chance,
        share=classes,
    )
    caption = "The band is the 95 % interval. To choose k, use the validation part (--part validation), not the test part."
    return Illustration("by_k", "choices", figure, f"{what} against k", caption)


def _thinned(x: Tensor, y: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """At most POINTS points of a curve, its ends included."""
    at = np.unique(np.linspace(0, len(x) - 1, min(POINTS, len(x))).round().astype(int))
    return x.cpu().double().numpy()[at], y.cpu().double().numpy()[at]


def _network(subject: Subject, measured: Measured) -> Iterator[Illustration]:
    if subject.queries.data.kind != "images":
        return
    first = _first_convolution(subject.model.network)
    if first is None:
        return
    images = np.stack(_read(subject.queries, _sample(len(subject.queries))[:: max(1, min(MAPPED, len(subject.queries)) // 36)][:36]))
    caption = "Input images, and the filters of the first layer. Filters that look like noise have learned little or need more training."
    figure = filters(first.weight.detach().cpu().numpy(), images)
    yield Illustration("filters", "network", figure, "input images and first-layer filters", caption)
    if measured.found is not None:
        yield from _heat(subject, measured)


def _first_convolution(network: nn.Module) -> nn.Conv2d | None:
    return next((module for module in network.modules() if isinstance(module, nn.Conv2d)), None)


def _probes(measured: Measured) -> Iterator[Illustration]:
    scores = list(measured.scores.get(PROBES, {}).values())
    if len(scores) < 2:
        return
    y, low, high = ([getattr(score, name) for score in scores] for name in ("value", "low", "high"))
    names = [score.name.removeprefix("probe ") for score in scores]
    series = Series("linear probe", y, low, high)
    figure = line(
        range(len(names)),
        [series],
        title="Accuracy of linear probes by layer",
        x_label="layer",
        y_label="accuracy",
        chance=scores[0].chance,
        ticks=names,
    )
    caption = (
        "Accuracy of softmax regression on each layer's output, with the network frozen. Where it falls, information about classes is lost."
    )
    yield Illustration("probes", "network", figure, "accuracy of linear probes by layer", caption)


def _heat(subject: Subject, measured: Measured) -> Iterator[Illustration]:
    assert measured.found is not None
    right = right_neighbors(subject, measured.found.positions)
    which = _evenly(torch.arange(len(subject.queries)), DECISIONS)
    if right is not None and not bool(right[:, 0].all()):  # half of them right, half wrong
        right_rows, wrong_rows = right[:, 0].cpu().nonzero()[:, 0], (~right[:, 0].cpu()).nonzero()[:, 0]
        wrong_rows = _evenly(wrong_rows, DECISIONS // 2)
        which = torch.cat([_evenly(right_rows, DECISIONS - len(wrong_rows)), wrong_rows])
    found = measured.found.positions[which.to(measured.found.positions.device), 0].cpu()
    which, found = which[found >= 0], found[found >= 0]
    model = subject.model
    queries, references = (
        torch.from_numpy(np.stack(_read(side, rows.numpy()))) for side, rows in ((subject.queries, which), (subject.references, found))
    )
    layer = last_maps(model.network, prepared(model, queries))
    q, r = (side.points.embeddings[rows.to(model.device)] for side, rows in ((subject.queries, which), (subject.references, found)))
    sides = ((queries, r), (references, q))
    others_at = torch.from_numpy(_sample(len(subject.references))).to(model.device)
    others_embeddings = subject.references.points.embeddings[others_at]
    query_heat, found_heat = (
        grad_cam(
            model.network,
            prepared(model, images),
            others,
            layer,
            model.smooth_affinity,
            against=others_embeddings,
            size=(images.shape[2], images.shape[3]),
        )
        .cpu()
        .numpy()
        for images, others in sides
    )
    rows = []
    for i, (a, b) in enumerate(zip(which.tolist(), found.tolist(), strict=True)):
        mark = None if right is None else bool(right[a, 0])
        query = Hit(queries[i].numpy(), f"query: {_caption(subject, subject.queries, a)}")
        rows.append((query, query_heat[i], Hit(references[i].numpy(), _caption(subject, subject.references, b), mark), found_heat[i]))
    caption = (
        f"Grad-CAM at layer {layer}: bright where more activation would bring the two images nearer to each other than to other "
        "references. An image without such a place stays dark."
    )
    figure = attention(rows, title="Why are these two near?", width=1000)
    yield Illustration("grad_cam", "network", figure, "heat maps over queries and their neighbors", caption)


def _stages(subject: Subject, folder: Path | None) -> Iterator[Illustration]:
    """Heat maps of the same images under the weights of every saved stage."""
    kept = {} if folder is None else saved_weights(folder)
    if folder is None or len(kept) < 2 or subject.queries.data.kind != "images" or _first_convolution(subject.model.network) is None:
        return
    model, queries, references = load(folder, device=subject.model.device, verify=False), subject.queries, subject.references
    rows, sample = _evenly(torch.arange(len(queries)), DECISIONS), _evenly(torch.arange(len(references)), REFERENCES)
    images, reference_images = (torch.from_numpy(np.stack(_read(side, at.numpy()))) for side, at in ((queries, rows), (references, sample)))
    ids, reference_ids = (
        _picked(side.points.ids, at) if subject.gallery is None else None for side, at in ((queries, rows), (references, sample))
    )
    labels = _picked(queries.points.labels, rows), _picked(references.points.labels, sample)
    shown: list[list[tuple[str, np.ndarray, bool | None]]] = [[] for _ in rows]
    for number in _evenly(torch.arange(len(kept)), STAGES).tolist():
        load_weights(model, list(kept.values())[number])
        nearest = heat_of_nearest(model, images, Points(torch.as_tensor(model.encode(reference_images)), ids=reference_ids), ids)
        for i, one in enumerate(shown):
            right = None
            if subject.supervision == "classes" and labels[0] is not None and labels[1] is not None:
                right = bool(labels[1][nearest.found[i]] == labels[0][i])
            one.append((list(kept)[number], nearest.heat[i].numpy(), right))
    hits = [Hit(image.numpy(), f"query: {_caption(subject, queries, row)}") for image, row in zip(images, rows.tolist(), strict=True)]
    caption = (
        f"Grad-CAM with the weights of each saved stage of the training, for the nearest of {len(sample)} references. "
        "The frame shows whether that neighbor is right."
    )
    figure = attention_by_stage(list(zip(hits, shown, strict=True)))
    yield Illustration("grad_cam_by_stage", "network", figure, "heat maps over queries, for each stage of the training", caption)


def _picked(values: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if values is None else values.cpu()[rows]


def _evenly(rows: Tensor, most: int) -> Tensor:
    """At most `most` of the rows, evenly spaced, because adjacent rows of a data set are often of one class."""
    return rows[torch.linspace(0, len(rows) - 1, min(most, len(rows))).round().long()]


def _training(folder: Path | None) -> Iterator[Illustration]:
    if folder is None or not (folder / "log.jsonl").exists() or not (folder / "run.json").exists():
        return
    try:
        history = read_log(folder / "log.jsonl")
    except ValueError:  # no epochs: the rows of a table are trained without them, and a frozen encoder is not trained
        return
    objective = about_of(folder)["objective"]
    at, rates = learning_rates(read_run(folder, verify=False), history, objective)
    figure = training_curves(history.epochs, history.losses, history.validation, at, rates)
    caption = "Loss and validation figures from log.jsonl, and the learning rate of the schedule."
    yield Illustration("training", "network", figure, "curves of the training", caption)
