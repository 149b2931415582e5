"""Pictures of planted faults, and what an evaluation does when classes, references or openTSNE are few."""

import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nearkin.data import Dataset
from nearkin.models.folder import Model
from nearkin.report import measure as measuring
from nearkin.report.illustrate import illustrate
from nearkin.report.inspection import inspect
from nearkin.report.measure import GEOMETRY, measure
from nearkin.report.subject import Side, Subject, embedded

ABOUT: dict[str, Any] = {
    "prepare": [],
    "metric": "squared_euclidean",
    "shape": [1, 6, 6],
    "classes": ["a", "b"],
    "supervision": "classes",
    "network": {"name": "flat", "dimension": 36},
}
MODEL = Model(nn.Flatten(), ABOUT)


def pictures(n: int, seed: int, classes: int = 2) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % classes
    bright = torch.rand(n, 1, 6, 6, generator=generator) * 60
    bright[:, :, :, :3] += 150 * (labels == 0)[:, None, None, None]
    return Dataset("pictures", bright.to(torch.uint8), labels=labels, classes=("a", "b"))


def side(data: Dataset, name: str, first_id: int = 0) -> Side:
    found = embedded(MODEL, data, name)
    assert found.points.ids is not None
    return Side(name, data, found.points._replace(ids=found.points.ids + first_id), found.prints, found.contents, found.off_center)


def subject(queries: Dataset, gallery: Dataset | None) -> Subject:
    known = None if gallery is None else side(gallery, "training part", 1000)
    return Subject(MODEL, side(queries, "test part"), known, ("a", "b"), "classes", "test")


def drawn(asked: Subject) -> dict[str, Any]:
    found = measure(asked)
    assert found.found is not None
    sanity = inspect(asked, float(found.scores[GEOMETRY]["effective_rank"]))
    return {one.name: one for one in illustrate(asked, found, sanity)}


def test_planted_duplicates_and_labels_are_shown() -> None:
    queries, gallery = pictures(30, 0), pictures(40, 1)
    assert isinstance(queries.inputs, torch.Tensor) and isinstance(gallery.inputs, torch.Tensor) and queries.labels is not None
    queries.inputs[4] = gallery.inputs[8]  # of one class
    queries.labels[7] = 1 - queries.labels[7]
    found = drawn(subject(queries, gallery))
    query, reference = found["duplicates"].figure.axes
    assert np.array_equal(query.images[0].get_array(), reference.images[0].get_array())
    assert reference.get_xlabel() == "differs by 0.0 %"
    assert [axes.get_xlabel() for axes in found["suspects"].figure.axes] == [
        f"{'ab'[int(queries.labels[7])]}\nor {'ab'[1 - int(queries.labels[7])]}?"
    ]
    assert "filters" not in found and "grad_cam" not in found and "training" not in found  # no convolution, no folder
    assert all(one.alt and one.caption and one.png[:4] == b"\x89PNG" for one in found.values())


def test_planted_duplicates_in_one_set_are_shown() -> None:
    queries = pictures(30, 0)
    assert isinstance(queries.inputs, torch.Tensor)
    queries.inputs[6] = queries.inputs[8]
    shown = drawn(subject(queries, None))["duplicates"].figure
    one, other = shown.axes
    assert np.array_equal(one.images[0].get_array(), other.images[0].get_array())
    assert "across splits" not in shown.get_suptitle()


def test_without_opentsne_the_map_is_that_of_pca_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    found = drawn(subject(pictures(20, 0), None))["map"]
    assert (
        found.caption.startswith("PCA (t-SNE needs openTSNE, which is not installed; pip install 'nearkin[tsne]'")
        and len(found.figure.axes) == 1
    )


def test_one_class_has_no_negatives_and_the_report_says_so() -> None:
    found = measure(subject(pictures(20, 0, classes=1), pictures(20, 1, classes=1)))
    assert found.curves is None and any(note.startswith("No curves of pairs: there are 400") for note in found.notes)


def test_large_data_are_sampled_and_a_note_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "MOST_CLUSTERED", 15)
    monkeypatch.setattr(measuring, "MOST_PAIRS", 1)
    found = measure(subject(pictures(120, 0), None))
    assert found.notes == [
        "Clustering used 15 of 120 queries, drawn at random.",
        "The curves of pairs used 100 queries, drawn at random.",
    ]
    assert found.curves is not None and found.curves[0].area.counted == 100 * 119  # no query is paired with itself


def test_a_lone_query_without_references_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no reference to compare a query with; pass data with at least two points"):
        measure(subject(pictures(1, 0), None))
