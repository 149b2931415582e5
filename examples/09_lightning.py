"""
In a LightningModule
====================

Lightning owns the loop, and the module owns the network and the objective. Two hooks are all that nearkin needs:
``training_step`` returns the loss, and ``on_train_batch_end`` calls ``objective.update``, since references such as a memory
of earlier batches move after the optimizer's step and nowhere else.

It needs ``pip install lightning``.
"""

# %%
# The module. The memory holds embeddings of the last 512 digits, so that a batch of 50 has many more candidates; ids keep a
# digit from being its own neighbor when the memory still holds it.
import logging
import warnings

import lightning as L
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from nearkin import MultiSimilarity, Points, knn_accuracy
from nearkin.compose import CrossBatchMemory, cosine

warnings.filterwarnings("ignore", ".*does not have many workers.*")  # the digits are in memory already
warnings.filterwarnings("ignore", ".*LeafSpec.*")  # Lightning calls a function that torch will remove
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Embedder(L.LightningModule):
    def __init__(self, dimension=16):
        super().__init__()
        self.network = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, dimension))
        self.objective = MultiSimilarity().choosing_among(CrossBatchMemory(512, dimension, delay=10))
        self.held_out, self.accuracy = [], []

    def forward(self, x):
        return self.network(x)

    def training_step(self, batch, _):
        x, labels, ids = batch
        embeddings = self(x)
        loss = self.objective(embeddings, labels, ids=ids)
        self.log("loss", loss)
        return {"loss": loss, "embeddings": embeddings.detach()}

    def on_train_batch_end(self, outputs, batch, _):
        self.objective.update(outputs["embeddings"], batch[1], ids=batch[2])

    def validation_step(self, batch, _):
        self.held_out.append(Points(self(batch[0]), *batch[1:]))

    def on_validation_epoch_end(self):
        points = Points(*(torch.cat(parts) for parts in zip(*((p.embeddings, p.labels, p.ids) for p in self.held_out), strict=True)))
        self.held_out.clear()
        self.accuracy.append(knn_accuracy(points, points, 5, cosine(), exclude_same_id=True))
        self.log("5-NN", self.accuracy[-1])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.003)


# %%
# The data bring an id for every digit.
L.seed_everything(0, verbose=False)
x, y = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
digits = TensorDataset(x.float() / 16, y, torch.arange(len(x)))
train, test = torch.utils.data.random_split(digits, [1200, 597], torch.Generator().manual_seed(0))

# %%
# Lightning trains. Checkpoints hold the objective's state, too: it is a part of the module.
model = Embedder()
trainer = L.Trainer(
    max_epochs=8, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
)
trainer.fit(model, DataLoader(train, batch_size=50, shuffle=True, drop_last=True), DataLoader(test, batch_size=256))
print(f"5-NN accuracy before training: {model.accuracy[0]:.1%}")
print(f"5-NN accuracy after 8 epochs: {model.accuracy[-1]:.1%}")

# %%
# The first point is the network before training, which Lightning's sanity check measures on two batches.
plt.plot([100 * value for value in model.accuracy], marker="o")
plt.xlabel("epoch")
plt.ylabel("5-NN accuracy among 597 test digits (%)")
plt.show()
