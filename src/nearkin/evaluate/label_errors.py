"""Probable label errors: labels that classifiers, fitted without them, contradict.

Two judges, each of which predicts a label without having seen it, and whose log-probabilities are averaged:

- Ridge regression on Gaussian kernel features of the embeddings. A narrow kernel votes among near neighbors, a wide one is a linear
  classifier; the width and the penalty are chosen by the log-loss of leave-one-out predictions, which ridge regression has in closed
  form.
- Logistic regression, out of five folds. It is the better judge of labels that are far off.

A second round of both fits without the labels that the first ridge regression contradicts, and both rounds count.
"""

import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.affinity import Affinity, unit
from nearkin.compose.points import takes_arrays
from nearkin.compose.validation import check_whole
from nearkin.evaluate.comparison import class_labels, finite

WIDTHS = (0.1, 0.3, 1.0)  # the kernel is exp(-width * squared distance), of embeddings with mean squared length 1
PENALTIES = tuple(10.0**power for power in (-2, -1.25, -0.5, 0.25, 1, 1.75, 2.5))  # times the mean eigenvalue
TEMPERATURES = tuple(0.02 * 1.3**step for step in range(20))  # of a softmax over scores that are near 0 and 1
SOFTER = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)  # temperatures of logistic regression
LANDMARKS = 1500  # points whose kernels are the features
FEW_LANDMARKS = 500  # the same while the width is chosen
CHOSEN_ON = 10_000  # points on which width and penalty are chosen
CHUNK = 16_384  # points whose features are held at once
ROUNDS = 2
FOLDS = 5
COMPONENTS = 256  # principal components that logistic regression sees
DOUBTED = LISTED = 2.3  # log of 10: labels at most a tenth as probable as another class are left out of the second round, and listed


class LabelErrors(NamedTuple):
    """What `label_errors` found.

    Parameters
    ----------
    margin : Tensor (n,) float64
        Log of the probability of the best other class over that of the label; larger is more suspicious. NaN where it cannot be judged: the
        label is unknown (-1), or no other point has it.
    suggested : Tensor (n,) int64
        The most probable other class; for a point without a label, the most probable class.
    suspects : Tensor (s,) int64
        Rows whose label is at most a tenth as probable as another class, largest margin first.

    Examples
    --------
    >>> from nearkin.evaluate import LabelErrors
    >>> LabelErrors._fields
    ('margin', 'suggested', 'suspects')
    """

    margin: Tensor
    suggested: Tensor
    suspects: Tensor

    @property
    def confidence(self) -> Tensor:
        """(n,) probability of the suggested class against the label, 1 / (1 + exp(-margin)); NaN where it cannot be judged."""
        return torch.sigmoid(self.margin)


@takes_arrays
@torch.no_grad()
def label_errors(embeddings: Tensor, labels: Tensor, affinity: Affinity | None = None, *, seed: int = 0) -> LabelErrors:
    """Rank labels by how strongly classifiers that did not see them contradict them.

    Pass embeddings that were not trained on these labels: those of a pretrained encoder, or of a model that had the points in its test
    part. A network remembers wrong labels that it was trained on.

    Parameters
    ----------
    embeddings : Tensor or ndarray (n, d)
        One row for each point.
    labels : Tensor or ndarray (n,)
        Classes as whole numbers, -1 where the class is unknown.
    affinity : Affinity, optional
        `cosine()` compares directions; otherwise Euclidean distances are used.
    seed : int, default=0
        Seed of the draw of kernel centers, if there are more than 1,500 labeled points.

    Returns
    -------
    LabelErrors
        `margin`, `suggested` and `suspects`. Memory beside the embeddings does not grow with their number.

    Raises
    ------
    ValueError
        If there is one row for another number of labels, a number is not finite, or fewer than two classes have two points each.

    Examples
    --------
    >>> import torch
    >>> from nearkin.evaluate import label_errors
    >>> x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0)) + torch.arange(40)[:, None] % 2 * 8
    >>> y = torch.arange(40) % 2
    >>> y[7] = 0
    >>> found = label_errors(x, y)
    >>> found.suspects, found.suggested[7]
    (tensor([7]), tensor(1))
    """
    x = finite(embeddings, "embeddings")
    given = class_labels(labels, len(x), "labels").to(x.device)
    check_whole("seed", seed, least=0)
    classes, y = _numbered(given)
    points = _Labeled(_scaled(x, affinity), y, len(classes))
    judges, weights = fitted(points, seed)
    linear = [_logistic(points._replace(y=torch.where(weight > 0, y, -1)), seed) for weight in weights]
    margin, best = torch.empty(len(y), dtype=torch.float64), torch.empty(len(y), dtype=torch.int64)
    for rows in points.chunks():
        made = torch.stack([folds.log_probabilities(points, rows) for folds in linear]).mean(0)
        found = (_together(judges, weights, points, rows) + made) / 2
        margin[rows], best[rows] = _margins(found, y[rows])
    margin[(torch.bincount(y[y >= 0], minlength=len(classes))[y.clamp_min(0)] < 2) | (y < 0)] = torch.nan
    listed = (margin > LISTED).nonzero()[:, 0]
    return LabelErrors(margin, classes[best], listed[margin[listed].argsort(descending=True, stable=True)])


@torch.no_grad()
def class_probabilities(embeddings: Tensor, labels: Tensor, affinity: Affinity | None = None, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """The judge's (n, C) float64 log-probabilities of classes (C,), each from the labels of the other points; labels (n,) may be -1."""
    classes, y = _numbered(labels)
    points = _Labeled(_scaled(embeddings, affinity), y, len(classes))
    judges, weights = fitted(points, seed)
    return torch.cat([_together(judges, weights, points, rows) for rows in points.chunks()]), classes


class _Labeled(NamedTuple):
    """Points, scaled; classes 0..classes-1 or -1."""

    x: Tensor  # (n, d)
    y: Tensor  # (n,)
    classes: int

    def chunks(self) -> Iterator[slice]:
        yield from (slice(start, start + CHUNK) for start in range(0, len(self.y), CHUNK))


def _numbered(labels: Tensor) -> tuple[Tensor, Tensor]:
    """The classes in ascending order, and their numbers; -1 stays."""
    known = labels >= 0
    classes, which = torch.unique(labels[known], return_inverse=True)
    if int((torch.bincount(which, minlength=1) > 1).sum()) < 2:
        raise ValueError("labels: fewer than two classes have two points each, so none can be judged by the others; give more labels")
    numbers = torch.full_like(labels, -1, dtype=torch.int64)
    numbers[known] = which
    return classes, numbers


def _scaled(x: Tensor, affinity: Affinity | None) -> Tensor:
    """Float32, centered, with mean squared length 1."""
    x = unit(x.float()) if getattr(affinity, "metric", None) == "cosine" else x.float()
    x = x - x.mean(0)
    return x / x.square().sum(1).mean().sqrt().clamp_min(1e-30)


class _Features(NamedTuple):
    """Nyström features of a Gaussian kernel: their inner products are the kernel's, exactly so for the landmarks."""

    landmarks: Tensor  # (m, d)
    width: float
    map: Tensor  # (m, r)

    def __call__(self, x: Tensor) -> Tensor:
        return _kernel(x, self.landmarks, self.width) @ self.map


def _kernel(x: Tensor, landmarks: Tensor, width: float) -> Tensor:
    return torch.cdist(x, landmarks).square_().mul_(-width).exp_()


def _features(landmarks: Tensor, width: float) -> _Features:
    values, vectors = torch.linalg.eigh(_kernel(landmarks, landmarks, width).double())
    kept = values > 1e-6 * values[-1]
    return _Features(landmarks, width, (vectors[:, kept] / values[kept].sqrt()).float())


class _Solved(NamedTuple):
    """Weighted ridge regression of class indicators on features, for any penalty, in the basis of the features' covariance."""

    mean: Tensor  # (r,)
    basis: Tensor  # (r, r)
    values: Tensor  # (r,)
    products: Tensor  # (r, C)
    prior: Tensor  # (C,)
    total: float  # sum of the weights

    def turned(self, features: Tensor) -> Tensor:
        """(n, r) features in this basis."""
        return (features - self.mean) @ self.basis

    def scores(self, turned: Tensor, y: Tensor, weights: Tensor, penalty: float) -> Tensor:
        """(n, C) predictions from turned features (n, r); for points of weight 1 as if each were left out."""
        shrunk = self.values + penalty * self.values.mean() + 1e-12
        made = turned @ (self.products / shrunk[:, None]) + self.prior
        leverage = weights * (turned.square() @ (1 / shrunk) + 1 / self.total)
        rows = (weights > 0).nonzero()[:, 0]
        made[rows, y[rows]] -= leverage[rows]
        return made / (1 - leverage).clamp_min(1e-6)[:, None]


def _solved(features: _Features, points: _Labeled, weights: Tensor) -> _Solved:
    size = features.map.shape[1]
    gram, sums = torch.zeros(size, size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
    products, prior = torch.zeros(size, points.classes, dtype=torch.float64), torch.zeros(points.classes, dtype=torch.float64)
    for rows in points.chunks():
        used = weights[rows] > 0
        made, y = features(points.x[rows][used]), points.y[rows][used]
        gram += (made.T @ made).double()
        sums += made.double().sum(0)
        products.index_add_(1, y, made.double().T)
        prior += torch.bincount(y, minlength=points.classes)
    total = float(prior.sum())
    mean, prior = sums / total, prior / total
    values, basis = torch.linalg.eigh(gram - total * torch.outer(mean, mean))
    products = basis.T @ (products - total * torch.outer(mean, prior))
    return _Solved(mean.float(), basis.float(), values.clamp_min(0).float(), products.float(), prior.float(), total)


class _Judge(NamedTuple):
    """A fitted classifier: a softmax over leave-one-out scores at a temperature."""

    features: _Features
    solved: _Solved
    penalty: float
    temperature: float

    def log_probabilities(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        scores = self.solved.scores(self.solved.turned(self.features(x)), y, weights, self.penalty)
        return torch.log_softmax(scores.double() / self.temperature, dim=1)


def fitted(points: _Labeled, seed: int) -> tuple[list[_Judge], list[Tensor]]:
    """The judges of all rounds, with the weights (n,) that each gave to the points."""
    known = (points.y >= 0).nonzero()[:, 0]
    drawn = known[torch.randperm(len(known), generator=torch.Generator().manual_seed(seed))]
    weights = [(points.y >= 0).float()]
    trials = [_features(points.x[drawn[:FEW_LANDMARKS]], width) for width in WIDTHS]
    width = _chosen(trials, points, weights[0], drawn[: CHOSEN_ON // 2]).features.width
    basis = _features(points.x[drawn[:LANDMARKS]], width)
    judges: list[_Judge] = []
    for _ in range(ROUNDS):
        if judges:
            weights.append(_trusted(judges[-1], weights[-1], points))
        judge = _chosen([basis], points, weights[-1], drawn[:CHOSEN_ON])
        judges.append(judge if len(known) <= CHOSEN_ON else judge._replace(solved=_solved(basis, points, weights[-1])))
    return judges, weights


def _trusted(judge: _Judge, weights: Tensor, points: _Labeled) -> Tensor:
    """(n,) 1 for the labels that the judge does not contradict, and for all of a class of which it would leave fewer than two."""
    doubted = torch.empty(len(points.y), dtype=torch.float64)
    for rows in points.chunks():
        doubted[rows] = _margins(judge.log_probabilities(points.x[rows], points.y[rows], weights[rows]), points.y[rows])[0]
    kept = (points.y >= 0) & (doubted < DOUBTED)
    few = torch.bincount(points.y[kept], minlength=points.classes) < 2
    return (kept | ((points.y >= 0) & few[points.y.clamp_min(0)])).float()


def _chosen(bases: list[_Features], points: _Labeled, weights: Tensor, sample: Tensor) -> _Judge:
    """The width, penalty and temperature with the least leave-one-out log-loss on a sample, fitted on it."""
    sample = sample[weights[sample] > 0]
    some = _Labeled(points.x[sample], points.y[sample], points.classes)
    tried = []
    for basis in bases:
        solved = _solved(basis, some, torch.ones(len(sample)))
        turned = solved.turned(basis(some.x))
        for penalty in PENALTIES:
            scores = solved.scores(turned, some.y, torch.ones(len(sample)), penalty)
            loss, temperature = _temperature(scores, some.y)
            tried.append((loss, penalty, temperature, basis, solved))
    _, penalty, temperature, basis, solved = min(tried, key=lambda one: one[0])
    return _Judge(basis, solved, penalty, temperature)


def _temperature(scores: Tensor, y: Tensor) -> tuple[float, float]:
    """(log-loss, temperature) of the best temperature."""
    return min((_loss(scores, y, value), value) for value in TEMPERATURES)


def _loss(scores: Tensor, y: Tensor, temperature: float) -> float:
    """The log-loss of a softmax over scores (n, C)."""
    return float(torch.logsumexp((scores - scores.gather(1, y[:, None])) / temperature, dim=1).mean())


class _Folds(NamedTuple):
    """Logistic regressions of several folds, each fitted without its fold, and the temperature that suits them."""

    basis: Tensor  # (d, c)
    fold: Tensor  # (n,)
    coefficients: Tensor  # (folds, c, C)
    intercepts: Tensor  # (folds, C)
    temperature: float = 1.0

    def log_probabilities(self, points: _Labeled, rows: slice) -> Tensor:
        x, fold = points.x[rows] @ self.basis, self.fold[rows]
        scores = torch.empty(len(x), points.classes, dtype=torch.float64)
        for number in range(FOLDS):
            at = fold == number
            scores[at] = (x[at] @ self.coefficients[number]).double() + self.intercepts[number]
        return torch.log_softmax(scores / self.temperature, dim=1)


def _logistic(points: _Labeled, seed: int) -> _Folds:
    """Fit on at most CHOSEN_ON points of the other folds."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    draw = np.random.default_rng(seed)
    order = draw.permutation(len(points.y))
    fold = np.empty(len(order), dtype=np.int64)
    fold[order[np.argsort(points.y.numpy()[order], kind="stable")]] = np.arange(len(order)) % FOLDS  # each class evenly
    known = order[points.y.numpy()[order] >= 0]
    basis = _components(points.x[torch.from_numpy(known[:CHOSEN_ON])])
    coefficients = torch.zeros(FOLDS, basis.shape[1], points.classes)
    intercepts = torch.full((FOLDS, points.classes), -torch.inf)  # of classes that only the fold has
    for number in range(FOLDS):
        used = torch.from_numpy(known[fold[known] != number][:CHOSEN_ON])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a judge that stopped early is a judge, too
            made = LogisticRegression(max_iter=100).fit((points.x[used] @ basis).numpy(), points.y[used].numpy())
        weights, biases = _of_all_classes(made.coef_, made.intercept_)
        coefficients[number][:, made.classes_], intercepts[number, made.classes_] = weights.T.float(), biases.float()
    intercepts = torch.where(intercepts > -torch.inf, intercepts, intercepts.clamp_min(-1e4).amin(1, keepdim=True))
    found = _Folds(basis, torch.from_numpy(fold), coefficients, intercepts)
    some = torch.from_numpy(known[:CHOSEN_ON])
    held = found._replace(fold=found.fold[some])
    scores = held.log_probabilities(_Labeled(points.x[some], points.y[some], points.classes), slice(None))
    return found._replace(temperature=min((_loss(scores, points.y[some], value), value) for value in SOFTER)[1])


def _of_all_classes(coefficients: np.ndarray, intercepts: np.ndarray) -> tuple[Tensor, Tensor]:
    """One row for each class; scikit-learn has one row for two classes."""
    if len(coefficients) == 1:
        coefficients, intercepts = np.concatenate([-coefficients / 2, coefficients / 2]), np.concatenate([-intercepts / 2, intercepts / 2])
    return torch.from_numpy(coefficients), torch.from_numpy(intercepts)


def _components(x: Tensor) -> Tensor:
    """(d, c) the principal directions of points (n, d), scaled so that a mean column has variance 1."""
    values, vectors = torch.linalg.eigh((x.T @ x).double())
    kept = values > 1e-9 * values[-1].clamp_min(1e-30)
    components: Tensor = vectors[:, kept][:, -COMPONENTS:].float() * float(kept.sum().clamp_max(COMPONENTS)) ** 0.5
    return components


def _together(judges: list[_Judge], weights: list[Tensor], points: _Labeled, rows: slice) -> Tensor:
    """(b, C) the mean log-probabilities of all rounds."""
    x, y = points.x[rows], points.y[rows]
    made = [judge.log_probabilities(x, y, weight[rows]) for judge, weight in zip(judges, weights, strict=True)]
    return torch.stack(made).mean(0)


def _margins(found: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """(b,) log of the best other class over the label's, and that class; for points without a label the best class."""
    at = y.clamp_min(0)[:, None]
    own = found.gather(1, at)[:, 0]
    others = torch.where(y[:, None] >= 0, found.scatter(1, at, -torch.inf), found)
    best, which = others.max(1)
    return best - own, which
