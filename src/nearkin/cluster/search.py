"""Exact nearest neighbors over shards, on one machine or many: the k best of every shard, merged in the order of the shards."""

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

RETRIES = 20  # of a shard whose machine died; bounded, for a shard that kills every machine
AHEAD = 2  # shards in progress per worker: results wait for their turn, which takes memory

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
    """Search the exact k nearest points of each query in a folder of shards.

    The result equals `nearest` over all points at once, including order and ties.

    Parameters
    ----------
    queries : Points or Tensor of shape (n, d)
        The queries.
    shards : Shards
        The points, as `nearkin.data.shards.open_shards` returns them.
    k : int
        Neighbors per query.
    affinity : Affinity, optional
        How near two points are. By default minus the squared Euclidean distance.
    exclude_same_id : bool, default False
        Leave out points with the id of the query.
    engine : {"local", "ray"}, default "local"
        Work in this process, or on a Ray cluster whose machines share the folder.
    address : str, optional
        The Ray cluster, as host:port or "auto". By default Ray starts on this machine.

    Returns
    -------
    Neighbors
        Positions (n, k) among all points of the shards, and affinities.

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> from nearkin import data
    >>> from nearkin.cluster import embed
    >>> from nearkin.data.shards import open_shards
    >>> points = np.array([[0, 1], [0.1, 1], [1, 0], [1, 0.1]], np.float32)
    >>> labeled = data.open({"x": points, "y": np.array(["a", "a", "b", "b"])})
    >>> with TemporaryDirectory() as folder:
    ...     written = embed(None, labeled, folder, rows=2)
    ...     nearest_over(torch.tensor([[0.0, 1.0]]), open_shards(folder), k=2).positions
    tensor([[0, 1]])
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
    """The same before rounding; with `groups`, as `nearest` takes them, points of the query's group are skipped."""
    if engine == "local":
        return score_nearest(queries, shards, k, affinity, exclude_same_id=exclude_same_id, groups=groups)
    points = queries if isinstance(queries, Points) else Points(queries)
    plain = Points(points.embeddings.cpu(), None, None if points.ids is None else points.ids.cpu())
    starts = shards.starts()

    def one(shared: Points, number: int) -> Scored:
        here = None if groups is None else (groups[0].cpu(), groups[1][starts[number] : starts[number + 1]])
        return score_nearest(shared, shards.of([number]), k, affinity, exclude_same_id=exclude_same_id, groups=here)

    full = [number for number, record in enumerate(shards.records) if record["rows"]]
    found: Scored | None = None
    for part in in_order(one, plain, full, address):
        found = part if found is None else merge_scored(found, part, k)
    assert found is not None  # a folder without points cannot be opened
    best = Neighbors(*(tensor.to(points.embeddings.device) for tensor in found.best))
    return found._replace(best=best)


def discover_over(
    shards: Shards, k: int = 1, temperature: float = 0.1, *, engine: Engine = "local", address: str | None = None
) -> Neighborhoods:
    """Discover neighborhoods in a folder of shards, as `nearkin.train.discovery.discover` does in memory.

    Parameters
    ----------
    shards : Shards
        The points.
    k : int, default 1
        Neighbors per point.
    temperature : float, default 0.1
        Temperature of the softmax over neighbors, whose entropy ranks the points.
    engine : {"local", "ray"}, default "local"
        Work in this process, or on a Ray cluster whose machines share the folder.
    address : str, optional
        The Ray cluster, as host:port or "auto".

    Returns
    -------
    Neighborhoods
        Row i is the i-th point of all shards.

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> from nearkin import data
    >>> from nearkin.cluster import embed
    >>> from nearkin.data.shards import open_shards
    >>> points = np.array([[0, 1], [0.1, 1], [1, 0], [1, 0.1]], np.float32)
    >>> labeled = data.open({"x": points, "y": np.array(["a", "a", "b", "b"])})
    >>> with TemporaryDirectory() as folder:
    ...     written = embed(None, labeled, folder, rows=2)
    ...     discover_over(open_shards(folder)).table.tolist()
    [[1], [0], [3], [2]]
    """
    if engine == "local":
        return discover(shards, k, temperature)

    def one(shared: Shards, number: int) -> Neighborhoods:
        return neighborhoods_of(shared, number, k, temperature)

    full = [number for number, record in enumerate(shards.records) if record["rows"]]
    parts = list(in_order(one, shards, full, address))
    return Neighborhoods(torch.cat([part.table for part in parts]), torch.cat([part.entropy for part in parts]))


def in_order(work: Callable[[Any, int], Any], shared: Any, numbers: list[int], address: str | None) -> Iterator[Any]:
    """work(shared, number) for every number by Ray, in order; an error of a worker is raised here."""
    with session(address) as ray:
        count, asks = workers(ray, "cpu")
        task = ray.remote(max_retries=RETRIES, **asks)(work)
        stored, todo = ray.put(shared), iter(numbers)
        waiting = [task.remote(stored, number) for number in islice(todo, AHEAD * count)]
        while waiting:
            try:
                done = ray.get(waiting.pop(0))
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            waiting += [task.remote(stored, number) for number in islice(todo, 1)]
            yield done
