"""The whole training set as one batch: the same gradient as one large batch, in bounded memory."""

import pytest
import torch
from torch import nn

from nearkin import NCA, NCARegression, PrecisionAtK
from nearkin.train.step import Step
from nearkin.train.whole_set import whole_set_step


def parts(objective, answers, seed=0, dropout=0.0):
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 3)).double()
    inputs = torch.randn(61, 5, dtype=torch.float64)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    return Step(
        network, objective, optimizer, read=lambda ids: inputs[ids], answers=answers, prepare=lambda x: x, generator=torch.Generator()
    )


CASES = [
    (lambda: NCA(), torch.arange(61) % 4),
    (lambda: NCA(engine="torch"), torch.arange(61) % 4),
    (lambda: NCARegression(engine="torch"), torch.linspace(0, 1, 61, dtype=torch.float64)[:, None]),
    (lambda: PrecisionAtK(3), torch.arange(61) % 4),
]


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("chunk", [1, 7, 61, 100])
def test_chunks_equal_one_large_batch(case, chunk):
    make, answers = CASES[case]
    ids = torch.arange(61)
    whole, joined = parts(make(), answers), parts(make(), answers)
    a = whole_set_step(whole, ids, chunk)
    b = joined(ids)
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    for mine, theirs in zip(whole.network.parameters(), joined.network.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


def test_dropout_draws_the_same_in_both_passes():
    """With the same draws the second pass reproduces the embeddings of the first: its own loss gradient is consistent."""
    step = parts(NCA(), torch.arange(61) % 4, dropout=0.5)
    seen = []
    embed = step.embed
    step.embed = lambda ids, inputs=None: seen.append(embed(ids, inputs)) or seen[-1]
    whole_set_step(step, torch.arange(61), 20)
    first, second = torch.cat(seen[: len(seen) // 2]), torch.cat(seen[len(seen) // 2 :])
    assert torch.equal(first.detach(), second.detach())
