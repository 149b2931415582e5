"""Loaders of shards that are killed with -9 at random moments: `python tests/index/milvus_loader.py FOLDER KILLS SEED`.

Each loader is a process of its own, forked from this one, and tells every batch that was acknowledged. After each kill another process
looks: whatever was acknowledged is there, right and once. A load that comes to its end is checked whole, and begins anew.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from nearkin.data.shards import About, Shard, open_shards, write_manifest, write_shard
from nearkin.index import milvus_load
from nearkin.index.milvus import MilvusIndex

D, SHARDS, ROWS, BATCH = 8, 4, 300, 40
TOTAL = SHARDS * ROWS


def vector(point: int) -> np.ndarray:
    return np.random.default_rng(point).normal(size=D).astype(np.float32)


def make_shards(folder: Path) -> None:
    """Everything about a point follows from its id."""
    folder.mkdir(parents=True)
    about, records = About("m", D, "squared_euclidean", "classes", tuple("0123456")), []
    for number in range(SHARDS):
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        labels, sources = (np.array([text(i) for i in ids], dtype=object) for text in (lambda i: str(i % 7), lambda i: f"s{i}"))
        records.append(write_shard(folder, number, Shard(ids, np.stack([vector(i) for i in ids]), labels, sources)))
    write_manifest(folder, about, records)


def opened(place: Path) -> MilvusIndex:
    try:
        return MilvusIndex.open(str(place), model="m")
    except FileNotFoundError:
        return MilvusIndex.create(str(place), model="m", metric="squared_euclidean", dimension=D)


def load(folder: Path, pipe: int) -> None:
    milvus_load.BATCH = BATCH
    index = opened(folder / "index.db")
    os.write(pipe, b"open\n")
    for step in milvus_load.load_shards(index, open_shards(folder / "shards")):
        os.write(pipe, f"{step.points}\n".encode())
    os.write(pipe, b"end\n")
    time.sleep(60)  # to be killed in its sleep


def look(folder: Path, acknowledged: int, seed: int) -> None:
    """The first `acknowledged` points are there; nothing is there twice, and nothing that is not in the shards."""
    index = opened(folder / "index.db")
    there = index.present(range(TOTAL + 10))
    assert index.count == len(there), f"seed {seed}: {index.count} points, {len(there)} ids"
    assert there == list(range(len(there))), f"seed {seed}: gaps, or ids that were never loaded"
    assert len(there) >= acknowledged, f"seed {seed}: {acknowledged} acknowledged, {len(there)} there"
    some = random.Random(seed).sample(there, min(len(there), 20)) if there else []
    for entry, found in zip(index.entries(some), index.vectors(some), strict=True):
        assert np.array_equal(found, vector(entry.id)) and (entry.label, entry.source) == (str(entry.id % 7), f"s{entry.id}")


def forked(work, *arguments: object) -> int:
    child = os.fork()
    if child == 0:
        status = 3
        try:
            work(*arguments)
            status = 0
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
        os._exit(status)
    return child


def kill_one(folder: Path, seed: int, acknowledged: int) -> tuple[int, bool]:
    """One loader, one kill, one look; how many points are acknowledged now, and whether the load had ended."""
    reading, writing = os.pipe()
    child = forked(load, folder, writing)
    os.close(writing)
    rng, message = random.Random(seed), b""
    batches = rng.randint(0, 6)
    while message.count(b"\n") <= batches and b"end" not in message:
        more = os.read(reading, 65536)
        assert more, f"the loader of seed {seed} ended by itself"
        message += more
    time.sleep(rng.uniform(0.0, 0.03))  # some way into the next batch
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    with os.fdopen(reading, "rb") as rest:
        lines = (message + rest.read()).decode().split()
    acknowledged = max([acknowledged, *(int(line) for line in lines if line.isdecimal())])
    looking = forked(look, folder, acknowledged, seed)
    assert os.waitpid(looking, 0)[1] == 0
    return acknowledged, "end" in lines


def main(folder: Path, kills: int, seed: int) -> None:
    make_shards(folder / "shards")
    acknowledged, loads = 0, 0
    for number in range(kills):
        acknowledged, ended = kill_one(folder, 1000 * seed + number, acknowledged)
        if ended:
            assert acknowledged == TOTAL
            (folder / "index.db").rename(folder / f"done-{loads}.db")
            acknowledged, loads = 0, loads + 1
    looking = forked(finish, folder)
    assert os.waitpid(looking, 0)[1] == 0
    print(f"{kills} kills, {loads + 1} loads whole")


def finish(folder: Path) -> None:
    """The last load goes on undisturbed, and everything is there."""
    index = opened(folder / "index.db")
    assert [step.points for step in milvus_load.load_shards(index, open_shards(folder / "shards"))][-1] == TOTAL
    assert index.count == TOTAL and index.present(range(TOTAL)) == list(range(TOTAL))
    assert np.array_equal(index.vectors(range(TOTAL)), np.stack([vector(i) for i in range(TOTAL)]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
