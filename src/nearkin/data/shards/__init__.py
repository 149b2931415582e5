"""Shards: embeddings of any number of points as a folder of Parquet files that is never larger than memory at once.

    shard-00000.parquet, ...   id (int64 or string), vector (d float32), label (class name, numbers or null), source (string)
    shards.json                which model made them, d, the metric, and rows, bytes and checksum of every file

A shard is written aside, synced and renamed, and only then named in the manifest: whatever is named is whole, and after a kill
only the shards that are not named are made again. Parquet needs pyarrow (pip install 'nearkin[table]').
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
