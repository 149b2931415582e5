"""The HTML report and its JSON twin. Python collects the data here; the page itself is templates/report.html.jinja."""

import base64
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from nearkin.evaluate import Score
from nearkin.report import descriptions
from nearkin.report.baselines import Baseline
from nearkin.report.illustrate import Illustration
from nearkin.report.inspection import Sanity
from nearkin.report.measure import Measured
from nearkin.report.subject import Side, Subject

SUSPECTS = 20  # suspected labels listed in the report
HEADLINES = {
    "1-nn": "have a right nearest neighbor",
    "10-nn": "are predicted right by 10 neighbors",
    "map@r": "quality of the ranking",
    "mae": "mean absolute error",
    "r2": "share of variance explained",
    "spearman": "rank correlation",
    "overlap@1": "of labels shared with the nearest",
    "effective_rank": "dimensions in use",
}
COMPARED = ("1-nn", "10-nn", "map@r", "mae", "rmse", "r2", "spearman")
PARTS = {
    "train": "the training part (nothing was held out)",
    "test": "the test part, which was used for no choice",
    "validation": "the validation part, which chose the weights: expect slightly worse figures on new data",
}
METRICS = {"cosine": "cosine similarity", "squared_euclidean": "Euclidean distance", "hamming": "Hamming distance"}
SIGNS = {"fine": "✓ fine", "look": "! look", "wrong": "✗ wrong"}


@dataclass(frozen=True, eq=False)
class Findings:
    """All results of an evaluation."""

    subject: Subject
    measured: Measured
    sanity: Sanity
    baselines: Sequence[Baseline] = ()
    about: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # command, versions, seconds, weights


def as_json(findings: Findings) -> dict[str, Any]:
    """Everything in the report as plain data: each score with its interval, chance and counts."""
    subject, measured = findings.subject, findings.measured
    return {
        **findings.about,
        "objective": subject.model.about["objective"],
        "metric": subject.model.about["metric"],
        "supervision": subject.supervision,
        "queries": _side(subject.queries, subject.split),
        "references": None if subject.gallery is None else _side(subject.gallery, subject.gallery.name),
        **figures(measured, subject.classes),
        "comparisons": [_baseline(baseline) for baseline in findings.baselines],
        "sanity": [finding._asdict() for finding in findings.sanity.findings],
        "suspected_labels": len(findings.sanity.suspects),
    }


def figures(measured: Measured, classes: Sequence[str]) -> dict[str, Any]:
    """The measured figures as plain data."""
    return {
        "scores": {family: {name: score.as_dict() for name, score in scores.items()} for family, scores in measured.scores.items()},
        "by_k": {str(k): score.as_dict() for k, score in measured.by_k.items()},
        "classes": list(classes),
        "per_class": [{**dataclasses.asdict(row), "name": classes[row.label]} for row in measured.classes],
        "confusion": None if measured.confusion is None else measured.confusion.tolist(),
        "notes": measured.notes,
    }


def as_html(findings: Findings, illustrations: Sequence[Illustration]) -> str:
    """The report as one self-contained page. All text is escaped: names and paths of the data cannot add markup."""
    environment = Environment(
        loader=PackageLoader("nearkin.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("report.html.jinja").render(_context(findings, illustrations))


def table_rows(measured: Measured) -> list[tuple[str, Score]]:
    """(family, score) pairs in the order of the report."""
    return [(family, score) for family, scores in measured.scores.items() for score in scores.values()]


def _context(findings: Findings, illustrations: Sequence[Illustration]) -> dict[str, Any]:
    """The variables of the template."""
    subject, measured, sanity = findings.subject, findings.measured, findings.sanity
    scores = {score.name: score for _, score in table_rows(measured)}
    order = {"wrong": 0, "look": 1}
    return {
        "title": f"Are the neighbors of {Path(str(findings.about.get('model', 'model'))).name} right?",
        "verdict": _verdict(scores),
        "opening": _opening(subject),
        "cards": [_card(scores[name], meaning) for name, meaning in HEADLINES.items() if name in scores][:4],
        "notes": measured.notes,
        "signs": SIGNS,
        "problems": sorted((one for one in sanity.findings if one.level != "fine"), key=lambda one: order[one.level]),
        "passed": [one for one in sanity.findings if one.level == "fine"],
        "suspects": {"rows": [_suspect(row, subject.classes) for row in sanity.suspects[:SUSPECTS]], "total": len(sanity.suspects)},
        "baselines": _baselines(findings, scores),
        "families": [
            {"name": family[0].upper() + family[1:], "rows": [_row(score) for score in rows.values()]}
            for family, rows in measured.scores.items()
        ],
        "score_notes": _score_notes(measured),
        "classes": _classes(findings),
        "illustrations": {
            section: [_picture(one) for one in illustrations if one.section == section]
            for section in ("sanity", "neighbors", "embedding", "choices", "network")
        },
        "facts": _facts(findings),
    }


def _verdict(scores: Mapping[str, Score]) -> str:
    """The main result in one sentence, for readers who know no metric by name."""
    if "1-nn" in scores:
        score = scores["1-nn"]
        right = (
            f"{round(float(score) * score.counted):,} of {score.counted:,} queries have a right nearest neighbor: one of their own class."
        )
        return right + (
            "" if score.chance is None else f" Always naming the largest class would get {round(score.chance * score.counted):,}."
        )
    if "mae" in scores:
        score = scores["mae"]
        return f"Predictions from the nearest neighbors are off by {descriptions.number(float(score), 'mae')} on average."
    return ""


def _opening(subject: Subject) -> str:
    queries = f"{len(subject.queries):,} queries from {PARTS.get(subject.split, subject.split)}"
    if subject.gallery is None:
        references = "each compared with all the others"
    else:
        references = f"compared with {len(subject.gallery):,} references, the {subject.gallery.name}"
    return f"{queries}, {references}. Neighbors are found by {METRICS[subject.model.about['metric']]}, as in training."


def _card(score: Score, meaning: str) -> dict[str, Any]:
    interval = descriptions.interval(score)
    return {
        "value": descriptions.number(score.value, score.name),
        "meaning": meaning,
        "name": score.name,
        "interval": "" if interval == descriptions.UNKNOWN else f"95 %: {interval}",
        "chance": "" if score.chance is None else f"chance {descriptions.number(score.chance, score.name)}",
        "bar": _bar(score),
    }


def _bar(score: Score) -> dict[str, float | None] | None:
    """Interval, value and chance of a share in percent of the bar's length; None for other figures."""
    if not descriptions.is_share(score.name) or not all(map(math.isfinite, (score.low, score.high, float(score)))):
        return None
    low, high, value = (round(100 * min(max(x, 0.0), 1.0), 2) for x in (score.low, score.high, float(score)))
    return {
        "low": low,
        "width": round(high - low, 2),
        "value": value,
        "chance": None if score.chance is None else round(100 * score.chance, 2),
    }


def _row(score: Score) -> dict[str, Any]:
    return {
        "name": score.name,
        "value": descriptions.number(score.value, score.name),
        "interval": descriptions.interval(score),
        "chance": descriptions.number(score.chance, score.name),
        "counted": f"{score.counted:,}",
        "left_out": descriptions.left_out(score),
        "definition": _sentence(descriptions.definition(score.name)),
        "bar": _bar(score),
    }


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _score_notes(measured: Measured) -> list[dict[str, str]]:
    """Each note once, with the figures it is about."""
    notes: dict[str, list[str]] = {}
    for _, score in table_rows(measured):
        for note in score.notes:
            notes.setdefault(note.removesuffix("."), []).append(score.name)
    return [{"figures": ", ".join(dict.fromkeys(names)), "text": note} for note, names in notes.items()]


def _baselines(findings: Findings, ours: Mapping[str, Score]) -> dict[str, Any]:
    if not findings.baselines:
        return {"figures": [], "rows": []}
    names = [name for name in COMPARED if name in findings.baselines[0].scores]
    dimension = findings.subject.queries.points.embeddings.shape[1]
    rows: list[dict[str, Any]] = [
        {"name": "this model", "dimension": dimension, "cells": [_cell(ours.get(name)) for name in names], "seconds": "", "note": ""}
    ]
    for baseline in findings.baselines:
        fitted = bool(baseline.scores)
        rows.append(
            {
                "name": baseline.name,
                "dimension": baseline.dimension if fitted else descriptions.UNKNOWN,
                "cells": [_cell(baseline.scores.get(name)) for name in names],
                "seconds": f"{baseline.seconds:.1f}" if fitted else descriptions.UNKNOWN,
                "note": baseline.note,
            }
        )
    return {"figures": names, "rows": rows}


def _cell(score: Score | None) -> dict[str, str]:
    if score is None:
        return {"value": descriptions.UNKNOWN, "interval": ""}
    interval = descriptions.interval(score)
    return {
        "value": descriptions.number(score.value, score.name),
        "interval": "" if interval == descriptions.UNKNOWN else interval.removesuffix(" %"),
    }


def _suspect(row: tuple[str, str, Any], classes: Sequence[str]) -> dict[str, str]:
    part, source, one = row
    return {
        "part": part,
        "source": source,
        "label": classes[one.label],
        "neighbors_say": classes[one.neighbors_say],
        "share": f"{100 * one.confidence:.0f} %",
    }


def _classes(findings: Findings) -> list[dict[str, Any]]:
    """Recall, precision and F1 by class, the worst recall first; classes without queries and predictions are left out."""
    rows = sorted(findings.measured.classes, key=lambda row: (row.recall != row.recall, row.recall))
    return [
        {
            "name": findings.subject.classes[row.label],
            **{name: descriptions.number(getattr(row, name), "1-nn") for name in ("recall", "precision", "f1")},
            "queries": f"{row.queries:,}",
        }
        for row in rows
        if row.queries or row.predicted
    ]


def _picture(one: Illustration) -> dict[str, str]:
    return {"png": base64.b64encode(one.png).decode("ascii"), "alt": one.alt, "caption": one.caption}


def _facts(findings: Findings) -> list[tuple[str, str]]:
    about = findings.subject.model.about
    network = f"{about['network']['name']}, {about['network']['dimension']} dimensions"
    rows = [("objective", f"{about['objective']}, because {about['why']}"), ("network", network)]
    return rows + [(key, _plain(value)) for key, value in findings.about.items()]


def _plain(value: Any) -> str:
    return ", ".join(f"{name} {what}" for name, what in value.items()) if isinstance(value, Mapping) else str(value)


def _side(side: Side, name: str) -> dict[str, Any]:
    return {"part": name, "data": side.data.name, "points": len(side), "left_out": side.left_out}


def _baseline(baseline: Baseline) -> dict[str, Any]:
    scores = {name: score.as_dict() for name, score in baseline.scores.items()}
    return {
        "name": baseline.name,
        "dimension": baseline.dimension,
        "seconds": round(baseline.seconds, 3),
        "note": baseline.note,
        "scores": scores,
    }
