"""Comparisons on few references, and what is said where raw inputs find better neighbors than the model."""

import warnings

import numpy as np
import pytest
import torch

from nearkin.data import Dataset
from nearkin.evaluate import Score
from nearkin.models.folder import Model
from nearkin.report.comparisons import Rival, beside_raw, compare
from nearkin.report.measure import Measured
from nearkin.report.subject import Subject, embedded


def found(ours, raw, name="10-nn", larger=True):
    score = lambda value: Score(name, value, larger_is_better=larger, split="test")  # noqa: E731
    measured = Measured({"prediction": {name: score(ours)}})
    return beside_raw(measured, [Rival("raw pixels", 64, {name: score(raw)}, 0.0), Rival("LDA", 9, {name: score(2.0)}, 0.0)])


@pytest.mark.parametrize(("ours", "raw", "level"), [(0.757, 0.817, "look"), (0.9, 0.817, "fine"), (0.9, 0.9, "fine")])
def test_raw_pixels_that_vote_better_are_told(ours, raw, level):
    assert found(ours, raw).level == level  # other methods are not what a network must beat at least


def test_both_figures_are_named_with_a_mend():
    one = found(0.757, 0.817)
    assert one.found == "10-nn 81.7 % by raw pixels, 75.7 % here." and "(--epochs)" in one.mend and "--part validation" in one.mend


def test_of_errors_the_smaller_is_the_better():
    assert found(1.5, 1.0, "mae", larger=False).level == "look" and found(1.0, 1.5, "mae", larger=False).level == "fine"


def test_figures_that_are_no_votes_are_not_compared():
    assert found(0.1, 0.9, "map@r").level == "fine"


PCA_ALONE = {"raw inputs", "raw inputs, centerd", "PCA", "PPCA"}


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
        rivals = list(compare(subject))
    assert all(bool(rival.scores) == bool(rival.dimension) for rival in rivals)
    return {rival.name for rival in rivals if rival.scores}, {rival.name: rival.note for rival in rivals if not rival.scores}


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
    assert all(note.startswith("left out, since ") and reasons[name] in note for name, note in left_out.items())


def test_references_of_a_class_that_are_all_alike_have_no_discriminant():
    x = rows(8)
    x[1:4], x[5:] = x[0], x[4]
    _, left_out = compared(x, np.array([0] * 4 + [1] * 4))
    assert left_out == {"LDA": "left out, since the references of a class do not differ enough"}


@pytest.mark.parametrize(("targets", "without"), [([1.0, 2.0], set()), ([1.0, 1.0, 1.0], {"linear NCA regression", "MLKR"})])
def test_equal_numbers_leave_nothing_to_learn_from(targets, without):
    _, left_out = compared(rows(len(targets)), np.array(targets, dtype=np.float32)[:, None], "targets")
    assert set(left_out) == without


def test_one_reference_has_raw_inputs_only():
    fitted, left_out = compared(rows(1), np.array([0]))
    assert fitted == {"raw inputs", "raw inputs, centerd"} and set(left_out) == {"PCA", "PPCA"}
