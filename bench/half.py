"""Embeddings of 16 bits on a GPU: errors against float64, memory, and times beside float32: `python -m bench.half [--out FILE.json]`.

Every kind of layout that the kernels stream, in both engines: the gradient of the same points in float64, the peak memory of a step beyond
what it returns, in copies of the batch in float32, and milliseconds of a training step as users call it.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import nearkin
from nearkin import NCA, NCARegression, SupCon

CHECKED, ALLOWED = 2400, {"highest": 1e-5, "fast": 5e-3}
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Kind(NamedTuple):
    """An objective and what it reads beside the embeddings."""

    make: Callable[..., Any]
    reads: str = "classes"


KINDS = {
    "NCA": Kind(NCA),
    "NCA, expected": Kind(lambda **how: NCA("expected", **how)),
    "NCA, cosine": Kind(lambda **how: NCA(temperature=0.1, metric="cosine", **how)),
    "NCARegression": Kind(NCARegression, "numbers"),
    "SupCon": Kind(SupCon),
}


def batch(n: int, d: int, reads: str) -> tuple[Tensor, Tensor]:
    """Points around the centers of their classes, away from the origin."""
    generator = torch.Generator("cuda").manual_seed(n + d)
    labels = torch.randint(max(10, n // 100), (n,), generator=generator, device="cuda")
    centers = torch.randn(int(labels.max()) + 1, d, generator=generator, device="cuda")
    x = (centers[labels] + torch.randn(n, d, generator=generator, device="cuda") + 0.3) * d**-0.5
    return x, torch.randn(n, generator=generator, device="cuda") if reads == "numbers" else labels


def step(objective: Any, x: Tensor, labels: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Loss and gradient of a training step whose loss is scaled, as a gradient scaler does."""
    live = x.detach().requires_grad_()
    loss = objective(live, labels)
    (scale * loss).backward()
    assert live.grad is not None and live.grad.dtype == x.dtype
    return loss.detach(), live.grad


def errors(name: str, d: int, dtype: str, precision: str) -> dict[str, Any]:
    """Relative errors of value and gradient, of the first call and of a later, recorded one."""
    kind, scale = KINDS[name], 2.0**10
    x, labels = batch(CHECKED, d, kind.reads)
    x = x.to(TYPES[dtype])
    exact_loss, exact = step(kind.make(engine="dense"), x.double(), labels, scale)
    objective = kind.make(precision=precision)
    row: dict[str, Any] = {"objective": name, "d": d, "dtype": dtype, "precision": precision}
    for turn in range(5):
        loss, slope = step(objective, x, labels, scale)
        if turn in (0, 4):
            row[f"value error, call {turn + 1}"] = float((loss.double() - exact_loss).abs() / exact_loss.abs())
            row[f"gradient error, call {turn + 1}"] = float((slope.double() - exact).norm() / exact.norm())
    allowed = max(ALLOWED[precision], torch.finfo(TYPES[dtype]).eps)
    row["ok"] = all(value <= allowed for key, value in row.items() if "error" in key)
    return row


def compiled_errors(d: int, dtype: str) -> dict[str, Any]:
    """The same of NCA under torch.compile, whose operators take the same points."""
    x, labels = batch(CHECKED, d, "classes")
    x = x.to(TYPES[dtype])
    row: dict[str, Any] = {"d": d, "dtype": dtype}
    for name, form in (("NCA", {}), ("NCA, cosine", {"temperature": 0.1, "metric": "cosine"})):
        _, exact = step(NCA(engine="dense", **form), x.double(), labels)  # type: ignore[arg-type]
        _, slope = step(torch.compile(NCA(**form), fullgraph=True), x, labels)  # type: ignore[arg-type]
        row[name] = float((slope.double() - exact).norm() / exact.norm())
    return row


def memory(name: str, n: int, d: int, dtype: str, precision: str) -> dict[str, Any]:
    """Most memory of a step beside its inputs and gradient, in float32 copies of the batch; above 65,536 points nothing is recorded."""
    kind = KINDS[name]
    x, labels = batch(n, d, kind.reads)
    x = x.to(TYPES[dtype])
    objective = kind.make(precision=precision)
    step(objective, x, labels)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step(objective, x, labels)
    extra = torch.cuda.max_memory_allocated() - before - x.nbytes
    return {"objective": name, "n": n, "d": d, "dtype": dtype, "precision": precision, "copies": round(extra / (4 * n * d), 2)}


def milliseconds(name: str, n: int, d: int, dtype: str, precision: str) -> dict[str, Any]:
    """Best wall time of a step until the device is idle."""
    kind = KINDS[name]
    x, labels = batch(n, d, kind.reads)
    x, objective, times = x.to(TYPES[dtype]), kind.make(precision=precision), []
    for _ in range(15):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step(objective, x, labels)
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return {"objective": name, "n": n, "d": d, "dtype": dtype, "precision": precision, "ms": round(min(times[5:]), 3)}


def tried(call: Callable[..., dict[str, Any]], *given: Any) -> dict[str, Any]:
    try:
        found = call(*given)
    except Exception as problem:
        found = {"what": f"{call.__name__}{given}", "ok": False, "problem": f"{type(problem).__name__}: {problem}"[:300]}
        torch.cuda.empty_cache()
    print(json.dumps(found), flush=True)
    return found


PARTS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "errors": lambda: [
        tried(errors, name, d, dtype, precision)
        for name in KINDS
        for d, precision in ((64, "highest"), (64, "fast"), (384, "highest"), (384, "fast"))
        for dtype in (TYPES if (name, precision) in (("NCA", "highest"), ("NCA, cosine", "highest")) else ("bfloat16",))
    ],
    "compiled": lambda: [tried(compiled_errors, d, dtype) for d in (64, 384) for dtype in ("float32", "bfloat16")],
    "memory": lambda: [
        tried(memory, name, 70_000, d, dtype, precision)
        for name in ("NCA", "NCA, cosine", "SupCon")
        for d in (64, 256, 512)
        for dtype, precision in (("float32", "highest"), ("bfloat16", "highest"), ("bfloat16", "fast"))
    ],
    "times": lambda: [
        tried(milliseconds, name, n, d, dtype, "fast")
        for name in ("NCA", "NCA, cosine", "SupCon")
        for n, d in ((4096, 128), (16_384, 256), (16_384, 512))
        for dtype in ("float32", "bfloat16")
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "nearkin": nearkin.__version__}
    for part in given.only:
        found[part] = PARTS[part]()
        bad = [row for row in found[part] if row.get("ok") is False]
        print(f"{part}: {len(found[part])} rows, {len(bad)} not as they should be", flush=True)
        if given.out:
            given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
