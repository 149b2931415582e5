"""
A loss of another paper
=======================

You read a paper, and its loss is in no library. If it compares affinities of pairs, it is a criterion: a function of the
affinities (n, m) and of what should be near. This tutorial writes two in at most 15 lines each. Nothing is registered, and
both work with every affinity, every set of references, memories, ids and several ranks.
"""

# %%
# The decoupled contrastive loss
# ------------------------------
#
# As SupCon, but the positives are left out of the denominator, so that an easy positive does not weaken the gradient.
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

from nearkin import NeighborhoodObjective, Points, knn_accuracy
from nearkin.compose import InBatch, Outcome, SameLabel, cosine


def decoupled(affinity, relation):
    positive = (relation.cost == 0) & relation.candidate  # (n, m)
    negative = (relation.cost > 0) & relation.candidate
    valid = positive.any(1) & negative.any(1)
    push = affinity.masked_fill(~negative, -torch.inf).masked_fill(~valid[:, None], 0.0).logsumexp(1)
    pull = (affinity * positive).sum(1) / positive.sum(1).clamp_min(1)
    return Outcome((push - pull) * valid, valid.float(), positive.sum())


# %%
# The intra-pair variance loss
# ----------------------------
#
# Cosines of positive pairs should not fall far below their mean, and those of negative pairs not rise far above theirs: both
# distributions become narrow. It is meant as an addition; alone it does not separate anything.


def narrow(affinity, relation, slack=0.01):
    positive = (relation.cost == 0) & relation.candidate
    negative = (relation.cost > 0) & relation.candidate
    means = [(affinity * pairs).sum() / pairs.sum().clamp_min(1) for pairs in (positive, negative)]
    low = ((1 - slack) * means[0] - affinity).clamp_min(0).square() * positive
    high = (affinity - (1 + slack) * means[1]).clamp_min(0).square() * negative
    values = low.sum(1) / positive.sum(1).clamp_min(1) + high.sum(1) / negative.sum(1).clamp_min(1)
    return Outcome(values, relation.candidate.any(1).float(), (positive | negative).sum())


# %%
# Both train like any other objective, alone or added up. The sum has narrower distributions here, and no better neighbors.
x, y = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
x = x.float() / 16


def fit(loss, epochs=6):
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 16))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.005)
    for _ in range(epochs):
        for batch in torch.randperm(1200).split(100):
            optimizer.zero_grad()
            loss(network(x[batch]), y[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        return network(x)


softly = NeighborhoodObjective(InBatch(), cosine(0.1), SameLabel(), decoupled)
narrowly = NeighborhoodObjective(InBatch(), cosine(), SameLabel(), narrow)
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", sharex=True)
losses = {"decoupled": softly, "decoupled and narrow": lambda z, labels: softly(z, labels) + 100 * narrowly(z, labels)}
for axis, (name, loss) in zip(axes, losses.items(), strict=True):
    z = fit(loss)
    found = knn_accuracy(Points(z[1200:], y[1200:]), Points(z[:1200], y[:1200]), 5, cosine())
    near, same = cosine()(z[1200:], z[1200:]), y[1200:, None] == y[1200:]
    print(f"{name}: 5-NN accuracy {found:.1%}, standard deviation of the cosines of positives {near[same].std():.3f}")
    for pairs, label in ((same, "positive"), (~same, "negative")):
        axis.hist(near[pairs].numpy(), bins=60, density=True, alpha=0.6, label=f"{label} pairs")
    axis.set(title=f"{name}, {found:.0%} right", xlabel="cosine", yticks=[])
    axis.legend(fontsize=8)
plt.show()

# %%
# :doc:`/concepts/composition` explains what a criterion can declare to be evaluated without the matrix.
