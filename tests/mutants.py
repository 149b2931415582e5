"""A small mutation tester for the composition: `python -m tests.mutants [--minutes 20] [--seed 0] [--only criterion]`.

Each mutant is one change of one module (a sign, a comparison, a mask, a constant, min for max), made in a temporary copy
of the package. The quick tests that concern the module run on it with pytest -x; a mutant that no test kills is a
survivor. The exit status is 1 if a survivor is not among the equivalents listed below, each with its reason.

Mutants are forked from one process that has imported torch and pytest but nothing of nearkin.
"""

import argparse
import ast
import copy
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: a forked child has one thread

import hypothesis
import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "nearkin"
ROOM = "compose"  # whose modules are changed
TESTS = {
    "criterion": ("tests/compose/test_criterion.py", "tests/objectives/test_laws.py", "tests/objectives/test_traps.py"),
    "log_sums": ("tests/compose/test_log_sums.py", "tests/compose/test_criterion.py", "tests/objectives/test_laws.py"),
    "triplets": (
        "tests/compose/test_criterion.py",
        "tests/compose/test_triplets.py",
        "tests/objectives/test_laws.py",
        "tests/objectives/test_traps.py",
    ),
    "relation": ("tests/compose/test_relation.py", "tests/objectives/test_inputs.py", "tests/objectives/test_traps.py"),
    "affinity": ("tests/compose/test_affinity.py", "tests/search/test_exact.py", "tests/objectives/test_traps.py"),
}
NOT_READ = "a filler where the row has nothing: what comes of it is replaced or subtracted from itself"
EQUIVALENT = {
    "log_sums._weighted: return (counts, x + torch.where(counts, share, 1).log()) | 1 -> 2": NOT_READ,
    "log_sums._summed: return ((top + sums.log())[:, 0], shares.div_(sums.masked_fill(empty, 1.0))) | 1.0 -> 2.0": NOT_READ,
    "log_sums._summed: _exponentials(shares, top.masked_fill(empty, 0.0)) | 0.0 -> 1.0": NOT_READ,
    "log_sums._together: safe = torch.minimum(whole, part) >= 100000.0 * LEAST / torch.finfo(x.dtype).eps | 100000.0 -> 100001.0": (
        "either is far enough"
    ),
    "log_sums._together: safe = torch.minimum(whole, part) >= 100000.0 * LEAST / torch.finfo(x.dtype).eps | torch.minimum(whole, part) >= "
    "100000.0 * LEAST / torch.finfo(x.dtype).eps -> torch.minimum(whole, part) > 100000.0 * LEAST / torch.finfo(x.dtype).eps": (
        "the border is right either way"
    ),
    "log_sums.: FAR = 69.0 | 69.0 -> 70.0": "what lies below LEAST becomes zero",
    "log_sums._apart: zero = torch.zeros_like(whole) | torch.zeros_like -> torch.ones_like": NOT_READ,
    "criterion._first: order = x.masked_fill(~mask, -torch.inf).argsort(dim=1, descending=True, stable=True) | True -> False #2": (
        "torch sorts stably on the CPU unasked; on CUDA it does not"
    ),
    "criterion.soft_hinge: return softplus(x, threshold=40) | 40 -> 41": "exact in float64 on both sides",
    "triplets._semi_hard: inside = (nearer < count[:, None]) & (farther > fixed - margin) | nearer < count[:, None] -> "
    "nearer <= count[:, None]": "behind the last negative stands -inf, which is never inside the margin",
    "triplets._semi_hard: inside = (nearer < count[:, None]) & (farther > fixed - margin) | (nearer < count[:, None]) & "
    "(farther > fixed - margin) -> (nearer < count[:, None]) | (farther > fixed - margin)": "beyond the margin any negative costs nothing",
    "triplets._semi_hard: inside = (nearer < count[:, None]) & (farther > fixed - margin) | farther > fixed - margin -> "
    "farther >= fixed - margin": "at the margin it costs nothing, like the farthest",
    "triplets.drawn_by: below = torch.nextafter(total, torch.zeros_like(total)) | torch.zeros_like -> torch.ones_like": (
        "the largest weight is 1, and a total of just 1 is not reached by rounding"
    ),
    "triplets.Triplets._drawn: weight = torch.where(some[:, None], log_weight - log_weight.amax(1, keepdim=True), 0.0).exp() | "
    "0.0 -> 1.0": NOT_READ,
    "triplets.Triplets._drawn: square = (2 - 2 * affinity.detach()).clamp(self.nearest ** 2, 3.999) | 3.999 -> 4.9990000000000006": (
        "nothing is drawn beyond `farthest`; the clip only keeps the log there finite"
    ),
}

MEMORY = 12 * 2**30
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")

OPERATORS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.LtE: (ast.Lt,),
    ast.GtE: (ast.Gt,),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
SWAPS = {"min": "max", "amin": "amax", "minimum": "maximum", "any": "all", "zeros_like": "ones_like"}
SWAPS |= {new: old for old, new in SWAPS.items()}


@dataclass(frozen=True)
class Mutant:
    """One change: where, what it was, and what it became."""

    module: str
    where: str
    change: str
    source: str

    @property
    def name(self) -> str:
        return f"{self.module}.{self.where}: {self.change}"


def spots(node: ast.AST, where: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Every node that may be changed; not annotations, docstrings, decorators or the words of an error."""
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        where = f"{where}.{node.name}".lstrip(".")
    yield node, where
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns", "decorator_list", "slice_type") and not (
            isinstance(node, ast.AnnAssign) and field == "target"
        ):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from spots(child, where)


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the node's place."""
    if isinstance(node, ast.BinOp | ast.BoolOp):
        for new in OPERATORS.get(type(node.op), ()):
            yield altered(node, op=new())
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        for new in OPERATORS.get(type(node.ops[0]), ()):
            yield altered(node, ops=[new()])
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value + 1 != node.value:
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.Attribute) and node.attr in SWAPS:
        yield altered(node, attr=SWAPS[node.attr])
    elif isinstance(node, ast.Name) and node.id in SWAPS:
        yield altered(node, id=SWAPS[node.id])


def altered(node: ast.AST, **fields: object) -> ast.AST:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


class Replace(ast.NodeTransformer):
    """Put one node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def mutants(module: str) -> list[Mutant]:
    text = (PACKAGE / ROOM / f"{module}.py").read_text()
    count = sum(1 for node, _ in spots(ast.parse(text)) for _ in changes(node))
    found: list[Mutant] = []
    for index in range(count):
        tree = ast.parse(text)
        pairs = [(node, where, new) for node, where in spots(tree) for new in changes(node)]
        old, where, new = pairs[index]
        change = f"{statement(tree, old)} | {ast.unparse(old)} -> {ast.unparse(new)}"
        twins = sum(m.where == where and m.change.split(" #")[0] == change for m in found)
        change += f" #{twins + 1}" if twins else ""
        found.append(Mutant(module, where, change, ast.unparse(ast.fix_missing_locations(Replace(old, new).visit(tree)))))
    return found


def statement(tree: ast.AST, node: ast.AST) -> str:
    """The first line of the smallest statement around a node."""
    around = [s for s in ast.walk(tree) if isinstance(s, ast.stmt) and any(n is node for n in ast.walk(s))]
    return ast.unparse(min(around, key=lambda s: sum(1 for _ in ast.walk(s)))).splitlines()[0]


def green(package: Path, tests: tuple[str, ...], limit: float) -> bool:
    """Whether the tests pass on a copy of the package; too slow is a failure."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.chdir(ROOT)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))  # a mutant may loop and grow
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1), os.dup2(silent, 2)
            status = int(pytest.main([*tests, *OPTIONS, "-o", f"pythonpath={ROOT} {package}"]))
        finally:
            os._exit(status)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def survives(mutant: Mutant, package: Path, limit: float) -> bool:
    path = package / "nearkin" / ROOM / f"{mutant.module}.py"
    original = path.read_text()
    path.write_text(mutant.source)
    try:
        return all(green(package, (test,), limit) for test in TESTS[mutant.module])
    finally:
        path.write_text(original)


def run(chosen: list[str], minutes: float, seed: int) -> int:
    end = time.monotonic() + 60 * minutes
    pool = [mutant for module in chosen for mutant in mutants(module)]
    random.Random(seed).shuffle(pool)
    killed, tried, unexplained = 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder)
        shutil.copytree(PACKAGE, package / "nearkin", ignore=shutil.ignore_patterns("__pycache__"))
        start = time.monotonic()
        for module in chosen:
            if not all(green(package, (test,), 600) for test in TESTS[module]):
                print(f"the tests of {module} fail without any mutant; fix them first")
                return 1
        limit = 30 + 3 * (time.monotonic() - start)
        for module in chosen:  # what the first run compiled; a mutant may be written within the clock's tick of its neighbor
            for compiled in (package / "nearkin" / ROOM / "__pycache__").glob(f"{module}.*"):
                compiled.unlink()
        sys.dont_write_bytecode = True
        for mutant in pool:
            if time.monotonic() > end:
                break
            tried += 1
            if mutant.name in EQUIVALENT or not survives(mutant, package, limit):
                killed += mutant.name not in EQUIVALENT
                continue
            unexplained += 1
            print(f"survivor: {mutant.name}", flush=True)
    equivalent = tried - killed - unexplained
    print(f"killed {killed} of {tried} ({len(pool)} there are; {equivalent} equivalent, {unexplained} survivors)")
    return 1 if unexplained else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutants of the core that the quick tests let live.")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=sorted(TESTS), action="append")
    options = parser.parse_args()
    assert "nearkin" not in sys.modules and torch and hypothesis
    return run(options.only or list(TESTS), options.minutes, options.seed)


if __name__ == "__main__":
    raise SystemExit(main())
