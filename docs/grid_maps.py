"""The grid of sizes and widths on docs/performance.md: heat maps and tables of the ratio to the best peer, from `bench.grid`'s JSON."""

import math
from pathlib import Path
from typing import Any

from bench_tables import Row, load, number, table

HERE = Path(__file__).resolve().parent
FILES = {"cpu": "bench-grid-cpu.json", "cuda": "bench-grid-cuda.json"}
PEERS = ("torch.compile of the dense form", "pytorch-metric-learning")


def precisions(cells: list[Row]) -> list[str]:
    """Ours by name, in the order they were measured."""
    return [name for name in dict.fromkeys(name for cell in cells for name in cell["ms"]) if name not in PEERS]


def ratio(cell: Row, precision: str) -> float | None:
    """How many times as fast as the best peer; None where one of both is missing."""
    peers = [cell["ms"][name] for name in PEERS if name in cell["ms"]]
    return min(peers) / cell["ms"][precision] if peers and precision in cell["ms"] else None


def ratios(cells: list[Row], precision: str) -> list[tuple[str, ...]]:
    """A row for each N, a column for each d."""
    widths = sorted({cell["d"] for cell in cells})
    known = {(cell["n"], cell["d"]): ratio(cell, precision) for cell in cells}
    sizes = sorted({cell["n"] for cell in cells})
    return [(f"{n:,}", *(number(known.get((n, d)), ".2f") for d in widths)) for n in sizes]


def said(device: str, found: dict[str, Any]) -> str:
    """Date, machine and versions."""
    facts = dict(found["about"])
    date, machine = facts.pop("date"), facts.pop("device", facts.pop("machine", ""))
    facts.pop("machine", None)
    clock = "wall time until the GPU is idle" if device == "cuda" else "one thread's CPU time"
    versions = ", ".join(f"{name} {value}" for name, value in facts.items())
    return f"`python -m bench.grid{' --device cuda' if device == 'cuda' else ''}`, {machine}, {clock}, {date}; {versions}."


def grid_part() -> list[str]:
    """The section of the page; empty where nothing was measured."""
    measured = {device: found for device, name in FILES.items() if (found := load(name)) is not None}
    if not measured:
        return []
    lines = [
        "## Any width",
        "",
        "`NCA` as it is called in a training loop, loss and gradient, against the faster of torch.compile of the dense form and "
        "pytorch-metric-learning: how many times as fast it is. Above 1 it is ahead. An empty cell was not measured, or no peer could.",
        "",
    ]
    for device, found in measured.items():
        cells = found["cells"]
        lines += [said(device, found), "", f"![ratio to the best peer, {device}](pictures/grid-{device}.png)", ""]
        widths = sorted({cell["d"] for cell in cells})
        for precision in precisions(cells):
            slower = [f"{cell['n']:,} x {cell['d']:,}" for cell in cells if (ratio(cell, precision) or math.inf) < 1]
            behind = f"behind in {', '.join(slower)}" if slower else "nowhere behind"
            lines += [f"`{precision}`, {behind}:", "", *table(("N \\ d", *(f"{d:,}" for d in widths)), ratios(cells, precision))]
        left_out = {f"{name}: {why}" for cell in cells for name, why in cell.get("left_out", {}).items()}
        if left_out:
            lines += [f"Peers that were left out of larger cells: {'; '.join(sorted(left_out))}.", ""]
    return lines


def draw() -> None:
    """One picture for each device, a map for each precision."""
    import matplotlib

    matplotlib.use("Agg")
    import numpy as np
    from matplotlib import pyplot as plt

    for device, name in FILES.items():
        if (found := load(name)) is None:
            continue
        cells = found["cells"]
        names = precisions(cells)
        widths, sizes = sorted({cell["d"] for cell in cells}), sorted({cell["n"] for cell in cells})
        figure, axes = plt.subplots(
            1, len(names), figsize=(1 + 7 * len(names), 1.5 + 0.6 * len(sizes)), squeeze=False, layout="constrained"
        )
        for axis, precision in zip(axes[0], names, strict=True):
            grid = np.full((len(sizes), len(widths)), np.nan)
            for cell in cells:
                grid[sizes.index(cell["n"]), widths.index(cell["d"])] = ratio(cell, precision) or np.nan
            shown = axis.imshow(np.log2(grid), cmap="RdYlGn", vmin=-3, vmax=3, aspect="auto")
            for (row, column), value in np.ndenumerate(grid):
                if not np.isnan(value):
                    axis.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=8)
            axis.set(title=f"{precision}: times as fast as the best peer", xlabel="dimensions d", ylabel="points N")
            axis.set_xticks(range(len(widths)), [f"{d:,}" for d in widths], rotation=45)
            axis.set_yticks(range(len(sizes)), [f"{n:,}" for n in sizes])
        bar = figure.colorbar(shown, ax=axes[0].tolist(), ticks=[-3, -2, -1, 0, 1, 2, 3])
        bar.ax.set_yticklabels(["1/8", "1/4", "1/2", "1", "2", "4", "8"])
        figure.savefig(HERE / "pictures" / f"grid-{device}.png", dpi=100)
        plt.close(figure)
