"""The report: one HTML page with every figure, its meaning, its interval and chance, the pictures, and what may be wrong."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearkin.evaluate import Score
from nearkin.report import descriptions as words
from nearkin.report import page
from nearkin.report.checks import Sanity
from nearkin.report.comparisons import Rival
from nearkin.report.illustrate import Illustration
from nearkin.report.measure import Measured
from nearkin.report.subject import Side, Subject

WORST_CLASSES = 20  # rows of the per-class table before it is folded
SUSPECTS = 20
HEADLINES = ("1-nn", "10-nn", "map@r", "mae", "r2", "spearman", "overlap@1", "effective_rank")
WHERE = {
    "train": "the training part, of which nothing was held out",
    "test": "the test part, at which nothing was chosen",
    "validation": "the validation part, by which the weights were chosen: expect less from new data",
}


@dataclass(frozen=True, eq=False)
class Findings:
    """Everything an evaluation came to."""

    subject: Subject
    measured: Measured
    sanity: Sanity
    rivals: Sequence[Rival] = ()
    about: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # command, versions, seconds, weights


def as_json(findings: Findings) -> dict[str, Any]:
    """The same for machines: every score with interval, chance and counts."""
    subject, measured = findings.subject, findings.measured
    return {
        **findings.about,
        "objective": subject.model.about["objective"],
        "metric": subject.model.about["metric"],
        "supervision": subject.supervision,
        "queries": _side(subject.queries, subject.split),
        "references": None if subject.gallery is None else _side(subject.gallery, subject.gallery.name),
        **figures(measured, subject.classes),
        "comparisons": [_rival(rival) for rival in findings.rivals],
        "sanity": [finding._asdict() for finding in findings.sanity.findings],
        "suspected_labels": len(findings.sanity.suspects),
    }


def figures(measured: Measured, classes: Sequence[str]) -> dict[str, Any]:
    """What was measured, for machines."""
    return {
        "scores": {family: {name: score.as_dict() for name, score in scores.items()} for family, scores in measured.scores.items()},
        "by_k": {str(k): score.as_dict() for k, score in measured.by_k.items()},
        "classes": list(classes),
        "per_class": [{**dataclasses.asdict(row), "name": classes[row.label]} for row in measured.classes],
        "confusion": None if measured.confusion is None else measured.confusion.tolist(),
        "notes": measured.notes,
    }


def as_html(findings: Findings, pictures: Sequence[Illustration]) -> str:
    """The page, from the findings and the pictures drawn of them."""
    subject = findings.subject
    name = Path(str(findings.about.get("model", "model"))).name
    sections = (
        ("Figures", _scores(findings.measured)),
        ("Beside classical methods", _rivals(findings)),
        ("Is anything wrong?", _sanity(findings) + _pictures(pictures, "sanity")),
        ("Neighbors", _pictures(pictures, "neighbors")),
        ("The embedding", _pictures(pictures, "embedding")),
        ("Choices and thresholds", _pictures(pictures, "choices")),
        ("Classes", _classes(findings)),
        ("Inside the network", _pictures(pictures, "network")),
        ("How it was made", _made(findings)),
    )
    return page.document(f"Are the neighbors of {name} right?", _opening(subject) + _headline(findings), sections)


def table_rows(measured: Measured) -> list[tuple[str, Score]]:
    """(family, score), in the order of the report."""
    return [(family, score) for family, scores in measured.scores.items() for score in scores.values()]


def _opening(subject: Subject) -> str:
    asked = f"{len(subject.queries):,} queries from {WHERE.get(subject.split, subject.split)}"
    if subject.gallery is None:
        answered = "each answered by the others, never by itself"
    else:
        answered = f"answered by {len(subject.gallery):,} references, the {subject.gallery.name}"
    metric = {"cosine": "cosine", "squared_euclidean": "Euclidean distance", "hamming": "Hamming distance"}[subject.model.about["metric"]]
    return page.paragraph(f"{asked}, {answered}. Near means near by {metric}, as in training.", quiet=True)


def _headline(findings: Findings) -> str:
    scores = {score.name: score for _, score in table_rows(findings.measured)}
    cards: list[tuple[str, str, str]] = []
    for name in HEADLINES:
        if name in scores and len(cards) < 4:
            score = scores[name]
            chance = "" if score.chance is None else f"chance {words.number(score.chance, name)}"
            bounds = "" if words.interval(score) == words.UNKNOWN else f"95 %: {words.interval(score)}"
            cards.append((words.number(score.value, name), name, ", ".join(text for text in (bounds, chance) if text)))
    return page.headline(cards) + "".join(page.paragraph(note) for note in findings.measured.notes)


def _scores(measured: Measured) -> str:
    rows: list[tuple[object, ...]] = []
    notes: dict[str, list[str]] = {}  # each once, with the figures it is about
    for family, scores in measured.scores.items():
        rows.append((family[0].upper() + family[1:],))
        for score in scores.values():
            chance = words.number(score.chance, score.name)
            value = words.number(score.value, score.name)
            out = words.left_out(score) or "0"
            rows.append((score.name, value, words.interval(score), chance, f"{score.counted:,}", out, words.definition(score.name)))
            for note in score.notes:
                notes.setdefault(note.removesuffix("."), []).append(score.name)
    caption = (
        "Intervals hold 95 %: resampled queries, except for clustering, where they are the extremes over the restarts of k-means. "
        "Chance is what an embedding that knows nothing would get. Left out are queries that could not be asked, and why."
    )
    head = ("figure", "value", "95 % interval", "chance", "counted", "left out", "what it is")
    return page.table(head, rows, right=(1, 2, 3, 4), caption=caption) + "".join(
        page.paragraph(f"{', '.join(dict.fromkeys(names))}: {note}.", quiet=True) for note, names in notes.items()
    )


def _rivals(findings: Findings) -> str:
    if not findings.rivals:
        return ""
    ours = {score.name: score for _, score in table_rows(findings.measured)}
    names = [name for name in ("1-nn", "10-nn", "map@r", "mae", "rmse", "r2", "spearman") if name in findings.rivals[0].scores]
    dimension = findings.subject.queries.points.embeddings.shape[1]
    rows: list[tuple[object, ...]] = [("this model", dimension, *(_with_bounds(ours.get(name)) for name in names), "", "")]
    for rival in findings.rivals:
        cells = (_with_bounds(rival.scores.get(name)) for name in names)
        fitted = (rival.dimension, *cells, f"{rival.seconds:.1f}") if rival.scores else (words.UNKNOWN,) * (len(names) + 2)
        rows.append((rival.name, *fitted, rival.note))
    fed = "The others see what the network is fed, by Euclidean distance where nothing else is noted."
    caption = f"The same queries and references for all, with 95 % intervals. {fed}"
    right = tuple(range(1, len(names) + 3))
    return page.table(("embedding", "dimensions", *names, "seconds to fit", "note"), rows, right=right, caption=caption)


def _with_bounds(score: Score | None) -> str:
    if score is None:
        return words.UNKNOWN
    bounds = words.interval(score)
    return words.number(score.value, score.name) + ("" if bounds == words.UNKNOWN else f"  ({bounds.removesuffix(' %')})")


def _sanity(findings: Findings) -> str:
    sanity, classes = findings.sanity, findings.subject.classes
    listed = page.findings([(one.level, one.check, one.found, one.mend) for one in sanity.findings])
    if not sanity.suspects:
        return listed
    rows = [
        (part, source, classes[one.label], classes[one.neighbors_say], f"{100 * one.confidence:.0f} %")
        for part, source, one in sanity.suspects[:SUSPECTS]
    ]
    more = len(sanity.suspects) - len(rows)
    caption = f"The surest {len(rows)}" + (f" of {len(sanity.suspects):,}; all are in suspected_labels.csv." if more else ".")
    head = ("part", "which", "label", "neighbors say", "share that says so")
    return listed + page.table(head, rows, right=(4,), caption=caption)


def _classes(findings: Findings) -> str:
    rows = [
        (findings.subject.classes[row.label], *(words.number(value, "1-nn") for value in (row.recall, row.precision, row.f1)), row.queries)
        for row in sorted(findings.measured.classes, key=lambda row: (row.recall != row.recall, row.recall))
        if row.queries or row.predicted
    ]
    if not rows:
        return ""
    caption = (
        "By the nearest reference, worst first. Recall: share of the class's queries given its name. "
        "Precision: share of those given its name that are of it. F1: their harmonic mean."
    )
    head, right = ("class", "recall", "precision", "F1", "queries"), (1, 2, 3, 4)
    shown = page.table(head, rows[:WORST_CLASSES], right=right, caption=caption)
    rest = rows[WORST_CLASSES:]
    return shown + (page.folded(f"{len(rest)} more classes", page.table(head, rest, right=right)) if rest else "")


def _pictures(pictures: Sequence[Illustration], section: str) -> str:
    return "".join(page.picture(one.png, one.says, one.caption) for one in pictures if one.section == section)


def _made(findings: Findings) -> str:
    about = findings.subject.model.about
    network = f"{about['network']['name']}, {about['network']['dimension']} dimensions"
    rows = [("objective", f"{about['objective']}, because {about['why']}"), ("network", network)]
    rows += [(key, _plain(value)) for key, value in findings.about.items()]
    return page.table(("what", "which"), rows)


def _plain(value: Any) -> str:
    return ", ".join(f"{name} {what}" for name, what in value.items()) if isinstance(value, Mapping) else str(value)


def _side(side: Side, name: str) -> dict[str, Any]:
    return {"part": name, "data": side.data.name, "points": len(side), "left_out": side.left_out}


def _rival(rival: Rival) -> dict[str, Any]:
    scores = {name: score.as_dict() for name, score in rival.scores.items()}
    return {"name": rival.name, "dimension": rival.dimension, "seconds": round(rival.seconds, 3), "note": rival.note, "scores": scores}
