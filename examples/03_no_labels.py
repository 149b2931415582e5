"""No labels: tell every digit from all others, find who became neighbors, trust the half that is least in doubt, go on."""

import torch
from sklearn.datasets import load_digits

from nearkin import NeighborhoodDiscovery, Points, knn_accuracy
from nearkin.compose.affinity import cosine
from nearkin.train.discovery import discover, trusted

torch.manual_seed(0)
order, digits = torch.randperm(1797), load_digits()
x, y = torch.from_numpy(digits.data).float()[order] / 16, torch.from_numpy(digits.target)[order]  # y only measures
network = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 16))
objective = NeighborhoodDiscovery(size=1200, dimension=16)  # 1,200 digits teach, the other 597 test
optimizer = torch.optim.Adam(network.parameters(), lr=0.001)
for name, epochs in {"raw pixels": 0, "untrained": 0, "after the instance round": 10, "after the discovery round": 10}.items():
    for _ in range(epochs):
        for batch in torch.randperm(1200).split(100):
            embeddings = network(x[batch] + 0.3 * torch.randn(100, 64))  # noise is the only augmentation
            optimizer.zero_grad()
            objective(embeddings, ids=batch).backward()
            optimizer.step()
            objective.update(embeddings, ids=batch)  # the bank remembers them
    z = x if name == "raw pixels" else network(x).detach()
    known, new = Points(z[:1200], y[:1200], torch.arange(1200)), Points(z[1200:], y[1200:])
    print(f"5-NN accuracy, {name}: {knn_accuracy(new, known, 5, cosine()):.1%}")
    if epochs:
        found = discover(objective.references.vectors)
        objective.trust(found.table, trusted(found.entropy, share=0.5))
