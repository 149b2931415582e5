"""Write docs/performance.md and its picture from the JSON that the benchmarks write: `python docs/performance.py`.

    python -m bench.kernels --out docs/bench-cpu.json        on a CPU
    python -m bench.kernels --out docs/bench-h200.json       on a CUDA machine (--without KeOps if it cannot be installed)
    python -m bench.numerics --out docs/bench-numerics-cpu.json (or -h200.json)

No number on that page is typed by hand.
"""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from bench_tables import Row, about, filled, load, number, table  # noqa: E402
from grid_maps import draw as draw_grid  # noqa: E402
from grid_maps import grid_part  # noqa: E402
from kernel_targets import Target, cpu_targets, cuda_targets, numerics_targets  # noqa: E402
from linear_fits import linear_part  # noqa: E402


def targets(found: Iterable[Target]) -> list[str]:
    """The targets for one machine, and which of them are missed."""
    all_of_them = list(found)
    short = [target.what for target in all_of_them if not target.met]
    verdict = f"Missed: {'; '.join(short)}." if short else "All targets are met."
    return [*table(("what", "target", "measured", ""), (target.cells() for target in all_of_them)), verdict, ""]


def cuda_rows(found: dict[str, Any], n: int) -> list[tuple[str, ...]]:
    here = [row for row in found["rows"] if row["n"] == n]
    fast = next(row for row in here if row["name"].endswith("fast"))
    lines = []
    for row in here:
        if row.get("out_of_memory"):
            lines.append((row["name"], "out of memory", *[""] * 7))
            continue
        errors = (number(row.get("value_error"), ".0e"), number(row.get("gradient_error"), ".0e"))
        ratio = f"{row['ms'] / fast['ms']:.1f}"
        share = f"{100 * row['share_of_floor']:.0f} %"
        first = f"{row['first_call_s']:.2f}"
        memory = (f"{row['peak_mb']:,.0f}", number(row.get("kept_mb"), ",.0f"))
        lines.append((row["name"], f"{row['ms']:.2f}", *memory, ratio, share, first, *errors))
    return lines + [(name, f"absent: {why}", *[""] * 7) for name, why in found["absent"].items()]


def cpu_rows(found: dict[str, Any], n: int) -> list[tuple[str, ...]]:
    lines = []
    for row in (row for row in found["rows"] if row["n"] == n):
        share = "" if "share_of_floor" not in row else f"{100 * row['share_of_floor']:.0f} %"
        cells = [number(row.get(key), form) for key, form in (("ns_per_pair", ".1f"), ("times_ours", ".2f"), ("peak_mb", ",.0f"))]
        first = number(row.get("first_call_s"), ".1f")
        errors = [number(row.get(key), ".0e") for key in ("value_error", "gradient_error")]
        lines.append((row["name"], *cells, share, first, *errors))
    return lines + [(name, f"absent: {why}", *[""] * 6) for name, why in found["absent"].items()]


COLUMNS_LEFT_OUT = "Columns that were not measured at a size are left out; errors are measured at the smallest size, against float64."


def cpu_part(found: dict[str, Any]) -> list[str]:
    rates = found["rates"]
    lines = ["## CPU", "", about(found), ""]
    lines.append(
        f"The floor is 4 N² d flop and N² exponentials at the rates measured in the same run: sgemm {rates['flop_per_s'] / 1e9:.1f} "
        f"GFLOP/s and exp2 {rates['exp_per_s'] / 1e9:.2f} G/s on one core. One thread's CPU time, best of several interleaved rounds "
        f"(two threads: wall time); two threads that only multiply matrices are {rates['two_threads']:.2f} times as fast as one here. "
        f"{COLUMNS_LEFT_OUT} KeOps is measured at the smallest size only."
    )
    lines.append("")
    head = ("loss and gradient", "ns a pair", "times ours", "extra MB", "share of floor", "first call s", "value error", "gradient error")
    for n in sorted({row["n"] for row in found["rows"]}):
        lines += [f"### N = {n:,}", "", *filled(head, cpu_rows(found, n))]
    lines += ["### Other relations (numba, one thread)", ""]
    others = [(row["name"], f"{row['ns_per_pair']:.1f}", f"{row['times_ours']:.2f}") for row in found["relatives"]]
    lines += table(("relation", "ns a pair", "times same label"), others)
    return [*lines, "### Targets on the CPU", "", *targets(cpu_targets(found))]


def batches_part(found: dict[str, Any]) -> list[str]:
    """Batches of common sizes, called as users call them."""
    said = (
        "`NCA()(embeddings, labels)` with its gradient, d = 64, next to pytorch-metric-learning's: points near each other, as during "
        "training, and points far apart, where most exponentials are too small for a float. One thread's CPU time, best of "
        "interleaved rounds."
    )
    keys = (("ours_ms", ".2f"), ("peer_ms", ".2f"), ("times", ".2f"))
    rows = [(row["points"], f"{row['n']:,}", *(f"{row[key]:{form}}" for key, form in keys)) for row in found["rows"]]
    return ["## Batches", "", about(found), said, "", *table(("points", "N", "ours, ms", "theirs, ms", "theirs / ours"), rows)]


def losses_part(runs: list[dict[str, Any]]) -> list[str]:
    """Every loss that pytorch-metric-learning also has, on each device."""
    said = (
        "Every loss that pytorch-metric-learning also has, with its gradients; unit vectors, four a class (NPair: two). Both "
        "return the same value, which is asserted before timing, except the contrastive loss, which is defined differently there; "
        "`Softmax` is compared with torch's linear layer and cross-entropy, which check none of their inputs. One thread's CPU "
        "time, or wall time until the GPU is idle (at these sizes the host sets it): best of interleaved rounds. Operators are those of "
        "forward and backward that compute something; on a GPU each is a launch."
    )
    keys = (("ours_ms", ".2f"), ("peer_ms", ",.2f"), ("times", ".2f"))
    head = ("loss", "N", "d", "class vectors", "ours, ms", "theirs, ms", "theirs / ours", "operators, ours", "theirs")
    lines = ["## Losses", "", said, ""]
    for found in runs:
        rows = [
            (
                *(row["loss"], f"{row['n']:,}", str(row.get("d", 128)), f"{row['classes']:,}" if "classes" in row else ""),
                *(f"{row[key]:{form}}" for key, form in keys),
                *(str(row.get(key, "")) for key in ("ours_operators", "peer_operators")),
            )
            for row in found["rows"]
        ]
        lines += [about(found), "", *table(head, rows)]
    return lines


def peers_part(runs: list[dict[str, Any]]) -> list[str]:
    """Every loss of the table of counterparts whose values are equal, at everyday sizes."""
    said = (
        "All losses of pytorch-metric-learning that have a counterpart with equal values (the table of counterparts), 128 dimensions, with "
        "the gradients of a training step: of the embeddings, and of class vectors where there are any. How many times as long theirs "
        "takes; both take turns in one process, median of interleaved rounds. Empty where theirs took more than 50 ms at the size before."
    )
    lines = ["## Every loss beside pytorch-metric-learning", "", said, ""]
    for found in runs:
        sizes = sorted({int(n) for rows in found["losses"].values() for n in rows})
        rows = [(name, *(number(rows.get(str(n), {}).get("ratio"), ".2f") for n in sizes)) for name, rows in found["losses"].items()]
        behind = [f"{name} at {n}" for name, rows in found["losses"].items() for n, row in rows.items() if row["ratio"] < 1]
        lines += [about({"command": "python -m bench.peer_losses", **found}), "", *table(("loss", *(f"N = {n:,}" for n in sizes)), rows)]
        lines += [f"Behind: {', '.join(behind)}." if behind else "Nowhere behind.", ""]
    return lines


def compiled_part(runs: list[dict[str, Any]]) -> list[str]:
    """Objectives under torch.compile beside the same loss written out by hand."""
    said = (
        "`torch.compile` of an objective beside `torch.compile` of the same loss in plain torch, loss and gradient: milliseconds of ours "
        "compiled, by hand and compiled, and ours without torch.compile; then how many times as long ours takes as the one by hand. "
        "All take turns in one process. On CUDA a step of up to 4,096 points is one recorded launch, compiled or not. On the CPU small "
        "batches take the time of the counts that `last` keeps, of the guards by which torch.compile sees that no setting has changed, and "
        "of looking whether points are so near that their distance needs more digits; checks of the values are part of the graph. "
        "Contrastive takes longer than here where many pairs are near: beyond 1 in 32 all distances are computed in float64."
    )
    lines = ["## Under torch.compile", "", said, ""]
    for found in runs:
        rows = [
            (row["loss"], f"{row['n']:,} x {row['d']}", *(f"{ms:.2f}" for ms in row["ms"].values()), f"{row['ratio']:.2f}")
            for row in found["rows"]
        ]
        heads = ("loss", "points", "ours", "by hand", "ours, not compiled", "ours : by hand")
        lines += [about({"command": "python -m bench.compiled", "versions": {"torch": found["torch"]}, **found}), "", *table(heads, rows)]
    return lines


CUDA_NOTES = (
    "Extra MB is the memory of a warm call while it runs, kept MB what stays allocated between calls. Up to 2²⁹ pairs "
    "(16,384 points, and the banks below) our evaluation is replayed from a CUDA graph, which keeps its memory, including copies of the "
    "points. The first call of a size includes compilation unless an earlier size has already compiled. scikit-learn and KeOps are "
    "compared on the CPU, below; KeOps compiles for a device when it is first called, which takes a C++ compiler and NVIDIA's headers."
)


def cuda_floor(rates: dict[str, float]) -> str:
    taken = f"{rates['exp_per_s'] / 1e12:.2f} T a second"
    source = f"measured as {rates['measured_exp_per_s'] / 1e12:.2f} and taken as at least 4.0"
    return (
        f"The floor is 6 N² d flop at {rates['flop_per_s'] / 1e12:.0f} TFLOP/s of fp16, measured in the same run and taken as at least "
        f"743, and 2 N² exponentials at {taken}, {source}."
    )


def cuda_part(found: dict[str, Any]) -> list[str]:
    lines = ["## H200", "", about(found), "", " ".join([cuda_floor(found["rates"]), *found["how"], CUDA_NOTES, COLUMNS_LEFT_OUT])]
    lines.append("")
    memory = ("extra MB", "kept MB")
    head = ("loss and gradient", "ms", *memory, "times our fast", "share of floor", "first call s", "value error", "gradient error")
    for n in sorted({row["n"] for row in found["rows"]}):
        lines += [f"### N = {n:,}, d = 64", "", *filled(head, cuda_rows(found, n))]
    lines += ["### Queries against a bank, d = 128", ""]
    rows = [(row["name"], f"{row['n']:,} x {row['m']:,}", f"{row['ms']:.2f}", f"{row['peak_mb']:,.0f}") for row in found["banks"]]
    lines += table(("form", "size", "ms", "extra MB"), rows)
    lines += [f"### Other relations, N = {found['relatives'][0]['n']:,}", ""]
    base = {row["name"].split(", ")[-1]: row["ms"] for row in found["relatives"] if row["name"].startswith("classes")}
    others = [(row["name"], f"{row['ms']:.2f}", f"{row['ms'] / base[row['name'].split(', ')[-1]]:.2f}") for row in found["relatives"]]
    lines += table(("relation, precision", "ms", "times same label"), others)
    return [*lines, "### Targets on the H200", "", *targets(cuda_targets(found))]


def numerics_part(found: dict[str, Any], how: str) -> list[str]:
    """A row for every contender, a column for every case: relative errors of value and gradient."""
    cases = list(dict.fromkeys(row["case"] for row in found["rows"]))
    names = list(dict.fromkeys(row["name"] for row in found["rows"]))
    at = {(row["name"], row["case"]): row for row in found["rows"]}

    def cell(row: Row) -> str:
        pair = [row["value_error"], row["gradient_error"]]
        return " / ".join("not finite" if error is None else format(error, ".1e") for error in pair)

    rows = [(name, *(cell(at[name, case]) for case in cases)) for name in names]
    return [about(found), how, "", *table(("loss and gradient", *cases), rows), *targets(numerics_targets(found))]


NUMERICS = {
    "bench-numerics-h200.json": "On the GPU.",
    "bench-numerics-cpu.json": "The Triton kernels ran under Triton's interpreter: rounded as on the GPU, added in another order.",
}


def numerics() -> list[str]:
    found = {name: data for name in NUMERICS if (data := load(name)) is not None}
    if not found:
        return []
    some = next(iter(found.values()))
    said = f"Relative error of value / gradient against float64 on data that break naive arithmetic; N = {some['n']}, d = {some['d']}."
    return ["## Numerics", "", said, ""] + [line for name, data in found.items() for line in numerics_part(data, NUMERICS[name])]


SEARCHES = ("products", "nearkin", "faiss flat", "torch topk")
FAISS_LIMIT = 1.1  # times the seconds of faiss flat, at d = 768 and 1,024


def search_part(runs: list[dict[str, Any]]) -> list[str]:
    """Exact search beside all inner products alone, faiss flat and topk of distances."""
    said = (
        "`nearkin.search.nearest`, exact, over {references:,} references: best seconds of rounds in turn, everybody's index and "
        "preparation included. The products are all inner products in tiles, kept nowhere: the floor on a CPU; on CUDA they are one fp32 "
        "matrix product. Wide vectors on a CPU count the CPU seconds of one thread."
    )
    lines = ["## Exact search", "", said.format(references=runs[0]["references"]), ""]
    for found in runs:
        names = [name for name in SEARCHES if any(name in row["seconds"] for row in found["rows"])]
        rows = []
        for row in found["rows"]:
            seconds = row["seconds"]
            ratios = [f"{seconds['nearkin'] / seconds[other]:.2f}" if other in seconds else "" for other in names if other != "nearkin"]
            cells = [f"{seconds[name]:.4g}" if name in seconds else "" for name in names]
            rows.append((f"{row['queries']:,}", f"{row['d']:,}", str(row["k"]), *cells, *ratios))
        heads = ("queries", "d", "k", *(f"{name} s" for name in names), *(f"ours : {name}" for name in names if name != "nearkin"))
        lines += [about({"command": "python -m bench.knn", **found}), "", *table(heads, rows)]
        wide = [row for row in found["rows"] if row["d"] >= 768 and "faiss flat" in row["seconds"]]
        slow = [row for row in wide if row["seconds"]["nearkin"] > FAISS_LIMIT * row["seconds"]["faiss flat"]]
        if wide:
            missed = ", ".join(f"d = {row['d']:,}" for row in slow)
            lines += [f"Target at d = 768 and 1,024: {FAISS_LIMIT} times faiss flat. {f'Missed: {missed}' if slow else 'It is met'}.", ""]
    return lines


def training_part(found: dict[str, Any]) -> list[str]:
    lines = ["## Training", "", f"`python -m bench.training`, {found['device']}, {found['date'][:10]}, torch {found['torch']}.", ""]
    rows = []
    for name, row in found.items():
        if isinstance(row, dict):
            compiled = row["compiled"]
            best = f"{max(row['peer'].values()):,.0f}" if row["peer"] else ""
            cells = (f"{row['images_per_second']:,.0f}", f"{compiled['images_per_second']:,.0f}", best, number(row["ratio"], ".1f"))
            growth = max(row["memory_growth_bytes"], compiled["memory_growth_bytes"])
            rows.append((name, *cells, f"{row['first_step_seconds']:.1f}", f"{compiled['first_step_seconds']:.1f}", f"{growth / 1e6:.1f}"))
    said = (
        "Images a second of our captured step, plain and through torch.compile, next to a loop with a DataLoader (the best number of "
        "workers) and pytorch-metric-learning's loss on the same network and batch. Seconds until the first step is done, "
        "capturing and compiling included; megabytes by which memory grows in later steps."
    )
    head = ("run", "ours", "compiled", "their loop", "our faster, times the loop", "first step s", "compiled: first step s", "growth MB")
    return [*lines, said, "", *table(head, rows)]


def precision_part(found: dict[str, Any]) -> list[str]:
    """One Prec@k step, on whichever machines it was measured."""
    lines = ["## One Prec@k step", "", "Loss and gradient of a batch with 11 images a class, d = 64, k = 5.", ""]
    if (cpu := found.get("cpu")) is not None:
        looped = next(row for row in cpu["rows"] if row["name"].startswith("loops"))
        lines.append(
            f"B = {cpu['n']}: ours, as released but without the covariance term, is {looped['times_ours']:.0f} times as fast as "
            "Python loops over elements as in "
            f"the authors' code (target: {cpu['wanted']:g}); the gradients differ by {cpu['error']:.0e} in float64. {about(cpu)}"
        )
        rows = [(row["name"], f"{row['ms']:.2f}", f"{row['times_ours']:.2f}") for row in cpu["rows"]]
        lines += ["", *table(("CPU, one thread", "ms", "times ours as released"), rows)]
    if (cuda := found.get("cuda")) is not None:
        ours = cuda["rows"][0]
        lines.append(
            f"B = {cuda['n']:,}: ours takes {ours['recorded_times_floor']:.2f} times as long as the similarities and their topk, with "
            f"their gradient, when recorded as a graph, and {ours['times_floor']:.2f} times when called from Python (target: at most "
            f"{cuda['wanted']:g}). {about(cuda)}"
        )
        keys = (("recorded_ms", ".3f"), ("recorded_times_floor", ".2f"), ("ms", ".3f"), ("times_floor", ".2f"))
        rows = [(row["name"], *(number(row[key], form) for key, form in keys)) for row in cuda["rows"]]
        lines += ["", *table(("CUDA", "recorded ms", "times the floor", "called ms", "times the floor"), rows)]
    return lines


def discovery_part(found: list[dict[str, Any]]) -> list[str]:
    """Nearest neighbor and entropy of every point of a bank, on each machine that was measured."""
    rows = []
    for one in found:
        for row in one["rows"]:
            memory = number(row.get("megabytes"), ",.0f")
            rows.append((one["device"], f"{row['points']:,}", f"{row['seconds']:.2f}", number(row.get("bar_seconds"), ".0f"), memory))
    said = "`python -m bench.discovery`: nearest neighbor and entropy for each of N points of 128 numbers, wall seconds, best of "
    said += "several rounds."
    return ["## Discovery", "", said, "", *table(("machine", "N", "s", "target: s", "MB beyond the bank"), rows)]


def service_part(found: dict[str, Any]) -> list[str]:
    """Queries over HTTP, and an HNSW index."""
    service, hnsw = found["service"], found["hnsw"]
    made = f"`python -m bench.service`, {found['threads']} thread, {found['when'][:10]}, torch {found['torch']}"
    said = (
        f"{made}. Exact search over {service['points']:,} points of 64 numbers, medians of {service['rounds']} rounds; HNSW over "
        f"{hnsw['points']:,} points. The service can be faster than a bare call of `nearest`, because it prepares the points once."
    )
    rows = [
        ("vector query over HTTP, ms", f"{service['vector_ms']:.1f}", ""),
        ("bare call of `nearest`, ms", f"{service['bare_ms']:.1f}", ""),
        ("difference, ms", f"{service['overhead_ms']:.1f}", "at most 2"),
        ("image query of 32 x 32 pixels over HTTP, ms", f"{service['image_ms']:.1f}", ""),
        ("of which encoding, ms", f"{service['image_encode_ms']:.1f}", ""),
        ("HNSW recall@10", f"{hnsw['recall']:.3f}", "at least 0.99"),
        ("HNSW query with candidates scored again, CPU ms", f"{hnsw['cpu_ms']:.2f}", "at most 0.2"),
        ("building that index, one thread, s", f"{hnsw['build_s']:.0f}", ""),
    ]
    return ["## Service", "", said, "", *table(("what", "measured", "target"), rows)]


def explorer_part(found: dict[str, Any]) -> list[str]:
    """The explorer's targets: 3 s until 60,000 points are drawn, 300 ms from click to neighbors, a page below 1 MB."""
    busy = f", {found['cores']} cores, load {found['load']:.1f} before it began" if "load" in found else ""
    made = f"headless chromium {found['chromium']} without a GPU, {found['machine']}{busy}, {found['date'][:10]}"
    lines = ["## Explorer", "", f"`{found['command']}`, {made}. Each page is opened {found['visits']} times."]
    lines.append(f"The page is {found['bundle_kb']:.0f} kB (target: below 1,000).")
    lines.append(
        "From the start of `nearkin serve` on the model of `nearkin demo --quick` to the first wrong neighbor on the screen: "
        f"{found['first_wrong_s']:.1f} s."
    )
    rows, once = [], []
    for one in found["sizes"]:
        once.append(f"{one['drawing_s']:.0f} s for {one['points']:,} points, whose folder is {one['folder_mb']:.0f} MB")
        for where in ("service", "disk"):
            row = one[where]
            cells = [f"{row[key]:{form}}" for key, form in (("first_drawn_s", ".2f"), ("slowest_drawn_s", ".2f"))]
            cells += [f"{row[key]:.0f}" for key in ("click_ms", "slowest_click_ms", "console_errors")]
            rows.append((f"{one['points']:,} points, {where}", *cells))
    head = (
        "page",
        "s until all are drawn (target: 3)",
        "slowest",
        "ms from click to neighbors (target: 300)",
        "slowest",
        "console errors",
    )
    lines += ["", *table(head, rows)]
    return [*lines, f"Before that, once for each index: exact neighbors, lists and a map by PCA, one thread: {'; '.join(once)}.", ""]


STYLES = ("o-", "s-", "^-", "v--", "D--", "x--", "+--", "*--")


def draw(axes: Any, rows: list[Row], ours: str) -> None:
    """Time and memory against N, on two axes, with the growth that we promise through the largest of `ours`."""
    for name, style in zip(dict.fromkeys(row["name"] for row in rows), STYLES, strict=False):
        here = [row for row in rows if row["name"] == name]
        full = [f"{row['n']:,}" for row in here if row.get("out_of_memory")]
        label = f"{name}, out of memory at {', '.join(full)}" if full else name
        for axis, key in zip(axes, ("drawn_ms", "drawn_mb"), strict=True):
            points = [(row["n"], row[key]) for row in here if row.get(key)]
            axis.loglog(*zip(*points, strict=True), style, label=label)
    sizes = sorted({row["n"] for row in rows})
    titles = ("time of loss and gradient, ms", "extra memory, MB")
    for axis, key, power, title in zip(axes, ("drawn_ms", "drawn_mb"), (2, 1), titles, strict=True):
        last = max((row for row in rows if row["name"] == ours and row.get(key)), key=lambda row: row["n"])
        grown = [last[key] * (n / last["n"]) ** power for n in sizes]
        axis.loglog(sizes, grown, ":", color="gray", label="a line of our growth: N² of time, N of memory")
        axis.set(title=title, xlabel="points N (d = 64)")
        axis.set_xticks(sizes, [f"{n:,}" for n in sizes])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5))


def _seconds(row: Row) -> float:
    seconds: float = row.get("ns_per_pair", 0) * row["n"] ** 2 / 1e9
    return seconds


def picture(cuda: dict[str, Any], cpu: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(13, 8), layout="constrained")
    on_gpu = [row | {"drawn_ms": row.get("ms"), "drawn_mb": row.get("peak_mb", 0) + row.get("kept_mb", 0)} for row in cuda["rows"]]
    on_cpu = [row | {"drawn_ms": 1e3 * _seconds(row), "drawn_mb": max(row["peak_mb"], 0)} for row in cpu["rows"]]
    draw(axes[0], on_gpu, "nearkin triton, fast")
    draw(axes[1], on_cpu, "nearkin numba, 2 threads")
    for line, where in zip(axes, ("H200", "CPU"), strict=True):
        line[0].set_ylabel(where, fontsize=14)
    figure.savefig(HERE / "performance.png", dpi=100)


def one(part: Callable[[dict[str, Any]], list[str]], name: str) -> list[str]:
    """The section of a result; nothing where it was not measured."""
    found = load(name)
    return [] if found is None else part(found)


def some(part: Callable[[list[dict[str, Any]]], list[str]], *names: str) -> list[str]:
    """The section of the results that there are of several machines."""
    found = [found for name in names if (found := load(name)) is not None]
    return part(found) if found else []


def page() -> str:
    lines = [
        "# Kernels, losses, training and service",
        "",
        "Generated by `make docs` from benchmark results in `docs/bench-*.json`; each section names the command that measures again.",
        "In the sections H200 and CPU every figure is the loss *and* its gradient, exact, over all pairs of N points. The other libraries "
        "store the N x N matrix; nearkin needs O(N d) memory.",
        "",
        "![time and memory against N](performance.png)",
        "",
    ]
    lines += one(cuda_part, "bench-h200.json") + one(cpu_part, "bench-cpu.json") + grid_part() + one(batches_part, "bench-batches.json")
    lines += some(losses_part, "bench-losses.json", "bench-losses-h200.json")
    lines += some(peers_part, "bench-peer-losses.json", "bench-peer-losses-h200.json")
    lines += some(compiled_part, "bench-compiled.json", "bench-compiled-h200.json")
    lines += numerics() + some(search_part, "bench-knn.json", "bench-knn-h200.json")
    lines += one(training_part, "bench-training.json") + one(precision_part, "bench-precision.json")
    lines += some(discovery_part, "bench-discovery.json", "bench-discovery-h200.json")
    lines += one(service_part, "bench-service.json") + one(explorer_part, "bench-explorer.json") + one(linear_part, "bench-linear.json")
    return "\n".join(lines)


def main() -> int:
    text = page()
    target = HERE / "performance.md"
    if "--check" in sys.argv:
        return 0 if target.exists() and target.read_text() == text else 1
    target.write_text(text)
    cuda, cpu = load("bench-h200.json"), load("bench-cpu.json")
    if cuda is not None and cpu is not None:
        picture(cuda, cpu)
    draw_grid()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
