"""The data of the explorer's page: JSON, with every column of numbers as base64 of little-endian bytes."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from nearkin.evaluate.k_means import k_means
from nearkin.report.measure import NEAR
from nearkin.serve.atlas.lists import Lists
from nearkin.serve.atlas.model_maps import ModelMap
from nearkin.serve.atlas.table import MetadataColumn, PointTable

UNKNOWN = 255  # in place of a purity in hundredths
MOST_CLUSTERS = 10  # clusters of points without labels
CLUSTERED, COMPARED = 4000, 1000  # points from which the clusters, and their number, are found
MOST_NAMES = 1_000_000  # characters of the names of points, by which the page finds them
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
        "sources": list(table.sources) if sum(map(len, table.sources)) <= MOST_NAMES else None,
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
        **(_without_labels(one) if table.kind == "nothing" else {}),
        "residual": None if atlas.residual is None else encoded(atlas.residual, "<f4"),
        "lists": _lists(atlas.lists, table),
    }


def _without_labels(one: ModelMap) -> dict[str, Any]:
    """What points without labels are colored by: a cluster, the distance to the nearest, and the mean distance to the nearest 10."""
    table, near = one.table, one.atlas.affinity[:, :NEAR].astype(np.float64)
    apart = 1 - near if table.metric == "cosine" else np.sqrt(np.maximum(-near, 0)) if table.metric == "squared_euclidean" else -near
    return {
        "clusters": encoded(_clusters(np.asarray(table.vectors, dtype=np.float32)), "<u1"),
        "apart": encoded(apart[:, 0], "<f4"),
        "sparse": encoded(apart.mean(1), "<f4"),
    }


def _clusters(vectors: np.ndarray) -> np.ndarray:
    """(n,) numbers of clusters, the largest first; found on a sample, to whose centers the others are assigned."""
    x = torch.from_numpy(vectors)
    some = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:CLUSTERED]]
    group = torch.from_numpy(k_means(some, _cluster_count(some[:COMPARED]), 0)[0])
    centers = torch.stack([some[group == at].mean(0) for at in torch.unique(group)])
    found = torch.cat([torch.cdist(part, centers).argmin(1) for part in torch.split(x, 10_000)])
    order = torch.bincount(found, minlength=len(centers)).argsort(descending=True, stable=True)
    return order.argsort()[found].numpy()


def _cluster_count(x: torch.Tensor) -> int:
    """The number of clusters with the largest silhouette; 1 for few points."""
    from sklearn.metrics import silhouette_score

    most = min(MOST_CLUSTERS, len(torch.unique(x, dim=0)) // 3)
    tried = {count: k_means(x, count, 0)[0] for count in range(2, most + 1)}
    scores = {count: silhouette_score(x.numpy(), group) for count, group in tried.items() if len(np.unique(group)) > 1}
    return max(scores, key=lambda count: scores[count]) if scores else 1


def _lists(lists: Lists, table: PointTable) -> dict[str, Any]:
    return {
        "worst": lists.worst.tolist(),
        "confused": [[a, b, rows.tolist()] for a, b, rows in lists.confused],
        "suspects": [[one.row, one.neighbors_say, round(one.confidence, 3), table.sources[one.row]] for one in lists.suspects or ()],
        "judged": lists.suspects is not None,
        "duplicates": [[a, b, round(apart, 4)] for a, b, apart in lists.duplicates],
        "compared": [lists.compared, lists.later],
    }


def _texts(table: PointTable) -> list[str] | None:
    """The beginning of every text, if the points are texts and not too many; the whole of a text comes with its neighbors."""
    if len(table) > MOST_TEXTS or not any("text" in row for row in table.metadata):
        return None
    return [str(row.get("text", ""))[:BEGINNING] for row in table.metadata]


def _column(one: MetadataColumn) -> dict[str, Any]:
    return {"name": one.name, "names": list(one.names) or None, "values": encoded(one.values, "<i4" if one.names else "<f4")}


def _targets(table: PointTable) -> list[dict[str, str]]:
    if table.targets is None:
        return []
    return [{"name": name, "values": encoded(table.targets[:, at], "<f4")} for at, name in enumerate(table.target_names)]
