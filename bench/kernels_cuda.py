"""The CUDA half of `python -m bench.kernels`: the Triton engine in its three precisions against the peers.

CUDA events, everybody in turn, best of several; the floor comes from rates measured in the same run, and never from less
than an H200 has shown: 743 TFLOP/s in fp16 and 4.0e12 exponentials a second. Who runs out of memory is reported as such.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.contenders import Contender, Evaluate, drawn, evaluated, siblings
from bench.exponentials import BLOCK, exponentials
from bench.measure import errors
from nearkin.kernels.autograd import soft_neighbors
from nearkin.kernels.contract import Work
from nearkin.kernels.cuda_graphs import MOST_PAIRS

Row = dict[str, Any]
PRECISIONS = ("highest", "high", "fast")
_LEAST_FLOPS, _LEAST_EXPS = 743e12, 4.0e12
TURNS, MANY, FEW = 3, 30, 5  # many calls where the host sets the time, since they differ more
HOW = f"CUDA events; everybody has {TURNS} turns of {MANY} calls up to {MOST_PAIRS:,} pairs and of {FEW} above, and the best call counts."


def _event() -> Any:
    event: Any = torch.cuda.Event
    return event(enable_timing=True)


def once_ms(evaluate: Callable[[], object]) -> float:
    start, end = _event(), _event()
    start.record()
    evaluate()
    end.record()
    end.synchronize()
    elapsed: float = start.elapsed_time(end)
    return elapsed


def best_ms(evaluate: Callable[[], object], repeats: int = 10) -> float:
    """Best of several, by CUDA events, after two calls to warm up."""
    for _ in range(2):
        evaluate()
    return min(once_ms(evaluate) for _ in range(repeats))


def peak_mb(evaluate: Evaluate) -> float:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    evaluate()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def cuda_rates() -> dict[str, float]:
    """fp16 flop and exponentials a second, each as measured here and as taken for the floor."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    flops = 2 * 8192**3 / (best_ms(lambda: a @ a) / 1e3)
    processors = torch.cuda.get_device_properties("cuda").multi_processor_count
    x, steps = torch.rand(512 * BLOCK * processors, device="cuda"), 1024  # so many blocks each that the last few do not count
    exps = steps * len(x) / (best_ms(lambda: exponentials(x, steps)) / 1e3)
    return floor_rates(flops, exps)


def floor_rates(flops: float, exps: float) -> dict[str, float]:
    measured = {"measured_flop_per_s": flops, "measured_exp_per_s": exps}
    return {"flop_per_s": max(flops, _LEAST_FLOPS), "exp_per_s": max(exps, _LEAST_EXPS), **measured}


def floor_ms(n: int, m: int, d: int, rates: dict[str, float]) -> float:
    return 1e3 * (6 * n * m * d / rates["flop_per_s"] + 2 * n * m / rates["exp_per_s"])


def opening(evaluate: Evaluate) -> Row:
    """The first call, the memory that a warm one takes, and what is kept between calls (a recorded graph, a workspace)."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    first = once_ms(evaluate)
    for _ in range(4):  # our small evaluations are recorded by the third call, their gradients by the fourth
        evaluate()
    peak = peak_mb(evaluate)
    torch.cuda.empty_cache()
    kept = max(0, torch.cuda.memory_reserved() - before)  # an older recording may have made room
    return {"first_call_s": first / 1e3, "peak_mb": peak, "kept_mb": kept / 1e6}


def attempt(row: Row, step: Callable[[], Row]) -> None:
    """Add what a step finds to a row, or that the device was full."""
    if "out_of_memory" in row:
        return
    try:
        row |= step()
    except torch.OutOfMemoryError:
        row["out_of_memory"] = True
    torch.cuda.empty_cache()


def raced(tasks: Mapping[str, Evaluate], ours: str, n: int, m: int, d: int, rates: dict[str, float]) -> list[Row]:
    """A row for each task, with its time over that of `ours`.

    After their first calls all have turns, so that a hot or busy spell hits everybody alike.
    """
    rows: dict[str, Row] = {name: {"name": name, "n": n, "m": m, "d": d} for name in tasks}
    for name, task in tasks.items():
        attempt(rows[name], partial(opening, task))
    repeats = MANY if n * m <= MOST_PAIRS else FEW

    def turn(row: Row, task: Evaluate) -> Row:
        ms = min(row.get("ms", torch.inf), best_ms(task, repeats))
        return {"ms": ms, "share_of_floor": floor_ms(n, m, d, rates) / ms}

    for _ in range(TURNS):
        for name, task in tasks.items():
            attempt(rows[name], partial(turn, rows[name], task))
    for row in rows.values():
        if "ms" in row and "ms" in rows[ours]:
            row["times_ours"] = row["ms"] / rows[ours]["ms"]
    return list(rows.values())


def squares(contenders: dict[str, Contender], quick: bool, rates: dict[str, float]) -> Iterator[Row]:
    """Own references."""
    for n in (4096, 16_384) if quick else (4096, 16_384, 65_536, 131_072):
        data = drawn(n, 64, device="cuda")
        here = {name: contender for name, contender in contenders.items() if n <= contender.largest}
        tasks = {name: contender.make(*data) for name, contender in here.items()}
        for row in raced(tasks, "nearkin triton, fast", n, n, 64, rates):
            yield row | (errors(here[row["name"]], 4096, 64, "cuda") if n == 4096 else {})


def bank(n: int, m: int, d: int, precision: str, both: bool) -> Evaluate:
    """Queries against a bank, frozen or taking its gradient too."""
    (queries, labels), (references, classes) = drawn(n, d, device="cuda"), drawn(m, d, device="cuda")
    span = torch.stack([torch.searchsorted(classes, labels), torch.searchsorted(classes, labels, right=True)], 1)

    def evaluate() -> tuple[Tensor, Tensor]:
        live, others = queries.detach().requires_grad_(), references.detach().requires_grad_(both)
        loss = soft_neighbors(Work(live, others, True, span=span), "log", 1.0, engine="triton", precision=precision).values.mean()
        return loss.detach(), torch.autograd.grad(loss, [live, others] if both else [live])[0]

    return evaluate


def _dense_bank(queries: Tensor, references: Tensor, span: Tensor) -> Tensor:
    squared = queries.square().sum(1)[:, None] + references.square().sum(1)[None, :] - 2 * queries @ references.T
    at = torch.arange(len(references), device=references.device)
    right = (at >= span[:, :1]) & (at < span[:, 1:])
    return ((-squared).logsumexp(1) - (-squared).masked_fill(~right, -torch.inf).logsumexp(1)).mean()


def compiled_bank(n: int, m: int, d: int) -> Evaluate:
    """The same by torch.compile, on the whole matrix."""
    (queries, labels), (references, classes) = drawn(n, d, device="cuda"), drawn(m, d, device="cuda")
    span = torch.stack([torch.searchsorted(classes, labels), torch.searchsorted(classes, labels, right=True)], 1)
    compiled = torch.compile(_dense_bank)

    def evaluate() -> tuple[Tensor, Tensor]:
        live = queries.detach().requires_grad_()
        loss = compiled(live, references, span)
        return loss.detach(), torch.autograd.grad(loss, [live])[0]

    return evaluate


def banks(rates: dict[str, float]) -> Iterator[Row]:
    for n, m in ((4096, 131_072), (128, 50_000), (512, 50_000)):
        tasks = {"bank, torch.compile of the dense form": compiled_bank(n, m, 128)}
        for precision in PRECISIONS:
            for both in (False, True) if n == 4096 else (False,):
                tasks[f"bank, {precision}, {'both' if both else 'queries only'}"] = bank(n, m, 128, precision, both)
        yield from raced(tasks, "bank, fast, queries only", n, m, 128, rates)


def relatives(n: int, rates: dict[str, float]) -> Iterator[Row]:
    """Label distances and neighbor lists, in full precision and in the fastest."""
    works = siblings(n, 64, "cuda")
    for precision in ("highest", "fast"):
        tasks = {f"{name}, {precision}": evaluated(*work, "triton", precision) for name, work in works.items()}
        yield from raced(tasks, f"classes, {precision}", n, n, 64, rates)


def on_cuda(contenders: dict[str, Contender], quick: bool) -> dict[str, Any]:
    rates = cuda_rates()
    print(
        f"floor: fp16 matmul {rates['flop_per_s'] / 1e12:.0f} TFLOP/s (measured {rates['measured_flop_per_s'] / 1e12:.0f}), "
        f"exp {rates['exp_per_s'] / 1e12:.2f} T/s (measured {rates['measured_exp_per_s'] / 1e12:.2f})"
    )
    found: dict[str, Any] = {"rates": rates, "how": [HOW], "rows": [], "banks": [], "relatives": []}
    size = 16_384 if quick else 65_536
    parts = {"rows": squares(contenders, quick, rates), "banks": banks(rates), "relatives": relatives(size, rates)}
    for part, rows in parts.items():
        for row in rows:
            found[part].append(row)
            print(_line(row), flush=True)
    return found


def _line(row: Row) -> str:
    head = f"{row['name']:40} {row['n']:>7} x {row['m']:<7} d {row['d']:<4}"
    if "out_of_memory" in row:
        return head + " out of memory"
    line = f"{head} {row['ms']:9.2f} ms, {row.get('times_ours', torch.nan):6.2f} x ours, {row['peak_mb']:10.1f} MB"
    line += f", {100 * row['share_of_floor']:5.1f} % of the floor, first {row['first_call_s']:.1f} s, {row['kept_mb']:.0f} MB kept"
    return line + (f", errors {row['value_error']:.1e} {row['gradient_error']:.1e}" if "value_error" in row else "")
