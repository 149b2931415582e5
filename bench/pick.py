"""Labels needed to reach random picking's accuracy: `pick` beside random, coreset, margin and TypiClust, on features of real images.

    python -m bench.pick --data FOLDER --cache features --out docs/bench-pick.json [--weights mobilenet_v2-b0353104.pth]

Half of the points are the pool, the other half the test set. Labels are bought in steps; after each, logistic regression is fitted on all
labels so far, with the same settings for every method. The first step of margin is random, of the others their own. Five seeds draw the
pool. `share` is the number of labels that a method needs for the accuracy that random picking has after the last step, by linear
interpolation, over the number of labels of that step. What is measured stays in the JSON file, so that an interrupted run goes on.
"""

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
import torch

from bench.real_features import SETS, real_features
from nearkin.compose import cosine
from nearkin.evaluate import pick
from nearkin.evaluate.k_means import k_means

STEPS = (20, 40, 60, 80, 100, 140, 200)  # labels bought so far
SEEDS = 5
METHODS = ("random", "coreset", "margin", "typiclust", "nearkin")


def classifier(x: np.ndarray, y: np.ndarray):  # type: ignore[no-untyped-def]
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LogisticRegression(max_iter=100).fit(x, y)


def chosen(method: str, x: np.ndarray, y: np.ndarray, known: np.ndarray, count: int, seed: int) -> np.ndarray:
    """(count,) rows of the pool to label next; `known` are labeled."""
    draw = np.random.default_rng(1000 * seed + len(known))
    free = np.setdiff1d(np.arange(len(x)), known)
    if method == "random" or (method == "margin" and (not len(known) or len(np.unique(y[known])) < 2)):
        return draw.choice(free, count, replace=False)
    if method == "nearkin":
        labels = np.full(len(x), -1)
        labels[known] = y[known]
        return pick(x, labels, count, cosine(), seed=seed).rows.numpy()
    if method == "margin":
        best = np.sort(classifier(x[known], y[known]).predict_proba(x[free]), axis=1)
        return free[np.argsort(best[:, -1] - best[:, -2], kind="stable")[:count]]
    return coreset(x, known, count, draw) if method == "coreset" else typiclust(x, known, count, seed)


def coreset(x: np.ndarray, known: np.ndarray, count: int, draw: np.random.Generator) -> np.ndarray:
    """Each time the point that is farthest from all that are labeled (Sener and Savarese 2018, the greedy one)."""
    taken: list[int] = []
    far = np.full(len(x), np.inf)
    for row in known:
        far = np.minimum(far, np.square(x - x[row]).sum(1))
    while len(taken) < count:
        taken.append(int(draw.integers(len(x)) if np.isinf(far).all() else far.argmax()))
        far = np.minimum(far, np.square(x - x[taken[-1]]).sum(1))
    return np.array(taken)


def typiclust(x: np.ndarray, known: np.ndarray, count: int, seed: int) -> np.ndarray:
    """The densest point of each of the largest clusters without a label (Hacohen et al. 2022)."""
    group, _ = k_means(torch.from_numpy(x), min(len(known) + count, 500), seed)
    taken: list[int] = []
    labels = np.bincount(group[known], minlength=group.max() + 1)
    while len(taken) < count:
        for at in np.lexsort((-np.bincount(group), labels)):
            members = np.setdiff1d(np.flatnonzero(group == at), [*known, *taken])
            if not len(members) or len(taken) == count:
                continue
            apart = np.sort(np.square(x[members][:, None] - x[members]).sum(2), axis=1)[:, 1:21]
            taken.append(int(members[np.sqrt(apart).mean(1).argmin()] if len(members) > 1 else members[0]))
            labels[at] += 1
    return np.array(taken)


def curve(method: str, x: np.ndarray, y: np.ndarray, steps: list[int], seed: int) -> list[float]:
    order = np.random.default_rng(seed).permutation(len(x))
    pool, test = order[: len(x) // 2], order[len(x) // 2 :]
    known = np.zeros(0, dtype=np.int64)
    found = []
    for labels in steps:
        known = np.concatenate([known, chosen(method, x[pool], y[pool], known, labels - len(known), seed)])
        found.append(float((classifier(x[pool][known], y[pool][known]).predict(x[test]) == y[test]).mean()))
    return found


def share_needed(steps: list[int], ours: np.ndarray, target: float) -> float | None:
    """Labels at which a curve first reaches the target, over those of the last step; None if it never does."""
    for at, value in enumerate(ours):
        if value >= target:
            before, low = (0, 0.0) if at == 0 else (steps[at - 1], ours[at - 1])
            return round((before + (steps[at] - before) * (target - low) / (value - low)) / steps[-1], 3)
    return None


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with fashion-mnist, flowers20 and cifar10")
    parser.add_argument("--cache", type=Path, default=Path("features"), help="folder for the features")
    parser.add_argument("--weights", help="torchvision's weights of MobileNetV2 (default: looked for on this machine)")
    parser.add_argument("--only", nargs="+", default=["cifar10"], choices=SETS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rows = json.loads(arguments.out.read_text(encoding="utf-8"))["rows"] if arguments.out.exists() else []
    for name in arguments.only:
        x, y = real_features(name, arguments.data, arguments.cache, arguments.weights)
        x = x - x.mean(0)
        x = (x / np.linalg.norm(x, axis=1, keepdims=True) * 10).astype(np.float32)
        steps = list(STEPS)
        for seed in range(arguments.seeds):
            for method in METHODS:
                about = {"set": name, "points": len(y), "method": method, "seed": seed, "labels": steps}
                if any(about.items() <= row.items() for row in rows):
                    continue
                rows.append({**about, "accuracy": [round(value, 4) for value in curve(method, x, y, steps, seed)]})
                print(json.dumps(rows[-1]), flush=True)
                arguments.out.write_text(json.dumps({"rows": rows, "summary": summary(rows)}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(summary(rows), indent=1))


def summary(rows: list[dict]) -> list[dict]:  # type: ignore[type-arg]
    """The mean curve of each method, and its share of random's labels."""
    found = []
    for name in dict.fromkeys(row["set"] for row in rows):
        of = {method: [row for row in rows if (row["set"], row["method"]) == (name, method)] for method in METHODS}
        if not of["random"]:
            continue
        target = float(np.mean([row["accuracy"][-1] for row in of["random"]]))
        for method, some in of.items():
            if some:
                mean = np.mean([row["accuracy"] for row in some], axis=0)
                found.append({"set": name, "method": method, "seeds": len(some), "labels": some[0]["labels"]})
                found[-1] |= {"accuracy": mean.round(4).tolist(), "share": share_needed(some[0]["labels"], mean, target)}
    return found


if __name__ == "__main__":
    run()
