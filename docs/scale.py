"""Writes docs/scale.md from measured slopes and named assumptions: `python docs/scale.py [FILE]`.

    python -m bench.scale --out docs/bench-scale.json        CPU time of a pair, bytes a point, recall against probes
    python -m bench.shards --out docs/bench-shards.json      the simulated billion
    python -m bench.milvus --out docs/bench-milvus.json      milvus-lite
    python -m bench.training --out docs/bench-training.json  images a second, on a GPU; python -m bench.service for HNSW

Numbers on that page are never typed by hand: they come from these files, or are assumptions below, which the page lists.
"""

import math
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from bench_tables import load, table  # noqa: E402

SIZES = (10**4, 10**6, 10**8, 10**9)
NETWORK = "CIFAR ResNet-18, bank of 50,000, bf16, batch 512"
HOUR = 3600.0
HEAD = """Written by `python docs/scale.py` from measured slopes; what was not measured is an assumption, listed at the end with its value.
The same commands run at every size; what changes is who does the work.
"""
RULE = """Exact search over the numbers is taken while a query stays below the patience and one machine holds the points; beyond, whatever
costs least a month. Codes must have been learned (`nearkin train --codes`), and lose some accuracy: [results](papers/codes.md).
"""
NOTES = """Bytes a point are those of the files for numbers, codes and shards, with a label and a source of 40 letters, and those of the
structure beside them for hnsw and ivf_pq. Embedding is charged at the speed of training, which makes the same pass and another one back;
the images lie on the GPU, and reading and decoding files comes on top. IVF-PQ's cost grows with the points at the same share of lists,
HNSW's with their logarithm. Memory is what a query must find there; IVF-PQ's candidates are scored from disk. Exact search over
shards is charged by the stream below, not by the slope in memory: its shards are opened, checked and read from Parquet, and its memory
is the peak of that run, or all points where those are fewer.
"""


@dataclass(frozen=True)
class Assumed:
    """What was not measured here; every price is in dollars and to be replaced by one's own."""

    gpu_hour: float = 4.0  # dollars for an hour of one H200, rented
    core_hour: float = 0.05  # dollars for an hour of one core with its share of memory, rented
    disk_month: float = 0.08  # dollars for a gigabyte of network disk for a month
    memory_gb: float = 256.0  # GB of memory of one machine that searches
    cores: float = 32.0  # cores of one machine that searches
    queries: float = 100.0  # queries a second to be answered
    patience_ms: float = 100.0  # ms of CPU time of a query above which exact search over numbers is given up
    epochs: float = 20.0  # passes of a training
    trained_on: float = 1e7  # points a training sees at most: beyond, a sample is taken
    embed_hours: float = 24.0  # hours in which all points are to be embedded
    judged: float = 10_000.0  # queries that the shards answer exactly in one go, as for an evaluation


@dataclass(frozen=True)
class Way:
    """One way to search n points."""

    name: str
    cpu_ms: float  # of a query
    memory_gb: float
    disk_gb: float
    build_hours: float  # of one core
    exact: bool

    def cores(self, assumed: Assumed) -> int:
        """Those that the wanted queries keep busy, or those whose share of memory the points need."""
        busy, room = self.cpu_ms / 1000 * assumed.queries, self.memory_gb / (assumed.memory_gb / assumed.cores)
        return max(1, math.ceil(busy), math.ceil(room))

    def machines(self, assumed: Assumed) -> int:
        return math.ceil(self.cores(assumed) / assumed.cores)

    def month(self, assumed: Assumed) -> float:
        """Price of a month of searching."""
        return self.cores(assumed) * assumed.core_hour * 24 * 30 + self.disk_gb * assumed.disk_month


def ways(n: int, slopes: dict[str, Any], service: dict[str, Any], stream: dict[str, Any] | None = None) -> list[Way]:
    """Every way, from the slopes at the largest size that was measured; over shards only if a stream of them was measured."""
    pair = {kind: list(by_size.values())[-1] for kind, by_size in slopes["ns_a_pair"].items()}
    bytes_, ivf, hnsw = slopes["bytes_a_point"], slopes["ivf_pq"], service["hnsw"]
    d = slopes["dimension"]
    gigabytes = n / 1e9
    at = next((row for row in ivf["probes"] if row["share"] >= 1 / 20), ivf["probes"][-1])  # near the share that the index takes
    grown = math.log(n) / math.log(hnsw["points"])  # a graph's path grows with the logarithm
    graph = hnsw["build_s"] / hnsw["points"] * n * grown / HOUR
    streamed = [
        Way(
            f"exact over shards, {one['queries']:,} queries at once",
            one["search_cpu_ns_per_pair"] * n / 1e6,
            min(one["peak_memory_mb"] / 1000, 4 * d * gigabytes),
            bytes_["shards"] * gigabytes,
            0.0,
            True,
        )
        for one in ([] if stream is None else [stream])
    ]
    return [
        Way(f"exact over {d} numbers", pair["numbers"] * n / 1e6, 4 * d * gigabytes, bytes_["numbers"] * gigabytes, 0.0, True),
        Way(f"exact over codes of {d} bits", pair["codes"] * n / 1e6, d / 8 * gigabytes, bytes_["codes"] * gigabytes, 0.0, True),
        Way(
            "HNSW",
            hnsw["cpu_ms"] * grown,
            (4 * d + bytes_["hnsw"]) * gigabytes,
            (bytes_["numbers"] + bytes_["hnsw"]) * gigabytes,
            graph,
            False,
        ),
        Way(
            f"IVF-PQ, {100 * at['share']:.0f} % of the lists",
            at["cpu_ms"] * n / ivf["points"],
            bytes_["ivf_pq"] * gigabytes,
            (bytes_["numbers"] + bytes_["ivf_pq"]) * gigabytes,
            ivf["build_cpu_us_a_point"] * n / 1e6 / HOUR,
            False,
        ),
        *streamed,
    ]


def chosen(found: list[Way], assumed: Assumed) -> Way:
    """Exact over numbers while a query stays below the patience and one machine holds it; then whatever costs least a month."""
    if found[0].cpu_ms <= assumed.patience_ms and found[0].machines(assumed) == 1:
        return found[0]
    return min(found, key=lambda way: way.month(assumed))


def advice(n: int, way: Way, assumed: Assumed) -> str:
    if way.machines(assumed) > 1:
        return (
            "`nearkin embed --engine ray`, training under `torchrun`, the index in a Milvus cluster (`--backend milvus --uri http://...`)"
        )
    if n > assumed.trained_on:
        return "`nearkin embed --out SHARDS`, exact answers over the shards, one large machine or a Milvus server to search"
    return "one machine, `nearkin index` as it is" if way.exact else "one machine, `nearkin index --backend hnsw`"


def choice_rows(sizes: dict[int, list[Way]], assumed: Assumed) -> list[tuple[str, ...]]:
    rows = []
    for n, found in sizes.items():
        way = chosen(found, assumed)
        rows.append(
            (power(n), way.name, str(way.cores(assumed)), str(way.machines(assumed)), money(way.month(assumed)), advice(n, way, assumed))
        )
    return rows


def way_rows(found: list[Way], assumed: Assumed) -> list[tuple[str, ...]]:
    return [
        (
            way.name,
            size(way.memory_gb),
            size(way.disk_gb),
            f"{way.cpu_ms:,.3g}",
            str(way.cores(assumed)),
            str(way.machines(assumed)),
            f"{way.build_hours:,.2g}",
            money(way.build_hours * assumed.core_hour),
            money(way.month(assumed)),
        )
        for way in found
    ]


def step_rows(n: int, rate: float, assumed: Assumed, pair_ns: float | None = None) -> list[tuple[str, ...]]:
    """Training and embedding on GPUs; exact answers over the shards on one machine, where the cost of a pair is known."""
    seen = min(float(n), assumed.trained_on) * assumed.epochs
    training, embedding = seen / rate / HOUR, n / rate / HOUR
    gpus = max(1, math.ceil(embedding / assumed.embed_hours))
    judging = [
        (
            "search the shards exactly",
            f"{assumed.judged:,.0f} queries",
            f"{assumed.cores:g} cores",
            f"{ns * n * assumed.judged / 1e9 / HOUR / assumed.cores:,.2g}",
            money(ns * n * assumed.judged / 1e9 / HOUR * assumed.core_hour),
        )
        for ns in ([] if pair_ns is None else [pair_ns])
    ]
    return [
        ("train", f"{seen:,.0f} images", "1 GPU", f"{training:,.2g}", money(training * assumed.gpu_hour)),
        ("embed", f"{n:,} images", f"{gpus} GPU{'s' if gpus > 1 else ''}", f"{embedding / gpus:,.2g}", money(embedding * assumed.gpu_hour)),
        *judging,
    ]


def billion(found: dict[str, Any] | None, slopes: dict[str, Any]) -> list[str]:
    if found is None:
        return ["Not measured yet: `python -m bench.shards --minutes 15 --out docs/bench-shards.json`, then this page again.", ""]
    pair = list(slopes["ns_a_pair"]["numbers"].values())[-1]
    cpu = found["search_cpu_ns_per_pair"]
    predicted = pair * found["queries"] * 10**9 / 1e9 / 60
    rows = [
        ("points searched", f"{found['points']:,} in {found['shards']:,} shards of {found['rows_of_a_shard']:,}", ""),
        ("ns a pair, shards read and checked, CPU time", f"{cpu:.3g}", f"{pair:.3g} (in memory)"),
        ("ns a pair, wall clock beside other work", f"{found['search_ns_per_pair']:.3g}", ""),
        ("cost of a point, last quarter over the first", f"{found['last_quarter_over_first_cpu']:.2f} by CPU time", "1"),
        (f"CPU minutes for a billion, {found['queries']} queries", f"{cpu * found['queries'] / 60:,.0f}", f"{predicted:,.0f}"),
        ("minutes by the clock", f"{found['billion_s']['by_the_median_shard'] / 60:,.0f}", ""),
        ("planted copies found", f"{found['planted'] - found['planted_missed']} of {found['planted']}", "all"),
        ("peak memory, MB", f"{found['peak_memory_mb']:,.0f}", ""),
    ]
    lines = table(("what", "measured, streamed through the sharded search", "extrapolated from the slopes above"), rows)
    about = f"{found['minutes']:g} minutes on {found['machine']}, {found['dimension']} dimensions."
    return [about, "", *lines, "The slope in memory leaves out opening, checking and reading Parquet.", ""]


def milvus(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return ["Not measured yet: `python -m bench.milvus --out docs/bench-milvus.json`, then this page again.", ""]
    head = (
        "structure",
        "points",
        "a query, ms",
        "with a filter, ms",
        "recall@10",
        "filtered",
        "after deletes",
        "filtered after deletes",
        "local exact, ms",
    )
    rows = [
        (
            run["kind"],
            f"{run['points']:,}",
            f"{run['query_ms']:.0f}",
            f"{run['query_filtered_ms']:.0f}",
            *(f"{run[name]:.3f}" for name in ("recall", "recall_filtered", "recall_after_deletes", "recall_filtered_after_deletes")),
            f"{found['local_query_ms'][str(run['points'])]:.1f}",
        )
        for run in found["runs"]
    ]
    about = (
        f"milvus-lite {found['milvus_lite']} on {found['machine']}, {found['when'][:10]}; d = {found['dimension']}, one query at a time."
    )
    return [about, "", *table(head, rows)]


def assumptions(assumed: Assumed) -> list[tuple[str, ...]]:
    source = (HERE / "scale.py").read_text(encoding="utf-8").splitlines()
    said = {line.split(":")[0].strip(): line.split("# ")[1] for line in source if line.startswith("    ") and ": float = " in line}
    return [(said[one.name], f"{getattr(assumed, one.name):,g}") for one in fields(assumed)]


def power(n: int) -> str:
    return f"10^{round(math.log10(n))}"


def size(gigabytes: float) -> str:
    return f"{1000 * gigabytes:,.3g} MB" if gigabytes < 1 else f"{gigabytes:,.3g} GB"


def money(dollars: float) -> str:
    return f"${dollars:,.2f}" if dollars < 10 else f"${dollars:,.0f}"


def page(assumed: Assumed) -> str:
    slopes, service, training = load("bench-scale.json"), load("bench-service.json"), load("bench-training.json")
    if slopes is None or service is None or training is None:
        raise SystemExit("docs/scale.py needs bench-scale.json, bench-service.json and bench-training.json in docs/")
    rate = float(training[NETWORK]["images_per_second"])
    stream = load("bench-shards.json")
    sizes = {n: ways(n, slopes, service, stream) for n in SIZES}
    lines = [
        "# What to use at what size",
        "",
        HEAD,
        *table(("points", "way to search", "cores", "machines", "a month of searching", "what to run"), choice_rows(sizes, assumed)),
        RULE,
    ]
    for n, found in sizes.items():
        lines += [f"## {power(n)} points", ""]
        lines += table(("step", "of", "on", "hours", "cost"), step_rows(n, rate, assumed, stream and stream["search_cpu_ns_per_pair"]))
        lines += table(
            ("way to search", "memory", "disk", "CPU ms a query", "cores", "machines", "core hours to build", "cost to build", "a month"),
            way_rows(found, assumed),
        )
    lines += ["## The slopes", "", *slope_lines(slopes, service, rate, training)]
    lines += ["## A simulated billion", "", *billion(stream, slopes)]
    lines += ["## milvus-lite", "", *milvus(load("bench-milvus.json"))]
    lines += ["## Assumptions", "", *table(("what", "value"), assumptions(assumed))]
    return "\n".join(lines).rstrip() + "\n"


def slope_lines(slopes: dict[str, Any], service: dict[str, Any], rate: float, training: dict[str, Any]) -> list[str]:
    rows = [(f"images a second and GPU, {NETWORK}, trained", f"{rate:,.0f}", f"bench-training.json, {training['device']}")]
    for kind, by_size in slopes["ns_a_pair"].items():
        rows += [
            (f"ns a pair, exact over {kind}, {int(n):,} points", f"{value:.3g}", "bench-scale.json, one thread")
            for n, value in by_size.items()
        ]
    rows += [(f"bytes a point, {kind}", f"{value:,.0f}", "bench-scale.json") for kind, value in slopes["bytes_a_point"].items()]
    for row in slopes["ivf_pq"]["probes"]:
        rows.append((f"IVF-PQ, {row['share']:.2%} of the lists: recall@10", f"{row['recall']:.3f}", f"{row['cpu_ms']:.3g} CPU ms a query"))
    hnsw = service["hnsw"]
    rows.append(
        (f"HNSW, {hnsw['points']:,} points: recall@10", f"{hnsw['recall']:.3f}", f"{hnsw['cpu_ms']:.2g} CPU ms a query, bench-service.json")
    )
    where = f"{slopes['dimension']} dimensions, {slopes['machine']}, {slopes['when'][:10]}."
    return [*table(("slope", "value", "from"), rows), where, NOTES]


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else HERE / "scale.md").write_text(page(Assumed()), encoding="utf-8")
