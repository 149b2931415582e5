"""
Numbers instead of classes
==========================

Sometimes what should make two points near is a number: a price, an age, an angle, the course of a disease. NCA
regression learns an embedding in which the neighbors of a point have a similar number, so that the mean over the
nearest neighbors is a good prediction.
"""

# %%
# The data: ten measurements of 442 patients, and how far their diabetes had advanced a year later.
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_diabetes

from nearkin import NCARegression, nearest

x, y = (torch.from_numpy(part).float() for part in load_diabetes(return_X_y=True))
x = x * len(x) ** 0.5  # each column has unit variance now


def predict(encode, train, test, k):
    """The mean target of the k nearest training patients."""
    with torch.no_grad():
        found = nearest(encode(x[test]), encode(x[train]), k)
    return y[train][found.positions].mean(1)  # positions: (n, k)


def fit(train, steps=60):
    """A linear map from ten numbers to three."""
    target = (y[train] - y[train].mean()) / y[train].std()
    embed, objective = torch.nn.Linear(10, 3, bias=False), NCARegression()
    optimizer = torch.optim.Adam(embed.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        objective(embed(x[train]), target).backward()
        optimizer.step()
    return embed


# %%
# 442 patients are few, and one split would say little. So the comparison is repeated over ten random halves.
ks, errors = (5, 10, 20, 40), []
for seed in range(10):
    torch.manual_seed(seed)
    train, test = torch.randperm(len(x)).split(len(x) // 2)
    embed = fit(train)
    for encode in (torch.nn.Identity(), embed):
        errors.append([(predict(encode, train, test, k) - y[test]).abs().mean() for k in ks])
before, after = torch.tensor(errors).reshape(10, 2, len(ks)).unbind(1)  # (10, k) each
for k, raw, learned in zip(ks, before.mean(0), after.mean(0), strict=True):
    print(f"mean absolute error of {k}-NN regression over 10 splits: {raw:.2f} raw, {learned:.2f} learned")

# %%
# The gain is small but there for larger neighborhoods, and it comes with three numbers instead of ten. In the map on
# the right the target changes smoothly.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.3), layout="constrained")
for name, some in {"raw measurements": before, "learned map": after}.items():
    left.errorbar(ks, some.mean(0), some.std(0), marker="o", capsize=3, label=name)
left.set(xlabel="neighbors k", ylabel="mean absolute error")
left.legend()
with torch.no_grad():
    z = embed(x)
z = (z - z.mean(0)) @ torch.linalg.svd(z - z.mean(0), full_matrices=False).Vh.T
dots = right.scatter(z[:, 0], z[:, 1], c=y, s=12, cmap="viridis")
figure.colorbar(dots, label="disease progression")
right.set(title="442 patients, main plane of the learned map")
plt.show()

# %%
# On the command line, name the column that holds the number:
#
# .. code-block:: sh
#
#    nearkin train table.csv --set data.target_columns=price
#
# Several columns, such as the two angles of a pose, are separated by commas. scikit-learn users find the same
# objective as :doc:`LinearNCARegression </how-to/estimators/linear-nca-regression>`.
