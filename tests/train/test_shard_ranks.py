"""Two ranks over shards: each reads its own, the bank is divided among them, and either number of ranks resumes the other's training."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.datasets import load_digits

from nearkin import cli
from nearkin import data as sources
from nearkin.data.samplers import Shuffled
from nearkin.data.shards import About, Shard, write_manifest, write_shard
from nearkin.data.sources.sharded import ShardRows
from nearkin.train.discovery import discover
from nearkin.train.training import train
from tests.train import shard_worker

pytest.importorskip("pyarrow")

WORKER = Path(shard_worker.__file__)
SIZES = (40, 30, 50, 40)


def write_shards(folder: Path) -> Path:
    """160 vectors of 8 numbers around three centers, in four shards of different size."""
    folder.mkdir()
    draw, records, first = np.random.default_rng(0), [], 0
    centers = draw.normal(size=(3, 8)) * 2
    for number, size in enumerate(SIZES):
        kinds = draw.integers(0, 3, size)
        vectors = (centers[kinds] + draw.normal(size=(size, 8))).astype(np.float32)
        labels = np.array(["abc"[kind] for kind in kinds], dtype=object)
        records.append(write_shard(folder, number, Shard(np.arange(first, first + size), vectors, labels)))
        first += size
    write_manifest(folder, About("", 8, "squared_euclidean", "classes", ("a", "b", "c")), records)
    return folder


def test_shards_are_data(tmp_path: Path) -> None:
    data = sources.open(write_shards(tmp_path / "shards"))
    assert isinstance(data.inputs, ShardRows) and data.kind == "vectors" and data.shape == (8,) and len(data) == 160
    assert data.classes == ("a", "b", "c") and data.supervision == "classes"
    some = torch.tensor([150, 3, 41, 3])
    whole = torch.from_numpy(np.concatenate([shard.vectors for shard in data.inputs.cache.shards]))
    assert torch.equal(data.read(some), whole[some])
    part = data.subset([159, 5, 70])
    assert torch.equal(part.read(part.ids), whole[[159, 5, 70]]) and part.inputs.shard_of.tolist() == [3, 0, 2]  # type: ignore[union-attr]


def test_only_a_few_shards_of_others_are_held(tmp_path: Path) -> None:
    data = sources.open(write_shards(tmp_path / "shards"))
    assert isinstance(data.inputs, ShardRows)
    held = data.inputs.cache
    held.keep([1])
    for _ in range(2):
        data.read(data.ids)
    assert held.read == {0: 2, 1: 1, 2: 2, 3: 2} and set(held.kept) == {1} and len(held.others) == 2


def test_a_point_without_a_label_has_none(tmp_path: Path) -> None:
    tmp_path.joinpath("s").mkdir()
    shard = Shard(np.arange(2), np.zeros((2, 3), np.float32), np.array(["a", None], dtype=object))
    write_manifest(tmp_path / "s", About("", 3, "cosine", "classes", ("a",)), [write_shard(tmp_path / "s", 0, shard)])
    assert sources.open(tmp_path / "s").labels.tolist() == [0, -1]  # type: ignore[union-attr]


def write_pictures(folder: Path) -> Path:
    """A few digits as shards of images."""
    digits = load_digits()
    np.savez(folder / "digits.npz", x=(digits.images[:160] * 15).astype(np.uint8), labels=digits.target[:160] % 3)
    assert cli.main(["shard", str(folder / "digits.npz"), "--out", str(folder / "pictures"), "--shard-rows", "50"]) == 0
    return folder / "pictures"


def test_images_in_shards_equal_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_pictures(tmp_path)
    assert "160 points in" in capsys.readouterr().out
    ours, theirs = sources.open(tmp_path / "digits.npz"), sources.open(folder)
    assert theirs.shape == ours.shape == (1, 8, 8) and theirs.kind == "images" and theirs.classes == ours.classes
    assert torch.equal(theirs.read(theirs.ids), ours.read(ours.ids)) and torch.equal(theirs.labels, ours.labels)  # type: ignore[arg-type]
    assert cli.main(["shard", str(folder), "--out", str(tmp_path / "s"), "--address", "h:1"]) == 1
    assert "pass --engine ray, too" in capsys.readouterr().err


def test_every_batch_holds_an_even_share_of_every_shard() -> None:
    homes = torch.repeat_interleave(torch.arange(4), torch.tensor(SIZES))
    sampler = Shuffled(160, 32, seed=3, strata=homes)
    batches = list(sampler.batches(0))
    assert sorted(torch.cat(batches).tolist()) == list(range(160))
    for ids in batches:
        shares = torch.bincount(homes[ids], minlength=4)
        assert all(abs(int(share) - 32 * size / 160) <= 1 for share, size in zip(shares, SIZES, strict=True))
    assert not torch.equal(torch.cat(batches), torch.cat(list(sampler.batches(1))))
    with pytest.raises(ValueError, match="strata has 3 entries for 160 points"):
        Shuffled(160, 32, seed=3, strata=homes[:3])


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "weights.safetensors") | {f"objective.{k}": v for k, v in load_file(folder / "objective.safetensors").items()}


@pytest.mark.soak
def test_two_ranks_equal_one_and_either_resumes_the_other(tmp_path: Path) -> None:
    shards = write_shards(tmp_path / "shards")
    write_pictures(tmp_path)
    shard_worker.interrupted(shard_worker.run_over(shards, "instance_discrimination"), tmp_path / "one-instance_discrimination")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(WORKER), str(tmp_path)]
    subprocess.run(command, check=True, timeout=240, cwd=WORKER.parents[2], env={**os.environ, "PYTHONPATH": "src:."})

    alone, together = shard_worker.banked(), torch.load(tmp_path / "banked.0", weights_only=True)
    for name, values in alone.items():
        for key, value in values.items():
            torch.testing.assert_close(together[name][key], value, rtol=0, atol=1e-10, msg=f"{name}: {key}")
    for name in ("instances", "discovery"):
        found = discover(alone[name]["bank"], 3, 0.1)
        assert torch.equal(together[f"{name} neighborhoods"]["table"], found.table)
        torch.testing.assert_close(together[f"{name} neighborhoods"]["entropy"], found.entropy)

    for rank, own in enumerate((["0", "2"], ["1", "3"])):
        for read in json.loads((tmp_path / f"read.{rank}").read_text()).values():
            assert read == dict.fromkeys("0123" if rank == 0 else own, 1)  # only its own, each once; the first rank measures all of them
        assert not [name for name in json.loads((tmp_path / f"threads.{rank}").read_text()) if "gloo" in name]  # or the end may abort

    # For the means of pixels the first rank looks at every shard; the other one only at its own.
    assert json.loads((tmp_path / "pictures.1").read_text()) == {"1": 1, "3": 1}
    for name in shard_worker.OBJECTIVES:
        run = shard_worker.run_over(shards, name)
        train(run, tmp_path / f"whole-{name}", device="cpu")
        train(run, tmp_path / f"two-{name}", device="cpu", resume=True)
        whole, resumed = weights_of(tmp_path / f"whole-{name}"), weights_of(tmp_path / f"two-{name}")
        for key, value in whole.items():
            torch.testing.assert_close(resumed[key], value, rtol=1e-3, atol=1e-4, msg=f"{name}, two ranks, then one: {key}")
    train(shard_worker.run_over(tmp_path / "pictures", "nca"), tmp_path / "whole-pictures", device="cpu")
    whole, resumed = (weights_of(tmp_path / f"{who}-pictures") for who in ("whole", "two"))
    for key, value in whole.items():
        torch.testing.assert_close(resumed[key], value, rtol=1e-3, atol=1e-4, msg=f"pictures: {key}")
    whole, resumed = (weights_of(tmp_path / f"{who}-instance_discrimination") for who in ("whole", "one"))
    for key, value in whole.items():
        torch.testing.assert_close(resumed[key], value, rtol=1e-3, atol=1e-4, msg=f"one rank, then two: {key}")
