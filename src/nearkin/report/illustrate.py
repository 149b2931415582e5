"""The pictures of a report, each drawn from the findings and with a sentence on how to read it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from nearkin.compose.points import Points
from nearkin.data.progress import Report, inform
from nearkin.models.folder import about_of, load
from nearkin.report.checks import Sanity
from nearkin.report.curves import Series, Trade, line, pr_roc, predicted_against_true, training_curves
from nearkin.report.drawing import as_bytes
from nearkin.report.figures import Panel, embedding_map, number_map
from nearkin.report.flow import neighbor_flow
from nearkin.report.grad_cam import grad_cam, last_maps
from nearkin.report.measure import NEAR, PROBES, Measured, worst_queries
from nearkin.report.pictures import Hit, attention, attention_by_stage, contact_sheet, filters, gallery
from nearkin.report.projection import Metric, fit
from nearkin.report.stages import looked, put, stages
from nearkin.report.subject import Side, Subject, prepared
from nearkin.report.training_log import learning_rates, read_log
from nearkin.train.config import Run

ROWS, FOUND = 6, 8  # queries of a gallery, and neighbors of each
MAPPED = 1500  # points of a map on each side
POINTS = 2000  # of a curve; more cannot be seen
SUSPECTED = 7  # suspected labels of a row, two rows of them
LOOKED_AT = 4  # neighbor decisions whose heat is shown
STAGES, ANSWERING = 7, 500  # of a training in one row, and references that answer in each


class Illustration(NamedTuple):
    """A figure with its place in the report; `caption` tells how to read it, `says` is for those who cannot see it."""

    name: str
    section: str
    figure: Any
    says: str
    caption: str

    @property
    def png(self) -> bytes:
        """As a PNG file."""
        return as_bytes(self.figure)


def illustrate(
    subject: Subject, measured: Measured, sanity: Sanity, folder: Path | None = None, report: Report | None = None
) -> Iterator[Illustration]:
    """Every picture that the subject allows; `folder` is the model's, for the curve of its training."""
    makers: list[tuple[str, Callable[[], Iterator[Illustration]]]] = [
        ("drawing near-duplicates", lambda: _duplicates(subject, sanity)),
        ("drawing suspected labels", lambda: _suspects(subject, sanity)),
        ("drawing galleries", lambda: _galleries(subject, measured)),
        ("drawing the flow of wrong neighbors", lambda: _flow(subject, measured)),
        ("drawing a map of the embedding", lambda: _map(subject)),
        ("drawing curves", lambda: _curves(subject, measured)),
        ("looking into the network", lambda: _network(subject, measured)),
        ("drawing the probes", lambda: _probes(measured)),
        ("drawing the training", lambda: _training(folder)),
        ("looking through the stages of the training", lambda: _stages(subject, folder)),
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
        hits += [Hit(left[i], f"query {i + 1}"), Hit(right[i], f"{100 * pairs.apart[i]:.1f} % apart")]
    caption = "The nearest pairs of a query and a reference. Are they one picture twice?"
    across = "" if subject.gallery is None else " across splits"
    figure = contact_sheet(hits, 6, title=f"Near-duplicates{across}: a query, and beside it the reference")
    yield Illustration("duplicates", "sanity", figure, f"{some} pairs of nearly equal pictures", caption)


def _suspects(subject: Subject, sanity: Sanity) -> Iterator[Illustration]:
    if not sanity.suspects or subject.queries.data.kind != "images":
        return
    hits = []
    for part, _, one in sanity.suspects[: 2 * SUSPECTED]:
        side = subject.queries if part == subject.queries.name else subject.references
        hits.append(Hit(_read(side, np.array([one.row]))[0], f"{subject.classes[one.label]}\nor {subject.classes[one.neighbors_say]}?"))
    caption = "The surest of the list above: is it what its label says, and not what its neighbors say?"
    figure = contact_sheet(hits, SUSPECTED, title="Suspected labels: what the label says, or what the neighbors say?")
    yield Illustration("suspects", "sanity", figure, "pictures whose labels are suspected", caption)


def _galleries(subject: Subject, measured: Measured) -> Iterator[Illustration]:
    found = measured.found
    if found is None or subject.queries.data.kind != "images":
        return
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randperm(len(subject.queries), generator=generator)[:ROWS].sort().values
    right = right_ones(subject, found.positions)
    marks = "A green frame with a tick is a neighbor of the query's class, a red one with a cross is not." if right is not None else ""
    figure = gallery(_rows(subject, measured, drawn, right), title=f"{len(drawn)} queries drawn at random and their nearest references")
    caption = f"The query stands first, then its neighbors, nearest first. {marks} Drawn at random, not chosen."
    yield Illustration("gallery", "neighbors", figure, "a gallery of queries and what was found for them", caption)
    if right is None or bool(right.all()):
        return
    worst = worst_queries(right.cpu(), found.affinity.cpu())[:ROWS]
    figure = gallery(_rows(subject, measured, worst, right), title="The worst queries")
    caption = f"The queries with the fewest right ones among their {right.shape[1]} nearest, surely wrong ones first."
    yield Illustration("worst", "neighbors", figure, "the queries with the fewest right neighbors", caption)


def right_ones(subject: Subject, positions: Tensor) -> Tensor | None:
    """(n, k) whether a neighbor is of the query's class; None without classes."""
    asked, known = subject.queries.points.labels, subject.references.points.labels
    if subject.supervision != "classes" or asked is None or known is None:
        return None
    return (known[positions.clamp_min(0)] == asked[:, None]) & (positions >= 0)


def _rows(subject: Subject, measured: Measured, which: Tensor, right: Tensor | None) -> list[tuple[Hit, list[Hit]]]:
    assert measured.found is not None
    images = _read(subject.queries, which.numpy())
    rows = []
    for at, image in zip(which.tolist(), images, strict=True):
        near = [position for position in measured.found.positions[at].tolist() if position >= 0][:FOUND]
        theirs = _read(subject.references, np.array(near, dtype=np.int64))
        hits = [
            Hit(shown, _caption(subject, subject.references, position), None if right is None else bool(right[at, rank]))
            for rank, (position, shown) in enumerate(zip(near, theirs, strict=True))
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
    """Images as they are stored, one by one in the order asked."""
    return [side.data.read(side.data.ids[[int(row)]])[0].cpu().numpy() for row in rows]


def _flow(subject: Subject, measured: Measured) -> Iterator[Illustration]:
    if measured.flow is None:
        return
    caption = (
        f"Of the {NEAR} nearest of every query, those of another class: a band runs from the query's class to the neighbor's and is as "
        "wide as they are many. Wide bands are classes the embedding does not tell apart, or labels that are not told apart."
    )
    figure = neighbor_flow(measured.flow.cpu().numpy(), subject.classes)
    yield Illustration("flow", "neighbors", figure, "which classes' queries are given which classes' neighbors", caption)


def _map(subject: Subject) -> Iterator[Illustration]:
    known, asked = _sample(len(subject.references)), _sample(len(subject.queries))
    fitted = subject.references.points.embeddings.cpu()[known]
    metric: Metric = "squared_euclidean" if subject.model.binary else subject.model.about["metric"]  # the same ranking, for +-1
    flat = fitted.shape[1] <= 2
    try:
        projection = fit(fitted, "pca" if flat or len(fitted) < 5 else "tsne", metric)
        how = "PCA" if flat or len(fitted) < 5 else "t-SNE"
    except ImportError as error:
        projection, how = fit(fitted, "pca", metric), f"PCA ({error})"
    own = subject.gallery is None
    placed = projection.points if own else projection.place(subject.queries.points.embeddings.cpu()[asked])
    which = known if own else asked
    caption = f"{how} of the embedding. " + (
        "" if own else f"Fitted on {len(known):,} references; the {len(which):,} queries were placed among them as new points. "
    )
    caption += "Near points are near in the embedding; the distance of far groups means little." if how.startswith("t-SNE") else ""
    yield Illustration(
        "map", "embedding", _drawn_map(subject, projection.points, known, placed, which, own), "a map of the embedding", caption
    )


def _drawn_map(subject: Subject, known: np.ndarray, known_rows: np.ndarray, asked: np.ndarray, rows: np.ndarray, own: bool) -> Any:
    labels = subject.queries.points.labels
    if subject.supervision == "numbers" and labels is not None:
        names = subject.queries.data.target_names
        first = labels.cpu().numpy().reshape(len(labels), -1)[rows, 0]
        return number_map(asked, first, "queries, colored by their target", names[0] if names else "target")
    if subject.supervision != "classes" or labels is None:
        return embedding_map([Panel("queries", asked)], width=700)
    table = np.array(subject.classes)
    panels = [Panel("queries", asked, table[labels.cpu().numpy()[rows]])]
    theirs = subject.references.points.labels
    if not own and theirs is not None:
        panels.insert(0, Panel("references", known, table[theirs.cpu().numpy()[known_rows]]))
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
        caption = "Each query's first target as its nearest references have it, against the true one; on the line they agree."
        yield Illustration("predicted", "choices", figure, "predicted against true targets", caption)
    if measured.curves is not None:
        pr, roc = measured.curves
        trade = Trade("model", *_thinned(pr.x, pr.y), *_thinned(roc.x, roc.y), pr.area.value, roc.area.value)
        caption = (
            "Over all pairs of a query and a gallery point, one threshold on affinity for all: left, how many of the pairs found are kin, "
            "against how many of the kin are found; right, kin found against strangers found."
        )
        figure = pr_roc([trade], kin=pr.area.chance or 0.0)
        yield Illustration("pairs", "choices", figure, "precision against recall, and ROC, of pairs", caption)


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
        across="k neighbors",
        up=what,
        chance=scores[0].chance,
        share=classes,
    )
    caption = "How many neighbors to ask. The band is the 95 % interval. Choose k on the validation part, not here."
    return Illustration("by_k", "choices", figure, f"{what} against k", caption)


def _thinned(x: Tensor, y: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """At most so many points of a curve, its ends included."""
    at = np.unique(np.linspace(0, len(x) - 1, min(POINTS, len(x))).round().astype(int))
    return x.cpu().double().numpy()[at], y.cpu().double().numpy()[at]


def _network(subject: Subject, measured: Measured) -> Iterator[Illustration]:
    if subject.queries.data.kind != "images":
        return
    first = _first_convolution(subject.model.network)
    if first is None:
        return
    images = np.stack(_read(subject.queries, _sample(len(subject.queries))[:: max(1, min(MAPPED, len(subject.queries)) // 36)][:36]))
    caption = "What goes in, and what the first layer looks for. Filters that look like noise have learned little, or need more training."
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
        range(len(names)), [series], title="What each layer knows", across="layer", up="accuracy", chance=scores[0].chance, ticks=names
    )
    caption = (
        "Accuracy of softmax regression on each layer's output, the network being left as it is. Where it falls, classes are forgotten."
    )
    yield Illustration("probes", "network", figure, "accuracy of linear probes by layer", caption)


def _heat(subject: Subject, measured: Measured) -> Iterator[Illustration]:
    assert measured.found is not None
    right = right_ones(subject, measured.found.positions)
    which = _apart(torch.arange(len(subject.queries)), LOOKED_AT)
    if right is not None and not bool(right[:, 0].all()):  # half of them right, half wrong
        right_rows, wrong_rows = right[:, 0].cpu().nonzero()[:, 0], (~right[:, 0].cpu()).nonzero()[:, 0]
        wrong_rows = _apart(wrong_rows, LOOKED_AT // 2)
        which = torch.cat([_apart(right_rows, LOOKED_AT - len(wrong_rows)), wrong_rows])
    found = measured.found.positions[which.to(measured.found.positions.device), 0].cpu()
    which, found = which[found >= 0], found[found >= 0]
    model = subject.model
    asked, known = (
        torch.from_numpy(np.stack(_read(side, rows.numpy()))) for side, rows in ((subject.queries, which), (subject.references, found))
    )
    layer = last_maps(model.network, prepared(model, asked))
    q, r = (side.points.embeddings[rows.to(model.device)] for side, rows in ((subject.queries, which), (subject.references, found)))
    sides = ((asked, r), (known, q))
    others_at = torch.from_numpy(_sample(len(subject.references))).to(model.device)
    others_there = subject.references.points.embeddings[others_at]
    query_heat, found_heat = (
        grad_cam(
            model.network,
            prepared(model, images),
            others,
            layer,
            model.smooth_affinity,
            against=others_there,
            size=(images.shape[2], images.shape[3]),
        )
        .cpu()
        .numpy()
        for images, others in sides
    )
    rows = []
    for i, (a, b) in enumerate(zip(which.tolist(), found.tolist(), strict=True)):
        mark = None if right is None else bool(right[a, 0])
        query = Hit(asked[i].numpy(), f"query: {_caption(subject, subject.queries, a)}")
        rows.append((query, query_heat[i], Hit(known[i].numpy(), _caption(subject, subject.references, b), mark), found_heat[i]))
    caption = (
        f"Grad-CAM at layer {layer}: bright where more of the layer's answer would bring the two pictures nearer to each other than "
        "to the references at large. A dark picture has no such place."
    )
    figure = attention(rows, title="Why are these two near?", width=1000)
    yield Illustration("grad_cam", "network", figure, "heat maps of neighbor decisions", caption)


def _stages(subject: Subject, folder: Path | None) -> Iterator[Illustration]:
    """The same images under the weights of every stage that the model's folder kept."""
    kept = {} if folder is None else stages(folder)
    if folder is None or len(kept) < 2 or subject.queries.data.kind != "images" or _first_convolution(subject.model.network) is None:
        return
    model, asked, known = load(folder, device=subject.model.device), subject.queries, subject.references
    rows, sample = _apart(torch.arange(len(asked)), LOOKED_AT), _apart(torch.arange(len(known)), ANSWERING)
    images, there = (torch.from_numpy(np.stack(_read(side, at.numpy()))) for side, at in ((asked, rows), (known, sample)))
    mine, theirs = (_picked(side.points.ids, at) if subject.gallery is None else None for side, at in ((asked, rows), (known, sample)))
    labels = _picked(asked.points.labels, rows), _picked(known.points.labels, sample)
    shown: list[list[tuple[str, np.ndarray, bool | None]]] = [[] for _ in rows]
    for number in _apart(torch.arange(len(kept)), STAGES).tolist():
        put(model, list(kept.values())[number])
        look = looked(model, images, Points(torch.as_tensor(model.encode(there)), ids=theirs), mine)
        for i, one in enumerate(shown):
            right = None
            if subject.supervision == "classes" and labels[0] is not None and labels[1] is not None:
                right = bool(labels[1][look.found[i]] == labels[0][i])
            one.append((list(kept)[number], look.heat[i].numpy(), right))
    hits = [Hit(image.numpy(), f"query: {_caption(subject, asked, row)}") for image, row in zip(images, rows.tolist(), strict=True)]
    caption = (
        f"Grad-CAM under the weights of each stage that the folder kept: where they look to find the nearest of {len(sample)} references; "
        "the frame says whether that one is right."
    )
    figure = attention_by_stage(list(zip(hits, shown, strict=True)))
    yield Illustration("grad_cam_by_stage", "network", figure, "heat maps of neighbor decisions, stage by stage", caption)


def _picked(values: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if values is None else values.cpu()[rows]


def _apart(rows: Tensor, most: int) -> Tensor:
    """At most so many of the rows, evenly apart: neighbors in a data set are often of one class."""
    return rows[torch.linspace(0, len(rows) - 1, min(most, len(rows))).round().long()]


def _training(folder: Path | None) -> Iterator[Illustration]:
    if folder is None or not (folder / "log.jsonl").exists() or not (folder / "run.json").exists():
        return
    history = read_log(folder / "log.jsonl")
    objective = about_of(folder)["objective"]
    at, rates = learning_rates(Run.from_json((folder / "run.json").read_text(encoding="utf-8")), history, objective)
    figure = training_curves(history.epochs, history.losses, history.validation, at, rates)
    caption = "Loss, validation figures and learning rate over the training, as log.jsonl has them; the rate is what the run prescribes."
    yield Illustration("training", "network", figure, "curves of the training", caption)
