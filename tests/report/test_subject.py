"""The subject of an evaluation: what is embedded, under which numbers, and what the sanity section says of planted faults."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nearkin.data import Dataset
from nearkin.models.folder import Model
from nearkin.report.inspection import inspect
from nearkin.report.sanity import off_center
from nearkin.report.subject import Side, Subject, embedded, in_classes_of, prepared, with_distinct_ids

PREPARE = [{"step": "Standardize", "mean": [0.5], "std": [0.25]}]


def model(metric: str = "squared_euclidean", network: nn.Module | None = None) -> Model:
    about: dict[str, Any] = {"prepare": PREPARE, "metric": metric, "shape": [1, 6, 6], "classes": ["a", "b"], "supervision": "classes"}
    return Model(network or nn.Flatten(), about)


def pictures(n: int, seed: int = 0, classes: tuple[str, ...] = ("a", "b")) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % len(classes)
    bright = torch.rand(n, 1, 6, 6, generator=generator) * 60
    bright[:, :, :, :3] += 150 * (labels == 0)[:, None, None, None]
    return Dataset("pictures", bright.to(torch.uint8), labels=labels, classes=classes)


def side(data: Dataset, name: str = "training part", by: Model | None = None) -> Side:
    return embedded(by or model(), data, name)


def asked(queries: Side, gallery: Side | None, by: Model | None = None, rank: float = 20.0) -> dict[str, Any]:
    subject = Subject(by or model(), queries, gallery, ("a", "b"), "classes", "test")
    sanity = inspect(subject, rank)
    return {"levels": {one.check: one.level for one in sanity.findings}, "sanity": sanity}


def test_embedding_keeps_rows_together() -> None:
    data = pictures(1100).subset(np.arange(50, 1100))  # more than one chunk, and ids that do not start at 0
    found = side(data)
    expected = prepared(model(), data.inputs).flatten(1)
    assert torch.equal(found.points.embeddings, expected) and torch.equal(found.points.ids, data.ids)
    assert found.points.labels is not None and torch.equal(found.points.labels, data.labels)
    assert found.off_center == pytest.approx(off_center(expected), rel=1e-5) and not found.left_out


def test_points_without_a_finite_embedding_are_left_out_and_counted() -> None:
    data = Dataset("vectors", torch.tensor([[1.0, 2.0], [torch.nan, 0.0], [3.0, 4.0]]), labels=torch.tensor([0, 1, 1]), classes=("a", "b"))
    about = {"prepare": [], "metric": "squared_euclidean", "shape": [2], "classes": ["a", "b"], "supervision": "classes"}
    found = embedded(Model(nn.Identity(), about), data, "test part")
    assert found.left_out == {"embedding not finite": 1} and found.data.ids.tolist() == [0, 2] == found.points.ids.tolist()
    assert len(found.contents) == len(found.prints) == len(found) == 2
    nothing = replace(data, inputs=torch.full((3, 2), torch.nan))
    with pytest.raises(ValueError, match="no point of the test part has a finite embedding"):
        embedded(Model(nn.Identity(), about), nothing, "test part")


def test_points_of_unknown_class_are_counted_and_never_taken_for_a_class() -> None:
    data = pictures(40)
    assert data.labels is not None
    half = side(replace(data, labels=torch.where(torch.arange(40) < 20, data.labels, -1)))
    assert half.left_out == {"class not known": 20} and half.data.ids.tolist() == list(range(20))
    unlabeled, classes = in_classes_of(side(replace(data, labels=torch.full((40,), -1))), ("a", "b"))
    assert unlabeled.points.labels is None and unlabeled.data.supervision == "ids" and len(unlabeled) == 40 and classes == ("a", "b")


def test_a_shape_the_model_does_not_read_is_refused() -> None:
    with pytest.raises(ValueError, match=r"pictures holds points of shape \(1, 6, 5\); this model reads \(1, 6, 6\)"):
        side(Dataset("pictures", torch.zeros(3, 1, 6, 5, dtype=torch.uint8)))


def test_classes_are_known_by_their_names_and_new_ones_come_last() -> None:
    theirs, together = in_classes_of(side(pictures(6, classes=("new", "b", "a"))), ("a", "b"))
    assert together == ("a", "b", "new") and theirs.points.labels is not None
    assert (
        [together[i] for i in theirs.points.labels.tolist()]
        == ["new", "b", "a"] * 2
        == [theirs.data.classes[i] for i in theirs.data.labels]
    )


def test_other_data_never_share_an_id_with_the_gallery() -> None:
    queries, gallery = side(pictures(5)), side(pictures(9))
    assert not set(with_distinct_ids(queries, gallery).points.ids.tolist()) & set(gallery.points.ids.tolist())


def test_nothing_is_wrong_where_nothing_is() -> None:
    found = asked(side(pictures(40, 0)), side(pictures(60, 1)))
    assert set(found["levels"].values()) == {"fine"} and not found["sanity"].suspects
    alone = asked(side(pictures(40, 0)), None)
    assert set(alone["levels"].values()) == {"fine"} and not len(alone["sanity"].duplicates.queries)


def test_near_duplicates_are_named_where_the_queries_are_their_own_gallery() -> None:
    data = pictures(40, 0)
    assert isinstance(data.inputs, torch.Tensor)
    data.inputs[9] = data.inputs[4] // 2
    found = asked(side(data), None)
    finding = next(one for one in found["sanity"].findings if one.check == "Near-duplicates")
    assert finding.level == "look" and "): 1, the nearest first: pictures row 4 with pictures row 9." in finding.found
    rows = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 100.0, 0.01, 0.0])
    rows[7] = rows[3]
    vectors = Dataset("vectors", rows, labels=torch.arange(30) % 2, classes=("a", "b"))
    about = {"prepare": [], "metric": "squared_euclidean", "shape": [4], "classes": ["a", "b"], "supervision": "classes"}
    by = Model(nn.Identity(), about)
    found = asked(embedded(by, vectors, "train"), None, by)
    assert (found["sanity"].duplicates.queries.tolist(), found["sanity"].duplicates.references.tolist()) == ([7], [3])


def test_planted_faults_are_named() -> None:
    queries, gallery = pictures(40, 0), pictures(60, 1)
    assert isinstance(queries.inputs, torch.Tensor) and isinstance(gallery.inputs, torch.Tensor) and gallery.labels is not None
    queries.inputs[3] = gallery.inputs[5]
    queries.inputs[7] = gallery.inputs[8] // 2
    gallery.labels[10] = 1 - gallery.labels[10]
    found = asked(side(queries, "test part"), side(gallery))
    levels = found["levels"]
    assert levels["Queries among the references"] == "wrong" and levels["Near-duplicates across splits"] == "look"
    assert levels["Suspected wrong labels"] == "look"
    assert ("training part", "pictures row 10") in {(part, source) for part, source, _ in found["sanity"].suspects}
    assert {3, 7} <= set(found["sanity"].duplicates.queries.tolist())


def test_lengths_centers_and_collapse_are_reported() -> None:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows = x.flatten(1)
            return rows * (1 + rows[:, :1].abs()) * 5 + 300

    by = model("cosine", Odd())
    levels = asked(side(pictures(40, 0), by=by), side(pictures(60, 1), by=by), by, rank=1.2)["levels"]
    assert levels["Uncentered embeddings"] == "look" and levels["Collapse"] == "look" and levels["Uncentered inputs"] == "fine"
    uneven = model("cosine", nn.Flatten())
    levels = asked(side(pictures(40, 0), by=uneven), side(pictures(60, 1), by=uneven), uneven)["levels"]
    assert levels["Unnormalized features with a cosine model"] == "look"
    assert "Unnormalized features with a cosine model" not in asked(side(pictures(4)), side(pictures(6)))["levels"]


@pytest.mark.parametrize(
    ("numbers", "rank", "level", "message"),
    [
        (1, 1.1, "fine", "about 1.1 of its 36 dimensions, which is enough for 1 number."),
        (2, 1.9, "fine", "about 1.9 of its 36 dimensions, which is enough for 2 numbers."),
        (2, 1.2, "look", "about 1.2 of its 36 dimensions."),
        (1, 30.0, "fine", "about 30.0 of its 36 dimensions."),
    ],
)
def test_points_on_a_line_are_no_collapse_for_one_number(numbers: int, rank: float, level: str, message: str) -> None:
    data = Dataset("measured", pictures(30).inputs, targets=torch.rand(30, numbers, generator=torch.Generator().manual_seed(0)))
    queries = side(data)
    subject = Subject(model(), queries, None, (), "numbers", "test")
    finding = next(one for one in inspect(subject, rank).findings if one.check == "Collapse")
    assert (finding.level, bool(finding.fix)) == (level, level == "look") and finding.found.endswith(message)
