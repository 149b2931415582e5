"""A model folder: what training writes and everything else reads.

    model.json              inputs, network, preprocessing, metric, objective and the reason for it
    run.json                the Run that made it
    weights.safetensors     the last weights; best.safetensors those that were best on the validation part, if there is one
    objective.safetensors   parameters and state of the objective
    references.safetensors  embeddings of the training part with their labels or targets, for predictions. By the best weights if there are
                            any; references-last.safetensors are then those of the last. Binary codes are stored packed
    tokenizer.json          of a model of texts
    split.json, metrics.json, log.jsonl, README.md (the model card), checkpoints/
    checksums.json          the size and the checksums of all these files but the log and the checkpoints, which have their own

Nothing in it is a pickle.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from nearkin.compose.affinity import Affinity, InnerProduct, SquaredEuclidean, cosine, signs
from nearkin.compose.metrics import METRICS
from nearkin.compose.points import Points
from nearkin.compose.validation import check_whole
from nearkin.data import images as pictures
from nearkin.data import preprocess
from nearkin.data.checksums import EDITED, check, wrong
from nearkin.data.dataset import Dataset
from nearkin.data.disk import FileDamagedError, read_json
from nearkin.data.opener import open as open_data
from nearkin.data.pixels import Framing
from nearkin.data.table_format import TableFormat
from nearkin.data.texts import Texts, Tokenizer, tokenizer_from
from nearkin.models.adapters import Adapted
from nearkin.models.catalog import build, channels_last
from nearkin.models.paths import model_page
from nearkin.models.saved_report import SavedReport, saved_report
from nearkin.models.weights import read_tensors
from nearkin.search import Neighbors, nearest
from nearkin.search.packing import pack, unpack
from nearkin.search.rejection import familiarity, fit_rejection
from nearkin.search.soft_neighbors import Votes, soft_mean
from nearkin.search.soft_neighbors import vote as soft_shares
from nearkin.search.voting import vote

NEEDED = ("kind", "shape", "prepare", "metric", "network")  # in every model.json

Picture = str | Path | Image.Image
Inputs = Tensor | np.ndarray | Picture | Sequence[Picture] | Sequence[np.ndarray]


class Model:
    """A trained network with its preprocessing, its metric and the embeddings of its training points. `load` opens one.

    Parameters
    ----------
    network : nn.Module
        The network.
    about : dict
        The content of model.json.
    references : Points, optional
        Embeddings of the training points with their labels, for `neighbors` and `predict`.
    tokenizer : Tokenizer, optional
        What reads texts, for a model of texts.
    folder : Path, optional
        The model folder that it was loaded from, for `report`.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from nearkin import Points
    >>> from nearkin.models import Model, build
    >>> network = build("linear", dimension_in=2, dimension=2)
    >>> with torch.no_grad():
    ...     _ = network.head.linear.weight.copy_(torch.eye(2))
    >>> about = {"kind": "vectors", "shape": [2], "prepare": [], "metric": "squared_euclidean", "supervision": "classes"}
    >>> about |= {"classes": ["cat", "dog"], "network": {"name": "linear", "dimension": 2}}
    >>> model = Model(network, about, Points(torch.tensor([[0.0, 0.0], [5.0, 5.0]]), torch.tensor([0, 1])))
    >>> model
    <Model linear: vectors 2 to 2 numbers, 2 references>
    >>> queries = np.array([[1.0, 0.0], [4.0, 5.0]], dtype=np.float32)
    >>> model.encode(queries)
    array([[1., 0.],
           [4., 5.]], dtype=float32)
    >>> model.neighbors(queries, k=1).positions
    tensor([[0],
            [1]])
    >>> model.predict(queries, k=1)
    ['cat', 'dog']
    >>> model.predict(queries, k=1, numbers=True)  # their positions in model.classes
    array([0, 1])
    """

    def __init__(
        self,
        network: nn.Module,
        about: dict[str, Any],
        references: Points | None = None,
        tokenizer: Tokenizer | None = None,
        folder: Path | None = None,
    ) -> None:
        self.network = network.eval()
        self.folder = folder
        self.tokenizer = tokenizer
        self.about = about
        self.references = references
        self.prepare = preprocess.restore(about["prepare"])
        self.affinity = METRICS[about["metric"]]

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return next(self.network.parameters(), torch.zeros(())).device

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in the order of their numbers."""
        return tuple(self.about["classes"])

    @property
    def binary(self) -> bool:
        """Whether it was trained for binary codes; its embeddings are then +-1."""
        return bool(self.about["metric"] == "hamming")

    @property
    def smooth_affinity(self) -> Affinity:
        """An affinity with a gradient for the network's outputs: for binary codes the inner product, otherwise `affinity`."""
        return InnerProduct() if self.binary else self.affinity

    @property
    def soft_affinity(self) -> Affinity | None:
        """The affinity whose softmax gives neighbor probabilities: at the temperature of the training.

        If the temperature is unknown, it is 1 for Euclidean distances. For cosines the result is None: they all lie in -1..1, so their
        softmax at temperature 1 is almost uniform.
        """
        if "temperature" not in self.about:
            return None if self.about["metric"] == "cosine" else self.affinity
        temperature = float(self.about["temperature"])
        return cosine(temperature) if self.about["metric"] == "cosine" else SquaredEuclidean(temperature)

    @torch.no_grad()
    def encode(self, inputs: Inputs, batch_size: int = 512) -> Tensor | np.ndarray:
        """Compute embeddings.

        Parameters
        ----------
        inputs : Tensor, ndarray, path, Pillow image, text, or a sequence of these
            Images (n, c, h, w) uint8 or float in 0..1 (channels may also be last, and gray images may be without), vectors (n, d), or image
            files and Pillow images, which are converted to the model's size. For a model of texts, strings are the texts themselves.
        batch_size : int, default=512
            Inputs computed at a time; lower it if memory runs out.

        Returns
        -------
        Tensor or ndarray
            (n, d) embeddings: a tensor for a tensor, otherwise an array. Those of a model for binary codes are +-1; `codes` packs them.

        Raises
        ------
        ValueError
            If the inputs have another shape or range than the model reads.
        DamagedImageError
            If a file cannot be decoded.
        """
        points = self._texts(inputs) if self.reads_texts else self._read(inputs)
        mode = self.network.training
        self.network.eval()
        try:
            rows = [self.network(self._prepared(part.to(self.device))).float() for part in torch.split(points, batch_size)]
        finally:
            self.network.train(mode)
        embeddings = signs(torch.cat(rows)) if self.binary else torch.cat(rows)
        return embeddings.to(inputs.device) if isinstance(inputs, Tensor) else embeddings.cpu().numpy()

    @property
    def reads_texts(self) -> bool:
        """Whether its inputs are texts."""
        return bool(self.about.get("kind") == "texts")

    @property
    def has_features(self) -> bool:
        """Whether its network is an encoder under a head, so that `features` are there."""
        return isinstance(self.network, Adapted)

    @torch.no_grad()
    def features(self, points: Tensor) -> Tensor:
        """Compute what the encoder under the head returns.

        Parameters
        ----------
        points : Tensor
            (n, c, h, w) images, uint8; or (n, length) token numbers.

        Returns
        -------
        Tensor
            (n, f) float32.
        """
        assert isinstance(self.network, Adapted)
        features: Tensor = self.network.body(self._prepared(points.to(self.device))).flatten(1).float()
        return features

    @torch.no_grad()
    def from_features(self, features: Tensor) -> Tensor:
        """Compute embeddings from `features`.

        Parameters
        ----------
        features : Tensor
            (n, f) as `features` returns them.

        Returns
        -------
        Tensor
            (n, d) embeddings, as `encode` returns them.
        """
        assert isinstance(self.network, Adapted)
        embeddings: Tensor = self.network.head(features.to(self.device)).float()
        return signs(embeddings) if self.binary else embeddings

    def codes(self, inputs: Inputs) -> np.ndarray:
        """Compute packed binary codes: the signs of the embeddings, eight in a byte.

        Parameters
        ----------
        inputs : Tensor, ndarray, path, Pillow image, or a sequence of these
            As of `encode`.

        Returns
        -------
        ndarray
            (n, ceil(d / 8)) uint8.
        """
        return pack(self.encode(inputs))

    def neighbors(self, inputs: Inputs, k: int = 10) -> Neighbors:
        """Find the nearest training points of each input.

        Parameters
        ----------
        inputs : Tensor, ndarray, path, Pillow image, or a sequence of these
            As of `encode`.
        k : int, default=10
            Number of neighbors.

        Returns
        -------
        Neighbors
            Positions (n, k) in `references`, and affinities (n, k), nearest first.

        Raises
        ------
        ValueError
            If the model folder has no references.
        """
        embeddings = torch.as_tensor(self.encode(inputs)).to(self.device)
        return nearest(embeddings, self._known().embeddings, k, self.affinity)

    def predict(
        self, inputs: Inputs, k: int = 10, *, reject: float | None = None, held_out: Inputs | None = None, numbers: bool = False
    ) -> list[str | None] | Tensor | np.ndarray:
        """Predict labels from the nearest training points: the majority's class, or the mean of their targets.

        Parameters
        ----------
        inputs : Tensor, ndarray, path, Pillow image, or a sequence of these
            As of `encode`.
        k : int, default=10
            Number of neighbors. Models of tables do not use it: all training rows vote, the nearest the most.
        reject : float, optional
            Predict None for points of no known class, so that this share of known ones is rejected, too.
        held_out : Tensor, ndarray, path, Pillow image, or a sequence of these, optional
            At least 20 points of known classes that were not trained on, to keep the rate of `reject`. By default the training points,
            each compared with the others: these are nearer to one another than new points are, so that more than the given share of known
            points is rejected. `Collection.predict` takes the held-out points of the index.
        numbers : bool, default=False
            Return classes as their positions in `classes`, -1 for rejected points, to compare them with labels of a data set.

        Returns
        -------
        list of str or None, Tensor or ndarray
            The names of the classes, None for rejected points; with `numbers` (n,) their positions; (n, t) of a model of numbers.

        Raises
        ------
        ValueError
            If the model has no references, or was trained without labels.
        """
        known = self._known()
        if known.labels is None:
            raise ValueError("this model was trained without labels, so it cannot predict any; use neighbors()")
        labels, references, classes = known.labels, known.embeddings, self.about["supervision"] == "classes"
        if reject is not None and not classes:
            raise ValueError(f"reject ({reject}) is for classes, and this model predicts {self.about['supervision']}; leave it out")
        if self.votes_softly and reject is None:
            shares = self.shares(inputs)
            return self._answered(shares.argmax(1) if classes else shares, inputs, numbers or not classes)
        if classes and bool((labels < 0).any()):  # points of unknown class have no vote
            labels, references = labels[labels >= 0], references[labels >= 0]
        queries = torch.as_tensor(self.encode(inputs)).to(self.device)
        votes = labels[nearest(queries, references, k, self.affinity).positions]
        found = vote(votes) if classes else votes.float().mean(1)
        if reject is not None:
            found = torch.where(self._rejected(queries, Points(references, labels), held_out, reject), -1, found)
        return self._answered(found, inputs, numbers or not classes)

    def _answered(self, found: Tensor, inputs: Inputs, numbers: bool) -> list[str | None] | Tensor | np.ndarray:
        """Predictions as the caller wants them: names, or numbers of the kind of the inputs."""
        if not numbers:
            return [None if number < 0 else self.classes[number] for number in found.tolist()]
        return found if isinstance(inputs, Tensor) else found.cpu().numpy()

    @property
    def votes_softly(self) -> bool:
        """Whether predictions are soft votes of all training rows, as those of a model of tables are."""
        return "votes" in self.about

    @torch.no_grad()
    def shares(self, inputs: Inputs) -> Tensor:
        """Compute the soft votes of all training rows, for a model of tables.

        Parameters
        ----------
        inputs : frame, table file, Tensor or ndarray
            As of `encode`.

        Returns
        -------
        Tensor
            (n, C) each class's share of the vote, or (n, t) the mean targets.

        Raises
        ------
        ValueError
            If this is no model of tables, or it has no references.
        """
        if not self.votes_softly:
            raise ValueError("shares are those of a model of tables, and this is none; use predict() or neighbors()")
        found = [soft_mean(some, those, self.about["votes"]["distance"], warm) for some, those, warm in self._members(inputs)]
        return torch.stack(found).mean(0)

    @torch.no_grad()
    def voters(self, inputs: Inputs, k: int = 5) -> tuple[Tensor, Tensor]:
        """Find the training points that speak for each prediction, those with the largest share of the vote first.

        Parameters
        ----------
        inputs : Tensor, ndarray, path, Pillow image, frame, or a sequence of these
            As of `encode`.
        k : int, default=5
            Points for each query. In a model of tables all rows vote, and these are those with the largest shares; in others the k
            nearest vote, each the same.

        Returns
        -------
        positions : Tensor
            (n, k) positions in `references`.
        shares : Tensor
            (n, k) their shares of the vote.

        Raises
        ------
        ValueError
            If the model has no references.
        """
        if not self.votes_softly:
            positions = self.neighbors(inputs, k).positions
            return positions, torch.full(positions.shape, 1 / positions.shape[1], device=positions.device)
        k, distance = min(check_whole("k", k), len(self._known().embeddings)), self.about["votes"]["distance"]
        members = [soft_shares(some, those, distance, warm) for some, those, warm in self._members(inputs)]
        best = [torch.stack([shares for shares, _ in blocks]).mean(0).topk(k) for blocks in zip(*members, strict=True)]
        return torch.cat([one.indices for one in best]), torch.cat([one.values for one in best])

    def _members(self, inputs: Inputs) -> Iterator[tuple[Tensor, Votes, float]]:
        """Of each member of a model of tables: the embedded queries, who votes, and the temperature."""
        known, votes = self._known(), self.about["votes"]
        assert known.labels is not None
        classes = self.about["supervision"] == "classes"
        targets = functional.one_hot(known.labels, len(self.classes)) if classes else known.labels
        queries = torch.as_tensor(self.encode(inputs)).to(known.embeddings)
        count = len(votes["temperatures"])  # members side by side, each scaled so that the squared distances average
        asked, references = ((part * count**0.5).chunk(count, 1) for part in (queries, known.embeddings))
        voters = [Votes(one, targets.to(one), one.new_zeros(len(one))) for one in references]
        return zip(asked, voters, votes["temperatures"], strict=True)

    def report(self) -> SavedReport:
        """Return the report that `nearkin evaluate` wrote for this model; a notebook shows it.

        Returns
        -------
        SavedReport
            With the page's `path` and its `figures` as plain data.

        Raises
        ------
        FileNotFoundError
            If the model was not loaded from a folder, or has not been evaluated; the message says how.

        Examples
        --------
        >>> import nearkin
        >>> nearkin.load("runs/photos").report()  # doctest: +SKIP
        <SavedReport runs/photos/report.html>
        """
        return saved_report(self.folder)

    def _rejected(self, queries: Tensor, references: Points, held_out: Inputs | None, reject: float) -> Tensor:
        """(n,) bool: which embeddings belong to no class of the references."""
        known = references._replace(ids=torch.arange(len(references.embeddings), device=references.embeddings.device))
        points = known if held_out is None else torch.as_tensor(self.encode(held_out)).to(self.device)
        rule = fit_rejection(points, known, self.affinity)
        return torch.from_numpy(rule.rejects(familiarity(queries, known, self.affinity), reject)).to(queries.device)

    def _known(self) -> Points:
        if self.references is None:
            raise ValueError("the model folder has no references.safetensors; train it to the end, or embed the training part again")
        return self.references

    def _texts(self, inputs: Any) -> Tensor:
        """Token numbers (n, length) of texts, or those given."""
        if (
            isinstance(inputs, Tensor | np.ndarray)
            and np.asarray(inputs).dtype.kind in "iu"
            and inputs.shape[1:] == tuple(self.about["shape"])
        ):
            return torch.as_tensor(inputs)
        some = [inputs] if isinstance(inputs, str) else list(inputs)
        if not some or not all(isinstance(one, str) for one in some):
            raise ValueError("inputs must be texts for this model: a string, or a list of strings")
        if any(not one.strip() for one in some):
            raise ValueError(f"inputs: text {next(at for at, one in enumerate(some) if not one.strip())} is empty; leave it out")
        return self.tokenized(some).read(range(len(some)))

    def tokenized(self, texts: Sequence[str]) -> Texts:
        """Texts as this model reads them.

        Parameters
        ----------
        texts : sequence of str
            The texts.

        Returns
        -------
        Texts

        Raises
        ------
        ValueError
            If the model does not read texts.
        """
        if self.tokenizer is None:
            raise ValueError(f"this model reads {self.about['kind']}, not texts")
        return Texts(texts, self.tokenizer)

    def _prepared(self, points: Tensor) -> Tensor:
        return points if self.reads_texts else preprocess.prepared(points, self.prepare)

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.about["shape"]))
        network, known = self.about["network"], 0 if self.references is None else len(self.references.embeddings)
        return f"<Model {network['name']}: {self.about['kind']} {shape} to {network['dimension']} numbers, {known:,} references>"

    def _read(self, inputs: Inputs) -> Tensor:
        shape = tuple(self.about["shape"])
        if "table" in self.about and not isinstance(inputs, Tensor | np.ndarray):
            encoded = open_data(inputs, rows=TableFormat.from_dict(self.about["table"])).inputs  # type: ignore[arg-type]
            assert isinstance(encoded, Tensor)
            return encoded
        some: Any = [inputs] if isinstance(inputs, Picture) else inputs.to_numpy() if hasattr(inputs, "to_numpy") else inputs  # a DataFrame
        if not isinstance(some, Tensor) and len(some) and isinstance(some[0], Picture):
            if len(shape) != 3:
                raise ValueError(f"inputs are images, and this model reads vectors of {shape[0]} numbers; pass an array (n, {shape[0]})")
            some = torch.stack([pictures.decode_picture(picture, shape[0], framing_of(self.about)) for picture in some])
        points = some if isinstance(some, Tensor) else torch.from_numpy(np.ascontiguousarray(some))
        if len(shape) == 3 and tuple(points.shape[1:]) != shape:  # channels last, or missing
            points = points[:, None] if points.ndim == 3 else points.movedim(-1, 1) if points.ndim == 4 else points
        if not len(points) or tuple(points.shape[1:]) != shape:
            raise ValueError(f"inputs have shape {tuple(np.shape(some))}; this model reads (n, {', '.join(map(str, shape))})")
        if self._reads_unit_range and points.is_floating_point() and float(points.max()) > 2:
            raise ValueError(
                f"inputs reach {float(points.max()):g}, but pixels as floats must be in 0..1; divide them by 255, or pass uint8"
            )
        return points

    @property
    def _reads_unit_range(self) -> bool:
        """Whether it was trained with pixels in 0..1; images of an estimator may have any scale."""
        return any(isinstance(step, preprocess.Standardize) and max(step.mean) <= 1 for step in self.prepare)


def load(
    folder: str | Path, which: Literal["best", "last"] = "best", device: str | torch.device | None = None, *, verify: bool = True
) -> Model:
    """Open a model folder.

    Parameters
    ----------
    folder : path
        The folder that training wrote.
    which : {"best", "last"}, default="best"
        The weights that were best on the validation part, or the last ones; without a validation part there are only the last.
    device : str or torch.device, optional
        Where to compute. By default cuda if there is one, else cpu.
    verify : bool, default=True
        Compare every file that is read with its checksum. False opens a damaged model, whose results may be wrong.

    Returns
    -------
    Model

    Raises
    ------
    FileNotFoundError
        If the folder is not a model folder, or its training has not finished.
    FileDamagedError
        If a file is damaged; a ValueError whose message names the file, and what can still be used.

    Examples
    --------
    >>> import nearkin
    >>> model = nearkin.load("runs/photos")  # doctest: +SKIP
    >>> model.predict(["query.jpg"])  # doctest: +SKIP
    ['swan']
    """
    folder = Path(folder)
    about = about_of(folder)
    if verify:
        check(folder / "model.json", folder, _fix(folder, "model.json"))
    best, there = folder / "best.safetensors", folder / "references.safetensors"
    weights = best if which == "best" and best.exists() else folder / "weights.safetensors"
    if not weights.exists():
        missing = f"{weights} does not exist: the training has not finished"
        raise FileNotFoundError(f"{missing}; `nearkin train --resume {quote(str(folder))}` resumes it")
    if best.exists() and which == "last":
        there = folder / "references-last.safetensors"
    if verify:
        for path in (weights, there):
            check(path, folder, _fix(folder, path.name))
    network = _filled(_without_first_weights(about), weights)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = tokenizer_of(folder, about) if about["kind"] == "texts" else None
    references = _references(there, torch.device(device), int(about["network"]["dimension"]))
    return Model(network.to(device), about, references, tokenizer, folder)


def tokenizer_of(folder: Path, about: dict[str, Any]) -> Tokenizer:
    """The tokenizer of a model of texts."""
    check(folder / "tokenizer.json", folder, _fix(folder, "tokenizer.json"))
    return tokenizer_from(folder / "tokenizer.json", int(about["shape"][0]))


def readable(folder: Path, about: dict[str, Any], data: Dataset) -> Dataset:
    """The data as the model of a folder reads them: texts with its tokenizer, all others as they are."""
    if not isinstance(data.inputs, Texts):
        return data
    if about["kind"] != "texts":
        raise ValueError(f"{data.name} holds texts, and this model reads {about['kind']}; pass data like those it was trained on")
    return replace(data, inputs=replace(data.inputs, tokenizer=tokenizer_of(folder, about)))


def _filled(about: dict[str, Any], weights: Path) -> nn.Module:
    """The network that model.json describes, with the weights of a file."""
    tensors = read_tensors(weights, _fix(weights.parent, weights.name))
    try:
        network = build_network(about)
    except (KeyError, TypeError, IndexError) as error:
        page = weights.parent / "model.json"
        raise FileDamagedError(f"{page} is damaged: it describes no network ({error!r}); {_fix(page.parent, page.name)}") from error
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:  # names or shapes that differ, one a line
        reason = " ".join(str(error).split())[:200]
        raise FileDamagedError(
            f"{weights} holds the weights of another network ({reason}); {_fix(weights.parent, weights.name)}"
        ) from error
    return channels_last(network)


def _fix(folder: Path, name: str) -> str:
    """What to do about a damaged file, and what can still be used."""
    again = f"`nearkin train --resume {quote(str(folder))}` writes it again from the newest checkpoint"
    other = folder / ("weights.safetensors" if name == "best.safetensors" else "best.safetensors")
    fixes = [again] if (folder / "checkpoints").is_dir() else []
    if name.startswith("references"):
        fixes.append("searching, indexing, embedding and exporting do not need it: remove it to use them")
    elif name == "model.json":
        fixes.append(EDITED)
    elif other.exists() and not wrong(other, folder):
        last = other.name == "weights.safetensors"
        what = "the last weights: --weights last (which='last')" if last else "the best weights, which are used by default"
        fixes.append(f"{other.name} can still be used, {what}")
    return "; ".join([*fixes, "restore it from a copy"])


def about_of(folder: Path) -> dict[str, Any]:
    """Read model.json."""
    page = model_page(folder)
    about: dict[str, Any] = read_json(page, _fix(folder, page.name))
    missing = [name for name in NEEDED if not isinstance(about, dict) or name not in about]
    if missing:
        raise FileDamagedError(f"{page} is damaged: it has no {missing[0]!r}; {_fix(folder, page.name)}")
    return about


def _without_first_weights(about: dict[str, Any]) -> dict[str, Any]:
    """The same description without the weights that training started from, since the folder has its own."""
    options = {name: value for name, value in about["network"]["options"].items() if name != "weights"}
    return {**about, "network": {**about["network"], "options": options}}


def framing_of(about: dict[str, Any]) -> Framing | None:
    """How image files are resized for this model; None for vectors, and if its images are not square."""
    if about["kind"] != "images":
        return None
    _, height, width = about["shape"]
    return Framing(**{"size": height, **about.get("framing", {})}) if height == width else None


def reading(about: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `nearkin.data.open` that convert images to what this model reads."""
    framing = framing_of(about)
    resized = {} if framing is None else {"size": framing.size, "crop": framing.crop, "interpolation": framing.interpolation}
    if "table" in about:
        return {"rows": TableFormat.from_dict(about["table"])}
    return {**resized, "channels": about["shape"][0]} if about["kind"] == "images" else {}


def build_network(about: dict[str, Any]) -> nn.Module:
    """Build the network that model.json describes, with new weights."""
    chosen, shape = about["network"], tuple(about["shape"])
    if len(shape) == 3:  # preprocessing may crop
        shape = tuple(preprocess.preprocessed(torch.zeros(1, *shape), preprocess.restore(about["prepare"])).shape[1:])
    kind: dict[str, Any] = {"image_shape": shape} if len(shape) == 3 else {"dimension_in": shape[0]}
    return build(chosen["name"], **kind, dimension=chosen["dimension"], normalize=chosen["normalize"], **chosen["options"])


def kept_references(known: Points, *, binary: bool) -> dict[str, Tensor]:
    """The content of references.safetensors: embeddings (n, d), or codes (n, ceil(d / 8)), with labels and ids if there are any."""
    kept = {"codes": torch.from_numpy(pack(known.embeddings))} if binary else {"embeddings": known.embeddings}
    more = {"labels": known.labels, "ids": known.ids}
    return {**kept, **{name: tensor for name, tensor in more.items() if tensor is not None}}


def _references(path: Path, device: torch.device, dimension: int) -> Points | None:
    if not path.exists():
        return None
    fix = _fix(path.parent, path.name)
    tensors = read_tensors(path, fix, str(device))
    if not {"codes", "embeddings"} & set(tensors):
        raise FileDamagedError(f"{path} is damaged: it holds no embeddings; {fix}")
    if "codes" in tensors:
        tensors["embeddings"] = torch.from_numpy(unpack(tensors["codes"].cpu().numpy(), dimension)).to(device)
    return Points(tensors["embeddings"], tensors.get("labels"), tensors.get("ids"))
