"""A plain PyTorch loop: the optimizer gets the objective's own parameters too, and `update` follows its step."""

import torch
from sklearn.datasets import load_digits

from nearkin import CenterLoss, Points, knn_accuracy

torch.manual_seed(0)
x, y = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
x, (train, test) = x.float() / 16, torch.randperm(1797).split([1200, 597])
network = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
objective = CenterLoss(num_classes=10, dimension=8)  # a learned head, and class centers that follow the embeddings
optimizer = torch.optim.Adam([*network.parameters(), *objective.parameters()], lr=0.01)


def accuracy(encode):
    return f"{knn_accuracy(Points(encode(x[test]), y[test]), Points(encode(x[train]), y[train]), k=5):.1%}"


print("5-NN accuracy, raw pixels (64 numbers):", accuracy(lambda pixels: pixels))
print("5-NN accuracy, before training (8 numbers):", accuracy(network))
for _ in range(15):
    for batch in train[torch.randperm(len(train))].split(100):
        embeddings = network(x[batch])
        optimizer.zero_grad()
        objective(embeddings, y[batch]).backward()
        optimizer.step()
        objective.update(embeddings, y[batch])  # the centers move here, never inside forward or backward
print("5-NN accuracy, after training (8 numbers):", accuracy(network))
