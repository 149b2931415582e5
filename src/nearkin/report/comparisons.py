"""Classical comparisons: the same data and the same questions, answered by raw inputs and by linear maps of them."""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.points import Points
from nearkin.data.progress import Report, inform
from nearkin.estimators.linear import LMNN, MLKR, LinearNCA, LinearNCARegression, ProbabilisticPCA
from nearkin.evaluate import Score, classification, regression, retrieval
from nearkin.report import descriptions as words
from nearkin.report.measure import NEAR, Measured
from nearkin.report.sanity import Finding
from nearkin.report.subject import Side, Subject, prepared
from nearkin.search import nearest

FITTED = 5000  # points the maps are fitted on: NCA and LMNN look at pairs
REDUCED = 64  # dimensions of a PCA before NCA and LMNN, whose maps would otherwise hold too many numbers
ITERATIONS = 50
HELD = 8 << 30  # bytes of inputs
SEED = 0
TARGETS = 3  # neighbors that LMNN pulls near
BESIDE_RAW = "Beside raw inputs"


@dataclass(frozen=True)
class Rival:
    """One row of the comparison; without scores where it was left out, which the note explains."""

    name: str
    dimension: int  # 0 where it was left out
    scores: dict[str, Score]
    seconds: float  # to fit
    note: str = ""


def compare(subject: Subject, report: Report | None = None) -> Iterator[Rival]:
    """Raw inputs, PCA, PPCA; with classes LDA, linear NCA and LMNN, with numbers linear NCA regression and MLKR.

    Beside a model of cosine also raw inputs by cosine, centerd; by Euclidean distance centering would change nothing.
    Each is fitted on the references and asked as the model was.

    Without references of their own (unseen classes) the maps are fitted on the queries without labels, so only PCA and PPCA are.
    What cannot be fitted on so few references is left out with its reason.
    """
    check_comparable(subject)
    labels = None if subject.references.points.labels is None else subject.references.points.labels.cpu().numpy()
    known, asked = _inputs(subject, subject.references), _inputs(subject, subject.queries)
    fitted = _rows(len(known))
    part = f"fitted on {len(fitted):,} of {len(known):,} references" if len(fitted) < len(known) else ""
    for name, maker, note in _methods(subject, known.shape[1], len(fitted)):
        inform(report, f"comparing with {name}")
        began = time.perf_counter()
        method = maker()
        if method is not None:
            rows, answers = known[fitted], None if labels is None else labels[fitted]
            why = _hindrance(name, rows, answers) or _unfitted(method, rows, answers)
            if why:
                yield Rival(name, 0, {}, 0.0, f"left out, since {why}")
                continue
        seconds = time.perf_counter() - began
        a, b = (side if method is None else np.asarray(method.transform(side)) for side in (known, asked))
        scores = _scores(subject, torch.from_numpy(b).float(), torch.from_numpy(a).float())
        yield Rival(name, a.shape[1], scores, seconds, "; ".join(text for text in (note, part if method is not None else "") if text))


def _hindrance(name: str, rows: np.ndarray, labels: np.ndarray | None) -> str:
    """Why a map cannot be fitted on such rows (n, p), or nothing."""
    if name.startswith("raw"):
        return ""
    if len(rows) < 2:
        return "one reference has no directions"
    if name == "PPCA" and rows.shape[1] < 2:
        return "one input leaves no direction to the noise"
    if name in ("PCA", "PPCA"):
        return ""
    assert labels is not None
    if name in ("linear NCA regression", "MLKR"):
        return "all targets are equal" if bool((labels == labels[0]).all()) else ""
    counts = np.unique(labels, return_counts=True)[1]
    if name == "LDA" and counts.max() < 3:  # of two points shrinkage estimates itself as 0
        return "no class has 3 references to tell its spread from"
    if name == "linear NCA" and counts.max() < 2:
        return "no class has 2 references"
    if name == "LMNN" and counts.min() <= TARGETS:
        return f"{TARGETS} target neighbors need {TARGETS + 1} references in every class, and the smallest has {counts.min()}"
    return ""


def _unfitted(method: Any, rows: np.ndarray, labels: np.ndarray | None) -> str:
    """Fit, or why that was not possible."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the note says that it was stopped
        warnings.filterwarnings("ignore", "Only one sample available", UserWarning)  # LDA takes the spread from the larger classes
        try:
            method.fit(rows, labels)
        except np.linalg.LinAlgError:
            return "the references of a class do not differ enough"
    return ""


def _methods(subject: Subject, inputs: int, points: int) -> list[tuple[str, Callable[[], Any], str]]:
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer, StandardScaler

    wanted = min(subject.queries.points.embeddings.shape[1], inputs, points - 1)
    raw = "raw pixels" if subject.queries.data.kind == "images" else "raw inputs"
    by_angle = subject.model.about["metric"] == "cosine"  # of vectors of length 1 Euclidean distance ranks as cosine does
    methods: list[tuple[str, Callable[[], Any], str]] = [
        (raw, lambda: None, ""),
        *([(f"{raw}, centerd", lambda: make_pipeline(StandardScaler(with_std=False), Normalizer()), "by cosine")] if by_angle else []),
        ("PCA", lambda: PCA(wanted, random_state=SEED), ""),
        ("PPCA", lambda: ProbabilisticPCA(min(wanted, inputs - 1)), ""),
    ]
    if subject.gallery is None:
        return methods
    first = min(REDUCED, inputs, points - 1)
    assert subject.references.points.labels is not None
    stopped = f"at most {ITERATIONS} iterations" + (f", after PCA to {first}" if first < inputs else "")

    def reduced(last: Any) -> Any:
        return make_pipeline(PCA(first, random_state=SEED), last) if first < inputs else last

    least = min(wanted, first)
    if subject.supervision == "numbers":
        return [
            *methods,
            ("linear NCA regression", lambda: reduced(LinearNCARegression(least, max_iter=ITERATIONS, random_state=SEED)), stopped),
            ("MLKR", lambda: reduced(MLKR(least, max_iter=ITERATIONS, random_state=SEED)), stopped),
        ]
    classes = len(np.unique(subject.references.points.labels.cpu().numpy()))
    if classes > 1:
        most = min(classes - 1, wanted)
        methods += [
            ("LDA", lambda: LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto", n_components=most), "with shrinkage"),
            ("linear NCA", lambda: reduced(LinearNCA(least, max_iter=ITERATIONS, random_state=SEED)), stopped),
            ("LMNN", lambda: reduced(LMNN(least, n_neighbors=TARGETS, max_iter=ITERATIONS, random_state=SEED)), stopped),
        ]
    return methods


def beside_raw(measured: Measured, rivals: Sequence[Rival]) -> Finding:
    """Whether neighbors by raw inputs vote better than the model's, which has then learned too little.

    The figures are read, as the table beside them is by people; scores of the test part refuse `<`, since nothing is to be chosen by them.
    """
    ours = {name: score for family in measured.scores.values() for name, score in family.items()}
    raw = [(rival.name, name, score) for rival in rivals if rival.name.startswith("raw") for name, score in rival.scores.items()]
    asked = [row for row in raw if row[1] in ours and (row[1].endswith("-nn") or row[1] == "mae")]
    ahead = [row for row in asked if _lead(row[2], ours[row[1]]) > 0]
    if not ahead:
        return Finding(BESIDE_RAW, "fine", "Raw inputs vote no better than the model's neighbors.")
    told = [
        f"{name} {words.number(float(score), name)} by {rival}, {words.number(float(ours[name]), name)} here"
        for rival, name, score in ahead
    ]
    mend = "Train for longer or less long (--epochs), or on more points, and look at the validation part (--part validation) to choose."
    return Finding(BESIDE_RAW, "look", f"{'; '.join(told)}.", mend)


def _lead(score: Score, other: Score) -> float:
    ahead = float(score) - float(other)
    return ahead if score.larger_is_better else -ahead


def check_comparable(subject: Subject) -> None:
    """Refuse what no comparison can be made of, before any time is spent."""
    if subject.supervision not in ("classes", "numbers"):
        raise ValueError("comparisons need classes or numbers to be judged by; leave --compare out, or name labeled DATA after the folder")
    size = 4 * torch.Size(subject.model.about["shape"]).numel() * (len(subject.references) + len(subject.queries))
    if size > HELD:
        raise ValueError(
            f"comparisons hold all inputs at once, here {size / 2**30:.1f} GB; leave them out, or train and evaluate at a smaller data.size"
        )


def _inputs(subject: Subject, side: Side) -> np.ndarray:
    """(n, p) what the network is fed, as rows."""
    parts = [prepared(subject.model, side.data.read(ids)).flatten(1).cpu() for ids in torch.split(side.data.ids, 1024)]
    return torch.cat(parts).numpy()


def _rows(count: int) -> np.ndarray:
    if count <= FITTED:
        return np.arange(count)
    return np.sort(np.random.default_rng(SEED).choice(count, FITTED, replace=False))


def _scores(subject: Subject, asked: Tensor, known: Tensor) -> dict[str, Score]:
    """The model's own headline figures for another embedding; by Euclidean distance, as is the custom for linear maps."""
    queries, references = subject.queries.points, subject.references.points
    q = Points(asked, None if queries.labels is None else queries.labels.cpu(), None if queries.ids is None else queries.ids.cpu())
    r = Points(
        known, None if references.labels is None else references.labels.cpu(), None if references.ids is None else references.ids.cpu()
    )
    if subject.supervision == "numbers":
        assert q.labels is not None and r.labels is not None
        found = nearest(q, r, min(NEAR, len(known) - (subject.gallery is None)), exclude_same_id=True)
        return regression(r.labels[found.positions].float().mean(1), q.labels, split=subject.split)
    gallery = None if subject.gallery is None else r
    scores = classification(q, gallery, None, (1, min(NEAR, len(known) - (gallery is None))), split=subject.split)
    return {**scores, **retrieval(q, gallery, None, (1,), split=subject.split)}
