"""
In the Trainer of Hugging Face
==============================

The ``Trainer`` of transformers takes any module whose ``forward`` returns a loss if it is given labels. So a model of
transformers and an objective go into one module, and everything else (schedules, mixed precision, evaluation, several GPUs)
stays as you know it.

It needs ``pip install transformers accelerate``. The vision transformer here is small and starts from random weights, so that
nothing is downloaded; ``ViTModel.from_pretrained(...)`` takes its place in earnest.
"""

# %%
# The module: a vision transformer, a linear head, and an objective with learned proxies, whose parameters the ``Trainer``
# finds like all others.
import tempfile

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from transformers import PrinterCallback, Trainer, TrainingArguments, ViTConfig, ViTModel

from nearkin import NormalizedSoftmax, Points, knn_accuracy
from nearkin.compose import cosine


class Embedder(torch.nn.Module):
    def __init__(self, body, dimension, classes):
        super().__init__()
        self.body, self.head = body, torch.nn.Linear(body.config.hidden_size, dimension)
        self.objective = NormalizedSoftmax(classes, dimension, temperature=0.1)

    def forward(self, pixel_values, labels=None):
        embeddings = self.head(self.body(pixel_values=pixel_values).last_hidden_state.mean(1))
        loss = None if labels is None else self.objective(embeddings, labels)
        return {"loss": loss, "embeddings": embeddings}


# %%
# The data: 8 x 8 digits in patches of 2 x 2 pixels.
x, y = load_digits(return_X_y=True)
pixels = torch.from_numpy(x).float().reshape(-1, 1, 8, 8) / 16
points = [{"pixel_values": image, "labels": int(label)} for image, label in zip(pixels, y, strict=True)]
order = torch.randperm(len(points), generator=torch.Generator().manual_seed(0)).tolist()
train, test = [points[i] for i in order[:1200]], [points[i] for i in order[1200:]]


def neighbors(prediction):
    """Whether the five nearest test digits of each test digit, without itself, vote for its class."""
    labels = torch.from_numpy(prediction.label_ids)
    found = Points(torch.from_numpy(prediction.predictions), labels, torch.arange(len(labels)))
    return {"5-NN": knn_accuracy(found, found, 5, cosine(), exclude_same_id=True)}


# %%
# Training as usual; ``compute_metrics`` gets the embeddings.
torch.manual_seed(0)
sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
body = ViTModel(ViTConfig(image_size=8, patch_size=2, num_channels=1, **sizes), add_pooling_layer=False)
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        folder,
        num_train_epochs=6,
        learning_rate=0.002,
        per_device_train_batch_size=40,
        per_device_eval_batch_size=200,
        eval_strategy="epoch",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(Embedder(body, 16, 10), settings, train_dataset=train, eval_dataset=test, compute_metrics=neighbors)
    trainer.remove_callback(PrinterCallback)
    before = trainer.evaluate()["eval_5-NN"]
    trainer.train()
curve = [before, *(row["eval_5-NN"] for row in trainer.state.log_history if "epoch" in row and "eval_5-NN" in row)]
print(f"5-NN accuracy before training: {curve[0]:.1%}")
print(f"5-NN accuracy after 6 epochs: {curve[-1]:.1%}")

# %%
plt.plot([100 * value for value in curve], marker="o")
plt.xlabel("epoch")
plt.ylabel("5-NN accuracy among 597 test digits (%)")
plt.show()
