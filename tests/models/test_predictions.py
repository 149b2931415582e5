"""What a model predicts: names of classes, their positions, and None for what is rejected."""

import numpy as np
import pytest
import torch

from nearkin import Points
from nearkin.models import Model, build


def test_classes_have_names_and_positions() -> None:
    torch.manual_seed(0)
    network = build("linear", dimension_in=2, dimension=2)
    with torch.no_grad():
        network.head.linear.weight.copy_(torch.eye(2))
    about = {"kind": "vectors", "shape": [2], "prepare": [], "metric": "squared_euclidean", "supervision": "classes"}
    about |= {"classes": ["cat", "dog"], "network": {"name": "linear", "dimension": 2}}
    known, labels = torch.randn(60, 2) + 9 * torch.arange(60)[:, None] % 2 * 9, torch.arange(60) % 2
    model = Model(network, about, Points(known, labels))
    queries = torch.cat([known[:2], torch.full((1, 2), 500.0)])
    assert model.predict(queries) == model.predict(queries.numpy()) == ["cat", "dog", "dog"]
    assert model.predict(queries, reject=0.05)[2] is None
    numbers = model.predict(queries, reject=0.05, numbers=True)
    assert isinstance(numbers, torch.Tensor) and numbers[2] == -1
    assert isinstance(model.predict(queries.numpy(), numbers=True), np.ndarray)
    positions, shares = model.voters(queries, 3)
    assert positions.shape == (3, 3) and torch.equal(labels[positions[:2]], torch.tensor([[0] * 3, [1] * 3]))
    assert shares.unique().tolist() == pytest.approx([1 / 3])
