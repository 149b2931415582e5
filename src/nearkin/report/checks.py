"""The sanity section: every check of `sanity` on the subject of an evaluation, in words, with a mend and the rows to look at."""

from dataclasses import dataclass, field

import numpy as np
import torch

from nearkin.data.progress import Report, few, inform
from nearkin.report.measure import NEAR, neighbors_of
from nearkin.report.sanity import (
    APART_IMAGES,
    APART_VECTORS,
    OFF_CENTER,
    UNEVEN,
    Finding,
    Pairs,
    Suspect,
    changed_by_lengths,
    length_spread,
    near_duplicates,
    near_duplicates_among,
    neighbor_labels,
    off_center,
    same_content,
    scaled_columns,
    suspected_labels,
)
from nearkin.report.subject import UNKNOWN, Side, Subject
from nearkin.search import Neighbors

MOST_PAIRS = 1_000_000_000  # of pictures that are compared: minutes, not hours
NAMED = 3  # pairs of near-duplicates
COLLAPSED = 0.1  # effective rank over dimensions, below which most of the embedding is idle


@dataclass
class Sanity:
    """What was found, and the rows behind it."""

    findings: list[Finding] = field(default_factory=list)
    duplicates: Pairs | None = None  # queries and references
    suspects: list[tuple[str, str, Suspect]] = field(default_factory=list)  # (part, source, suspect)


def inspect(subject: Subject, found: Neighbors, effective_rank: float, report: Report | None = None) -> Sanity:
    """Run every check that the subject allows."""
    sanity = Sanity()
    inform(report, "looking for duplicates")
    _contents(subject, sanity)
    _lengths(subject, sanity)
    _centers(subject, sanity)
    _collapse(subject, effective_rank, sanity)
    if subject.supervision == "classes":
        inform(report, "looking for wrong labels")
        _labels(subject, found, sanity)
    for side in (subject.queries, *([subject.gallery] if subject.gallery else [])):
        if side.left_out:
            sanity.findings.append(_left_out(side))
    return sanity


def _left_out(side: Side) -> Finding:
    """Points that could not take part: damaged ones want a look; those without a class are nobody's fault."""
    listed = ", ".join(f"{count:,} {reason}" for reason, count in side.left_out.items())
    mend = "Repair or remove the damaged." if set(side.left_out) - {UNKNOWN} else ""
    return Finding(f"Points left out of the {side.name}", "look" if mend else "fine", f"{listed}.", mend)


def _contents(subject: Subject, sanity: Sanity) -> None:
    total, inside = len(subject.queries), "Query inside the gallery"
    if subject.gallery is None:
        sanity.findings.append(Finding(inside, "fine", "The queries are their own gallery; each is passed over by its id when it asks."))
        _among_themselves(subject, sanity)
        return
    same = same_content(subject.queries.contents, subject.gallery.contents)
    if len(same.queries):
        text = f"{len(same.queries):,} of {total:,} queries are, byte for byte, points of the {subject.gallery.name}."
        if subject.supervision == "ids":  # nothing is measured that they could spoil
            sanity.findings.append(Finding(inside, "look", text, "Each finds itself first; where no DATA are named, all others answer."))
        else:
            mend = "They measure memory, not learning: remove them from one side, or split by group."
            sanity.findings.append(Finding(inside, "wrong", text, mend))
    else:
        sanity.findings.append(Finding(inside, "fine", f"None of {total:,} queries is a point of the gallery."))
    rows = compared(total, len(subject.gallery))
    pairs = _near(subject.queries, subject.gallery, rows)
    other = len(pairs.queries) - len(set(pairs.queries.tolist()) & set(same.queries.tolist()))
    sanity.duplicates = pairs
    what, asked = _nearly_the_same(subject.queries), _asked(rows, total)
    if other:
        text = f"{other:,} of {asked} have a near-duplicate in the {subject.gallery.name} ({what})."
        mend = "Look at the nearest pairs below; split by group if they are copies or frames of one film."
        sanity.findings.append(Finding("Near-duplicates across splits", "look", text, mend))
    else:
        sanity.findings.append(Finding("Near-duplicates across splits", "fine", f"None found among {asked} ({what})."))


def _among_themselves(subject: Subject, sanity: Sanity) -> None:
    """Near-duplicates where the queries are their own gallery."""
    side = subject.queries
    rows = compared(len(side), len(side))
    prints, apart = (
        (scaled_columns(side.prints, side.prints)[0], APART_VECTORS) if side.data.kind == "vectors" else (side.prints, APART_IMAGES)
    )
    sanity.duplicates = pairs = near_duplicates_among(prints, rows, apart)
    what, asked = _nearly_the_same(side), _asked(rows, len(side))
    if len(pairs.queries):
        at = zip(pairs.references.tolist(), pairs.queries.tolist(), strict=True)
        named = few([f"{side.data.sources[a]} with {side.data.sources[b]}" for a, b in at], NAMED)
        text = f"Pairs found among {asked} ({what}): {len(pairs.queries):,}, the nearest first: {named}."
        mend = "Copies, and frames of one film, are one another's nearest neighbors: keep one of each."
        sanity.findings.append(Finding("Near-duplicates", "look", text, mend))
    else:
        sanity.findings.append(Finding("Near-duplicates", "fine", f"None found among {asked} ({what})."))


def _nearly_the_same(side: Side) -> str:
    what = "pictures that differ by 10 % or less after brightness, contrast and size are taken away"
    return what if side.data.kind == "images" else "vectors that differ by a thousandth or less"


def _asked(rows: np.ndarray, total: int) -> str:
    return f"{total:,} queries" if len(rows) == total else f"{len(rows):,} queries drawn at random"


def compared(queries: int, gallery: int) -> np.ndarray:
    """The rows of queries that are compared with the whole gallery: all, unless that is too many pairs of pictures."""
    most = max(1000, MOST_PAIRS // gallery)
    return np.arange(queries) if queries <= most else np.sort(np.random.default_rng(0).choice(queries, most, replace=False))


def _near(queries: Side, gallery: Side, rows: np.ndarray) -> Pairs:
    mine, apart = queries.prints[torch.from_numpy(rows)], APART_IMAGES
    theirs = gallery.prints
    if queries.data.kind == "vectors":
        (mine, theirs), apart = scaled_columns(mine, theirs), APART_VECTORS
    found = near_duplicates(mine, theirs, apart)
    return found._replace(queries=rows[found.queries])


def _lengths(subject: Subject, sanity: Sanity) -> None:
    if subject.model.about["metric"] != "cosine":
        return
    queries, references = subject.queries.points.embeddings, subject.references.points.embeddings
    spread = length_spread(references)
    if spread <= UNEVEN:
        text = f"Lengths differ by {100 * spread:.1f} % of their mean: any index may be used."
        sanity.findings.append(Finding("Unnormalized features with a cosine model", "fine", text))
        return
    if subject.gallery is not None:
        changed = (
            f"; without normalizing, {100 * changed_by_lengths(queries, references):.0f} % of the queries get another nearest neighbor"
        )
    else:
        changed = ""
    text = f"This model was trained with cosine, and the lengths of its embeddings differ by {100 * spread:.0f} % of their mean{changed}."
    mend = (
        "Here they were compared by cosine, as `nearkin index` and `nearkin search` do. "
        "For an index of another make set them to length 1, or train with network.normalize=true."
    )
    sanity.findings.append(Finding("Unnormalized features with a cosine model", "look", text, mend))


def _centers(subject: Subject, sanity: Sanity) -> None:
    fed, made = subject.references.off_center, off_center(subject.references.points.embeddings)
    for name, ratio, mend in (
        ("Uncenterd inputs", fed, "Standardize them (preprocess.name=standardize for images; vectors before they are handed in)."),
        (
            "Uncenterd embeddings",
            made,
            "Subtract the mean before an index that expands |a - b|², such as a flat one in float32, or before cosine.",
        ),
    ):
        text = f"The mean lies {ratio:.2f} times the spread from the origin."
        level = "look" if ratio > OFF_CENTER else "fine"
        sanity.findings.append(Finding(name, level, text, mend if level == "look" else ""))  # type: ignore[arg-type]


def _collapse(subject: Subject, effective_rank: float, sanity: Sanity) -> None:
    """Whether most of the embedding is idle though more is needed: points that differ by one number lie on one line, as they should."""
    dimension, answers = subject.queries.points.embeddings.shape[1], subject.queries.points.labels
    numbers = 0 if subject.supervision != "numbers" or answers is None else answers.reshape(len(answers), -1).shape[1]
    idle = effective_rank < max(1.5, COLLAPSED * dimension)
    low = idle and effective_rank < min(numbers or dimension, dimension) - 0.5
    enough = f", which is enough for {numbers} number{'s' if numbers > 1 else ''}" if idle and numbers and not low else ""
    text = f"The embedding uses about {effective_rank:.1f} of its {dimension} dimensions{enough}."
    mend = "Fewer dimensions would do; if the accuracy is low too, the training collapsed: lower the learning rate, or draw larger batches."
    sanity.findings.append(Finding("Collapse", "look" if low else "fine", text, mend if low else ""))


def _labels(subject: Subject, found: Neighbors, sanity: Sanity) -> None:
    """Queries by their neighbors, and the gallery's points by one another."""
    queries, references = subject.queries, subject.references
    assert queries.points.labels is not None and references.points.labels is not None
    asked = neighbors_of(found, references.points.labels)
    known = bool(torch.isin(queries.points.labels, references.points.labels).all())
    sanity.suspects += _named(queries, suspected_labels(queries.points.labels, asked))
    if subject.gallery is not None:
        near = neighbor_labels(references.points, references.points, NEAR, subject.model.affinity)
        sanity.suspects += _named(references, suspected_labels(references.points.labels, near))
    sanity.suspects.sort(key=lambda row: -row[2].confidence)
    total = len(queries) + (len(references) if subject.gallery is not None else 0)
    text = f"{len(sanity.suspects):,} of {total:,} points have a label that most of their {NEAR} nearest neighbors contradict."
    if not known:
        text += " Some queries are of classes that no reference has: they are contradicted of necessity."
    mend = "The list is in suspected_labels.csv: mend what is wrong there, and train again. A weak model suspects too many."
    level = "look" if sanity.suspects else "fine"
    sanity.findings.append(Finding("Suspected wrong labels", level, text, mend if sanity.suspects else ""))  # type: ignore[arg-type]


def _named(side: Side, suspects: list[Suspect]) -> list[tuple[str, str, Suspect]]:
    return [(side.name, side.data.sources[one.row], one) for one in suspects]
