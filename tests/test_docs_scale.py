"""docs/scale.md is what its script makes of the measurements, and the script's arithmetic is that of the definitions."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
SLOPES = {
    "dimension": 64,
    "machine": "some",
    "when": "2026-11-16T00:00:00",
    "ns_a_pair": {"numbers": {"10": 99.0, "100": 10.0}, "codes": {"100": 2.0}},
    "bytes_a_point": {"numbers": 300.0, "codes": 50.0, "hnsw": 500.0, "ivf_pq": 30.0, "shards": 320.0},
    "ivf_pq": {
        "points": 1000,
        "build_cpu_us_a_point": 36.0,
        "probes": [{"share": 0.01, "recall": 0.5, "cpu_ms": 0.1}, {"share": 0.1, "recall": 1.0, "cpu_ms": 0.2}],
    },
}
STREAM = {"queries": 100, "search_cpu_ns_per_pair": 20.0, "peak_memory_mb": 500.0}
SERVICE = {"hnsw": {"points": 1000, "cpu_ms": 0.1, "recall": 0.99, "build_s": 3.6}}


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    spec = spec_from_file_location("scale", ROOT / "docs/scale.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    before, sys.modules["scale"] = list(sys.path), module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = before
    return module


def test_the_page_is_up_to_date(scale: ModuleType) -> None:
    assert scale.page(scale.Assumed()) == (ROOT / "docs/scale.md").read_text(encoding="utf-8"), "python docs/scale.py"


def test_every_way_is_its_slope_times_the_points(scale: ModuleType) -> None:
    exact, codes, hnsw, ivf = scale.ways(10**6, SLOPES, SERVICE)
    assert exact.cpu_ms == 10.0 and exact.memory_gb == 0.256 and exact.disk_gb == pytest.approx(0.3) and exact.exact
    assert codes.cpu_ms == 2.0 and codes.memory_gb == 0.008
    assert hnsw.cpu_ms == pytest.approx(0.2) and hnsw.build_hours == pytest.approx(2.0)  # twice the logarithm of a thousand
    assert ivf.cpu_ms == pytest.approx(200.0) and ivf.build_hours == pytest.approx(0.01)  # at the share the index takes


def test_shards_are_charged_by_the_stream_not_by_the_slope_in_memory(scale: ModuleType) -> None:
    *_, over = scale.ways(10**8, SLOPES, SERVICE, STREAM)
    assert over.name == "exact over shards, 100 queries at once" and over.cpu_ms == pytest.approx(2000.0)
    assert over.memory_gb == 0.5 and over.disk_gb == pytest.approx(32.0) and over.exact
    assert scale.ways(10**5, SLOPES, SERVICE, STREAM)[-1].memory_gb == pytest.approx(0.0256)  # never more than all of them
    rows = scale.step_rows(10**8, 1000.0, scale.Assumed(judged=3600, cores=10, core_hour=0.5), 20.0)
    assert rows[-1] == ("search the shards exactly", "3,600 queries", "10 cores", "0.2", "$1.00")


def test_cores_are_what_queries_or_memory_ask_for(scale: ModuleType) -> None:
    assumed = scale.Assumed(queries=100, memory_gb=256, cores=32, core_hour=0.1, disk_month=1.0)
    busy, large = scale.Way("busy", 1000, 1, 0, 0, True), scale.Way("large", 1, 800, 2, 0, False)
    assert (busy.cores(assumed), busy.machines(assumed)) == (100, 4) and (large.cores(assumed), large.machines(assumed)) == (100, 4)
    assert large.month(assumed) == pytest.approx(100 * 0.1 * 720 + 2)


def test_exact_search_is_taken_while_it_can_be(scale: ModuleType) -> None:
    assumed = scale.Assumed()
    assert scale.chosen(scale.ways(10**4, SLOPES, SERVICE), assumed).name == "exact over 64 numbers"
    assert scale.chosen(scale.ways(10**9, SLOPES, SERVICE), assumed).name != "exact over 64 numbers"


def test_steps_are_hours_of_gpus(scale: ModuleType) -> None:
    rows = scale.step_rows(10**9, 1000.0, scale.Assumed(epochs=1, trained_on=3.6e6, embed_hours=100, gpu_hour=2.0))
    assert rows[0] == ("train", "3,600,000 images", "1 GPU", "1", "$2.00")
    assert rows[1][2:] == ("3 GPUs", "93", "$556")


def test_what_was_not_measured_is_said(scale: ModuleType) -> None:
    assert "Not measured yet" in scale.billion(None, SLOPES)[0] and "Not measured yet" in scale.milvus(None)[0]
