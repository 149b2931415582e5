"""
Compose your own objective
==========================

Nearly every objective in nearkin is four choices: references, affinity, relation and criterion
(:doc:`/concepts/composition`). Exchange one of them and you have another loss. This tutorial builds two that the library
has no name for, the second with a relation of its own.
"""

# %%
# Each positive on its own
# ------------------------
#
# ``NCA()`` is satisfied if *any* positive is near. ``each_positive`` asks it of every one. With a cosine this is the
# supervised contrastive loss.
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

from nearkin import NeighborhoodObjective, Points, knn_accuracy
from nearkin.compose import Composition, InBatch, Layout, Related, SameLabel, SquaredEuclidean, any_positive, cosine, each_positive, plan

each = NeighborhoodObjective(InBatch(), cosine(temperature=0.1), SameLabel(), each_positive)

# %%
# A relation of your own
# ----------------------
#
# A relation reads labels and ids, and returns for every pair of a query and a reference what choosing it costs (0 is a
# positive, 1 a negative) and whether it is a candidate, that is, part of the denominator. A sample is neither a positive
# nor a candidate for itself. Here two digits are positives if both are even or both
# are odd. Nothing else has to change: a part that declares nothing is computed exactly from the matrix of all pairs.


class SameParity:
    """Positives have the same parity."""

    supervision = "classes"  # what the labels are

    def __call__(self, batch, references):
        differ = batch.labels[:, None] % 2 != references.labels % 2  # (n, m)
        itself = batch.ids[:, None] == references.ids
        return Related((differ | itself).float(), ~itself)


parity = NeighborhoodObjective(InBatch(), SquaredEuclidean(), SameParity(), any_positive)

# %%
# Both train like any other objective.
x, y = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
x = x.float() / 16


def fit(objective, d=2, epochs=12):
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, d))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(epochs):
        for batch in torch.randperm(1200).split(100):
            optimizer.zero_grad()
            objective(network(x[batch]), y[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        return network(x)


figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
for axis, (name, objective, labels) in zip(axes, (("each positive", each, y), ("same parity", parity, y % 2)), strict=True):
    z = fit(objective)
    known, queries = Points(z[:1200], labels[:1200]), Points(z[1200:], labels[1200:])
    found = knn_accuracy(queries, known, 5, objective.affinity)
    print(f"{name}: 5-NN accuracy {found:.1%}")
    dots = axis.scatter(*z[1200:].T, c=labels[1200:], cmap="tab10", vmax=9, s=12)
    axis.set(title=f"{name}, {found:.0%} right", xticks=[], yticks=[])
    axis.legend(*dots.legend_elements(), fontsize=8, loc="best")
plt.show()

# %%
# Let it stream
# -------------
#
# ``SameParity`` needs the matrix of all pairs, which is fine for a batch. Two declarations let the kernels compute the
# same value without it: in which forms the relation can be streamed, and its layout, here classes. The loss over 4,000
# points then needs memory for 4,000 embeddings instead of 16 million pairs.


class StreamedParity(SameParity):
    """The same relation; its positives are the members of a class, and the kernels may know that."""

    streams = ("log", "expected")

    def layout(self, batch, references):
        return Layout(classes=(batch.labels % 2, references.labels % 2))


torch.manual_seed(0)
embeddings, labels = torch.randn(4000, 8), torch.randint(10, (4000,))
values = []
for relation in (SameParity(), StreamedParity()):
    objective = NeighborhoodObjective(InBatch(), SquaredEuclidean(), relation, any_positive)
    composition = Composition(objective.references, objective.affinity, relation, any_positive)
    values.append(float(objective(embeddings, labels)))
    print(f"{type(relation).__name__}: loss {values[-1]:.5f}, route {plan(composition, 4000, 4000, 'cpu')}")

# %%
# :doc:`/concepts/composition` explains the four routes and what each part can declare.
