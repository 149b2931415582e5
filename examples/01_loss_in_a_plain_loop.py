"""A plain PyTorch loop: the optimiser gets the objective's own parameters too, and `update` follows its step."""

import torch
from sklearn.datasets import load_digits

from nearkin import CentreLoss, Points, knn_accuracy

torch.manual_seed(0)
x, y = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
x, (train, test) = x.float() / 16, torch.randperm(1797).split([1200, 597])
network = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
objective = CentreLoss(num_classes=10, dimension=8)  # a learnt head, and class centres that follow the embeddings
optimiser = torch.optim.Adam([*network.parameters(), *objective.parameters()], lr=0.01)


def accuracy(encode):
    return f"{knn_accuracy(Points(encode(x[test]), y[test]), Points(encode(x[train]), y[train]), k=5):.1%}"


print("5-NN accuracy, raw pixels (64 numbers):", accuracy(lambda pixels: pixels))
print("5-NN accuracy, before training (8 numbers):", accuracy(network))
for _ in range(15):
    for batch in train[torch.randperm(len(train))].split(100):
        embeddings = network(x[batch])
        optimiser.zero_grad()
        objective(embeddings, y[batch]).backward()
        optimiser.step()
        objective.update(embeddings, y[batch])  # the centres move here, never inside forward or backward
print("5-NN accuracy, after training (8 numbers):", accuracy(network))
