"""Queries of no known class: the asked rate of false rejections, and how well unseen classes are told apart."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import roc_auc_score

from nearkin import Points
from nearkin.search import familiarity, fit_rejection
from nearkin.search.rejection import NEAREST, Rejection


def literal_familiarity(queries, references):
    rows = []
    for query in queries.astype(np.float64):
        near = sorted((-float(((query - one) ** 2).sum()) for one in references.astype(np.float64)), reverse=True)
        rows.append(sum(near[:NEAREST]) / NEAREST)
    return np.array(rows)


def test_familiarity_and_p_values_are_those_of_a_literal_loop():
    rng = np.random.default_rng(0)
    references, held_out, queries = rng.normal(size=(40, 3)), rng.normal(size=(25, 3)), rng.normal(size=(10, 3)) * 2
    as_tensors = [torch.from_numpy(part) for part in (references, held_out, queries)]
    found, known = literal_familiarity(queries, references), literal_familiarity(held_out, references)
    assert np.allclose(familiarity(as_tensors[2], as_tensors[0]), found, rtol=1e-12)
    rule = fit_rejection(as_tensors[1], as_tensors[0])
    expected = [(1 + sum(one <= query for one in known)) / (1 + len(known)) for query in found]
    assert rule.p_values(found).tolist() == expected
    assert rule.rejects(found, 0.3).tolist() == [p <= 0.3 for p in expected]


@pytest.mark.parametrize(("classes", "neighbors"), [(1, 5), (2, 5), (3, 3), (5, 2), (50, 1), (200, 1)])
def test_of_small_classes_fewer_neighbors_are_asked(classes, neighbors):
    x, queries = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)), torch.randn(9, 3)
    references = Points(x, torch.arange(200) % classes)
    near = -torch.cdist(queries.double(), x.double()).square().sort(dim=1).values[:, :neighbors].mean(1)
    assert np.allclose(familiarity(queries, references), near.numpy(), rtol=1e-5)
    assert fit_rejection(torch.randn(30, 3), references).neighbors == neighbors
    assert fit_rejection(torch.randn(30, 3), Points(x, torch.randn(200))).neighbors == 5, "numbers are no classes"


def test_references_stand_in_for_held_out_points_without_meeting_themselves():
    points = Points(torch.randn(30, 2, generator=torch.Generator().manual_seed(0)), ids=torch.arange(30))
    assert fit_rejection(points, points).known.max() < 0


def digits(seed):
    """Held-out embeddings of known digits, in three parts, and those of three digits that the map was not fitted to."""
    rng = np.random.default_rng(seed)
    inputs, labels = load_digits(return_X_y=True)
    unseen = np.isin(labels, rng.choice(10, 3, replace=False))
    known = rng.permutation(np.flatnonzero(~unseen))
    fitted, held_out, new = np.split(known, [len(known) // 2, 3 * len(known) // 4])
    embedded = LinearDiscriminantAnalysis().fit(inputs[fitted], labels[fitted]).transform(inputs).astype(np.float32)
    return [torch.from_numpy(embedded[rows]) for rows in (fitted, held_out, new, np.flatnonzero(unseen))]


def test_the_share_of_false_rejections_is_the_one_asked_for_over_twenty_splits():
    rates = {0.05: [], 0.1: []}
    for seed in range(20):
        references, held_out, new, _ = digits(seed)
        rule, found = fit_rejection(held_out, references), familiarity(new, references)
        for asked, measured in rates.items():
            measured.append(rule.rejects(found, asked).mean())
    for asked, measured in rates.items():
        assert abs(np.mean(measured) - asked) < 0.01, (asked, np.mean(measured))


def false_alarms(known, unseen):
    """The share of unseen ones that pass where 95 % of the known ones do."""
    return float((unseen >= np.quantile(known, 0.05)).mean())


def test_unseen_classes_are_told_apart_at_least_as_well_as_by_the_distance_of_the_nearest():
    ours, plain = [], []
    for seed in range(5):
        references, _, new, unseen = digits(seed)
        known = [(familiarity(part, references), -torch.cdist(part, references).amin(1).numpy()) for part in (new, unseen)]
        truth = np.repeat([1, 0], [len(new), len(unseen)])
        for at, into in enumerate((ours, plain)):
            into.append((roc_auc_score(truth, np.concatenate([one[at] for one in known])), -false_alarms(known[0][at], known[1][at])))
    assert (np.mean(ours, 0) >= np.mean(plain, 0)).all()


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="reject needs at least 20 held-out points of known classes, and there are 5"):
        fit_rejection(torch.randn(5, 2), torch.randn(9, 2))
    with pytest.raises(ValueError, match=r"reject \(5\) must be at least 0 and below 1"):
        Rejection(np.zeros(30)).rejects(np.zeros(2), 5)
