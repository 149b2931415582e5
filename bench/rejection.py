"""Queries of no known class: false rejections at the asked rate, and unseen classes told apart, beside the distance of the k-th nearest.

    python -m bench.rejection digits
    python -m bench.rejection omniglot --data-root data --points 6000

Half of the classes are known. Half of their points are references, on which PCA and LDA are fitted; a quarter says what is familiar, and a
quarter are known queries. The points of the other classes are the unseen ones. All rules see the same embeddings.
"""

import argparse
import json

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import roc_auc_score

from nearkin import data as sources
from nearkin import nearest
from nearkin.search import familiarity, fit_rejection

ASKED = 0.05
NEAREST = (1, 5, 10)


def embedded(inputs: np.ndarray, labels: np.ndarray, seed: int) -> list[torch.Tensor]:
    """References, held-out points, known queries and unseen queries."""
    rng = np.random.default_rng(seed)
    classes = np.unique(labels)
    unseen = np.isin(labels, rng.choice(classes, len(classes) // 2, replace=False))
    known = rng.permutation(np.flatnonzero(~unseen))
    fitted, held_out, queries = np.split(known, [len(known) // 2, 3 * len(known) // 4])
    reduced = PCA(min(64, inputs.shape[1], len(fitted) - 1), random_state=0).fit(inputs[fitted])
    space = LinearDiscriminantAnalysis().fit(reduced.transform(inputs[fitted]), labels[fitted])
    parts = (fitted, held_out, queries, np.flatnonzero(unseen))
    return [torch.from_numpy(space.transform(reduced.transform(inputs[rows])).astype(np.float32)) for rows in parts]


def rates(known: np.ndarray, unseen: np.ndarray) -> tuple[float, float]:
    """AUROC, and the share of unseen queries that pass where 95 % of the known ones do."""
    truth = np.repeat([1, 0], [len(known), len(unseen)])
    return float(roc_auc_score(truth, np.concatenate([known, unseen]))), float((unseen >= np.quantile(known, 0.05)).mean())


def measure(inputs: np.ndarray, labels: np.ndarray, splits: int) -> dict[str, object]:
    """Means over some splits."""
    false, found = [], {name: [] for name in ("nearkin", *(f"distance of nearest {k}" for k in NEAREST))}
    for seed in range(splits):
        references, held_out, queries, unseen = embedded(inputs, labels, seed)
        scores = [familiarity(part, references) for part in (queries, unseen)]
        false.append(float(fit_rejection(held_out, references).rejects(scores[0], ASKED).mean()))
        found["nearkin"].append(rates(*scores))
        near = [nearest(part, references, max(NEAREST)).affinity.numpy() for part in (queries, unseen)]
        for k in NEAREST:
            found[f"distance of nearest {k}"].append(rates(*(part[:, k - 1] for part in near)))
    table = {name: dict(zip(("auroc", "fpr at 95 %"), np.round(np.mean(rows, 0), 4).tolist(), strict=True)) for name, rows in found.items()}
    return {"splits": splits, "asked": ASKED, "falsely rejected": round(float(np.mean(false)), 4), **table}


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--points", type=int, default=20_000)
    parser.add_argument("--splits", type=int, default=20)
    arguments = parser.parse_args()
    data = sources.open(arguments.source, data_root=arguments.data_root)
    assert data.labels is not None
    labels = data.labels.numpy()
    per_class = -(-len(labels) // len(np.unique(labels)))
    chosen = np.random.default_rng(0).permutation(np.unique(labels))[: max(4, arguments.points // per_class)]
    rows = np.flatnonzero(np.isin(labels, chosen))
    rows = np.sort(np.random.default_rng(0).permutation(rows)[: arguments.points])
    inputs = data.read(data.ids[torch.from_numpy(rows)]).flatten(1).float().numpy()
    print(json.dumps({"source": arguments.source, "points": len(rows), **measure(inputs, labels[rows], arguments.splits)}, indent=1))


if __name__ == "__main__":
    main()
