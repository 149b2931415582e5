"""Where the wide engine overtakes the fused kernels, and what its passes take: `python -m bench.crossover [--out FILE.json]`, on CUDA.

Value and gradient of sorted classes with `fast` precision, replayed from a CUDA graph, the median between events. The rule by (n, d) that
`triton_tuning.py` holds is read off the table. With --variants other shapes of blocks and tiles are timed at the same sizes.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.gpu_check import own
from nearkin.kernels import triton_tuning as tuning
from nearkin.kernels import wide_engine
from nearkin.kernels.contract import Engine, Work
from nearkin.kernels.triton_engine import TritonEngine
from nearkin.kernels.triton_tuning import Precision, Tile
from nearkin.kernels.wide_engine import WideEngine

SIZES, WIDTHS = (8192, 12_000, 16_384, 20_000, 32_768), (256, 320, 384, 448, 512)
TURNS, MEMORY = 12, 1 << 20
# Rows and bytes of the wide engine's blocks; then rows, columns and warps of the tiles of its elementwise passes.
BLOCKS = ((2048, 64), (2048, 128), (4096, 128), (4096, 256), (8192, 512), (8192, 1024))
TILES = ((32, 128, 8), (64, 128, 8), (64, 64, 4), (16, 256, 4), (32, 256, 8), (16, 128, 4))
# Tiles of the fused gradient that hold rows of 512 dimensions at once.
WHOLE = (Tile(64, 64, 8, 1), Tile(64, 64, 8, 2), Tile(64, 32, 8, 2), Tile(128, 32, 8, 2))


def replayed(call: Callable[[], object], turns: int = TURNS) -> float:
    """Median milliseconds of a call without its launches."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    times: list[float] = []
    for turn in range(turns + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times += [float(start.elapsed_time(end))] if turn > 1 else []
    return statistics.median(times)


def step(engine: Engine, work: Work) -> Callable[[], Any]:
    """Both passes of an engine; the gradient has summaries of about the right size."""
    first, second = engine.summaries(work)
    pull = torch.full((len(work.queries),), 1 / len(work.queries), device=work.queries.device)

    def evaluate() -> Any:
        engine.summaries(work)
        return engine.gradients(work, first, second, pull)

    return evaluate


def fused(precision: Precision, tiles: Mapping[Any, Tile] | None = None) -> TritonEngine:
    """The fused kernels at any width."""
    return TritonEngine(precision, "fp16x3" if precision == "highest" else "fp16", tiles or {})


def passes(engine: WideEngine, work: Work) -> dict[str, float]:
    """Milliseconds of the parts of the wide engine."""
    here = engine._ready(work)
    first, second = engine.summaries(work)
    pull = torch.full((here.n,), 1 / here.n, device=work.queries.device)

    def products() -> None:
        for block in here.blocks:
            here.products(block)

    def gathered() -> None:
        mine = wide_engine._Gathered.zeros(here.rows, here.n)
        for block, weights in zip(here.blocks, drawn, strict=True):
            skipped = wide_engine._on_diagonal(here, block)
            across = slice(block.left, wide_engine._whole(block.right))
            mine.add(slice(block.top, block.bottom), weights, here.columns, across)
            if skipped < block.right - block.left:
                turned = weights[:, :, skipped:].transpose(1, 2)
                mine.add(slice(block.left + skipped, block.right), turned, here.rows, slice(block.top, block.bottom))

    def weights_of(block: Any) -> Tensor:
        shape = (1 + here.split, block.bottom - block.top, wide_engine._whole(block.right) - block.left)
        return torch.randn(shape, device=work.queries.device, dtype=torch.float16)

    drawn = [weights_of(block) for block in here.blocks]
    zeros, size = wide_engine._Gathered.zeros(here.rows, here.n), torch.ones((), device=work.queries.device)
    found = {
        "prepare": replayed(lambda: engine._ready(work)),
        "products": replayed(products),
        "gather": replayed(gathered),
        "finish": replayed(lambda: zeros.gradient(here.rows, here.columns, size, work.squared)),
        "summaries": replayed(lambda: engine.summaries(work)),
        "gradients": replayed(lambda: engine.gradients(work, first, second, pull)),
    }
    found["sums"] = found["summaries"] - found["prepare"] - found["products"]
    found["weights"] = found["gradients"] - sum(found[part] for part in ("prepare", "products", "gather", "finish"))
    return found


@contextmanager
def settings(**changed: int) -> Any:
    """Settings of the wide engine for a while."""
    before = {name: getattr(wide_engine, name) for name in changed}
    for name, value in changed.items():
        setattr(wide_engine, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(wide_engine, name, value)


def variants(work: Work) -> dict[str, Callable[[], float]]:
    """What else could be faster, by name."""

    def blocks(tall: int, megabytes: int) -> float:
        with settings(_TALL=tall):
            return replayed(step(WideEngine("fast", megabytes * MEMORY), work))

    def tiles(rows: int, columns: int, warps: int) -> float:
        with settings(_ROWS=rows, _COLUMNS=columns, _WARPS=warps):
            return replayed(step(WideEngine("fast"), work))

    def whole(tile: Tile) -> float:
        before, tuning._LONGEST = tuning._LONGEST, 512
        try:
            return replayed(step(fused("fast", {"summaries": Tile(64, 64, 8, 2), "gradients": tile}), work))
        finally:
            tuning._LONGEST = before

    found: dict[str, Callable[[], float]] = {}
    for given in BLOCKS:
        found[f"wide, blocks of {given[0]} rows, {given[1]} MB"] = lambda given=given: blocks(*given)  # type: ignore[misc]
    for shape in TILES:
        found[f"wide, tiles {shape}"] = lambda shape=shape: tiles(*shape)  # type: ignore[misc]
    for tile in WHOLE:
        found[f"fused, whole rows, {tuple(tile[:4])}"] = lambda tile=tile: whole(tile)  # type: ignore[misc]
    return found


def tried(call: Callable[[], float]) -> float | str:
    """Milliseconds, or why there are none."""
    try:
        return round(call(), 3)
    except Exception as problem:  # a tile that needs more memory than a multiprocessor has
        torch.cuda.synchronize()
        return f"{type(problem).__name__}: {problem}"[:80]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    parser.add_argument("--precision", default="fast")
    parser.add_argument("--variants", nargs="*", metavar="NAME", help="time these, by how they begin; without a name all")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for d in given.widths:
        for n in given.sizes:
            work = own(n, d, seed=0)
            row: dict[str, Any] = {"n": n, "d": d}
            if given.variants is None:
                row["fused"] = tried(lambda work=work: replayed(step(fused(given.precision), work)))  # type: ignore[misc]
                row["wide"] = tried(lambda work=work: replayed(step(WideEngine(given.precision), work)))  # type: ignore[misc]
                row["passes"] = {name: round(ms, 3) for name, ms in passes(WideEngine(given.precision), work).items()}
            else:
                for name, call in variants(work).items():
                    if not given.variants or name.startswith(tuple(given.variants)):
                        row[name] = tried(call)
            rows.append(row)
            print(json.dumps(row), flush=True)
            if given.out:
                given.out.write_text(json.dumps({"device": torch.cuda.get_device_name(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
