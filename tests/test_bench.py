"""The benchmarks say what they measured: everybody in turn, floors never too low, nobody missing without a word."""

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bench import contenders, kernels, measure
from bench.contenders import CPU, CUDA, Contender, left_out, missing, siblings
from tests.test_docs import ROOT, script

NOTHING = (torch.zeros(()), torch.zeros(1))


def test_the_performance_page_is_what_its_json_says() -> None:
    assert (ROOT / "docs/performance.md").read_text(encoding="utf-8") == script("performance").page()


def test_the_tables_of_cleaning_and_picking_are_what_their_json_says() -> None:
    assert (ROOT / "docs/how-to/clean-and-pick.md").read_text(encoding="utf-8") == script("clean_page").page()


def test_the_tables_of_vectors_are_what_their_json_says() -> None:
    assert (ROOT / "docs/how-to/vectors.md").read_text(encoding="utf-8") == script("clean_page").vectors_page()


def test_the_memory_of_a_large_table_is_what_its_json_says() -> None:
    from bench.tables_large import COLUMNS, made_table
    from nearkin.data.columns import TableSchema

    table, classes = made_table(300, 0)
    assert table.shape == (300, COLUMNS) and set(classes) == set(range(5))
    assert {kind.kind for kind in TableSchema.learned(table).columns} == {"number", "category", "boolean", "date"}
    found = json.loads((ROOT / "docs/bench-tables-large.json").read_text(encoding="utf-8"))
    memory, seconds = found["peak gigabytes"], found["processor seconds"]
    text = " ".join((ROOT / "docs/how-to/tables.md").read_text(encoding="utf-8").split())
    assert f"{found['rows']:,} rows of {found['columns']} mixed columns" in text and f"{found['epochs']} epochs" in text
    assert f"{found['queries']:,} others predicted, with at most {memory['after predict']} GB" in text
    assert f"of which {memory['with the table']} GB are the table" in text
    assert f"{seconds['fit']:.0f} and {seconds['predict']:.0f} processor seconds" in text
    assert memory["after predict"] < 4


def test_planted_errors_are_as_many_as_asked_and_confuse_near_classes() -> None:
    from bench.label_errors import planted, scores

    x, y = np.repeat(np.array([[0.0], [1.0], [10.0]]), 40, axis=0), np.repeat(np.arange(3), 40)
    for kind in ("uniform", "pairs"):
        given, wrong = planted(x, y, 0.1, kind, seed=0)
        assert wrong.sum() == 12 and ((given != y) == wrong).all()
    assert set(zip(y[wrong].tolist(), given[wrong].tolist(), strict=True)) <= {(0, 1), (1, 0), (2, 1)}
    assert scores(wrong, wrong.astype(float), np.flatnonzero(wrong))["average_precision"] == 1


def test_the_share_of_labels_is_read_off_the_curve() -> None:
    from bench.pick import share_needed

    assert share_needed([10, 20, 40], np.array([0.2, 0.4, 0.8]), 0.6) == 0.75
    assert share_needed([10, 20], np.array([0.2, 0.4]), 0.5) is None


def test_the_grid_says_where_we_are_behind_and_who_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    page = script("performance")
    maps = sys.modules["grid_maps"]
    compiled, library = maps.PEERS
    cells = [
        {"n": 1024, "d": 16, "ms": {"highest": 2.0, compiled: 5.0, library: 4.0}, "left_out": {}},
        {"n": 4096, "d": 768, "ms": {"highest": 2.0, compiled: 1.0}, "left_out": {library: "out of memory at 4,096 x 768"}},
    ]
    found = {"about": {"date": "2026-11-18", "machine": "aarch64", "torch": "2.13"}, "cells": cells}
    monkeypatch.setattr(maps, "load", lambda name: found if "cpu" in name else None)
    lines = page.grid_part()
    assert "| 1,024 | 2.00 |  |" in lines and "| 4,096 |  | 0.50 |" in lines
    assert "`highest`, behind in 4,096 x 768:" in lines and any("out of memory at 4,096 x 768" in line for line in lines)
    assert any("2026-11-18; torch 2.13" in line for line in lines)


def test_a_missed_target_and_an_absent_peer_are_reported() -> None:
    page, targets = script("performance"), script("kernel_targets")
    met, short = targets.Target("speed", 2, 2.0), targets.Target("memory", 10, 10.5, most=True)
    assert page.targets([met])[-2] == "All targets are met."
    assert page.targets([met, short])[-2] == "Missed: memory."
    found = json.loads((ROOT / "docs/bench-h200.json").read_text(encoding="utf-8"))
    found["absent"] = {"torch.compile of the same": "left out by --without"}
    assert any(row[:2] == ("torch.compile of the same", "absent: left out by --without") for row in page.cuda_rows(found, 4096))


def test_a_column_that_nobody_fills_is_left_out() -> None:
    filled = script("bench_tables").filled
    assert filled(("name", "ms", "error"), [("ours", "1", ""), ("theirs", "", "")])[::2] == ["| name | ms |", "| ours | 1 |", ""]


def test_numbers_that_are_not_finite_miss_their_target() -> None:
    rows = [{"name": "nearkin numba", "value_error": None, "gradient_error": 1e-9}]
    (target,) = script("kernel_targets").numerics_targets({"rows": rows})
    assert not target.met


def test_a_missing_peer_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CPU, "nobody", Contender(contenders.plain, "no_such_package"))
    with pytest.raises(SystemExit, match="not installed: no_such_package. The comparison needs every peer: pip install .*or say --without"):
        kernels.main(["--quick"])
    with pytest.raises(SystemExit, match="--without somebody: unknown here; the contenders are nearkin numba, .*KeOps, nobody"):
        kernels.main(["--quick", "--without", "somebody"])


def test_who_is_left_out_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(left_out(CPU, [], quick=True)) == {"KeOps", "torch.compile of the same"} and not left_out(CPU, [], quick=False)
    monkeypatch.setattr(contenders.importlib.util, "find_spec", lambda name: None if name == "pykeops" else name)
    assert missing(CPU) == missing(CUDA) == ["pykeops"], "every machine is asked for every peer"
    assert left_out(CUDA, ["KeOps"], quick=False) == {"KeOps": "pykeops is not installed on this machine"}
    assert left_out(CUDA, ["plain torch"], quick=False) == {"plain torch": "left out by --without"}


def test_rounds_go_round_and_the_first_may_compile() -> None:
    turns: list[str] = []

    def slow() -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(0.05 if "slow" not in turns else 0.001)
        turns.append("slow")
        return NOTHING

    def quick() -> tuple[torch.Tensor, torch.Tensor]:
        turns.append("quick")
        return NOTHING

    best = measure.interleaved({"slow": (slow, 1), "quick": (quick, 1)}, 3, 0.01)
    assert turns == ["slow", "quick", "slow", "quick", "quick"]
    assert best["slow"]["rounds"] == 2 and best["slow"]["wall_s"] < 0.04


def test_the_siblings_are_the_same_points() -> None:
    found = siblings(30, 4)
    assert [name for name in found if name.startswith("lists")] == ["lists of 1", "lists of 5", "lists of 10"]
    assert all(torch.equal(work.queries, found["classes"][0].queries) for work, _ in found.values())


def test_every_cpu_contender_that_compiles_nothing_is_right() -> None:
    for name, contender in CPU.items():
        if name not in contenders.SLOW_TO_COMPILE:
            found = measure.errors(contender, 256, 8)
            assert found["value_error"] < 1e-5 and found["gradient_error"] < 1e-4, name


class Clock:
    """A CUDA event without CUDA."""

    def __init__(self, enable_timing: bool) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: "Clock") -> float:
        return 1e3 * (other.at - self.at)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`bench.kernels_cuda` on a device that is not there."""
    pytest.importorskip("triton", reason="the CUDA half measures exponentials by a Triton kernel")
    from bench import kernels_cuda

    nothing = {name: lambda: None for name in ("synchronize", "empty_cache", "reset_peak_memory_stats")}
    sizes = {name: lambda: 0 for name in ("memory_allocated", "max_memory_allocated", "memory_reserved")}
    error = torch.OutOfMemoryError
    monkeypatch.setattr(kernels_cuda.torch, "cuda", SimpleNamespace(Event=Clock, OutOfMemoryError=error, **nothing, **sizes))
    return kernels_cuda


def test_the_floor_never_takes_less_than_an_h200_has_shown(device: Any) -> None:
    slow, fast = device.floor_rates(1e12, 1e12), device.floor_rates(800e12, 5e12)
    assert (slow["flop_per_s"], slow["exp_per_s"]) == (743e12, 4.0e12)
    assert (fast["flop_per_s"], fast["exp_per_s"]) == (800e12, 5e12)
    assert slow["measured_exp_per_s"] == 1e12
    assert device.floor_ms(65_536, 65_536, 64, slow) == pytest.approx(4.37, abs=0.01)


def test_on_cuda_too_everybody_has_turns_and_a_full_device_is_told(device: Any) -> None:
    turns: list[str] = []

    def task(name: str) -> tuple[torch.Tensor, torch.Tensor]:
        turns.append(name)
        if name == "greedy":
            raise torch.OutOfMemoryError
        return NOTHING

    names = ("one", "greedy", "two")
    tasks = {name: partial(task, name) for name in names}
    rows = {row["name"]: row for row in device.raced(tasks, "one", 8, 8, 2, device.floor_rates(1, 1))}
    assert rows["greedy"]["out_of_memory"] and "ms" not in rows["greedy"] and turns.count("greedy") == 1
    after = turns[turns.index("two") :]
    rounds = [name for i, name in enumerate(after) if i == 0 or after[i - 1] != name]
    assert rounds == ["two"] + ["one", "two"] * device.TURNS
    assert {"first_call_s", "peak_mb", "kept_mb", "ms", "share_of_floor"} <= set(rows["two"]) and rows["one"]["times_ours"] == 1


EXPONENTIALS = """
import torch
from bench.exponentials import BLOCK, exponentials
x = torch.rand(2 * BLOCK)
right = sum(torch.exp2(x.double() - i / 16) for i in range(40))
torch.testing.assert_close(exponentials(x, 40).double(), right, rtol=1e-5, atol=0)
"""


def test_exponentials_are_what_is_counted() -> None:
    pytest.importorskip("triton", reason="the kernel is Triton's")
    path = f"import sys; sys.path[:0] = {[str(ROOT), str(ROOT / 'src')]!r}\n"
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", path + EXPONENTIALS], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux can reset the high-water mark")
def test_extra_memory_counts_the_matrix_that_a_peer_holds() -> None:
    n = 2048
    found = measure.in_a_child("plain torch", n, 8)
    assert found["peak_mb"] > 3 * 4 * n * n / 2**20
    assert found["first_call_s"] > 0


def test_photographs_are_taken_evenly_by_kind(tmp_path: Path) -> None:
    from bench.encoders import chosen

    for name, many in (("001.Black_footed_Albatross", 6), ("002.Laysan_Albatross", 4), ("158.Bay_breasted_Warbler", 9), ("200.Wren", 2)):
        (tmp_path / "birds" / name).mkdir(parents=True)
        for number in range(many):
            (tmp_path / "birds" / name / f"{number}.jpg").touch()
    photos = chosen(tmp_path / "birds", 10, tmp_path, kinds=2)
    assert {path.name: len(list(path.iterdir())) for path in photos.iterdir()} == {"Albatross": 5, "Warbler": 5}


def test_the_seconds_of_photographs_are_what_their_json_says() -> None:
    found = json.loads((ROOT / "docs/bench-encoders.json").read_text(encoding="utf-8"))
    steps = ("train", "index", "export --page", "train again, features in the cache")
    train, index, page, again = (round(found[step]["seconds"]) for step in steps)
    whole = round(found["photographs to page"]["seconds"])
    assert (found["photos"], found["classes"]) == (2000, 20) and found["load of the machine"] < 1
    text = " ".join((ROOT / "docs/how-to/train.md").read_text(encoding="utf-8").split())
    assert f"on two cores: {whole} s, of which `train` takes {train}, `index` {index} and the page {page}" in text
    assert f"a second `train` takes {again}." in text
