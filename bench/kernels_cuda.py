"""The CUDA half of `python -m bench.kernels`: the Triton engine in its three precisions against PML and plain torch.

CUDA events, best of several; the floor comes from rates measured in the same run, and never from less than an H200 has
shown: 743 TFLOP/s in fp16 and 4.0e12 exponentials a second. A peer that runs out of memory is reported as such.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from bench.contenders import CUDA, Evaluate, drawn, evaluated, spans
from bench.measure import errors
from nearkin.kernels.soft_neighbours import Form, soft_neighbours
from nearkin.kernels.work import Work

Row = dict[str, Any]
PRECISIONS = ("highest", "high", "fast")
_LEAST_FLOPS, _LEAST_EXPS = 743e12, 4.0e12


def _event() -> Any:
    event: Any = torch.cuda.Event
    return event(enable_timing=True)


def best_ms(evaluate: Evaluate, repeats: int = 10) -> float:
    """Best of several, by CUDA events, after two calls to warm up."""
    for _ in range(2):
        evaluate()
    best = float("inf")
    for _ in range(repeats):
        start, end = _event(), _event()
        start.record()
        evaluate()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end))
    return best


def peak_mb(evaluate: Evaluate) -> float:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    evaluate()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def cuda_rates() -> dict[str, float]:
    """fp16 matmul flop/s, and the exp rate taken for granted (torch's own is bound by memory, not by the unit)."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    seconds = best_ms(lambda: (a @ a, a)) / 1e3
    return {"flop_per_s": max(2 * 8192**3 / seconds, _LEAST_FLOPS), "exp_per_s": _LEAST_EXPS}


def floor_ms(n: int, m: int, d: int, rates: dict[str, float]) -> float:
    return 1e3 * (6 * n * m * d / rates["flop_per_s"] + 2 * n * m / rates["exp_per_s"])


def measured(name: str, n: int, m: int, d: int, evaluate: Evaluate, rates: dict[str, float]) -> Row:
    row: Row = {"name": name, "n": n, "m": m, "d": d}
    try:
        start, end = _event(), _event()
        start.record()
        evaluate()
        end.record()
        end.synchronize()
        row |= {"first_call_s": start.elapsed_time(end) / 1e3, "ms": best_ms(evaluate), "peak_mb": peak_mb(evaluate)}
        row |= {"share_of_floor": floor_ms(n, m, d, rates) / row["ms"]}
    except torch.OutOfMemoryError:
        row["out_of_memory"] = True
    torch.cuda.empty_cache()
    return row


def squares(quick: bool, rates: dict[str, float]) -> Iterator[Row]:
    """Own references. Where the host sets the time, everybody has three turns of thirty."""
    for n in (4096, 16_384) if quick else (4096, 16_384, 65_536, 131_072):
        data = drawn(n, 64, device="cuda")
        tasks = {name: contender.make(*data) for name, contender in CUDA.items()}
        rows = {name: measured(name, n, n, 64, task, rates) for name, task in tasks.items()}
        for _ in range(3 if n <= 16_384 else 0):
            for name, task in tasks.items():
                ms = min(rows[name]["ms"], best_ms(task, 30))
                rows[name] |= {"ms": ms, "share_of_floor": floor_ms(n, n, 64, rates) / ms}
        for name, row in rows.items():
            yield row | (errors(CUDA[name], 4096, 64, "cuda") if n == 4096 else {})


def bank(n: int, m: int, d: int, precision: str, both: bool) -> Evaluate:
    """Queries against a bank, frozen or taking its gradient too."""
    (queries, labels), (references, classes) = drawn(n, d, device="cuda"), drawn(m, d, device="cuda")
    span = torch.stack([torch.searchsorted(classes, labels), torch.searchsorted(classes, labels, right=True)], 1)

    def evaluate() -> tuple[Tensor, Tensor]:
        live, others = queries.detach().requires_grad_(), references.detach().requires_grad_(both)
        loss = soft_neighbours(Work(live, others, True, span=span), "log", 1.0, engine="triton", precision=precision).values.mean()
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
        yield measured("bank, torch.compile of the dense form", n, m, 128, compiled_bank(n, m, 128), rates)
        for precision in PRECISIONS:
            for both in (False, True) if n == 4096 else (False,):
                name = f"bank, {precision}, {'both' if both else 'queries only'}"
                yield measured(name, n, m, 128, bank(n, m, 128, precision, both), rates)


def siblings(n: int, rates: dict[str, float]) -> Iterator[Row]:
    """Label distances and neighbour lists, in full precision and in the fastest."""
    embeddings, labels = drawn(n, 64, device="cuda")
    base = Work(embeddings, None, True, skip=torch.arange(n, device="cuda")[:, None])
    works = {"classes": base._replace(span=spans(labels))}
    for t in (1, 2, 3):
        targets = torch.randn(n, t, device="cuda")
        works[f"label distance, t = {t}"] = base._replace(targets=(targets, targets))
    works["lists of 1"] = base._replace(listed=torch.randint(n, (n, 1), device="cuda"))
    for name, work in works.items():
        for precision in ("highest", "fast"):
            form: Form = "log" if work.targets is None else "expected"
            yield measured(f"{name}, {precision}", n, n, 64, evaluated(work, form, "triton", precision), rates)


def on_cuda(quick: bool) -> dict[str, Any]:
    rates = cuda_rates()
    print(f"floor: fp16 matmul {rates['flop_per_s'] / 1e12:.0f} TFLOP/s, exp {rates['exp_per_s'] / 1e12:.1f} T/s")
    found: dict[str, Any] = {"rates": rates, "rows": [], "banks": [], "relatives": []}
    parts = {"rows": squares(quick, rates), "banks": banks(rates), "relatives": siblings(16_384 if quick else 65_536, rates)}
    for part, rows in parts.items():
        for row in rows:
            found[part].append(row)
            print(_line(row), flush=True)
    return found


def _line(row: Row) -> str:
    head = f"{row['name']:40} {row['n']:>7} x {row['m']:<7} d {row['d']:<4}"
    if "out_of_memory" in row:
        return head + " out of memory"
    line = f"{head} {row['ms']:9.2f} ms {row['peak_mb']:10.1f} MB {100 * row['share_of_floor']:5.1f} % of the floor"
    line += f", first {row['first_call_s']:.1f} s"
    return line + (f", errors {row['value_error']:.1e} {row['gradient_error']:.1e}" if "value_error" in row else "")
