"""Rows of a table: the encoders are trained as the tabular estimators train them, and a model folder is written."""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.points import Points
from nearkin.data.checksums import write_json
from nearkin.data.dataset import Dataset
from nearkin.data.progress import Ticker
from nearkin.evaluate.calibration import expected_calibration_error
from nearkin.models.folder import Model, kept_references
from nearkin.models.tabular import NumberScaling, RowNetwork, TabularEncoder
from nearkin.train import ranks
from nearkin.train.assemble import Cut, describe
from nearkin.train.card import write_card
from nearkin.train.config import Run
from nearkin.train.folder import device_name, save_weights, write_run
from nearkin.train.interrupt import held
from nearkin.train.members import Members
from nearkin.train.reporter import Reporter, Silence
from nearkin.train.tabular import Schedule, TableRows, Trained, Training, batch_size_for, members_for
from nearkin.train.validate import known_points, neighbor_figures

METRIC = "squared_euclidean"  # ranks as the Euclidean distance of the votes does
OBJECTIVES = ("auto", "nca", "nca_regression")


@dataclass
class RowTraining:
    """Trains on the rows of a table and writes the model folder."""

    run: Run
    folder: Path
    data: Cut
    device: torch.device
    log: Reporter
    resume: bool = False

    def __post_init__(self) -> None:
        validation, test = (None if part is None else part.labeled() for part in (self.data.validation, self.data.test))
        self.data = self.data._replace(train=self.data.train.labeled(), validation=validation, test=test)

    def write(self) -> dict[str, Any]:
        """Train and write all files; returns the content of metrics.json."""
        check_run(self.run)
        parts = [self.data.train, *([self.data.validation] if self.data.validation is not None else [])]
        finished = Members(self.run, parts, self.folder)
        if self.resume:
            finished.resume(self.log, self._schedule(sum(map(len, parts))))
        write_run(self.folder, self.run)  # before the first member is trained: --resume needs it
        with held(finished.interrupt) if ranks.count() == 1 else nullcontext():  # several ranks cannot agree on a step to stop after
            network, trained = self.trained(parts, finished)
        about = self._about(network, [one.factor for one in trained])
        known = Points(self._embedded(network, self.data.train), self.data.train.point_labels, self.data.train.ids)
        model = Model(network, about, known)
        save_weights(self.folder / "weights.safetensors", network.state_dict())
        save_weights(self.folder / "references.safetensors", kept_references(known, binary=False))
        curve = [{"epoch": at, "validation loss": loss} for at, loss in enumerate(trained[0].curve, start=1)]
        metrics: dict[str, Any] = {"epochs": len(curve), "steps": 0, "images": 0, "device": device_name(self.device)}
        metrics |= {"seed": self.run.seed, "weights": "averaged", "members": len(trained), "curve": curve}
        if self.data.test is not None:
            metrics |= {"test": test_figures(model, self.data.test, known), "test points": known_points(self.data.test)}
        metrics["seconds"] = round(finished.seconds, 3)  # of the training, also of the part before an interruption
        write_json(self.folder / "model.json", about)
        write_json(self.folder / "split.json", self.data.split)
        write_json(self.folder / "metrics.json", metrics)
        counts = {name: len(part) for name, part in self.data._asdict().items() if isinstance(part, Dataset)}
        write_card(self.folder, self.run, about, metrics, counts)
        finished.tidy()
        return metrics

    def trained(self, parts: list[Dataset], finished: Members) -> tuple[RowNetwork, list[Trained]]:
        """The network of all members, and what each training says of itself; finished members are not trained again."""
        answers = _Answers(self.data.train)
        inputs = torch.cat([_vectors(part) for part in parts])
        counts = _format(parts[0]).schema.category_counts
        numbers = inputs[:, : inputs.shape[1] - len(counts)].double().numpy()
        scaling = NumberScaling.fitted(numbers[: len(parts[0])])
        targets = torch.cat([answers.of(part) for part in parts])
        classes = torch.cat([part.point_labels for part in parts if part.point_labels is not None]) if answers.classes else None
        rows = TableRows(
            torch.from_numpy(scaling(numbers)).float().to(self.device),
            inputs[:, numbers.shape[1] :].long().to(self.device),
            targets.to(self.device),
            None if classes is None else classes.to(self.device),
            torch.ones(len(inputs), device=self.device),
        )
        positions = np.arange(len(inputs))
        split = positions[: len(parts[0])], positions[len(parts[0]) :]
        options = self._options(len(inputs))
        count = options.pop("members")
        schedule = self._schedule(len(inputs))
        done = min(len(finished.trained), count)
        if done == count:
            self.log.message("the training is finished: nothing is left to train")
        elif finished.unfinished is not None:
            self.log.message(f"resuming{_member(done, count)} after step {finished.unfinished[1]['done']}")
        elif done:
            self.log.message(f"resuming after member {done} of {count}")
        members = list[TabularEncoder]()
        for number in range(count):
            torch.manual_seed(self.run.seed + number)  # each member has its own, so that it does not matter which are trained here
            encoder = TabularEncoder(numbers.shape[1], counts, self._dimension(), **options).to(self.device)
            members.append(encoder)
            if number < done:
                finished.load(number, encoder)
                continue
            ticker = Ticker(self.log.message, f"training{_member(number, count)}", schedule.epochs, "epochs")
            training = Training(encoder, rows, split, schedule, self.run.seed + number)
            finished.train(training, lambda epoch, *_, told=ticker: told.update(epoch))
            self.log.message(_said(number, count, training.curve, bool(len(split[1]))))
        return RowNetwork(members, scaling).to(self.device).eval(), finished.trained[:count]

    def _options(self, n: int) -> dict[str, Any]:
        known = {"number_embedding", "frequency_scale", "blocks", "hidden", "dropout"}
        given = {name: value for name, value in self.run.network.options.items() if name in known}
        return {**given, "members": int(self.run.network.options.get("members", members_for(n)))}

    def _dimension(self) -> int:
        return self.run.network.dimension

    def _schedule(self, n: int) -> Schedule:
        """The defaults for tables, with the settings of the run that differ from those of other trainings."""
        usual, made = Run(), Schedule(batch_size=batch_size_for(n))
        chosen = {
            "epochs": (self.run.epochs, usual.epochs),
            "batch_size": (self.run.batch_size, usual.batch_size),
            "patience": (self.run.patience, usual.patience),
            "learning_rate": (self.run.optimizer.learning_rate, usual.optimizer.learning_rate),
            "weight_decay": (self.run.optimizer.weight_decay, usual.optimizer.weight_decay),
        }
        return Schedule(**{**made.__dict__, **{name: mine for name, (mine, its) in chosen.items() if mine != its}})

    @torch.no_grad()
    def _embedded(self, network: RowNetwork, data: Dataset) -> Tensor:
        return torch.cat([network(part.to(self.device)) for part in torch.split(_vectors(data), 4096)])

    def _about(self, network: RowNetwork, factors: list[float]) -> dict[str, Any]:
        counts = _format(self.data.train).schema.category_counts
        options = {name: value for name, value in self._options(len(self.data.train)).items() if name != "members"}
        options |= {"categories": list(counts), "members": len(factors), "knots": network.knots.shape[1], "clipped": network.clipped}
        about = describe(self.run, self.data.train)
        made = {"name": "tabular", "dimension": self._dimension() * len(factors), "normalize": False, "options": options}
        votes = {"distance": Schedule().distance, "temperatures": [Schedule().temperature * factor for factor in factors]}
        return {**about, "metric": METRIC, "network": made, "prepare": [], "votes": votes, "table": _format(self.data.train).as_dict()}


def validation_loss(run: Run, data: Cut, device: torch.device) -> float:
    """The best loss on the validation part of a training with these settings; nothing is written."""
    assert data.validation is not None
    training = RowTraining(run, Path(), data, device, Silence())
    parts = [data.train, data.validation]
    _, trained = training.trained(parts, Members(run, parts))
    return float(min(min(one.curve) for one in trained))


class _Answers:
    """Targets of the loss: one-hot classes, or numbers standardized by the training part."""

    def __init__(self, train: Dataset) -> None:
        self.classes = train.supervision == "classes"
        self.count = len(train.classes)
        assert train.point_labels is not None
        values = train.point_labels.float()
        self.mean, spread = values.mean(0), values.std(0, correction=0)
        self.spread = torch.where(spread > 0, spread, torch.ones_like(spread))

    def of(self, data: Dataset) -> Tensor:
        """(n, t)."""
        assert data.point_labels is not None
        if self.classes:
            return torch.nn.functional.one_hot(data.point_labels, self.count).float()
        return (data.point_labels - self.mean) / self.spread


def test_figures(model: Model, test: Dataset, known: Points) -> dict[str, float]:
    """Figures of the soft vote of all training rows, and of the nearest ones."""
    inputs, answers = _vectors(test), test.point_labels
    assert answers is not None
    found = model.shares(inputs).double().cpu()
    queries = Points(torch.as_tensor(model.encode(inputs)).to(known.embeddings), answers.to(known.embeddings.device), test.ids)
    near = neighbor_figures(queries, known, test.supervision, METRIC)
    if test.supervision != "classes":
        errors = found - answers
        spread = (answers - answers.double().mean(0)).square().mean()
        return {
            "root_mean_square_error": float(errors.square().mean().sqrt()),
            "mean_absolute_error": float(errors.abs().mean()),
            "r2": float(1 - errors.square().mean() / spread) if float(spread) else 0.0,
        }
    own = found.gather(1, answers[:, None])[:, 0]
    confident, chosen = found.max(1)
    right = chosen == answers
    return {
        "accuracy": float(right.double().mean()),
        "log_loss": float(-own.clamp_min(1e-12).log().mean()),  # a class without any share would cost infinity
        "calibration_error": expected_calibration_error(confident, right),
        **near,
    }


def _vectors(data: Dataset) -> Tensor:
    assert isinstance(data.inputs, Tensor)
    return data.inputs


def _format(data: Dataset) -> Any:
    assert data.table is not None
    return data.table


def _member(number: int, count: int) -> str:
    return f" member {number + 1} of {count}" if count > 1 else ""


def _said(number: int, count: int, curve: list[float], held_out: bool) -> str:
    of = f"{_member(number, count).strip()}: " if count > 1 else ""
    best = int(np.argmin(curve)) + 1
    what = "validation loss" if held_out else "training loss"
    return f"{of}{len(curve)} epochs, {what} {curve[best - 1]:.4g} after epoch {best}"


def check_run(run: Run) -> None:
    """Refuse settings that tables do not use."""
    if run.network.name not in ("auto", "tabular"):
        raise ValueError(f"network.name ({run.network.name}) is not for rows of a table, which the network tabular reads; leave it out")
    if run.objective.name not in OBJECTIVES:
        raise ValueError(f"objective.name ({run.objective.name}) is not for rows of a table, which are trained by NCA; leave it out")
    if run.codes.learn:
        raise ValueError("codes.learn is not for rows of a table; leave out --codes")
