"""Queries of no known class: false rejections at the asked rate, and unseen classes told apart, beside the distance of the k-th nearest.

    python -m bench.rejection --data-root data --weights mobilenet_v2-b0353104.pth --out docs/bench-rejection.json

Half of the classes are known. Half of their points are references, on which PCA and LDA are fitted; a quarter says what is familiar, and a
quarter are known queries. The points of the other classes are the unseen ones. All rules see the same embeddings. digits and omniglot are
pixels; cub200 and cifar-100 are features of a frozen encoder, kept in --cache.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import roc_auc_score

from bench.real_features import real_features
from nearkin import Points, nearest
from nearkin import data as sources
from nearkin.search import familiarity, fit_rejection
from nearkin.train.folder import device_name

SETS = ("digits", "omniglot", "cub200", "cifar-100")
ENCODED = ("cub200", "cifar-100")
ASKED = 0.05
NEAREST = (1, 5, 10)


def embedded(inputs: np.ndarray, labels: np.ndarray, seed: int) -> tuple[Points, ...]:
    """References with labels, held-out points, known queries and unseen queries."""
    rng = np.random.default_rng(seed)
    classes = np.unique(labels)
    unseen = np.isin(labels, rng.choice(classes, len(classes) // 2, replace=False))
    known = rng.permutation(np.flatnonzero(~unseen))
    fitted, held_out, queries = np.split(known, [len(known) // 2, 3 * len(known) // 4])
    reduced = PCA(min(64, inputs.shape[1], len(fitted) - 1), random_state=0).fit(inputs[fitted])
    space = LinearDiscriminantAnalysis().fit(reduced.transform(inputs[fitted]), labels[fitted])
    parts = (fitted, held_out, queries, np.flatnonzero(unseen))
    made = [torch.from_numpy(space.transform(reduced.transform(inputs[rows])).astype(np.float32)) for rows in parts]
    return Points(made[0], torch.from_numpy(labels[fitted])), *map(Points, made[1:])


def rates(known: np.ndarray, unseen: np.ndarray) -> tuple[float, float]:
    """AUROC, and the share of unseen queries that pass where 95 % of the known ones do."""
    truth = np.repeat([1, 0], [len(known), len(unseen)])
    return float(roc_auc_score(truth, np.concatenate([known, unseen]))), float((unseen >= np.quantile(known, 0.05)).mean())


def measure(inputs: np.ndarray, labels: np.ndarray, splits: int) -> dict[str, object]:
    """Means over some splits."""
    false, neighbors, found = [], set[int](), {name: [] for name in ("nearkin", *(f"distance of nearest {k}" for k in NEAREST))}
    for seed in range(splits):
        references, held_out, queries, unseen = embedded(inputs, labels, seed)
        scores = [familiarity(part, references) for part in (queries, unseen)]
        rule = fit_rejection(held_out, references)
        false.append(float(rule.rejects(scores[0], ASKED).mean()))
        neighbors.add(rule.neighbors)
        found["nearkin"].append(rates(*scores))
        near = [nearest(part, references, max(NEAREST)).affinity.numpy() for part in (queries, unseen)]
        for k in NEAREST:
            found[f"distance of nearest {k}"].append(rates(*(part[:, k - 1] for part in near)))
    table = {name: dict(zip(("auroc", "fpr at 95 %"), np.round(np.mean(rows, 0), 4).tolist(), strict=True)) for name, rows in found.items()}
    spread = round(float(np.std(false, ddof=1)), 4) if splits > 1 else 0.0
    return {
        "splits": splits,
        "neighbors": max(neighbors),
        "asked": ASKED,
        "falsely rejected": round(float(np.mean(false)), 4),
        "spread": spread,
        "rules": table,
    }


def points_of(name: str, arguments: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels of some classes, at most as many points as were asked for."""
    if name in ENCODED:
        inputs, labels = real_features(name, arguments.data_root, arguments.cache, arguments.weights)
    else:
        data = sources.open(name, data_root=arguments.data_root)
        assert data.labels is not None
        inputs, labels = data.read(data.ids).flatten(1).float().numpy(), data.labels.numpy()
    per_class = -(-len(labels) // len(np.unique(labels)))
    chosen = np.random.default_rng(0).permutation(np.unique(labels))[: max(4, arguments.points // per_class)]
    rows = np.flatnonzero(np.isin(labels, chosen))
    rows = np.sort(np.random.default_rng(0).permutation(rows)[: arguments.points])
    return inputs[rows].astype(np.float32), labels[rows]


def main() -> None:
    """Print the figures as JSON, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=SETS, metavar="SET")
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--cache", type=Path, default=Path("runs/features"))
    parser.add_argument("--weights", help="of the encoder mobilenet-v2 (default: looked for on this machine)")
    parser.add_argument("--points", type=int, default=6000)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.sets:
        began, (inputs, labels) = time.process_time(), points_of(name, arguments)
        made = {"set": name, "points": len(labels), "classes": len(np.unique(labels)), **measure(inputs, labels, arguments.splits)}
        rows.append({**made, "processor seconds": round(time.process_time() - began, 1)})
        print(json.dumps(rows[-1]), flush=True)
    if arguments.out:
        found = {"device": device_name(torch.device("cpu")), "rows": rows}
        arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
