"""The mean target of soft neighbors in tiles equals the whole softmax."""

import pytest
import torch

from nearkin.search.soft_tiles import COLUMNS, ROWS, tiled_mean


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_mean_is_that_of_the_whole_softmax(weighted: bool, squared: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    queries, references = torch.randn(ROWS + 30, 5, dtype=dtype), torch.randn(2 * COLUMNS + 7, 5, dtype=dtype)
    queries[:5], references[-9:] = references[:5], 1000.0
    queries[5] = 990.0  # far from most of them
    weights, targets = torch.rand(len(references), dtype=dtype).log() * weighted, torch.randn(len(references), 2, dtype=dtype)
    without = torch.full((len(queries),), -1)
    without[:3] = torch.arange(3)
    away = torch.cdist(queries.double(), references.double(), compute_mode="donot_use_mm_for_euclid_dist")
    affinity = weights.double() - (away.square() if squared else away) / 0.7
    affinity[torch.arange(3), torch.arange(3)] = -torch.inf
    exact = torch.softmax(affinity, 1) @ targets.double()
    found = tiled_mean(queries, references, weights, targets, squared=squared, temperature=0.7, without=without)
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=1e-9 if dtype == torch.float64 else 2e-3)


def test_far_references_do_not_vanish() -> None:
    queries, references = torch.zeros(2, 1), torch.tensor([[5_000.0], [4_000.0], [4_001.0]])
    found = tiled_mean(queries, references, torch.zeros(3), torch.eye(3), squared=False, temperature=1.0, without=None)
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.7311, 0.2689]]).expand(2, 3), atol=1e-3, rtol=0)


def test_a_first_tile_with_nothing_but_the_row_itself_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearkin.search.soft_tiles.COLUMNS", 1)
    found = tiled_mean(
        torch.zeros(1, 1), torch.zeros(2, 1), torch.zeros(2), torch.eye(2), squared=False, temperature=1.0, without=torch.tensor([0])
    )
    assert found.tolist() == [[0.0, 1.0]]
