"""Exact nearest neighbors against faiss: `python -m bench.knn [--threads N] [--out FILE]`; on CUDA against the matmul itself.

CPU: 60,000 references, d = 128, k = 1, 10 and 200, best wall seconds of interleaved rounds, times the sgemm floor of the same run,
and the recall of both when mean / sd = 1,000; then 60,000 x 10,000, d = 256 to 1,024, k = 10 by the CPU seconds of one thread (`--wide`
alone). CUDA: 60,000 x 10,000, d = 128 to 1,024 as a share of the fp32 matmul floor.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.measure import interleaved, threads
from nearkin.search import nearest

Search = Callable[[Tensor, Tensor, int], Tensor]
M, D = 60_000, 128
WIDE = (256, 512, 768, 1024)


def drawn(n: int, d: int, seed: int, device: str = "cpu") -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed)).to(device)


def ours(q: Tensor, r: Tensor, k: int) -> Tensor:
    return nearest(q, r, k).positions


def faiss_flat(q: Tensor, r: Tensor, k: int) -> Tensor:
    """A flat index built and asked: both sides pay for looking at the references once."""
    import faiss

    index = faiss.IndexFlatL2(r.shape[1])
    index.add(r.numpy())
    return torch.from_numpy(index.search(q.numpy(), k)[1])


def torch_topk(q: Tensor, r: Tensor, k: int) -> Tensor:
    """What most people write."""
    squares = r.square().sum(1)
    return torch.cat([(squares - 2 * some @ r.T).topk(k, largest=False).indices for some in torch.split(q, 512)])


def products(q: Tensor, r: Tensor) -> None:
    """The floor: every inner product once, in tiles, kept nowhere."""
    buffer, turned = torch.empty(1024, 1024), [part.T.contiguous() for part in torch.split(r, 1024)]
    for some in torch.split(q, 1024):
        for part in turned:
            torch.mm(some, part, out=buffer[: len(some), : part.shape[1]].flatten()[: len(some) * part.shape[1]].view(len(some), -1))


def on_cpu(n: int, count: int, rounds: int) -> list[dict[str, Any]]:
    """d = 128: neighbors of n queries by wall seconds."""
    q, r = drawn(n, D, 1), drawn(M, D, 0)
    rows = []
    for k in (1, 10, 200):
        named: dict[str, Search] = {"nearkin": ours, "faiss flat": faiss_flat} | ({"torch topk": torch_topk} if k <= 10 else {})
        tasks = {name: (lambda search=search, k=k: search(q, r, k), count) for name, search in named.items()}
        ours(q[:64], r, k)  # compile
        times = interleaved({"products": (lambda: products(q, r), count), **tasks}, rounds, 60.0)  # type: ignore[dict-item, arg-type]
        rows.append(row(n, D, k, count, {name: times[name]["wall_s"] for name in times}))
    return rows


def wide(n: int, rounds: int) -> list[dict[str, Any]]:
    """As wide as real encoders, by the CPU seconds of one thread."""
    rows = []
    for d in WIDE:
        q, r = drawn(n, d, 1), drawn(M, d, 0)
        ours(q[:64], r, 10)  # compile
        tasks = {"products": lambda: products(q, r), "nearkin": lambda: ours(q, r, 10), "faiss flat": lambda: faiss_flat(q, r, 10)}  # noqa: B023
        times = interleaved({name: (task, 1) for name, task in tasks.items()}, rounds, float("inf"))  # type: ignore[misc]
        rows.append(row(n, d, 10, 1, {name: times[name]["cpu_s"] for name in times}))
    return rows


def row(n: int, d: int, k: int, count: int, seconds: dict[str, float]) -> dict[str, Any]:
    """What was measured of one size, printed."""
    for name, taken in seconds.items():
        against = f"{taken / seconds['products']:5.2f} x products  {taken / seconds['faiss flat']:5.2f} x faiss flat"
        print(f"{n:,} x {M:,}, d {d}, k {k:3d}, threads {count}  {name:11s} {taken:7.3f} s  {against}", flush=True)
    return {"queries": n, "d": d, "k": k, "threads": count, "seconds": seconds}


def far_from_the_origin(count: int) -> None:
    """Trap 36: mean / sd = 1,000, recall@5 against float64."""
    q, r = drawn(1000, D, 1) + 1000, drawn(20_000, D, 0) + 1000
    truth = torch.cat([torch.cdist(some.double(), r.double()).topk(5, largest=False).indices for some in torch.split(q, 100)])
    with threads(count):
        for name, search in {"nearkin": ours, "faiss flat": faiss_flat, "torch topk": torch_topk}.items():
            for batch in (200, 1000):
                found = torch.cat([search(some, r, 5) for some in torch.split(q, batch)])
                recall = float((found[:, :, None] == truth[:, None]).any(2).double().mean())
                print(f"mean/sd 1000, batches of {batch:4d}  {name:11s} recall@5 {recall:.3f}")


def milliseconds(task: Callable[[], object], repeats: int = 20) -> float:
    task()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        task()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return min(times)


def on_cuda(d: int) -> list[dict[str, Any]]:
    q, r = drawn(10_000, d, 1, "cuda"), drawn(M, d, 0, "cuda")
    torch.backends.cuda.matmul.allow_tf32 = False
    out = torch.empty(10_000, M, device="cuda")
    floor = milliseconds(lambda: torch.mm(q, r.T, out=out))
    rows = []
    for k in (1, 10, 200):
        mine = milliseconds(lambda k=k: nearest(q, r, k))  # type: ignore[misc]
        plain = milliseconds(lambda k=k: torch.cdist(q, r).topk(k, largest=False))  # type: ignore[misc]
        print(f"10000 x {M}, d {d}, k {k:3d}, {torch.cuda.get_device_name()}; fp32 matmul floor {floor:.2f} ms")
        print(f"    nearkin            {mine:.2f} ms = {floor / mine:.0%} of the floor")
        print(f"    torch.cdist + topk {plain:.2f} ms = {floor / plain:.0%}", flush=True)
        seconds = {"products": floor / 1e3, "nearkin": mine / 1e3, "torch topk": plain / 1e3}
        rows.append({"queries": 10_000, "d": d, "k": k, "seconds": seconds})
    exact = torch.cdist(q[:500].double(), r.double()).topk(10, largest=False).indices
    print(f"recall@10 against float64: {float((nearest(q[:500], r, 10).positions == exact).double().mean()):.4f}")
    far = nearest(q[:500] + 1000, r + 1000, 10).positions
    truth = torch.cdist((q[:500] + 1000).double(), (r + 1000).double()).topk(10, largest=False).indices
    print(f"the same at mean/sd 1000: {float((far == truth).double().mean()):.4f}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--queries", type=int, default=1000, help="where d is 128 (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--wide", action="store_true", help="wide vectors alone")
    parser.add_argument("--out", type=Path, help="save the seconds as JSON")
    given = parser.parse_args()
    if cuda := torch.cuda.is_available():
        rows = [one for d in (D, *WIDE) for one in on_cuda(d)]
    else:
        rows = [] if given.wide else on_cpu(given.queries, given.threads, given.rounds)
        rows += wide(10_000, given.rounds)
        if not given.wide:
            far_from_the_origin(given.threads)
    if given.out:
        device = torch.cuda.get_device_name() if cuda else f"CPU ({platform.machine()})"
        versions = {"torch": torch.__version__} | ({} if cuda else {"faiss-cpu": version("faiss-cpu")})
        about = {"date": datetime.now(UTC).date().isoformat(), "device": device, "versions": versions}
        given.out.write_text(json.dumps({**about, "references": M, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
