"""
No labels at all
================

Without labels, nearkin first trains the network to tell every sample from all others. Samples that look alike end up
near each other on the way. Then, round by round, more samples treat their nearest neighbor as a positive. This is
neighborhood discovery (Huang et al., 2019); ``nearkin train photos/`` does it for a folder without classes. Here is
the loop, written out.
"""

# %%
# Digits again; the labels ``y`` only measure.
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

from nearkin import NeighborhoodDiscovery, Points, knn_accuracy
from nearkin.compose import cosine
from nearkin.train import discover, trusted

torch.manual_seed(0)
order, digits = torch.randperm(1797), load_digits()
x, y = torch.from_numpy(digits.data).float()[order] / 16, torch.from_numpy(digits.target)[order]
network = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 16))


def accuracy(z):
    known, queries = Points(z[:1200], y[:1200], torch.arange(1200)), Points(z[1200:], y[1200:])
    return knn_accuracy(queries, known, 5, cosine())


# %%
# The objective keeps a memory bank: the last embedding of each of the 1,200 training samples. A batch is compared with
# the whole bank. Samples are known by their ids, so you pass ``ids`` where you would pass labels.
objective = NeighborhoodDiscovery(size=1200, dimension=16)
optimizer = torch.optim.Adam(network.parameters(), lr=0.001)


def epoch():
    for batch in torch.randperm(1200).split(100):
        embeddings = network(x[batch] + 0.3 * torch.randn(100, 64))  # noise is the only augmentation
        optimizer.zero_grad()
        objective(embeddings, ids=batch).backward()
        optimizer.step()
        objective.update(embeddings, ids=batch)  # writes them into the bank
    with torch.no_grad():
        return accuracy(network(x))


# %%
# Round 0 tells samples apart. Before each later round, ``discover`` finds every sample's nearest neighbor in the bank and
# how sure it is (the entropy of its soft choice: low is sure). ``trusted`` takes the surest half, then all; the neighbors
# of those count as positives from then on.
curve = [accuracy(network(x).detach())]
for share in (0, 0.5, 1):
    if share:
        found = discover(objective.references.vectors)
        chosen = trusted(found.entropy, share=share)
        pure = (y[:1200][found.table[:, 0]] == y[:1200])[chosen].float().mean()
        objective.trust(found.table, chosen)
        print(f"{int(chosen.sum())} samples trust their neighbor; {pure:.1%} of these show the same digit")
    curve += [epoch() for _ in range(10)]

print(f"5-NN accuracy, raw pixels: {accuracy(x):.1%}")
for name, at in {"untrained": 0, "after telling samples apart": 10, "half trust": 20, "all trust": 30}.items():
    print(f"5-NN accuracy, {name}: {curve[at]:.1%}")

# %%
figure, axis = plt.subplots(figsize=(8, 4), layout="constrained")
axis.plot(range(31), [100 * value for value in curve], marker="o", ms=4, label="16 learned numbers")
axis.axhline(100 * accuracy(x), color="gray", ls="--", label="raw pixels")
axis.axvspan(10, 20, alpha=0.1, label="half of the samples trust their neighbor")
axis.axvspan(20, 30, alpha=0.2, label="all do")
axis.set(xlabel="epoch", ylabel="5-NN accuracy, percent", xticks=range(0, 31, 5))
axis.legend()
plt.show()

# %%
# Raw pixels stay ahead on this set: the digits are centered and of one size, so pixels compare them well. On images
# where pixels say little the order is reversed; :doc:`/papers` has the figures for CIFAR-10. A few labeled images
# tell you which case you have: ``nearkin evaluate runs/model labeled/ --compare``.
#
# On the command line, a folder of images without subfolders is all it takes:
#
# .. code-block:: sh
#
#    nearkin train photos/ --size 64
