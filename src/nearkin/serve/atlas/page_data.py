"""The data of the explorer's page: JSON, with every column of numbers as base64 of little-endian bytes."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from nearkin.report.measure import NEAR
from nearkin.serve.atlas.lists import Lists
from nearkin.serve.atlas.model_maps import ModelMap
from nearkin.serve.atlas.table import MetadataColumn, PointTable

UNKNOWN = 255  # in place of a purity in hundredths
MOST_TEXTS, BEGINNING = 50_000, 160  # texts whose beginnings the page loads first, and their characters


def header(maps: Sequence[ModelMap], **more: Any) -> dict[str, Any]:
    """The data that the page loads first."""
    table = maps[0].table
    return {
        "count": len(table),
        "kind": table.kind,
        "near": NEAR,
        "ids": encoded(table.ids, "<i8"),
        "classes": list(table.classes),
        "labels": encoded(table.labels, "<i4"),
        "splits": list(table.split_names),
        "split": encoded(table.splits, "<u1"),
        "targets": _targets(table),
        "columns": [_column(one) for one in table.columns],
        "pictured": any(table.thumbnail(row) for row in range(min(len(table), 100))),
        "texts": _texts(table),
        "models": [_model(one) for one in maps],
        **more,
    }


def encoded(array: np.ndarray, kind: str) -> str:
    """An array as base64 of a numpy type's bytes."""
    return base64.b64encode(np.ascontiguousarray(array).astype(kind).tobytes()).decode("ascii")


def neighbors_json(table: PointTable, positions: np.ndarray, affinity: np.ndarray, right: np.ndarray | None) -> dict[str, Any]:
    """The neighbors (k,) of one query as JSON; without `right` it is unknown which are right."""
    there = positions >= 0
    rows = positions[there].tolist()
    return {
        "rows": rows,
        "affinity": [value + 0.0 for value in affinity[there].tolist()],  # no -0.0
        "right": [-1] * len(rows) if right is None else right[there].tolist(),
        "sources": [table.sources[row] for row in rows],
        "cells": [dict(table.metadata[row]) for row in rows],
    }


def _model(one: ModelMap) -> dict[str, Any]:
    atlas, table = one.atlas, one.table
    points = np.round((atlas.on_canvas + 1) / 2 * 65535).clip(0, 65535)  # finer than the pixels of a canvas
    hundredths = np.where(np.isnan(atlas.purity), UNKNOWN, np.round(100 * np.nan_to_num(atlas.purity)))
    return {
        "name": one.name,
        "metric": table.metric,
        "dimension": int(table.vectors.shape[1]),
        "method": atlas.method,
        "k": int(atlas.positions.shape[1]),
        "points": encoded(points, "<u2"),
        "purity": None if np.isnan(atlas.purity).all() else encoded(hundredths, "<u1"),
        "residual": None if atlas.residual is None else encoded(atlas.residual, "<f4"),
        "lists": _lists(atlas.lists, table),
    }


def _lists(lists: Lists, table: PointTable) -> dict[str, Any]:
    return {
        "worst": lists.worst.tolist(),
        "confused": [[a, b, rows.tolist()] for a, b, rows in lists.confused],
        "suspects": [[one.row, one.neighbors_say, round(one.confidence, 3), table.sources[one.row]] for one in lists.suspects],
        "duplicates": [[a, b, round(apart, 4)] for a, b, apart in lists.duplicates],
        "compared": [lists.compared, lists.later],
    }


def _texts(table: PointTable) -> list[str] | None:
    """The beginning of every text, if the points are texts and not too many; the whole of a text comes with its neighbors."""
    if len(table) > MOST_TEXTS or "text" not in table.metadata[0]:
        return None
    return [str(row.get("text", ""))[:BEGINNING] for row in table.metadata]


def _column(one: MetadataColumn) -> dict[str, Any]:
    return {"name": one.name, "names": list(one.names) or None, "values": encoded(one.values, "<i4" if one.names else "<f4")}


def _targets(table: PointTable) -> list[dict[str, str]]:
    if table.targets is None:
        return []
    return [{"name": name, "values": encoded(table.targets[:, at], "<f4")} for at, name in enumerate(table.target_names)]
