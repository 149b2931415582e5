"""The atlas as the page reads it: JSON, with every column of numbers as base64 of little-endian bytes."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from nearkin.report.measure import NEAR
from nearkin.serve.atlas.census import Census
from nearkin.serve.atlas.lists import Lists
from nearkin.serve.atlas.view import View

UNJUDGED = 255  # of a purity in hundredths


def header(views: Sequence[View], **more: Any) -> dict[str, Any]:
    """All that is drawn before anybody clicks."""
    census = views[0].census
    return {
        "count": len(census),
        "kind": census.kind,
        "near": NEAR,
        "ids": numbers(census.ids, "<i8"),
        "classes": list(census.classes),
        "labels": numbers(census.labels, "<i4"),
        "splits": list(census.split_names),
        "split": numbers(census.splits, "<u1"),
        "targets": _targets(census),
        "pictured": any(census.picture(row) for row in range(min(len(census), 100))),
        "models": [_model(view) for view in views],
        **more,
    }


def numbers(array: np.ndarray, kind: str) -> str:
    """An array as base64 of a numpy type's bytes."""
    return base64.b64encode(np.ascontiguousarray(array).astype(kind).tobytes()).decode("ascii")


def answer(census: Census, positions: np.ndarray, affinity: np.ndarray, right: np.ndarray | None) -> dict[str, Any]:
    """The neighbors (k,) of one query, as the service sends them; without `right` nobody can tell."""
    there = positions >= 0
    rows = positions[there].tolist()
    return {
        "rows": rows,
        "affinity": [value + 0.0 for value in affinity[there].tolist()],  # no minus zero
        "right": [-1] * len(rows) if right is None else right[there].tolist(),
        "sources": [census.sources[row] for row in rows],
    }


def _model(view: View) -> dict[str, Any]:
    atlas, census = view.atlas, view.census
    points = np.round((atlas.on_canvas + 1) / 2 * 65535).clip(0, 65535)  # a canvas has fewer pixels than that
    hundredths = np.where(np.isnan(atlas.purity), UNJUDGED, np.round(100 * np.nan_to_num(atlas.purity)))
    return {
        "name": view.name,
        "metric": census.metric,
        "dimension": int(census.vectors.shape[1]),
        "method": atlas.method,
        "k": int(atlas.positions.shape[1]),
        "points": numbers(points, "<u2"),
        "purity": None if np.isnan(atlas.purity).all() else numbers(hundredths, "<u1"),
        "residual": None if atlas.residual is None else numbers(atlas.residual, "<f4"),
        "lists": _lists(atlas.lists, census),
    }


def _lists(lists: Lists, census: Census) -> dict[str, Any]:
    return {
        "worst": lists.worst.tolist(),
        "confused": [[a, b, rows.tolist()] for a, b, rows in lists.confused],
        "suspects": [[one.row, one.neighbors_say, round(one.confidence, 3), census.sources[one.row]] for one in lists.suspects],
        "duplicates": [[a, b, round(apart, 4)] for a, b, apart in lists.duplicates],
        "compared": [lists.compared, lists.later],
    }


def _targets(census: Census) -> list[dict[str, str]]:
    if census.targets is None:
        return []
    return [{"name": name, "values": numbers(census.targets[:, at], "<f4")} for at, name in enumerate(census.target_names)]
