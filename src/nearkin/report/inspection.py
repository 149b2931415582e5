"""Run the sanity checks on the subject of an evaluation: a sentence, what to do, and the rows behind each finding."""

from dataclasses import dataclass, field

import numpy as np
import torch

from nearkin.compose.affinity import cosine
from nearkin.data.images import Files
from nearkin.data.progress import Report, few, inform
from nearkin.evaluate import label_errors
from nearkin.report.sanity import (
    IMAGE_DISTANCE,
    OFF_CENTER,
    UNEVEN,
    VECTOR_DISTANCE,
    Finding,
    Pairs,
    Suspect,
    changed_by_lengths,
    length_spread,
    near_duplicates,
    near_duplicates_among,
    off_center,
    same_content,
    scaled_columns,
)
from nearkin.report.subject import UNKNOWN, Side, Subject

MOST_PAIRS = 1_000_000_000  # pairs of images that are compared at most, which takes minutes
NAMED = 3  # pairs of near-duplicates listed in a sentence
MANY_UNKNOWN = 0.2  # share of points without a class above which figures of the others may mislead
COLLAPSED = 0.1  # effective rank over dimensions below which most of the embedding is unused


@dataclass
class Sanity:
    """The findings, and the rows behind them."""

    findings: list[Finding] = field(default_factory=list)
    duplicates: Pairs | None = None  # queries and references
    suspects: list[tuple[str, str, Suspect]] = field(default_factory=list)  # (part, source, suspect)
    judged_labels: bool = False


def inspect(subject: Subject, effective_rank: float, report: Report | None = None, *, labels: bool = True) -> Sanity:
    """Run every check that the subject's data allow; that of the `labels` takes long for many points."""
    sanity = Sanity()
    inform(report, "searching for duplicates")
    _contents(subject, sanity)
    _lengths(subject, sanity)
    _centers(subject, sanity)
    _collapse(subject, effective_rank, sanity)
    if subject.supervision == "classes" and labels:
        inform(report, "searching for wrong labels")
        sanity.judged_labels = True
        _labels(subject, sanity)
    for side in (subject.queries, *([subject.gallery] if subject.gallery else [])):
        if side.left_out:
            sanity.findings.append(_left_out(side))
    return sanity


def _left_out(side: Side) -> Finding:
    """Points that were left out; damaged ones need attention, those of unknown class only if they are many."""
    listed = ", ".join(f"{count:,} ({reason})" for reason, count in side.left_out.items())
    whole = len(side) + sum(side.left_out.values())
    fixes = ["Repair or remove the damaged files."] if set(side.left_out) - {UNKNOWN} else []
    if side.left_out.get(UNKNOWN, 0) > MANY_UNKNOWN * whole:
        fixes.append("The figures are those of the labeled points only; label more of the others (`nearkin pick` says which).")
    return Finding(f"Points left out of the {side.name}", "look" if fixes else "fine", f"{listed} of {whole:,} points.", " ".join(fixes))


def _contents(subject: Subject, sanity: Sanity) -> None:
    total, inside = len(subject.queries), "Queries among the references"
    if subject.gallery is None:
        sanity.findings.append(Finding(inside, "fine", "The queries are their own references; none counts as its own neighbor."))
        _among_themselves(subject, sanity)
        return
    same = same_content(subject.queries.contents, subject.gallery.contents)
    if len(same.queries):
        text = f"{len(same.queries):,} of {total:,} queries are, byte for byte, also in the {subject.gallery.name}."
        if subject.supervision == "ids":  # without labels there are no figures that they could spoil
            sanity.findings.append(
                Finding(inside, "look", text, "Each finds itself first. Leave out DATA to compare each point with all the others.")
            )
        else:
            fix = "The figures are too good, because these queries were trained on: remove them from one side, or split by group."
            sanity.findings.append(Finding(inside, "wrong", text, fix))
    else:
        sanity.findings.append(Finding(inside, "fine", f"None of {total:,} queries is among the references."))
    rows = compared(total, len(subject.gallery))
    pairs = _near(subject.queries, subject.gallery, rows)
    other = len(pairs.queries) - len(set(pairs.queries.tolist()) & set(same.queries.tolist()))
    sanity.duplicates = pairs
    what, checked = _nearly_the_same(subject.queries), _checked(rows, total)
    if other:
        text = f"{other:,} of {checked} have a near-duplicate in the {subject.gallery.name} ({what})."
        fix = "Look at the most similar pairs below. If they are copies or frames of one video, split by group."
        sanity.findings.append(Finding("Near-duplicates across splits", "look", text, fix))
    else:
        sanity.findings.append(Finding("Near-duplicates across splits", "fine", f"None found among {checked} ({what})."))


def _among_themselves(subject: Subject, sanity: Sanity) -> None:
    """Near-duplicates if the queries are their own references."""
    side = subject.queries
    rows = compared(len(side), len(side))
    prints, max_distance = (
        (scaled_columns(side.prints, side.prints)[0], VECTOR_DISTANCE) if side.data.kind == "vectors" else (side.prints, IMAGE_DISTANCE)
    )
    sanity.duplicates = pairs = near_duplicates_among(prints, rows, max_distance)
    what, checked = _nearly_the_same(side), _checked(rows, len(side))
    if len(pairs.queries):
        at = zip(pairs.references.tolist(), pairs.queries.tolist(), strict=True)
        named = few([f"{side.data.sources[a]} with {side.data.sources[b]}" for a, b in at], NAMED)
        text = f"Pairs found among {checked} ({what}): {len(pairs.queries):,}, the nearest first: {named}."
        fix = "Copies and frames of one video are each other's nearest neighbors: keep one of each."
        sanity.findings.append(Finding("Near-duplicates", "look", text, fix))
    else:
        sanity.findings.append(Finding("Near-duplicates", "fine", f"None found among {checked} ({what})."))


def _nearly_the_same(side: Side) -> str:
    what = "images that differ by at most 10 % after brightness, contrast and size are normalized"
    words = "texts whose word counts differ by at most 10 %"
    return {"images": what, "texts": words}.get(side.data.kind, "vectors that differ by at most 0.1 %")


def _checked(rows: np.ndarray, total: int) -> str:
    return f"{total:,} queries" if len(rows) == total else f"{len(rows):,} queries drawn at random"


def compared(queries: int, gallery: int) -> np.ndarray:
    """The rows of the queries that are compared with all references: all of them, or a sample if there are too many pairs."""
    most = max(1000, MOST_PAIRS // gallery)
    return np.arange(queries) if queries <= most else np.sort(np.random.default_rng(0).choice(queries, most, replace=False))


def _near(queries: Side, gallery: Side, rows: np.ndarray) -> Pairs:
    prints, references, max_distance = queries.prints[torch.from_numpy(rows)], gallery.prints, IMAGE_DISTANCE
    if queries.data.kind == "vectors":
        (prints, references), max_distance = scaled_columns(prints, references), VECTOR_DISTANCE
    found = near_duplicates(prints, references, max_distance)
    return found._replace(queries=rows[found.queries])


def _lengths(subject: Subject, sanity: Sanity) -> None:
    if subject.model.about["metric"] != "cosine":
        return
    queries, references = subject.queries.points.embeddings, subject.references.points.embeddings
    spread = length_spread(references)
    if spread <= UNEVEN:
        text = f"Lengths differ by {100 * spread:.1f} % of their mean: you can use any index."
        sanity.findings.append(Finding("Unnormalized features with a cosine model", "fine", text))
        return
    if subject.gallery is not None:
        share = 100 * changed_by_lengths(queries, references)
        changed = f"; without normalizing, {share:.0f} % of the queries would get another nearest neighbor"
    else:
        changed = ""
    text = f"This model was trained with cosine, and the lengths of its embeddings differ by {100 * spread:.0f} % of their mean{changed}."
    fix = (
        "Nothing here: `nearkin evaluate`, `index` and `search` use cosine. "
        "For another index, normalize the embeddings, or train with network.normalize=true."
    )
    sanity.findings.append(Finding("Unnormalized features with a cosine model", "look", text, fix))


def _centers(subject: Subject, sanity: Sanity) -> None:
    fed, made = subject.references.off_center, off_center(subject.references.points.embeddings)
    inputs = ("Uncentered inputs", fed, "Standardize them: preprocess.name=standardize for images; vectors before you pass them.")
    for name, ratio, fix in (
        *([inputs] if subject.queries.data.table is None else []),  # the network of a table scales its columns itself
        (
            "Uncentered embeddings",
            made,
            "Subtract the mean before you use cosine, or an index that computes |a - b|² in float32 from inner products.",
        ),
    ):
        text = f"The distance of the mean from the origin is {ratio:.2f} times the spread."
        level = "look" if ratio > OFF_CENTER else "fine"
        sanity.findings.append(Finding(name, level, text, fix if level == "look" else ""))  # type: ignore[arg-type]


def _collapse(subject: Subject, effective_rank: float, sanity: Sanity) -> None:
    """Whether most dimensions are unused although more are needed; for one number, points on a line are right."""
    dimension, labels = subject.queries.points.embeddings.shape[1], subject.queries.points.labels
    numbers = 0 if subject.supervision != "numbers" or labels is None else labels.reshape(len(labels), -1).shape[1]
    unused = effective_rank < max(1.5, COLLAPSED * dimension)
    low = unused and effective_rank < min(numbers or dimension, dimension) - 0.5
    enough = f", which is enough for {numbers} number{'s' if numbers > 1 else ''}" if unused and numbers and not low else ""
    text = f"The embedding uses about {effective_rank:.1f} of its {dimension} dimensions{enough}."
    fix = "Fewer dimensions would do. If the accuracy is low too, the training collapsed: lower the learning rate or use larger batches."
    sanity.findings.append(Finding("Collapse", "look" if low else "fine", text, fix if low else ""))


def _labels(subject: Subject, sanity: Sanity) -> None:
    """Judge the labels of all parts without the model, which was trained on some of them: by what it reads, or by its frozen encoder."""
    sides = [subject.queries, *([subject.gallery] if subject.gallery else []), *subject.others]
    if not all(side.points.labels is not None for side in sides):
        sides = [subject.queries]
    frozen = all(side.features is not None for side in sides)
    embeddings = torch.cat([side.features if side.features is not None else side.prints for side in sides])
    table = subject.queries.data.table
    empty = np.zeros(len(embeddings), dtype=bool)  # rows that other rows cannot contradict
    if table is not None:
        empty = table.mostly_missing(embeddings.numpy())
        embeddings = torch.from_numpy(table.standardized(embeddings.numpy(), embeddings.numpy()))
    labels = torch.cat([side.points.labels.cpu() for side in sides if side.points.labels is not None])
    by = (
        "features of the frozen encoder"
        if frozen
        else "images themselves"
        if subject.queries.data.kind == "images"
        else "vectors themselves"
        if table is None
        else "columns of the table, standardized"
    )
    try:
        found = label_errors(embeddings, labels, cosine() if frozen else None)
    except ValueError as error:
        sanity.findings.append(Finding("Suspected wrong labels", "fine", f"No label could be judged: {error}."))
        return
    ends = np.cumsum([0, *(len(side) for side in sides)])
    for row in [row for row in found.suspects.tolist() if not empty[row]]:
        at = int(np.searchsorted(ends, row, side="right")) - 1
        one = Suspect(row - int(ends[at]), int(labels[row]), int(found.suggested[row]), float(found.confidence[row]))
        sanity.suspects += _named(sides[at], [one])
    text = f"{len(sanity.suspects):,} of {len(labels):,} labels are contradicted by classifiers that did not see them, fitted on the {by}."
    fix = "Check the list in suspected_labels.csv, or run `nearkin clean`; correct the labels that are wrong, and train again."
    level = "look" if sanity.suspects else "fine"
    sanity.findings.append(Finding("Suspected wrong labels", level, text, fix if sanity.suspects else ""))  # type: ignore[arg-type]


def _named(side: Side, suspects: list[Suspect]) -> list[tuple[str, str, Suspect]]:
    data = side.data
    places = data.inputs.paths if isinstance(data.inputs, Files) else data.sources  # plain paths, which --labels takes back
    return [(side.name, places[one.row], one) for one in suspects]
