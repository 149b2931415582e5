"""Planted label errors found by `label_errors` and by cleanlab, on the same features of real images.

    python -m bench.label_errors --data FOLDER --cache features --out docs/bench-label-errors.json [--weights mobilenet_v2-b0353104.pth]

2, 5, 10 and 20 % of the labels are replaced: uniformly, or each by the class whose mean is nearest (confusing pairs). cleanlab gets
out-of-fold probabilities (5 folds) of scikit-learn's logistic regression, as its documentation advises for embeddings, and with --svc also
of a kernel SVC. Its ranking is the better of its two scores, its list that of `find_label_issues`. What is measured stays in the JSON file,
so that an interrupted run goes on.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.real_features import SETS, real_features
from nearkin.evaluate import label_errors

SHARES = (0.02, 0.05, 0.10, 0.20)
KINDS = ("uniform", "pairs")


def planted(x: np.ndarray, y: np.ndarray, share: float, kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels with errors, and which of them are wrong."""
    draw, count = np.random.default_rng(seed), int(y.max()) + 1
    at = draw.choice(len(y), round(share * len(y)), replace=False)
    given = y.copy()
    if kind == "uniform":
        given[at] = (y[at] + draw.integers(1, count, len(at))) % count
    else:
        means = np.stack([x[y == c].mean(0) for c in range(count)])
        apart = np.square(means[:, None] - means).sum(2) + np.diag(np.full(count, np.inf))
        given[at] = apart.argmin(1)[y[at]]
    return given, np.isin(np.arange(len(y)), at)


def scores(wrong: np.ndarray, suspicion: np.ndarray, listed: np.ndarray) -> dict[str, float]:
    """Average precision of the ranking; precision and recall of the list, and of as many of the first as are wrong."""
    from sklearn.metrics import average_precision_score

    first = np.argsort(-suspicion, kind="stable")[: wrong.sum()]
    found = {"average_precision": average_precision_score(wrong, suspicion), "precision_at_planted": wrong[first].mean()}
    found |= {"listed": len(listed), "precision": wrong[listed].mean() if len(listed) else 0.0, "recall": wrong[listed].sum() / wrong.sum()}
    return {name: round(float(value), 4) for name, value in found.items()}


def by_nearkin(x: np.ndarray, given: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    found = label_errors(x, given)
    return scores(wrong, found.margin.nan_to_num(-np.inf).numpy(), found.suspects.numpy())


def by_cleanlab(classifier: Any, x: np.ndarray, given: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores
    from sklearn.model_selection import cross_val_predict

    probabilities = cross_val_predict(classifier, x, given, cv=5, method="predict_proba")
    listed = find_label_issues(given, probabilities, return_indices_ranked_by="self_confidence")
    both = [get_label_quality_scores(given, probabilities, method=name) for name in ("self_confidence", "normalized_margin")]
    return max((scores(wrong, -quality, listed) for quality in both), key=lambda row: row["average_precision"])


def classifiers() -> dict[str, Any]:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    return {
        "cleanlab, logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
        "cleanlab, SVC": make_pipeline(StandardScaler(), CalibratedClassifierCV(SVC(C=5), ensemble=False, cv=3)),
    }


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with fashion-mnist, flowers20 and cifar10")
    parser.add_argument("--cache", type=Path, default=Path("features"), help="folder for the features")
    parser.add_argument("--weights", help="torchvision's weights of MobileNetV2 (default: looked for on this machine)")
    parser.add_argument("--only", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--svc", action="store_true", help="also cleanlab with a kernel SVC, which is slow")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rows = json.loads(arguments.out.read_text(encoding="utf-8"))["rows"] if arguments.out.exists() else []
    peers = {name: one for name, one in classifiers().items() if arguments.svc or not name.endswith("SVC")}
    for name in arguments.only:
        x, y = real_features(name, arguments.data, arguments.cache, arguments.weights)
        for kind, share, seed in ((kind, share, seed) for kind in KINDS for share in SHARES for seed in range(arguments.seeds)):
            given, wrong = planted(x, y, share, kind, seed)
            for method in ("nearkin", *peers):
                about = {"set": name, "points": len(y), "noise": kind, "share": share, "seed": seed, "method": method}
                if any(about.items() <= row.items() for row in rows):
                    continue
                began = time.process_time()
                found = by_nearkin(x, given, wrong) if method == "nearkin" else by_cleanlab(peers[method], x, given, wrong)
                rows.append({**about, **found, "cpu_s": round(time.process_time() - began, 2)})
                print(json.dumps(rows[-1]), flush=True)
                arguments.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run()
