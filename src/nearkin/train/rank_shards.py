"""Each rank reads its own shards: which shards those are, and this rank's share of every batch.

Batches are drawn from all points and are the same for any number of ranks. A rank takes the points of a batch that are in its own
shards. A training can therefore resume with another number of ranks.
"""

import torch
import torch.distributed as dist
from torch import Tensor

from nearkin.data.dataset import Dataset
from nearkin.data.sources.sharded import ShardRows
from nearkin.train import ranks


def reads_own(data: Dataset) -> bool:
    """Whether the data are shards that are divided among several ranks."""
    return isinstance(data.inputs, ShardRows) and ranks.count() > 1


def divide(data: Dataset) -> None:
    """Keep only this rank's own shards in memory."""
    if not reads_own(data):
        return
    assert isinstance(data.inputs, ShardRows)
    full = _full(data.inputs)
    if len(full) < ranks.count():
        raise ValueError(
            f"{data.name} has {len(full)} shards for {ranks.count()} ranks, and every rank needs at least one; "
            "write smaller shards (nearkin embed --shard-rows), or start fewer ranks"
        )
    data.inputs.cache.keep(full[dist.get_rank() :: ranks.count()])


def owners(data: Dataset, ids: Tensor) -> Tensor:
    """(b,) the rank that reads each of these points; shards are assigned to ranks in turn."""
    assert isinstance(data.inputs, ShardRows)
    table = torch.zeros(len(data.inputs.cache.shards.records), dtype=torch.int64)
    full = _full(data.inputs)
    table[torch.tensor(full)] = torch.arange(len(full)) % ranks.count()
    return table[data.inputs.shard_of[data.rows(ids)]]


def everyone_reads(data: Dataset, ids: Tensor) -> bool:
    """Whether every rank has some of these points in its own shards."""
    return reads_own(data) and int(torch.bincount(owners(data, ids), minlength=ranks.count()).min()) > 0


def mine(data: Dataset, ids: Tensor) -> Tensor:
    """This rank's share of a batch of ids: those in its own shards, or an even part if the data are not shards."""
    if not reads_own(data):
        return ranks.share(ids)
    if not everyone_reads(data, ids):  # all ranks find this, so none of them waits for another
        raise ValueError(f"a batch of {len(ids)} contains no point of some rank's shards; raise batch_size, or write shards of equal size")
    return ids[owners(data, ids) == dist.get_rank()]


def put_back(rows: Tensor, ids: Tensor, order: Tensor) -> Tensor:
    """Gather what the ranks computed for their own ids, in the order of `order`; every rank gets all rows."""
    rows, ids = ranks.gather(rows.contiguous()), ranks.gather(ids.to(rows.device))
    place = torch.empty(int(ids.max()) + 1, dtype=torch.int64, device=ids.device)
    place[ids] = torch.arange(len(ids), device=ids.device)
    return rows[place[order.to(ids.device)]]


def _full(rows: ShardRows) -> list[int]:
    return [number for number, record in enumerate(rows.cache.shards.records) if record["rows"]]
