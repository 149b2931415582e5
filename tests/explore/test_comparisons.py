"""What is said where raw inputs find better neighbours than the model."""

import pytest

from nearkin.evaluate import Score
from nearkin.explore.comparisons import Rival, beside_raw
from nearkin.explore.measure import Measured


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
