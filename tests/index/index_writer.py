"""Writers that are killed with -9 at random moments: `python tests/index/index_writer.py FOLDER KILLS SEED`.

Each writer is a process of its own, forked from this one so that none has to import torch again. It says what it is about
to do, does it, and says that it is done. After each kill the index must be whole, hold all that was said to be done, and of
the change under way all or nothing.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from nearkin.index.contract import Entries
from nearkin.index.local import LocalIndex

D = 8


def vector(point: int) -> np.ndarray:
    return np.random.default_rng(point).normal(size=D).astype(np.float32)


def points(ids: range) -> Entries:
    """Everything about a point follows from its id."""
    return Entries(np.stack([vector(i) for i in ids]), labels=[str(i % 7) for i in ids], sources=[f"s{i}" for i in ids])


def write(folder: Path, seed: int, pipe: int) -> None:
    """Change the index for ever, telling each step."""
    rng, index = random.Random(seed), LocalIndex.open(folder)
    while True:
        living = index.snapshot.ids.tolist()
        what = rng.choices(["add", "delete", "compact", "replace"], [6, 2, 1, 1])[0]
        if what == "add":
            first, n = index._manifest["next_id"], rng.randint(1, 200)
            os.write(pipe, f"begin add {first} {first + n}\n".encode())
            index.add(points(range(first, first + n)))
        elif what == "replace":
            n = rng.randint(20, 200)
            os.write(pipe, f"begin replace {n}\n".encode())
            index.replace([points(range(n // 2)), points(range(n // 2, n))], model="m", metric="squared_euclidean", dimension=D)
        elif what == "delete" and living:
            chosen = rng.sample(living, min(len(living), 5))
            os.write(pipe, f"begin delete {' '.join(map(str, chosen))}\n".encode())
            index.delete(chosen)
        else:
            os.write(pipe, b"begin compact\n")
            index.compact()
        os.write(pipe, b"done\n")


def after(living: set[int], change: str) -> set[int]:
    words = change.split()[1:]
    if words[0] == "add":
        return living | set(range(int(words[1]), int(words[2])))
    if words[0] == "replace":
        return set(range(int(words[1])))
    return living - set(map(int, words[1:])) if words[0] == "delete" else living


def replayed(lines: list[str], living: set[int]) -> tuple[set[int], set[int]]:
    """The points that must be there, and those that are there if the change under way was finished."""
    under_way = ""
    for line in lines:
        if line == "done":
            living, under_way = after(living, under_way), ""
        elif line.startswith("begin"):
            under_way = line
    return living, after(living, under_way) if under_way else living


def kill_one(folder: Path, seed: int, living: set[int]) -> tuple[set[int], int, bool]:
    """One writer, one kill, one look; the points that are there, how many changes were done, and whether one was under way."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            write(folder, seed, writing)
        finally:
            os._exit(3)
    os.close(writing)
    rng, message = random.Random(seed), b""
    changes = rng.randint(0, 5)
    while message.count(b"done") < changes or b"begin" not in message:
        message += os.read(reading, 65536)
    time.sleep(rng.uniform(0.0, 0.02))  # some way into the next change
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"the writer of seed {seed} ended by itself"
    with os.fdopen(reading, "rb") as rest:
        lines = (message + rest.read()).decode().splitlines()
    before, finished = replayed(lines, living)
    index = LocalIndex.open(folder)
    index.verify()
    found = index.snapshot
    there = set(found.ids.tolist())
    assert there in (before, finished), f"seed {seed}: lost {sorted(before - there)[:5]}, unasked {sorted(there - finished)[:5]}"
    assert index.count == len(there)
    for row in random.Random(seed).sample(range(len(found)), min(len(found), 20)):
        entry = found.entry(row)
        assert np.array_equal(found.vectors[row], vector(entry.id))
        assert (entry.label, entry.source) == (str(entry.id % 7), f"s{entry.id}")
    return there, lines.count("done"), lines[-1] != "done"


def main(folder: Path, kills: int, seed: int) -> None:
    LocalIndex.create(folder, model="m", metric="squared_euclidean", dimension=D)
    living, done, hit = set[int](), 0, 0
    for number in range(kills):
        living, more, under_way = kill_one(folder, 1000 * seed + number, living)
        done, hit = done + more, hit + under_way
    index = LocalIndex.open(folder)
    assert len(index.add(Entries(np.ones((3, D))))) == 3, "it still takes points"
    print(f"{kills} kills, {hit} of them during a change, {done} changes done, {len(living)} points")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
