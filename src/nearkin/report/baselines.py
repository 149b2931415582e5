"""Baselines: the same queries and references as raw inputs and as classical linear embeddings of them."""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from torch import Tensor
from torch.nn import functional

from nearkin.compose.affinity import unit
from nearkin.compose.points import Points
from nearkin.data.preprocess import Standardize
from nearkin.data.progress import Report, inform
from nearkin.data.texts import HASHED
from nearkin.estimators.linear import LMNN, MLKR, LinearNCA, LinearNCARegression, ProbabilisticPCA
from nearkin.evaluate import Score, classification, regression, retrieval
from nearkin.report import descriptions
from nearkin.report.measure import NEAR, Measured
from nearkin.report.sanity import Finding
from nearkin.report.subject import Side, Subject, prepared
from nearkin.search import nearest

SIDE = 32  # pixels: larger images are averaged down, so that memory and time do not grow with their size
SECONDS = 300.0  # after which no further baseline is fitted
BINS = 4  # of a color histogram, for each channel
WIDE = 512  # dimensions of a PCA before methods whose cost grows with the square of the inputs
FITTED = 5000  # references that the maps are fitted on: NCA and LMNN use all pairs
REDUCED = 64  # dimensions of a PCA before NCA and LMNN, whose maps would otherwise have too many parameters
ITERATIONS = 50
HELD = 8 << 30  # bytes of inputs in memory at most
CHUNK = 256  # images read at a time
SEED = 0
FLAT = 1e-6  # of the largest variance: directions with less hold rounding
TARGETS = 3  # target neighbors of LMNN
HISTOGRAM, FROZEN = "color histogram", "frozen encoder"
AGAINST_RAW = "Compared with raw inputs"


@dataclass(frozen=True)
class Baseline:
    """One row of the comparison; without scores if it was left out, and the note says why."""

    name: str
    dimension: int  # 0 where it was left out
    scores: dict[str, Score]
    seconds: float  # to fit
    note: str = ""


class Spread(PCA):  # type: ignore[misc]
    """PCA without directions in which the points do not differ: copies among few points leave some, and a method that scales columns to
    one variance, as a shrunk covariance does, would take their rounding for data."""

    components_: np.ndarray
    explained_variance_: np.ndarray

    def fit(self, rows: np.ndarray, _: object = None) -> Self:
        """Fit, and drop directions with less than a millionth of the largest variance."""
        super().fit(rows)
        kept = max(1, int((self.explained_variance_ > FLAT * self.explained_variance_[0]).sum()))
        self.components_, self.explained_variance_ = self.components_[:kept], self.explained_variance_[:kept]
        return self

    def fit_transform(self, rows: np.ndarray, _: object = None) -> np.ndarray:
        """Fit, and return the points along the directions."""
        return np.asarray(self.fit(rows).transform(rows))


class Discriminant(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Linear discriminant analysis with a shrunk covariance within classes, defined for more dimensions than points as well.

    scikit-learn's solver "eigen" shrinks the total covariance separately and takes the difference for the covariance between classes, which
    then has directions in which no class means differ, most of all with rare indicator columns. Here the class means give it.

    Parameters
    ----------
    n_components : int
        Dimensions of the map, at most the number of classes less one.
    """

    def __init__(self, n_components: int) -> None:
        self.n_components = n_components

    def fit(self, rows: np.ndarray, labels: np.ndarray) -> Self:
        """Fit on rows (n, p) with classes (n,); raises numpy.linalg.LinAlgError if the points of a class do not differ enough."""
        from scipy.linalg import eigh
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

        found = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(rows.astype(np.float64), labels)
        self.mean_ = found.priors_ @ found.means_
        apart = np.sqrt(found.priors_)[:, None] * (found.means_ - self.mean_)
        p = rows.shape[1]
        vectors = eigh(apart.T @ apart, found.covariance_, subset_by_index=(max(p - self.n_components, 0), p - 1))[1]
        self.directions_ = vectors[:, ::-1]  # (p, n_components), the one that tells classes best first
        return self

    def transform(self, rows: np.ndarray) -> np.ndarray:
        """Rows (n, p) along the directions, in which classes have unit variance."""
        return np.asarray((rows - self.mean_) @ self.directions_)


def compare(subject: Subject, report: Report | None = None) -> Iterator[Baseline]:
    """Raw inputs, PCA and PPCA; for classes also LDA, linear NCA and LMNN, for numbers linear NCA regression and MLKR.

    For a model with cosine there is also a row of centered raw inputs with cosine. Each baseline is fitted on the references and
    evaluated like the model.

    If the queries are their own references (unseen classes), only PCA and PPCA are fitted, without labels. A baseline that cannot
    be fitted on so few references is left out with the reason.
    """
    check_comparable(subject)
    started = time.perf_counter()
    yield from frozen_rows(subject, report)
    labels = None if subject.references.points.labels is None else subject.references.points.labels.cpu().numpy()
    references, queries = _columns(subject, _inputs(subject, subject.references), _inputs(subject, subject.queries))
    fitted = _rows(len(references))
    part = f"fitted on {len(fitted):,} of {len(references):,} references" if len(fitted) < len(references) else ""
    for name, maker, note in _methods(subject, references.shape[1], len(fitted)):
        if time.perf_counter() - started > SECONDS:
            yield Baseline(name, 0, {}, 0.0, f"left out: the comparison has taken more than {SECONDS:g} s")
            continue
        inform(report, f"fitting {name}")
        began = time.perf_counter()
        method = maker()
        if method is not None:
            rows, targets = references[fitted], None if labels is None else labels[fitted]
            reason = _hindrance(name, rows, targets) or _fit_error(method, rows, targets)
            if reason:
                yield Baseline(name, 0, {}, 0.0, f"left out: {reason}")
                continue
        seconds = time.perf_counter() - began
        a, b = (side if method is None else np.asarray(method.transform(side)) for side in (references, queries))
        scores = _scores(subject, torch.from_numpy(b).float(), torch.from_numpy(a).float())
        yield Baseline(name, a.shape[1], scores, seconds, "; ".join(text for text in (note, part if method is not None else "") if text))


def frozen_rows(subject: Subject, report: Report | None = None) -> Iterator[Baseline]:
    """The pretrained encoder that the model started from: its own neighbors, and logistic regression on its features."""
    below, asked = subject.references.features, subject.queries.features
    if below is None or asked is None or subject.supervision not in ("classes", "numbers"):
        return
    a, b = unit(below), unit(asked)
    yield Baseline(FROZEN, a.shape[1], _scores(subject, b, a), 0.0, "the encoder without training, by cosine")
    labels = subject.references.points.labels
    if subject.supervision != "classes" or subject.gallery is None or labels is None or bool((labels == labels[0]).all()):
        return
    inform(report, "fitting logistic regression")
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    began, rows = time.perf_counter(), _rows(len(below))
    method = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=200))
    if _fit_error(method, below.numpy()[rows], labels.cpu().numpy()[rows]):
        return
    seconds = time.perf_counter() - began
    known, found = (torch.from_numpy(method.predict_proba(side.numpy())).float() for side in (below, asked))
    answers = subject.queries.points.labels
    assert answers is not None
    right = float((torch.from_numpy(method.predict(asked.numpy())) == answers.cpu()).double().mean())
    note = f"neighbors by its class probabilities; its own accuracy is {100 * right:.1f} %"
    yield Baseline(f"{FROZEN} + logistic regression", known.shape[1], _scores(subject, found, known), seconds, note)


def _histograms(images: np.ndarray, channels: int) -> np.ndarray:
    """(n, BINS ** channels) roots of the shares of pixels in each box of colors, whose distance is Hellinger's."""
    pixels = images.reshape(len(images), channels, -1)  # 0..255
    boxes = np.minimum(pixels * BINS // 256, BINS - 1).astype(np.int64)
    codes = sum(boxes[:, at] * BINS**at for at in range(channels))
    counts = np.stack([np.bincount(row, minlength=BINS**channels) for row in np.asarray(codes)])
    return np.sqrt(counts / pixels.shape[2]).astype(np.float32)


def _hindrance(name: str, rows: np.ndarray, labels: np.ndarray | None) -> str:
    """Why a map cannot be fitted on these rows (n, p), or an empty string."""
    if name.startswith(("raw", HISTOGRAM)):
        return ""
    if len(rows) < 2:
        return "there is only one reference"
    if name == "PPCA" and rows.shape[1] < 2:
        return "there is only one input dimension"
    if name in ("PCA", "PPCA"):
        return ""
    assert labels is not None
    if name in ("linear NCA regression", "MLKR"):
        return "all targets are equal" if bool((labels == labels[0]).all()) else ""
    counts = np.unique(labels, return_counts=True)[1]
    if name == "LDA" and counts.max() < 3:  # with two points the estimated shrinkage is 0
        return "no class has 3 references, which its covariance needs"
    if name == "linear NCA" and counts.max() < 2:
        return "no class has 2 references"
    if name == "LMNN" and counts.min() <= TARGETS:
        return f"{TARGETS} target neighbors need {TARGETS + 1} references in every class, but the smallest has {counts.min()}"
    return ""


def _fit_error(method: Any, rows: np.ndarray, labels: np.ndarray | None) -> str:
    """Fit the method; return why that failed, or an empty string."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the note gives the number of iterations
        warnings.filterwarnings("ignore", "Only one sample available", UserWarning)  # LDA estimates the covariance from the larger classes
        try:
            method.fit(rows, labels)
        except np.linalg.LinAlgError:
            return "the references of a class do not differ enough"
    return ""


def _methods(subject: Subject, inputs: int, points: int) -> list[tuple[str, Callable[[], Any], str]]:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

    dimension = min(subject.queries.points.embeddings.shape[1], inputs, points - 1)
    raw = {"images": "raw pixels", "texts": "hashed words"}.get(subject.queries.data.kind, "raw inputs")
    by_cosine = subject.model.about["metric"] == "cosine"  # for vectors of length 1 Euclidean distance ranks as cosine does
    wide = min(WIDE, inputs, points - 1)
    note = "" if subject.references.data.table is None else "columns standardized, categories one-hot"

    def narrowed(last: Any, how: type[PCA] = PCA) -> Any:
        return make_pipeline(how(wide, random_state=SEED), last) if inputs > WIDE and wide > dimension else last

    methods: list[tuple[str, Callable[[], Any], str]] = [
        (raw, lambda: None, note),
        *([(HISTOGRAM, lambda: FunctionTransformer(_colors(subject)), "")] if _is_color(subject) else []),
        *([(f"{raw}, centered", lambda: make_pipeline(StandardScaler(with_std=False), Normalizer()), "by cosine")] if by_cosine else []),
        ("PCA", lambda: PCA(dimension, random_state=SEED), ""),
        ("PPCA", lambda: narrowed(ProbabilisticPCA(min(dimension, inputs - 1))), ""),
    ]
    if subject.gallery is None:
        return methods
    first = min(REDUCED, inputs, points - 1)
    assert subject.references.points.labels is not None
    stopped = f"at most {ITERATIONS} iterations" + (f", after PCA to {first}" if first < inputs else "")

    def reduced(last: Any) -> Any:
        return make_pipeline(PCA(first, random_state=SEED), last) if first < inputs else last

    least = min(dimension, first)
    if subject.supervision == "numbers":
        return [
            *methods,
            ("linear NCA regression", lambda: reduced(LinearNCARegression(least, max_iter=ITERATIONS, random_state=SEED)), stopped),
            ("MLKR", lambda: reduced(MLKR(least, max_iter=ITERATIONS, random_state=SEED)), stopped),
        ]
    classes = len(np.unique(subject.references.points.labels.cpu().numpy()))
    if classes > 1:
        most = min(classes - 1, dimension)
        methods += [
            ("LDA", lambda: narrowed(Discriminant(most), Spread), "with shrinkage"),
            ("linear NCA", lambda: reduced(LinearNCA(least, max_iter=ITERATIONS, random_state=SEED)), stopped),
            ("LMNN", lambda: reduced(LMNN(least, n_neighbors=TARGETS, max_iter=ITERATIONS, random_state=SEED)), stopped),
        ]
    return methods


def compare_with_raw_inputs(measured: Measured, baselines: Sequence[Baseline]) -> Finding:
    """Whether k-NN on raw inputs is better than on the model's embeddings, which then learned too little.

    Scores of the test part cannot be compared with `<`, so that no choice is made by them; here their values are only reported.
    """
    ours = {name: score for family in measured.scores.values() for name, score in family.items()}
    raw = [
        (baseline.name, name, score)
        for baseline in baselines
        if baseline.name.startswith("raw") or baseline.name in (HISTOGRAM, FROZEN)
        for name, score in baseline.scores.items()
    ]
    comparable = [row for row in raw if row[1] in ours and (row[1].endswith("-nn") or row[1] == "mae")]
    ahead = [row for row in comparable if _lead(row[2], ours[row[1]]) > 0]
    if not ahead:
        simple = " or ".join(dict.fromkeys(row[0] for row in comparable)) or "raw inputs"
        return Finding(AGAINST_RAW, "fine", f"k-NN on {simple} is not better than on this embedding.")
    lines = [
        f"{name} {descriptions.number(float(score), name)} on {baseline}, {descriptions.number(float(ours[name]), name)} on this embedding"
        for baseline, name, score in ahead
    ]
    fix = "Train for more or fewer epochs (--epochs) or on more points, and choose by the validation part (--part validation)."
    return Finding(AGAINST_RAW, "look", f"{'; '.join(lines)}.", fix)


def _lead(score: Score, other: Score) -> float:
    ahead = float(score) - float(other)
    return ahead if score.larger_is_better else -ahead


def check_comparable(subject: Subject) -> None:
    """Raise a ValueError if no comparison is possible, before any work is done."""
    if subject.supervision not in ("classes", "numbers"):
        raise ValueError("comparisons need data with classes or numbers; leave out --compare, or name labeled DATA after the folder")
    size = 4 * _numbers(subject) * (len(subject.references) + len(subject.queries))
    if size > HELD:
        raise ValueError(
            f"comparisons need all inputs in memory, here {size / 2**30:.1f} GB; leave out --compare, or train with a smaller data.size"
        )


def _inputs(subject: Subject, side: Side) -> np.ndarray:
    """(n, p) inputs of the network, flattened."""
    return torch.cat(
        [_small(prepared(subject.model, side.data.plain(ids))).flatten(1).cpu() for ids in torch.split(side.data.ids, CHUNK)]
    ).numpy()


def _columns(subject: Subject, references: np.ndarray, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The inputs; rows of a table with their columns standardized by the references."""
    table = subject.references.data.table
    return (references, queries) if table is None else (table.standardized(references, references), table.standardized(queries, references))


def _small(inputs: Tensor) -> Tensor:
    """Images with sides of at most SIDE, the mean over what falls into a pixel; vectors unchanged."""
    if inputs.ndim != 4 or max(inputs.shape[2:]) <= SIDE:
        return inputs
    return functional.adaptive_avg_pool2d(inputs.float(), (min(SIDE, inputs.shape[2]), min(SIDE, inputs.shape[3])))


def _numbers(subject: Subject) -> int:
    """Numbers of one input as the baselines see it."""
    if subject.references.data.table is not None:
        return subject.references.data.table.width
    shape = [HASHED] if subject.model.reads_texts else subject.model.about["shape"]
    return shape[0] * min(shape[1], SIDE) * min(shape[2], SIDE) if len(shape) == 3 else int(torch.Size(shape).numel())


def _is_color(subject: Subject) -> bool:
    shape = subject.model.about["shape"]
    return len(shape) == 3 and shape[0] == 3


def _colors(subject: Subject) -> Callable[[np.ndarray], np.ndarray]:
    """Histograms of inputs as the network sees them, whose standardization is undone by their own range."""
    step = next((one for one in subject.model.prepare if isinstance(one, Standardize) and not one.reverse_channels), None)
    mean, std = (np.array(step.mean), np.array(step.std)) if step is not None else (np.zeros(1), np.ones(1))

    def histograms(rows: np.ndarray) -> np.ndarray:
        channels = subject.model.about["shape"][0]
        pixels = rows.reshape(len(rows), channels, -1) * std.reshape(1, -1, 1) + mean.reshape(1, -1, 1)
        return _histograms((255 * pixels).clip(0, 255), channels)

    return histograms


def _rows(count: int) -> np.ndarray:
    if count <= FITTED:
        return np.arange(count)
    return np.sort(np.random.default_rng(SEED).choice(count, FITTED, replace=False))


def _scores(subject: Subject, query_rows: Tensor, reference_rows: Tensor) -> dict[str, Score]:
    """The main figures of another embedding, by Euclidean distance, as usual for linear maps."""
    queries, references = subject.queries.points, subject.references.points
    q = Points(query_rows, None if queries.labels is None else queries.labels.cpu(), None if queries.ids is None else queries.ids.cpu())
    r = Points(
        reference_rows,
        None if references.labels is None else references.labels.cpu(),
        None if references.ids is None else references.ids.cpu(),
    )
    if subject.supervision == "numbers":
        assert q.labels is not None and r.labels is not None
        found = nearest(q, r, min(NEAR, len(reference_rows) - (subject.gallery is None)), exclude_same_id=True)
        return regression(r.labels[found.positions].float().mean(1), q.labels, split=subject.split)
    gallery = None if subject.gallery is None else r
    scores = classification(q, gallery, None, (1, min(NEAR, len(reference_rows) - (gallery is None))), split=subject.split)
    return {**scores, **retrieval(q, gallery, None, (1,), split=subject.split)}
