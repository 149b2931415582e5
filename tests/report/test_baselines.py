"""Baselines on few references, and the finding if raw inputs have better neighbors than the model."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from nearkin.data import Dataset
from nearkin.evaluate import Score
from nearkin.models.folder import Model
from nearkin.report.baselines import Baseline, Discriminant, Spread, _histograms, _small, compare, compare_with_raw_inputs
from nearkin.report.measure import Measured
from nearkin.report.subject import Subject, embedded


def found(ours, raw, name="10-nn", larger=True):
    score = lambda value: Score(name, value, larger_is_better=larger, split="test")  # noqa: E731
    measured = Measured({"prediction": {name: score(ours)}})
    return compare_with_raw_inputs(
        measured, [Baseline("raw pixels", 64, {name: score(raw)}, 0.0), Baseline("LDA", 9, {name: score(2.0)}, 0.0)]
    )


@pytest.mark.parametrize(("ours", "raw", "level"), [(0.757, 0.817, "look"), (0.9, 0.817, "fine"), (0.9, 0.9, "fine")])
def test_better_raw_pixels_are_reported(ours, raw, level):
    assert found(ours, raw).level == level  # only raw inputs matter, not the other baselines


def test_the_finding_has_both_figures_and_a_fix():
    one = found(0.757, 0.817)
    assert (
        one.found == "10-nn 81.7 % on raw pixels, 75.7 % on this embedding." and "(--epochs)" in one.fix and "--part validation" in one.fix
    )


def test_smaller_errors_are_better():
    assert found(1.5, 1.0, "mae", larger=False).level == "look" and found(1.0, 1.5, "mae", larger=False).level == "fine"


def test_only_k_nn_figures_are_compared():
    assert found(0.1, 0.9, "map@r").level == "fine"


PCA_ALONE = {"raw inputs", "raw inputs, centered", "PCA", "PPCA"}


def compared(references, answers, by="labels"):
    """What is fitted, by name, and why the others are left out; a warning is an error."""
    about = {"metric": "cosine", "shape": [9], "classes": ["a", "b", "c"], "prepare": []}
    model = Model(torch.nn.Linear(9, 4), about)

    def side(x, y, first):
        return embedded(model, Dataset("x", torch.as_tensor(x), ids=first + torch.arange(len(x)), **{by: torch.as_tensor(y)}), "x")

    asked = side(np.random.default_rng(1).normal(size=(6, 9)).astype(np.float32), np.resize(answers, (6, *answers.shape[1:])), 100)
    kind = {"labels": "classes", "targets": "numbers"}[by]
    subject = Subject(model, asked, side(references, answers, 0), ("a", "b", "c"), kind, "test")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        baselines = list(compare(subject))
    assert all(bool(baseline.scores) == bool(baseline.dimension) for baseline in baselines)
    return {baseline.name for baseline in baselines if baseline.scores}, {
        baseline.name: baseline.note for baseline in baselines if not baseline.scores
    }


def rows(count):
    x = np.random.default_rng(0).normal(size=(count, 9)).astype(np.float32)
    x[:, :2] = 0  # like the corners of a picture
    return x


@pytest.mark.parametrize(
    ("classes", "without"),
    [
        ([0, 1], {"LDA", "linear NCA", "LMNN"}),
        ([0, 0, 1], {"LDA", "LMNN"}),
        ([0, 0, 1, 1], {"LDA", "LMNN"}),
        ([0, 0, 0, 1], {"LMNN"}),  # LDA takes the spread from the class that has one
        ([0] * 5 + [1] * 5 + [2], {"LMNN"}),
        ([0] * 4 + [1] * 4, set()),
    ],
)
def test_what_few_references_cannot_fit_is_left_out_with_its_reason(classes, without):
    fitted, left_out = compared(rows(len(classes)), np.array(classes))
    assert set(left_out) == without and fitted == PCA_ALONE | ({"LDA", "linear NCA", "LMNN"} - without)
    reasons = {
        "LDA": "no class has 3 references",
        "linear NCA": "no class has 2 references",
        "LMNN": f"smallest has {min(np.bincount(classes))}",
    }
    assert all(note.startswith("left out: ") and reasons[name] in note for name, note in left_out.items())


def test_references_of_a_class_that_are_all_alike_have_no_discriminant():
    x = rows(8)
    x[1:4], x[5:] = x[0], x[4]
    _, left_out = compared(x, np.array([0] * 4 + [1] * 4))
    assert left_out == {"LDA": "left out: the references of a class do not differ enough"}


@pytest.mark.parametrize(("targets", "without"), [([1.0, 2.0], set()), ([1.0, 1.0, 1.0], {"linear NCA regression", "MLKR"})])
def test_equal_numbers_leave_nothing_to_learn_from(targets, without):
    _, left_out = compared(rows(len(targets)), np.array(targets, dtype=np.float32)[:, None], "targets")
    assert set(left_out) == without


def test_one_reference_has_raw_inputs_only():
    fitted, left_out = compared(rows(1), np.array([0]))
    assert fitted == {"raw inputs", "raw inputs, centered"} and set(left_out) == {"PCA", "PPCA"}


def test_images_are_averaged_down_and_histograms_count_colors():
    """Memory does not grow with the size of the images."""
    images = torch.zeros(2, 3, 64, 48)
    images[0, 0] = 1
    small = _small(images)
    assert small.shape == (2, 3, 32, 32) and bool((small[0, 0] == 1).all()) and _small(torch.ones(2, 3, 8, 8)).shape == (2, 3, 8, 8)
    found = _histograms(255 * small.flatten(1).numpy(), 3)
    assert found.shape == (2, 64) and found[0].argmax() == 3 and found[1].argmax() == 0 and found[0, 3] == 1  # all red, all black


def test_no_baseline_is_fitted_after_the_time_is_used_up(monkeypatch):
    monkeypatch.setattr("nearkin.report.baselines.SECONDS", -1.0)
    fitted, left = compared(rows(12), np.arange(12) % 3)
    assert not fitted and all("has taken more than" in note for note in left.values())


def groups(points=120, dimensions=6, rare=()):
    """Three classes that differ in two dimensions; rare marks, which standardized are large, tell nothing."""
    draw = np.random.default_rng(0)
    labels = np.arange(points) % 3
    x = draw.normal(size=(points, dimensions)).astype(np.float32)
    x[:, :2] += 6 * np.array([[0, 0], [1, 0], [0, 1]], dtype=np.float32)[labels]
    marks = np.zeros((points, len(rare)), dtype=np.float32)
    for at, rows in enumerate(rare):
        marks[list(rows), at] = 13
    return np.concatenate([x, marks], 1), labels


def right(x, labels, fitted):
    """Share of the points whose nearest other point along two discriminants has their class."""
    z = torch.from_numpy(Discriminant(2).fit(x[:fitted], labels[:fitted]).transform(x))
    apart = torch.cdist(z, z[:fitted]).fill_diagonal_(torch.inf)
    return float(np.mean(labels[:fitted][apart.argmin(1)] == labels))


def test_points_have_neighbors_of_their_class_along_discriminants():
    assert right(*groups(rare=[(0, 31)] * 4 + [(1, 5, 9)]), 120) > 0.97
    assert right(*groups(dimensions=200), 60) > 0.8  # more dimensions than points


@pytest.mark.parametrize("rare", [(), [(0,)] * 4])
def test_two_directions_hold_all_that_tells_three_class_means_apart(rare):
    x, labels = (some.astype(np.float64) for some in groups(rare=rare))
    full = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(x, labels)
    apart = full.means_[:, None] - full.means_
    expected = np.einsum("ijp,pq,ijq->ij", apart, np.linalg.inv(full.covariance_), apart)  # squared Mahalanobis distances
    means = Discriminant(2).fit(x, labels).transform(full.means_)
    assert np.allclose(np.square(means[:, None] - means).sum(2), expected)


def test_discriminants_do_not_depend_on_units():
    x, labels = groups()
    units = np.array([1, 10, 0.1, 1, 5, 1])
    first, second = (Discriminant(2).fit(rows, labels).transform(rows) for rows in (x.astype(np.float64), x * units))
    assert first.shape == (120, 2) and np.allclose(np.abs(first), np.abs(second), atol=1e-6)


def test_a_copy_among_few_points_does_not_ruin_the_discriminants():
    """Its direction without variance would be scaled up to those that tell classes apart."""
    x, labels = groups(points=120, dimensions=300)
    for copies in (0, 1, 3):
        some, classes = x[:60].copy(), labels[:60].copy()
        some[:copies], classes[:copies] = some[30 : 30 + copies], classes[30 : 30 + copies]
        narrow = Spread(59, random_state=0)
        found = Discriminant(2).fit(narrow.fit_transform(some), classes)
        assert len(narrow.components_) == 59 - copies
        along = [found.transform(narrow.transform(part)) for part in (some, x[60:])]
        nearest = np.square(along[1][:, None] - along[0]).sum(2).argmin(1)
        assert (classes[nearest] == labels[60:]).mean() > 0.9, copies
