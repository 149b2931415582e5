"""The order of points by class."""

import torch

from nearkin.kernels.class_order import by_class


def test_the_order_is_stable_and_the_spans_hold_the_classes() -> None:
    labels = torch.randint(-1, 6, (57,), generator=torch.Generator().manual_seed(0))
    found = by_class(labels)
    assert found.order.tolist() == sorted(range(57), key=lambda i: (int(labels[i]), i))
    assert [found.order[place].item() for place in found.place.tolist()] == list(range(57))
    ranked = labels[found.order].tolist()
    for at, (low, high) in enumerate(found.span.tolist()):
        assert [i for i, label in enumerate(ranked) if label == ranked[at]] == list(range(low, high))


def test_no_points_have_an_order_too() -> None:
    assert [part.shape[0] for part in by_class(torch.empty(0, dtype=torch.int64))] == [0, 0, 0]
