"""Shards: embeddings, vectors or images of any number of points, as a folder of Parquet files that are read one at a time.

    shard-00000.parquet, ...   id (int64 or string), vector (d float32), label (class name, numbers or null), source (string)
    shards.json                the model that made them, d, the metric, and rows, bytes and checksum of every file

A shard is written under a temporary name, synced and renamed, and only then listed in shards.json. So every listed shard is complete, and
after a kill only the others are made again. `open_shards` opens a folder. Parquet needs pyarrow (pip install 'nearkin[table]').
"""

from nearkin.data.shards.files import KEPT, About, Shard, ShardDamagedError, check_record, write_shard
from nearkin.data.shards.folder import Shards, is_sharded, open_shards, read_manifest, write_manifest

__all__ = [
    "KEPT",
    "About",
    "Shard",
    "ShardDamagedError",
    "Shards",
    "check_record",
    "is_sharded",
    "open_shards",
    "read_manifest",
    "write_manifest",
    "write_shard",
]
