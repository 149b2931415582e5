"""Targets of the kernels, and what the benchmarks measured."""

from collections.abc import Iterator
from typing import Any, NamedTuple

Found = dict[str, Any]
PML, SKLEARN, COMPILED = "pytorch-metric-learning NCALoss", "scikit-learn NCA, one evaluation", "torch.compile of the same"
NUMBA, TILES = "nearkin numba", "nearkin torch tiles"


class Target(NamedTuple):
    """`measured` must be at least `target`, or with `most` at most."""

    what: str
    target: float
    measured: float
    most: bool = False

    @property
    def met(self) -> bool:
        return self.measured <= self.target if self.most else self.measured >= self.target

    def cells(self) -> tuple[str, str, str, str]:
        return self.what, f"{'<=' if self.most else '>='} {self.target:g}", f"{self.measured:.3g}", "met" if self.met else "missed"


def _value(found: Found, name: str, n: int, key: str) -> float:
    value: float = next(row for row in found["rows"] if row["name"] == name and row["n"] == n)[key]
    return value


def cpu_targets(found: Found) -> Iterator[Target]:
    def seconds(name: str, n: int, key: str = "cpu_s") -> float:
        return _value(found, name, n, key)

    for n, *least in ((8192, 2.7, 4.5), (16384, 3.5, 8.0)):
        for name, target in zip((PML, SKLEARN), least, strict=True):
            yield Target(f"times as fast as {name}, one thread, N = {n:,}", target, seconds(name, n) / seconds(NUMBA, n))
    both = f"{NUMBA}, 2 threads"
    yield Target("two threads, times as fast as one, N = 16,384", 1.6, seconds(NUMBA, 16384, "wall_s") / seconds(both, 16384, "wall_s"))
    for name, n, target in ((NUMBA, 16384, 120), (both, 60_000, 150)):
        yield Target(f"extra MB, {name}, N = {n:,}", target, _value(found, name, n, "peak_mb"), most=True)
    yield Target("plain torch tiles, times as fast as pytorch-metric-learning, N = 8,192", 1.3, seconds(PML, 8192) / seconds(TILES, 8192))


def cuda_targets(found: Found) -> Iterator[Target]:
    def ms(name: str, n: int) -> float:
        return _value(found, name, n, "ms")

    fast, highest, n = "nearkin triton, fast", "nearkin triton, highest", 65_536
    yield Target("`fast`, times as fast as pytorch-metric-learning, N = 65,536", 30, ms(PML, n) / ms(fast, n))
    yield Target("`fast`, times as fast as torch.compile, N = 65,536", 10, ms(COMPILED, n) / ms(fast, n))
    yield Target("`fast`, extra MB, N = 65,536", 100, _value(found, fast, n, "peak_mb"), most=True)
    yield Target("`highest`, times as fast as pytorch-metric-learning, N = 65,536", 12, ms(PML, n) / ms(highest, n))
    yield Target("`highest`, gradient error, N = 4,096", 1e-5, _value(found, highest, 4096, "gradient_error"), most=True)
    yield Target("`fast`, ms, N = 131,072", 24, ms(fast, 131_072), most=True)
    for n, share in ((65_536, 60), (131_072, 70)):
        yield Target(f"`fast`, percent of the floor's speed, N = {n:,}", share, 100 * _value(found, fast, n, "share_of_floor"))
    for name in (highest, fast):
        yield Target(f"`{name.split(', ')[1]}`, times as fast as torch.compile, N = 4,096", 1.5, ms(COMPILED, 4096) / ms(name, 4096))
    yield from _bank_targets(found["banks"])
    yield from _relative_targets(found["relatives"])


def _bank_targets(rows: list[Found]) -> Iterator[Target]:
    large = next(row for row in rows if row["name"] == "bank, fast, queries only" and row["n"] == 4096)
    yield Target("`fast`, ms, bank of 131,072, 4,096 queries, d = 128", 2.5, large["ms"], most=True)
    for n in (128, 512):
        here = [row for row in rows if row["n"] == n]
        theirs = next(row["ms"] for row in here if "torch.compile" in row["name"])
        slowest = max(row["ms"] for row in here if "torch.compile" not in row["name"])
        yield Target(f"our slowest precision, times as fast as torch.compile, bank of 50,000, {n} queries", 1, theirs / slowest)


def _relative_targets(rows: list[Found]) -> Iterator[Target]:
    took = {row["name"]: row["ms"] for row in rows}
    for start, target in (("label distance", 1.6), ("lists", 1.3)):
        for name in (name for name in took if name.startswith(start)):
            yield Target(f"{name}: times same label", target, took[name] / took[f"classes, {name.split(', ')[-1]}"], most=True)


def numerics_targets(found: Found) -> Iterator[Target]:
    """The worst case of every engine of ours; infinite where something was not finite."""
    target = {"float64": 1e-10, "highest": 1e-3, "numba": 1e-3, "torch tiles": 1e-3}
    for name in dict.fromkeys(row["name"] for row in found["rows"] if row["name"].startswith("nearkin")):
        end = next((end for end in target if name.endswith(end)), None)
        if end is not None:
            pairs = [(row["value_error"], row["gradient_error"]) for row in found["rows"] if row["name"] == name]
            worst = max(float("inf") if None in pair else pair[1] for pair in pairs)
            yield Target(f"{name}: largest gradient error of all cases", target[end], worst, most=True)
