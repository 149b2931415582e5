"""What the three deep estimators share: a network trained on (X, y), and the neighbors among what it was trained on."""

import copy
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from nearkin import models as networks
from nearkin.compose.metrics import METRICS
from nearkin.compose.points import Points
from nearkin.compose.validation import check_positive, check_whole
from nearkin.data import preprocess
from nearkin.estimators.linear.inputs import FLOATS, like, validated
from nearkin.estimators.targets import Answers
from nearkin.objectives import Objective, WeightedSum
from nearkin.search import nearest
from nearkin.train import loop as training
from nearkin.train.assemble import deployed
from nearkin.train.config import NetworkChoice, Part, Run
from nearkin.train.objective_choice import BETWEEN_EPOCHS, Built, build, choose


class DeepEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """A network and an objective, named or handed in, fitted by `nearkin.train.loop`. Subclasses say what y means and what is predicted.

    Fitted: `network_`, `objective_`, `loss_curve_` (the mean loss of every epoch), `references_` (embeddings and answers of the
    training rows), `about_` (what the model folder says).
    """

    n_components: int
    objective: Any
    network: Any
    objective_options: dict[str, Any] | None
    network_options: dict[str, Any] | None
    image_shape: tuple[int, int, int] | None
    epochs: int
    batch_size: int
    learning_rate: float
    verbose: int
    random_state: Any
    n_features_in_: int

    @abstractmethod
    def _understood(self, y: np.ndarray | None) -> Answers:
        """What y means to this estimator."""

    @abstractmethod
    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on X (n, d) and y."""

    def _learn(self, x: np.ndarray, y: np.ndarray | None) -> None:
        check_whole("epochs", self.epochs)
        check_whole("batch_size", self.batch_size, 2)
        check_positive("learning_rate", self.learning_rate)
        answers = self._understood(y)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            inputs, steps = self._prepared(x)
            network = self._network(x.shape[1], inputs)
            dimension = _dimension(network, inputs)
            objective, name, why = self._objective(answers, dimension, len(x))
        self.loss_curve_ = training.fit(
            network,
            objective,  # type: ignore[arg-type]
            inputs,
            answers.for_training(),
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            seed=seed,
            report=self._report if self.verbose else None,
        )
        self.network_, self.objective_, self.answers_, self._steps = network.double(), objective, answers, steps
        self.about_ = self._description(answers, name, why, dimension, steps)
        self.references_ = Points(torch.from_numpy(self._embedded(x)), answers.labels, torch.arange(len(x)))

    def _report(self, epoch: training.Epoch) -> None:
        sys.stdout.write(f"[{type(self).__name__}] epoch {epoch.number} of {epoch.of}: loss {epoch.loss:.6g}\n")

    def _prepared(self, x: np.ndarray) -> tuple[Tensor, tuple[Any, ...]]:
        """Inputs of the network, and for images the steps that made them."""
        if self.image_shape is None:
            return torch.from_numpy(x.astype(np.float32)), ()
        shape = networks.head.check_image_shape(self.image_shape)
        if int(np.prod(shape)) != x.shape[1]:
            raise ValueError(
                f"image_shape {shape} takes {int(np.prod(shape))} numbers a row, and X has {x.shape[1]}; give the rows' own shape"
            )
        images = torch.from_numpy(x.astype(np.float32)).reshape(-1, *shape)
        steps = (preprocess.Standardize.fitted(images),)
        return preprocess.preprocessed(images, steps), steps

    def _network(self, features: int, inputs: Tensor) -> nn.Module:
        if isinstance(self.network, nn.Module):
            if next(self.network.parameters(), None) is None:
                raise ValueError(f"network {type(self.network).__name__} has no parameters: there is nothing to train; hand in another")
            return copy.deepcopy(self.network).float()
        name = self._network_name()
        size: dict[str, Any] = {"dimension_in": features} if inputs.ndim == 2 else {"image_shape": tuple(inputs.shape[1:])}
        check_whole("n_components", self.n_components)
        return networks.channels_last(networks.build(name, **size, dimension=int(self.n_components), **(self.network_options or {})))

    def _network_name(self) -> str:
        if not isinstance(self.network, str):
            raise ValueError(f"network ({self.network!r}) must be the name of a network or a torch.nn.Module")
        return ("mlp" if self.image_shape is None else "convnet") if self.network == "auto" else self.network

    def _objective(self, answers: Answers, dimension: int, size: int) -> tuple[Built, str, str]:
        if isinstance(self.objective, Objective | WeightedSum):
            objective: Built = copy.deepcopy(self.objective)
            name, why = type(objective).__name__, "it was handed in"
        else:
            # Discovery needs rounds, which a plain fit does not make.
            alone = self.objective == "auto" and answers.supervision == "ids"
            name, why = choose("instance_discrimination" if alone else self.objective, answers.supervision)
            if name in BETWEEN_EPOCHS:
                raise ValueError(
                    f"objective {name} looks at all points between epochs, which fit does not do: `nearkin train` does; "
                    "take instance_discrimination, or an objective that learns from y"
                )
            classes = max(len(answers.classes), 1)
            objective = build(name, self.objective_options or {}, num_classes=classes, dimension=dimension, size=size)
        wanted = getattr(objective, "supervision", answers.supervision)
        if wanted not in (answers.supervision, "ids"):
            raise ValueError(f"objective {name} learns from {wanted}, and y holds {answers.supervision}; take objective='auto' or another")
        return objective, name, why

    def _description(self, answers: Answers, objective: str, why: str, dimension: int, steps: tuple[Any, ...]) -> dict[str, Any]:
        named = None if isinstance(self.network, nn.Module) else self._network_name()
        return {
            "format": 1,
            "kind": "vectors" if self.image_shape is None else "images",
            "shape": [self.n_features_in_] if self.image_shape is None else list(self.image_shape),
            "classes": [str(name) for name in answers.classes],
            "targets": [],
            "supervision": answers.supervision,
            "objective": objective,
            "why": why,
            "network": {"name": named, "dimension": dimension, "normalize": False, "options": dict(self.network_options or {})},
            "prepare": preprocess.describe(steps),
            **deployed(self.objective_),
        }

    @torch.no_grad()
    def _embedded(self, x: np.ndarray) -> np.ndarray:
        """(n, p) float64: a row's embedding must not depend on the rows beside it, as it does in float32's last digits."""
        inputs = torch.from_numpy(x.astype(np.float64))
        if self.image_shape is not None:
            mean, std = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (self._steps[0].mean, self._steps[0].std))
            inputs = (inputs.reshape(-1, *self.image_shape) - mean) / std
        embeddings: np.ndarray = training.embed(self.network_, inputs).numpy()
        return embeddings

    def _encode(self, X: Any) -> tuple[np.ndarray, Any]:  # noqa: N803
        """Embeddings of new rows, and the dtype they came in."""
        check_is_fitted(self)
        x = validated(self, X, dtype=FLOATS, reset=False)
        return self._embedded(x), x.dtype

    def kneighbors(self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True) -> Any:  # noqa: N803
        """The nearest training rows of each row of X, nearest first: (distances, positions), (n, k) each, or the positions alone.

        Without X: of each training row, itself left out. Distances are Euclidean, or 1 - cosine where the objective took cosines.
        k above the number of candidates is lowered to it.
        """
        check_is_fitted(self)
        k = getattr(self, "n_neighbors", 5) if n_neighbors is None else n_neighbors
        check_whole("n_neighbors", k)
        known, affinity = self.references_, METRICS[self.about_["metric"]]
        others = len(known.embeddings) - (X is None)
        queries = known if X is None else torch.from_numpy(self._encode(X)[0])
        found = nearest(queries, known, min(int(k), others), affinity, exclude_same_id=X is None)
        positions = like(found.positions.numpy(), X)
        if not return_distance:
            return positions
        cosine = self.about_["metric"] == "cosine"
        distances = 1 - found.affinity if cosine else (-found.affinity).clamp_min(0).sqrt()
        return like(distances.numpy(), X), positions

    def save(self, folder: str | Path) -> None:
        """Write a model folder that `nearkin.load` and the command line read. The network must be one of ours, by name."""
        check_is_fitted(self)
        if self.about_["network"]["name"] is None:
            raise ValueError("a network that was handed in cannot be built again from a folder; name one of ours, or pickle the estimator")
        folder, known = Path(folder), self.references_
        references = known._replace(embeddings=known.embeddings.float())
        if self.answers_.supervision == "numbers" and known.labels is not None:
            references = references._replace(labels=known.labels.float())
        training.save(folder, copy.deepcopy(self.network_).float(), self.about_, references)
        (folder / "run.json").write_text(self._run().to_json() + "\n", encoding="utf-8")

    def _run(self) -> Run:
        return Run(
            network=NetworkChoice(self._network_name(), self.about_["network"]["dimension"], options=dict(self.network_options or {})),
            objective=Part(self.about_["objective"], dict(self.objective_options or {})),
            epochs=int(self.epochs),
            batch_size=int(self.batch_size),
        )


@torch.no_grad()
def _dimension(network: nn.Module, inputs: Tensor) -> int:
    """How many numbers an embedding has; the network's mode is put back."""
    result = training.embed(network, inputs[:2])
    if result.ndim != 2:
        raise ValueError(f"network gives shape {tuple(result.shape)} for two rows; an embedding is (n, p): flatten the rest")
    return int(result.shape[1])
