"""Rows of the contest of texts that train the encoder itself: `nearkin train --tune all`, and SetFit."""

import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nearkin import NCA, load
from nearkin.compose.affinity import cosine
from nearkin.compose.points import Points
from nearkin.data.dataset import Dataset
from nearkin.data.texts import Texts
from nearkin.evaluate import classification, retrieval
from nearkin.models.head import unit_length
from nearkin.models.text_encoders import find_text_encoder
from nearkin.train.assemble import build_whole
from nearkin.train.config import Run, leaves, override
from nearkin.train.encoder import with_text_encoder
from nearkin.train.training import train
from papers.contest import Printing

ENCODER = "sentence-transformers:all-MiniLM-L6-v2"
TOKENS, FEATURES, DIMENSION = 64, 384, 64
EPOCHS, BATCH, PER_CLASS = 20, 32, 4
SETFIT_BATCH = 16  # pairs
RATE, PROXY_RATE = 1e-3, 1e-2  # of a head, and of class vectors where there is none
Labeled = tuple[Sequence[str], Tensor]  # texts, and their classes (n,)


class Setting(NamedTuple):
    """What is chosen: the objective, the rate of the encoder, and a head that starts from the linear map or none."""

    objective: str
    rate: str
    head: bool

    @property
    def name(self) -> str:
        """The setting in a key."""
        return f"{self.objective} {self.rate} {'map' if self.head else 'features'}"

    @property
    def words(self) -> str:
        """The setting on the page."""
        return f"{self.objective.replace('_', ' ')}, {self.rate}, {'head from the linear map' if self.head else 'features'}"

    def leaves(self) -> dict[str, str]:
        """The settings of a run."""
        top = RATE if self.head else PROXY_RATE
        shown = (
            {"network.dimension": str(DIMENSION)} if self.head else {"network.dimension": str(FEATURES), "network.options.head": "false"}
        )
        temperature = {"nca": "0.1", "normalized_softmax": "0.05"}[self.objective]
        rates = {"optimizer.learning_rate": str(top), "network.rate": str(float(self.rate) / top)}
        return {**shown, **rates, "objective.name": self.objective, "objective.options.temperature": temperature}


SETTINGS = tuple(Setting(*one) for one in product(("nca", "normalized_softmax"), ("3e-05", "0.0001"), (True, False)))
SHARED = {
    "network.pretrained": "true",
    "network.name": ENCODER,
    "network.tune": "all",
    "network.normalize": "true",
    "data.size": str(TOKENS),
    "data.validation": "0",
    "data.test": "0",
    "data.leaks": "allow",
    "optimizer.name": "adam",
    "optimizer.weight_decay": "0",
    "optimizer.clip": "10",
    "schedule.warmup": "0.1",
    "sampler.name": "per_class",
    "sampler.options.per_class": str(PER_CLASS),
    "batch_size": str(BATCH),
    "epochs": str(EPOCHS),
    "validate_every": "1000",
    "checkpoint_seconds": "600",
}


def tuned_row(known: Labeled, asked: Labeled, seed: int, device: torch.device, setting: Setting, most: int | None) -> dict[str, Any]:
    """Train all weights, and measure the nearest class mean, 1-NN and MAP@R by cosine."""
    texts, labels = known
    names = tuple(str(number) for number in range(int(labels.max()) + 1))
    run = override(Run(), {**SHARED, **setting.leaves(), "seed": str(seed), **({} if most is None else {"epochs": str(most)})})
    run = with_text_encoder(run, find_text_encoder(ENCODER, length=TOKENS), leaves())
    began = time.perf_counter()
    with TemporaryDirectory() as folder:
        given = Dataset("labeled texts", Texts(list(texts)), labels=labels, classes=names)
        metrics = train(run, Path(folder) / "model", data=given, device=device, reporter=Printing(), given=leaves())
        took, model = time.perf_counter() - began, load(Path(folder) / "model", device=device)
        there, here = (unit_length(torch.as_tensor(model.encode(list(some)))).cpu() for some in (texts, asked[0]))
    scores = {**neighbor_scores((there, labels), (here, asked[1])), "logistic": logistic((there, labels), (here, asked[1]))}
    passed = metrics["images"] + 2 * len(texts)  # and for the features that the head starts from, and the references
    return {"scores": scores, "setting": setting.name, "steps": metrics["steps"], "passes": passed, "device seconds": round(took, 1)}


def neighbor_scores(known: tuple[Tensor, Tensor], asked: tuple[Tensor, Tensor]) -> dict[str, float]:
    """The nearest class mean, 1-NN and MAP@R of embeddings of length 1, by cosine."""
    (x, labels), (q, answers) = known, asked
    queries, references = Points(q, answers, torch.arange(len(q)) + len(x)), Points(x, labels, torch.arange(len(x)))
    found = {**classification(queries, references, cosine(), (1,)), **retrieval(queries, references, cosine(), (1,))}
    means = unit_length(torch.zeros(int(labels.max()) + 1, x.shape[1]).index_add_(0, labels, x))
    accuracy = float(((q @ means.T).argmax(1) == answers).double().mean())
    return {"accuracy": round(accuracy, 4), **{name: round(found[name].value, 4) for name in ("1-nn", "map@r")}}


def logistic(known: tuple[Tensor, Tensor], asked: tuple[Tensor, Tensor]) -> float:
    """The accuracy of logistic regression."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=10, max_iter=300).fit(known[0].numpy(), known[1].numpy())
    return round(float(model.score(asked[0].numpy(), asked[1].numpy())), 4)


def setfit_row(known: Labeled, asked: Labeled, seed: int, device: torch.device, pairs: int | None, most: int | None) -> dict[str, Any]:
    """SetFit to its end with its own settings; `pairs` of either kind for each text, or all pairs."""
    import datasets
    import setfit
    import transformers
    from sentence_transformers import SentenceTransformer
    from sklearn.linear_model import LogisticRegression

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]
        steps = of = 0
        times: list[float]

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.times = [time.process_time()]

        def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
            self.times.append(time.process_time())
            self.steps, self.of = state.global_step, state.max_steps
            control.should_training_stop = most is not None and self.steps >= most

    body = SentenceTransformer(str(find_text_encoder(ENCODER).weights.parent), device=str(device))
    body.max_seq_length = TOKENS
    model = setfit.SetFitModel(model_body=body, model_head=LogisticRegression())
    began, clock = time.perf_counter(), Clock()
    with TemporaryDirectory() as folder:
        settings = setfit.TrainingArguments(
            output_dir=folder,
            batch_size=SETFIT_BATCH,
            num_epochs=1,
            num_iterations=pairs,
            seed=seed,
            report_to="none",
            save_strategy="no",
            show_progress_bar=False,
        )
        rows = datasets.Dataset.from_dict({"text": list(known[0]), "label": known[1].tolist()})
        setfit.Trainer(model=model, args=settings, train_dataset=rows, callbacks=[clock]).train()
    took = time.perf_counter() - began
    found = np.asarray(model.predict(list(asked[0]), as_numpy=True))
    accuracy = round(float((found == asked[1].numpy()).mean()), 4)
    passed = 2 * SETFIT_BATCH * clock.steps + len(known[0])  # and once for the features that its head is fitted to
    spent = {"seconds a step": round(median(np.diff(clock.times)), 3)} if len(clock.times) > 2 else {}
    return {
        "scores": {"accuracy": accuracy},
        "steps": clock.steps,
        "of": clock.of,
        "passes": passed,
        "device seconds": round(took, 1),
    } | spent


def setfit_text_seconds(texts: Sequence[str], labels: Tensor) -> float:
    """CPU seconds of one text in a training step of SetFit, the median of a few steps."""
    row = setfit_row((texts, labels), (texts[:1], labels[:1]), 0, torch.device("cpu"), 20, 6)
    return float(row["seconds a step"]) / (2 * SETFIT_BATCH)


def text_seconds(texts: Sequence[str], _: Tensor) -> float:
    """CPU seconds of one text in a step that trains all weights, the median of a few steps."""
    encoder = find_text_encoder(ENCODER, length=TOKENS)
    run = with_text_encoder(override(Run(), {**SHARED, **SETTINGS[0].leaves()}), encoder, leaves())
    given = Dataset("labeled texts", Texts(list(texts), encoder.tokenizer))
    network, objective = build_whole(run, given, torch.device("cpu")).network, NCA(temperature=0.1)
    optimizer, spent = torch.optim.Adam(network.parameters(), 1e-5), []
    network.train()
    for ids in torch.split(torch.arange(6 * BATCH) % len(texts), BATCH):
        began = time.process_time()
        optimizer.zero_grad()
        objective(network(given.read(ids)), torch.arange(len(ids)) // PER_CLASS).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 10)
        optimizer.step()
        spent.append(time.process_time() - began)
    return round(median(spent) / BATCH, 4)
