"""What the three estimators with networks share: train on (X, y), embed, find neighbors among the training rows."""

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
from nearkin.data.checksums import write_recorded
from nearkin.estimators.linear.inputs import FLOATS, like, validated
from nearkin.estimators.targets import Targets
from nearkin.objectives import Objective, WeightedSum
from nearkin.search import nearest
from nearkin.train import loop as training
from nearkin.train.assemble import deployed
from nearkin.train.config import NetworkChoice, Part, Run
from nearkin.train.objective_choice import BETWEEN_EPOCHS, Built, build, choose


class DeepEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """A network and an objective, by name or as instances, fitted by `nearkin.train.fit`.

    Subclasses define how y is read and what is predicted.
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
    def _read_targets(self, y: np.ndarray | None) -> Targets:
        """Read y as this estimator understands it."""

    @abstractmethod
    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on X (n, d) and y."""

    def _learn(self, x: np.ndarray, y: np.ndarray | None) -> None:
        check_whole("epochs", self.epochs)
        check_whole("batch_size", self.batch_size, 2)
        check_positive("learning_rate", self.learning_rate)
        targets = self._read_targets(y)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            inputs, steps = self._prepared(x)
            network = self._network(x.shape[1], inputs)
            dimension = _dimension(network, inputs)
            objective, name, why = self._objective(targets, dimension, len(x))
        self.loss_curve_ = training.fit(
            network,
            objective,  # type: ignore[arg-type]
            inputs,
            targets.for_training(),
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            seed=seed,
            report=self._report if self.verbose else None,
        )
        self.network_, self.objective_, self.targets_, self._steps = network.double(), objective, targets, steps
        self.about_ = self._description(targets, name, why, dimension, steps)
        self.references_ = Points(torch.from_numpy(self._embedded(x)), targets.labels, torch.arange(len(x)))

    def _report(self, epoch: training.Epoch) -> None:
        sys.stdout.write(f"[{type(self).__name__}] epoch {epoch.number} of {epoch.of}: loss {epoch.loss:.6g}\n")

    def _prepared(self, x: np.ndarray) -> tuple[Tensor, tuple[Any, ...]]:
        """The network's inputs, and for images the preprocessing steps."""
        if self.image_shape is None:
            return torch.from_numpy(x.astype(np.float32)), ()
        shape = networks.head.check_image_shape(self.image_shape)
        if int(np.prod(shape)) != x.shape[1]:
            raise ValueError(
                f"image_shape {shape} needs {int(np.prod(shape))} numbers per row, and X has {x.shape[1]}; give the shape of the rows"
            )
        images = torch.from_numpy(x.astype(np.float32)).reshape(-1, *shape)
        steps = (preprocess.Standardize.fitted(images),)
        return preprocess.preprocessed(images, steps), steps

    def _network(self, features: int, inputs: Tensor) -> nn.Module:
        if isinstance(self.network, nn.Module):
            if next(self.network.parameters(), None) is None:
                raise ValueError(f"network {type(self.network).__name__} has no parameters to train; pass a network that has some")
            return copy.deepcopy(self.network).float()
        name = self._network_name()
        size: dict[str, Any] = {"dimension_in": features} if inputs.ndim == 2 else {"image_shape": tuple(inputs.shape[1:])}
        check_whole("n_components", self.n_components)
        return networks.channels_last(networks.build(name, **size, dimension=int(self.n_components), **(self.network_options or {})))

    def _network_name(self) -> str:
        if not isinstance(self.network, str):
            raise ValueError(f"network ({self.network!r}) must be the name of a network or a torch.nn.Module")
        return ("mlp" if self.image_shape is None else "convnet") if self.network == "auto" else self.network

    def _objective(self, targets: Targets, dimension: int, size: int) -> tuple[Built, str, str]:
        if isinstance(self.objective, Objective | WeightedSum):
            objective: Built = copy.deepcopy(self.objective)
            name, why = type(objective).__name__, "it was passed in"
        else:
            # The default for data without labels, neighborhood discovery, needs rounds, which `fit` does not have.
            alone = self.objective == "auto" and targets.supervision == "ids"
            name, why = choose("instance_discrimination" if alone else self.objective, targets.supervision)
            if name in BETWEEN_EPOCHS:
                raise ValueError(
                    f"objective {name} needs a pass over all points between epochs, which fit does not make; "
                    "use `nearkin train`, objective='instance_discrimination', or an objective that learns from y"
                )
            classes = max(len(targets.classes), 1)
            objective = build(name, self.objective_options or {}, num_classes=classes, dimension=dimension, size=size)
        needed = objective.supervision or targets.supervision  # a weighted sum may have none of its own
        if needed not in (targets.supervision, "ids"):
            raise ValueError(f"objective {name} learns from {needed}, and y holds {targets.supervision}; use objective='auto'")
        return objective, name, why

    def _description(self, targets: Targets, objective: str, why: str, dimension: int, steps: tuple[Any, ...]) -> dict[str, Any]:
        named = None if isinstance(self.network, nn.Module) else self._network_name()
        return {
            "format": 1,
            "kind": "vectors" if self.image_shape is None else "images",
            "shape": [self.n_features_in_] if self.image_shape is None else list(self.image_shape),
            "classes": [str(name) for name in targets.classes],
            "targets": [],
            "supervision": targets.supervision,
            "objective": objective,
            "why": why,
            "network": {"name": named, "dimension": dimension, "normalize": False, "options": dict(self.network_options or {})},
            "prepare": preprocess.describe(steps),
            **deployed(self.objective_),
        }

    @torch.no_grad()
    def _embedded(self, x: np.ndarray) -> np.ndarray:
        """(n, p) in float64: in float32 the last digits of a row depend on the other rows of the batch."""
        inputs = torch.from_numpy(x.astype(np.float64))
        if self.image_shape is not None:
            mean, std = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (self._steps[0].mean, self._steps[0].std))
            inputs = (inputs.reshape(-1, *self.image_shape) - mean) / std
        embeddings: np.ndarray = training.embed(self.network_, inputs).numpy()
        return embeddings

    def _encode(self, X: Any) -> tuple[np.ndarray, Any]:  # noqa: N803
        """Embeddings of new rows, and the dtype of X."""
        check_is_fitted(self)
        x = validated(self, X, dtype=FLOATS, reset=False)
        return self._embedded(x), x.dtype

    def kneighbors(self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True) -> Any:  # noqa: N803
        """Find the nearest training rows of each row of X, nearest first.

        Parameters
        ----------
        X : array-like or Tensor of shape (n_queries, n_features), default=None
            Queries. None finds the neighbors of the training rows, each without itself.
        n_neighbors : int, default=None
            Number of neighbors; None takes the estimator's `n_neighbors` (5 for the embedding). More than there are
            candidates means all of them.
        return_distance : bool, default=True
            Whether to return the distances, too.

        Returns
        -------
        distances : ndarray or Tensor of shape (n_queries, k)
            Euclidean, or 1 - cosine if the objective uses cosines. Only if `return_distance`.
        positions : ndarray or Tensor of shape (n_queries, k)
            Row numbers of the neighbors in the training data.
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
        """Write a model folder, which `nearkin.load` and the command line can read.

        Parameters
        ----------
        folder : str or Path
            Created if it does not exist.

        Raises
        ------
        ValueError
            If `network` was passed as a module: only networks with a name can be rebuilt from a folder.
        """
        check_is_fitted(self)
        if self.about_["network"]["name"] is None:
            raise ValueError("network is a module, which a model folder cannot rebuild; use a network by name, or pickle the estimator")
        folder, known = Path(folder), self.references_
        references = known._replace(embeddings=known.embeddings.float())
        if self.targets_.supervision == "numbers" and known.labels is not None:
            references = references._replace(labels=known.labels.float())
        training.save(folder, copy.deepcopy(self.network_).float(), self.about_, references)
        write_recorded(folder / "run.json", self._run().to_json() + "\n", folder)

    def _run(self) -> Run:
        return Run(
            network=NetworkChoice(self._network_name(), self.about_["network"]["dimension"], options=dict(self.network_options or {})),
            objective=Part(self.about_["objective"], dict(self.objective_options or {})),
            epochs=int(self.epochs),
            batch_size=int(self.batch_size),
        )


@torch.no_grad()
def _dimension(network: nn.Module, inputs: Tensor) -> int:
    """The dimension of the embeddings; training mode is restored."""
    result = training.embed(network, inputs[:2])
    if result.ndim != 2:
        raise ValueError(f"network gives shape {tuple(result.shape)} for two rows; an embedding must be (n, p), so flatten the rest")
    return int(result.shape[1])
