"""What verifying checksums costs when a model and its index are opened: `python -m bench.opening [--points N] [--out FILE.json]`.

- The command: `nearkin search DIR --id 3` in a process of its own, with and without --no-verify in turn: a busy spell hits both alike.
- In a running process: `nearkin.open_index(DIR)` and its first search, the same way.
- The checksums themselves, in bytes a second: the one that is compared at opening, and those that were not chosen.

The files are in the page cache. From a cold disk, both read the same bytes, and the disk is slower than the checksum.
"""

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nearkin.data.disk import fast_digest
from nearkin.index.collection import model_version, open_index
from nearkin.index.contract import Entries
from nearkin.index.local import LocalIndex
from nearkin.models.folder import build_network
from nearkin.train.loop import save

D = 128
NETWORK = "resnet18"


def made(folder: Path, points: int) -> Path:
    """A model folder with an untrained ResNet-18 and an index of random vectors."""
    network: dict[str, Any] = {"name": NETWORK, "dimension": D, "normalize": False, "options": {}}
    about = {"format": 1, "kind": "images", "shape": [3, 64, 64], "classes": [], "targets": [], "supervision": "ids", "objective": "nca"}
    about |= {"why": "a benchmark", "network": network, "metric": "squared_euclidean", "prepare": []}
    save(folder, build_network(about), about)
    index = LocalIndex.create(folder / "index", model=model_version(folder), metric="squared_euclidean", dimension=D)
    rng = np.random.default_rng(0)
    index.add(Entries(rng.normal(size=(points, D)).astype(np.float32), sources=[f"{row}.jpg" for row in range(points)]))
    return folder


def in_turn(one: Callable[[], float], other: Callable[[], float], rounds: int) -> tuple[float, float]:
    """The smallest of each, over rounds in turn."""
    found = [(one(), other()) for _ in range(rounds)]
    return min(a for a, _ in found), min(b for _, b in found)


def command_seconds(folder: Path, *more: str) -> float:
    """CPU seconds of `nearkin search` in a process of its own."""
    before = os.times()
    words = [sys.executable, "-m", "nearkin", "search", str(folder), "--id", "3", "--device", "cpu", *more]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def opened_seconds(folder: Path, verify: bool) -> float:
    """CPU seconds until the first answer, in this process."""
    began = time.process_time()
    open_index(folder, device="cpu", verify=verify).search(3, 10)
    return time.process_time() - began


def speeds(folder: Path) -> dict[str, float]:
    """Gigabytes a second of each checksum, over the largest file."""
    path = max(folder.rglob("*.safetensors"), key=lambda file: file.stat().st_size)
    content = path.read_bytes()
    ways: dict[str, Callable[[], object]] = {
        "chosen": lambda: fast_digest(path),
        "crc32": lambda: zlib.crc32(content),
        "sha256": lambda: hashlib.sha256(content).digest(),
        "blake2b": lambda: hashlib.blake2b(content).digest(),
    }
    return {name: round(len(content) / min(_timed(way) for _ in range(5)) / 1e9, 2) for name, way in ways.items()}


def _timed(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return max(time.process_time() - began, 1e-9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = made(Path(place) / "model", arguments.points)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        with_it, without = in_turn(
            lambda: command_seconds(folder), lambda: command_seconds(folder, "--no-verify"), max(2, arguments.rounds // 2)
        )
        opened, opened_without = in_turn(lambda: opened_seconds(folder, True), lambda: opened_seconds(folder, False), arguments.rounds)
        page = {
            "command": f"python -m bench.opening --points {arguments.points}",
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "model": NETWORK,
            "points": arguments.points,
            "dimension": D,
            "bytes": size,
            "cpu_seconds_of_the_command": {"verified": with_it, "not_verified": without, "cost": with_it / without - 1},
            "cpu_seconds_of_open_index": {"verified": opened, "not_verified": opened_without, "cost": opened / opened_without - 1},
            "gigabytes_a_second": speeds(folder),
        }
    text = json.dumps(page, indent=1) + "\n"
    sys.stdout.write(text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
