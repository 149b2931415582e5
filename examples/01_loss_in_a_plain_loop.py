"""
A loss in a plain PyTorch loop
==============================

nearkin's objectives are ordinary PyTorch modules: call one with embeddings and labels, and call ``backward()`` on the
result. You keep your network, your optimizer and your loop.

This tutorial trains a small network on scikit-learn's handwritten digits so that the nearest neighbors of a digit
show the same digit.
"""

# %%
# The data: 1,797 images of 8 x 8 pixels. The network sees the first 1,200 in a random order; the other 597 test it.
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

from nearkin import NCA, CenterLoss, Points, knn_accuracy

torch.manual_seed(0)
x, y = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
x = x.float() / 16
train, test = torch.randperm(len(x)).split([1200, 597])


def accuracy(encode):
    """The share of test digits whose five nearest training digits vote for the right class."""
    with torch.no_grad():
        known, queries = Points(encode(x[train]), y[train]), Points(encode(x[test]), y[test])
    return knn_accuracy(queries, known, k=5)


def make_network():
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 2))


# %%
# NCA: three lines in your loop
# -----------------------------
#
# ``NCA()`` is neighborhood components analysis: minus the log of the probability that a soft nearest neighbor, drawn
# from the batch, has the query's class. The embedding here has only two numbers, so that it can be drawn.
network, objective = make_network(), NCA()
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
losses = []
for _ in range(15):
    for batch in train[torch.randperm(len(train))].split(100):
        optimizer.zero_grad()
        loss = objective(network(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

print(f"5-NN accuracy, raw pixels (64 numbers): {accuracy(lambda pixels: pixels):.1%}")
print(f"5-NN accuracy, NCA (2 numbers): {accuracy(network):.1%}")
print(objective.last)  # queries without a positive in their batch are skipped; this counts them

# %%
# The loss, and where the test digits lie:
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
left.plot(losses)
left.set(xlabel="step", ylabel="NCA loss")
with torch.no_grad():
    z = network(x[test])
dots = right.scatter(*z.T, c=y[test], cmap="tab10", s=12)
right.legend(*dots.legend_elements(), title="digit", bbox_to_anchor=(1.02, 1), loc="upper left")
right.set(title="597 test digits, embedded in two dimensions")
plt.show()

# %%
# Objectives with parameters or state
# -----------------------------------
#
# Some objectives own parameters (proxies, a linear head) or state (class centers, a memory bank). Two lines change:
# the optimizer gets ``objective.parameters()``, too, and you call ``objective.update`` after the optimizer's step.
# State moves in ``update`` and nowhere else, so evaluating a loss never changes it.
network, objective = make_network(), CenterLoss(num_classes=10, dimension=2)
optimizer = torch.optim.Adam([*network.parameters(), *objective.parameters()], lr=0.01)
for _ in range(15):
    for batch in train[torch.randperm(len(train))].split(100):
        embeddings = network(x[batch])
        optimizer.zero_grad()
        objective(embeddings, y[batch]).backward()
        optimizer.step()
        objective.update(embeddings, y[batch])

print(f"5-NN accuracy, softmax with center loss (2 numbers): {accuracy(network):.1%}")

# %%
# Raw pixels are hard to beat on this small set: two numbers come near to what 64 pixels say, and are 32 times smaller.
# On data where raw inputs say little, such as photographs, the difference is large.
#
# Next: :doc:`02_your_own_photos` does the same, and more, without a loop of your own. :doc:`/objectives` lists every
# objective, and says which one to take for which data.
