"""Direct regression equals its equation as a literal loop, rejects wrong input, and finds a linear map."""

import pytest
import torch
from hypothesis import given

from nearkin.compose.points import Points, fresh_ids
from nearkin.objectives.direct_regression import DirectRegression
from nearkin.train.objective_choice import build
from tests import oracles as o
from tests.batches import Batch, Rows, batches, compare

Z = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
Y = torch.randn(6, 2, generator=torch.Generator().manual_seed(1))


def squared_errors(z: Rows, y: Rows, weight: Rows, bias: Rows) -> o.Values:
    result: o.Values = []
    for point, target in zip(z, y, strict=True):
        predicted = [sum(w * x for w, x in zip(row, point, strict=True)) + b for row, b in zip(weight, bias[0], strict=True)]
        result.append((sum((s - t) ** 2 for s, t in zip(predicted, target, strict=True)), 1.0))
    return result


@given(b=batches())
def test_it_equals_the_loop_in_value_and_gradient(b: Batch) -> None:
    objective = DirectRegression(b.d, 2).double()
    z = b.z.clone().requires_grad_()
    weight, bias = objective.head.weight, objective.head.bias
    rows = o.scalars(b.targets)
    # The bias is one row in the oracle, whose rows are lists of scalars.
    compare(
        lambda reduction: objective(z, b.targets, reduction=reduction),
        [z, weight],
        lambda leaves: squared_errors(leaves[0], rows, leaves[1], [bias.detach().unbind()]),
    )
    slope = torch.autograd.grad(objective(z, b.targets), bias)[0]
    torch.testing.assert_close(slope, 2 * (objective.predict(z) - b.targets).mean(0))


def test_a_known_answer() -> None:
    objective = DirectRegression(2)
    with torch.no_grad():
        objective.head.weight.copy_(torch.tensor([[1.0, 2.0]]))
        objective.head.bias.fill_(0.5)
    z, y = torch.tensor([[1.0, 1.0], [0.0, -1.0]]), torch.tensor([3.0, -2.5])
    assert objective(z, y, reduction="none").tolist() == [0.25, 1.0] and objective(z, y).item() == 0.625
    assert objective.predict(z).tolist() == [[3.5], [-1.5]]


def test_it_finds_a_linear_map() -> None:
    torch.manual_seed(0)
    objective = DirectRegression(4, 2)
    answers = Z @ torch.tensor([[1.0, 0.0], [0.0, -2.0], [0.5, 0.5], [0.0, 1.0]]) + 3
    optimizer = torch.optim.LBFGS(objective.parameters(), max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> float:
        optimizer.zero_grad()
        loss = objective(Z, answers)
        loss.backward()
        return loss.item()

    optimizer.step(closure)
    torch.testing.assert_close(objective.predict(Z), answers, atol=1e-2, rtol=1e-2)
    assert objective.last is not None and objective.last.valid == 6


def test_wrong_input_is_an_error() -> None:
    objective = DirectRegression(4)
    with pytest.raises(ValueError, match="labels have 2 columns, but this objective was built for 1; build it with targets=2"):
        objective(Z, Y)
    with pytest.raises(ValueError, match="embeddings have 3 dimensions, but this objective was built for 4"):
        objective(Z[:, :3], Y[:, 0])
    with pytest.raises(ValueError, match="embeddings have 3 dimensions, but this objective was built for 4"):
        objective.predict(Z[:, :3])
    with pytest.raises(ValueError, match=r"labels are missing: pass the targets, shape \(n,\) or \(n, t\)"):
        objective(Z)
    with pytest.raises(ValueError, match="DirectRegression uses no neighbors and takes no references="):
        objective(Z, Y[:, 0], ids=torch.arange(6), references=Points(Z, Y[:, :1], fresh_ids(6)))
    for bad in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match=rf"targets \({bad}\) must be a whole number of at least 1"):
            DirectRegression(4, bad)


def test_it_can_be_named_in_a_run() -> None:
    built = build("direct_regression", {"targets": 6}, num_classes=0, dimension=8, size=20)
    assert isinstance(built, DirectRegression) and built.head.weight.shape == (6, 8)
