"""Exact nearest neighbors over shards by many machines: the k best of every shard, joined in the order of the shards."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Literal

import torch
from torch import Tensor

from nearkin.cluster.session import session, workers
from nearkin.compose.affinity import Affinity
from nearkin.compose.points import Points
from nearkin.data.shards import Shards
from nearkin.search import Neighbors
from nearkin.search.exact import Scored, merge_scored, round_scored, score_nearest
from nearkin.train.discovery import Neighborhoods, discover, neighborhoods_of

RETRIES = 20  # of a shard whose machine died; one that kills every machine must end
AHEAD = 2  # shards in the works for each worker: answers wait for their turn, so they must not pile up

Engine = Literal["local", "ray"]


def nearest_over(
    queries: Points | Tensor,
    shards: Shards,
    k: int,
    affinity: Affinity | None = None,
    *,
    exclude_same_id: bool = False,
    engine: Engine = "local",
    address: str | None = None,
) -> Neighbors:
    """The k nearest points of a folder of shards to each query (n, d): ids, order and ties of `nearest` over all of them at once.

    By this process, or by a Ray cluster whose machines share the folder. A machine that dies costs the shards it was at.
    """
    found = scored_over(queries, shards, k, affinity, exclude_same_id=exclude_same_id, engine=engine, address=address)
    return round_scored(found, affinity)


def scored_over(
    queries: Points | Tensor,
    shards: Shards,
    k: int,
    affinity: Affinity | None = None,
    *,
    exclude_same_id: bool = False,
    groups: tuple[Tensor, Tensor] | None = None,
    engine: Engine = "local",
    address: str | None = None,
) -> Scored:
    """The same before it is rounded; with `groups`, as `nearest` takes them, points of the query's group are passed over."""
    if engine == "local":
        return score_nearest(queries, shards, k, affinity, exclude_same_id=exclude_same_id, groups=groups)
    asked = queries if isinstance(queries, Points) else Points(queries)
    plain = Points(asked.embeddings.cpu(), None, None if asked.ids is None else asked.ids.cpu())
    starts = shards.starts()

    def one(given: Points, number: int) -> Scored:
        here = None if groups is None else (groups[0].cpu(), groups[1][starts[number] : starts[number + 1]])
        return score_nearest(given, shards.of([number]), k, affinity, exclude_same_id=exclude_same_id, groups=here)

    full = [number for number, record in enumerate(shards.records) if record["rows"]]
    found: Scored | None = None
    for part in in_order(one, plain, full, address):
        found = part if found is None else merge_scored(found, part, k)
    assert found is not None  # a folder without points cannot be opened
    best = Neighbors(*(tensor.to(asked.embeddings.device) for tensor in found.best))
    return found._replace(best=best)


def discover_over(
    shards: Shards, k: int = 1, temperature: float = 0.1, *, engine: Engine = "local", address: str | None = None
) -> Neighborhoods:
    """`discover` over a folder of shards: row i of the answer is the i-th point of all shards."""
    if engine == "local":
        return discover(shards, k, temperature)

    def one(given: Shards, number: int) -> Neighborhoods:
        return neighborhoods_of(given, number, k, temperature)

    full = [number for number, record in enumerate(shards.records) if record["rows"]]
    parts = list(in_order(one, shards, full, address))
    return Neighborhoods(torch.cat([part.table for part in parts]), torch.cat([part.entropy for part in parts]))


def in_order(work: Callable[[Any, int], Any], shared: Any, numbers: list[int], address: str | None) -> Iterator[Any]:
    """work(shared, number) for every number, by Ray, in their order; an error is the worker's own."""
    with session(address) as ray:
        count, asks = workers(ray, "cpu")
        task = ray.remote(max_retries=RETRIES, **asks)(work)
        given, todo = ray.put(shared), iter(numbers)
        waiting = [task.remote(given, number) for number in islice(todo, AHEAD * count)]
        while waiting:
            try:
                done = ray.get(waiting.pop(0))
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            waiting += [task.remote(given, number) for number in islice(todo, 1)]
            yield done
