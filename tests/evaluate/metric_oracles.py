"""Metrics from their definitions: a ranking is a list, a tie is every order of it. Imports nothing from nearkin."""

from collections.abc import Callable, Sequence
from itertools import permutations
from math import log2
from statistics import fmean

Ranking = Sequence[bool]  # True at the ranks of positives


def precision_at(k: int) -> Callable[[Ranking], float]:
    return lambda ranking: sum(ranking[: min(k, len(ranking))]) / min(k, len(ranking))


def recall_at(k: int) -> Callable[[Ranking], float]:
    return lambda ranking: float(any(ranking[:k]))


def consistency_at(k: int) -> Callable[[Ranking], float]:
    return lambda ranking: float(all(ranking[:k]))


def map_at(k: int) -> Callable[[Ranking], float]:
    def value(ranking: Ranking) -> float:
        limit = min(k, len(ranking))
        return sum(sum(ranking[: i + 1]) / (i + 1) for i in range(limit) if ranking[i]) / min(sum(ranking), limit)

    return value


def ndcg_at(k: int) -> Callable[[Ranking], float]:
    def gain(ranking: Ranking) -> float:
        return sum(1 / log2(2 + i) for i in range(min(k, len(ranking))) if ranking[i])

    return lambda ranking: gain(ranking) / gain(sorted(ranking, reverse=True))


def r_precision(ranking: Ranking) -> float:
    return sum(ranking[: sum(ranking)]) / sum(ranking)


def average_precision(ranking: Ranking) -> float:
    return sum(sum(ranking[: i + 1]) / (i + 1) for i in range(len(ranking)) if ranking[i]) / sum(ranking)


def map_at_r(ranking: Ranking) -> float:
    size = sum(ranking)
    return sum(sum(ranking[: i + 1]) / (i + 1) for i in range(size) if ranking[i]) / size


def reciprocal_rank(ranking: Ranking) -> float:
    return 1 / (list(ranking).index(True) + 1)


def metrics(ks: Sequence[int]) -> dict[str, Callable[[Ranking], float]]:
    found: dict[str, Callable[[Ranking], float]] = {}
    for k in ks:
        found |= {
            f"precision@{k}": precision_at(k),
            f"recall@{k}": recall_at(k),
            f"map@{k}": map_at(k),
            f"consistency@{k}": consistency_at(k),
            f"ndcg@{k}": ndcg_at(k),
        }
    return found | {"r_precision": r_precision, "map": average_precision, "map@r": map_at_r, "mrr": reciprocal_rank}


def orders(near: Sequence[float], positives: Sequence[bool]) -> list[Ranking]:
    """Every order of the candidates that puts nearer ones first."""
    found = []
    for order in permutations(range(len(near))):
        if all(near[a] >= near[b] for a, b in zip(order, order[1:], strict=False)):
            found.append([positives[j] for j in order])
    return found


def expected(near: Sequence[float], positives: Sequence[bool], ks: Sequence[int]) -> dict[str, float] | None:
    """The mean of each metric over all orders of the ties; None for a query without a positive."""
    if not any(positives):
        return None
    every = orders(near, positives)
    return {name: fmean(metric(ranking) for ranking in every) for name, metric in metrics(ks).items()}
