"""Checks of values that never make the host wait for the device.

On a CPU a value is read at once, and a wrong one is an error before anything is computed. On CUDA reading it would stall the training step,
so the one or two numbers that a check needs are copied to the host behind the computation, and the next call looks at them: the error then
says that it belongs to an earlier call. Under torch.compile the numbers go through an operator of the graph, which does the same when the
graph runs; on a CPU, where calling Python from a graph takes as long as a tenth of a small batch, they meet torch's own assertion: a
RuntimeError in the same words, without the numbers. While a CUDA graph is captured nothing is checked, unless its owner collects the checks
and sends them after each replay.
"""

import math
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

LARGEST = {torch.float64: 1e150}  # length of all embeddings together, up to which sums of squared distances are finite
LARGEST_FLOAT32 = 1e15
READ_FROM = frozenset(["cpu"])  # kinds of devices whose values are read at once


def may_read(x: Tensor) -> bool:
    """Whether the host may look at what x holds: on CUDA it would wait, and a graph of torch.compile has no values."""
    return x.device.type in READ_FROM and not torch.compiler.is_compiling()


def extremes(x: Tensor) -> list[float]:
    """Lowest and highest of whole numbers on the host."""
    return [float(number) for number in x.aminmax()]


def checked_range(kind: str, numbers: Tensor, about: str, bound: int) -> Tensor:
    """Return whole numbers that lie in 0 .. bound - 1, by the check of this kind.

    Where they cannot be read at once, others are moved into that range, for an index out of bounds would end the whole process on CUDA,
    and the error comes later.
    """
    if may_read(numbers):
        judge(kind, Found(extremes(numbers), about, bound))
        return numbers
    return held(numbers.clamp(0, bound - 1), checked(kind, numbers.aminmax(), about, bound))


def checked(kind: str, facts: Sequence[Tensor], about: str, bound: float = 0.0) -> Tensor | None:
    """Check the numbers of a `kind` of `KINDS`, now or as soon as they have arrived.

    Under torch.compile it may return a 0 that must be added to something that is used, or the graph would drop the check; see `held`.
    """
    check = Check(facts, kind, about, bound)
    if torch.compiler.is_compiling():
        if facts[0].device.type in READ_FROM and not torch.compiler._is_exporting_flag:  # what is exported may move to CUDA
            _assert(check)
            return None
        if not _collections:
            return inspected([check])
        _collections[-1].append(check)
    else:
        _inspect(check)
    return None


def _assert(check: "Check") -> None:
    """Assert it in a graph; warnings are left out."""
    kind, bound = KINDS[check.kind], float(check.bound)
    if not kind.warns:
        torch._assert_async(kind.right(check.facts, bound), kind.wrong(Found([], check.about, bound)))


def held(x: Tensor, zero: Tensor | None) -> Tensor:
    """Return x, which takes the check that gave `zero` along into a graph of torch.compile."""
    return x if zero is None else x + zero.to(x.dtype)


def inspected(checks: "Sequence[Check]") -> Tensor | None:
    """Inspect all collected checks by one operator of a graph of torch.compile; the 0 it returns is for `held`."""
    if not checks:
        return None
    zero: Tensor = torch.ops.nearkin.inspect(numbers_of(checks), "\n".join([_in_words(check) for check in checks]))
    return zero


def _in_words(check: "Check") -> str:
    """A check as a line: an operator takes one string in half the time of lists."""
    return f"{check.kind}\t{check.about}\t{float(check.bound)}\t{len(check.facts)}"


@lru_cache(1024)
def _read(lines: str) -> list[tuple[str, str, float, int]]:
    """What `Sender` needs to know of the checks that these lines are."""
    fields = [line.split("\t") for line in lines.split("\n")]
    return [(kind, about, float(bound), int(count)) for kind, about, bound, count in fields]


def _inspect_numbers(numbers: Tensor, lines: str) -> Tensor:
    if numbers.device.type in READ_FROM:
        give_verdicts(_read(lines), numbers.tolist(), "")
    elif numbers.is_cuda and not torch.cuda.is_current_stream_capturing():
        Sender(_read(lines), numbers).send()
    return numbers.new_zeros(())


def _inspect_nothing(numbers: Tensor, *_: Any) -> Tensor:
    return numbers.new_zeros(())


_operators: Any = torch.library.Library("nearkin", "FRAGMENT")  # type: ignore[no-untyped-call]


def define_operator(schema: str, function: Callable[..., Any], shapes: Callable[..., Any]) -> None:
    """Define an operator for graphs of torch.compile: what it computes, and the shapes that it returns.

    By the lower interface of torch.library, for `custom_op` takes ten times as long to call.
    """
    name = schema[: schema.index("(")]
    _operators.define(schema)
    _operators.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"nearkin::{name}", shapes, lib=_operators)


def pass_gradients_by(name: str) -> None:
    """Let an operator that only functions with gradients of their own call be called without torch's look at gradients."""
    _operators.impl(name, torch.library.fallthrough_kernel, "Autograd")


def refuse_gradients(name: str, words: str) -> None:
    """Let an operator have no derivatives: a gradient through it is an error in these words."""

    def refused(*_: Any) -> None:
        raise RuntimeError(words)

    torch.library.register_autograd(f"nearkin::{name}", refused, lib=_operators)


define_operator("inspect(Tensor numbers, str lines) -> Tensor", _inspect_numbers, _inspect_nothing)


def _inspect(check: "Check") -> None:
    first = check.facts[0]
    if first.device.type in READ_FROM:
        judge(check.kind, Found([float(fact) for fact in check.facts], check.about, check.bound))
    elif _collections:
        _collections[-1].append(check)
    elif first.is_cuda and not torch.cuda.is_current_stream_capturing():  # a capture allows no questions about earlier events
        Sender([check.words()], numbers_of([check])).send()


class Check(NamedTuple):
    """The numbers on the device that a check needs."""

    facts: Sequence[Tensor]
    kind: str
    about: str
    bound: float

    def words(self) -> tuple[str, str, float, int]:
        """What a verdict needs beside the numbers: kind, about, bound, and how many numbers it takes."""
        return self.kind, self.about, self.bound, len(self.facts)


_collections: list[list[Check]] = []  # of computations that are being recorded


@contextmanager
def collected() -> Iterator[list[Check]]:
    """Collect the checks of a computation that is recorded, to be sent after each replay."""
    checks: list[Check] = []
    _collections.append(checks)
    try:
        yield checks
    finally:
        _collections.pop()


def numbers_of(checks: Sequence[Check]) -> Tensor:
    """(k,) the numbers of all checks in float64, in which classes and ids are exact up to 2^53."""
    return torch.stack([fact.detach().double() for check in checks for fact in check.facts])


class Found(NamedTuple):
    """What a check found, and of what."""

    numbers: list[float]  # none in a graph, which has no values
    about: str  # an argument, a table or an objective, for the words
    bound: float
    when: str = ""


class Sender:
    """Copies the numbers of checks to the host behind the computation that wrote them, every time into memory that is free again."""

    def __init__(self, checks: Sequence[tuple[str, str, float, int]], numbers: Tensor) -> None:
        self.checks, self.numbers = checks, numbers
        self.free: list[tuple[Tensor, Any]] = []  # pinned memory, and the event behind a copy to it

    def send(self) -> None:
        """Send them, and look at those that have arrived before."""
        look_at_arrived()
        if self.free:
            mine, there = self.free.pop()
        else:
            mine = torch.empty(len(self.numbers), dtype=torch.float64, device="cpu", pin_memory=True)
            there = torch.cuda.Event()  # type: ignore[no-untyped-call]
        mine.copy_(self.numbers, non_blocking=True)
        there.record()
        _sent.append(_Sent(mine, there, self))


def give_verdicts(checks: Sequence[tuple[str, str, float, int]], numbers: list[float], when: str) -> None:
    """Raise the error, or warn, of what is wrong with the numbers of these checks."""
    start = 0
    for kind, about, bound, count in checks:
        judge(kind, Found(numbers[start : start + count], about, bound, when))
        start += count


class _Sent(NamedTuple):
    """Numbers on their way to the host."""

    numbers: Tensor  # in pinned memory
    there: Any  # the event behind the copy
    sender: Sender


_sent: deque[_Sent] = deque()


def look_at_arrived() -> None:
    """Raise the error of an earlier call on CUDA whose numbers have arrived; it never waits."""
    while _sent and _sent[0].there.query():
        sent = _sent.popleft()
        numbers = sent.numbers.tolist()
        sent.sender.free.append((sent.numbers, sent.there))
        try:
            give_verdicts(sent.sender.checks, numbers, " of an earlier call")
        except ValueError:
            _sent.clear()  # one error for what is wrong with one call
            raise


def largest(dtype: torch.dtype) -> float:
    """The length of all embeddings together, above which their squares may not be summed."""
    return LARGEST.get(dtype, LARGEST_FLOAT32)


def length(x: Tensor) -> Tensor:
    """() the length of all rows together, which is NaN or infinite if any entry is: one pass, and the quickest there is."""
    found: Tensor = torch.linalg.vector_norm(x.detach(), dtype=x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32)
    return found


def broken(name: str, found: float, bound: float, rows: str = "") -> str:
    """What is wrong with embeddings of this length."""
    if math.isfinite(found):
        return (
            f"{name} are as long as {found:.2g} together{rows}; above {bound:.0e} their squares overflow: normalize them, lower the "
            "learning rate, or pass float64"
        )
    return f"{name} contains NaN or infinity{rows}; lower the learning rate, or check the input of these rows"


def _embeddings(found: Found) -> str:
    if not found.numbers:
        return (
            f"{found.about} contains NaN or infinity, or numbers so large that their squares overflow; lower the learning rate, normalize "
            "the embeddings, or check the input"
        )
    return broken(found.about + found.when, found.numbers[0], found.bound)


def _targets(found: Found) -> str:
    return f"{found.about}{found.when} contain NaN or infinity; drop these samples or fill in their targets"


def _sets(found: Found) -> str:
    return f"{found.about}{found.when} contain values other than 0 and 1; label sets must be multi-hot"


def _extent(found: Found) -> str:
    """Which whole numbers were found."""
    return f"run from {int(found.numbers[0])} to {int(found.numbers[1])}" if found.numbers else "hold others"


def _classes(found: Found) -> str:
    return (
        f"{found.about}{found.when} {_extent(found)}, but this objective was built for the classes 0 to {int(found.bound) - 1}; encode "
        "them with nearkin.encode_labels, or build it with more classes"
    )


def _rows(found: Found) -> str:
    fix = "build it for as many samples as there are, numbered from 0"
    return f"ids{found.when} {_extent(found)}, but {found.about} 0 to {int(found.bound) - 1}; {fix}"


def _copies(found: Found) -> str:
    times = f"{int(found.numbers[0])} times" if found.numbers else "often"
    return (
        f"{found.about}{found.when}: a sample occurs {times} among the references, and at most {int(found.bound)} copies of it can be left "
        "out without reading the ids back to the host, so the loss of that call is NaN; draw samples without replacement, or build the "
        "objective with engine='dense'"
    )


UNSTEPPED = UNMOVED = 300  # calls after which a missing step or update is said: more than gradients are accumulated over
_told: set[str] = set()  # what was warned of in this process


def warn_once(about: str, words: str) -> None:
    """Warn of this once in a process."""
    if about not in _told:
        _told.add(about)
        warnings.warn(words, stacklevel=2)


def _two_classes(found: Found) -> str:
    return (
        f"{found.about}: the labels of a batch{found.when} contain one class only, so there are no negatives: its loss is 0 and all "
        "of its queries are skipped. Draw batches with at least two classes (if it is a short last batch, set drop_last=True in the "
        "DataLoader). This is said once."
    )


def _unstepped(found: Found) -> str:
    return (
        f"{found.about} was called {UNSTEPPED} times, gradients of its parameters pile up, and no optimizer moves them: give it "
        "[*network.parameters(), *objective.parameters()], or learned class vectors, thresholds and temperatures stay as they started. "
        "This is said once."
    )


class Kind(NamedTuple):
    """A kind of check."""

    right: Callable[[Sequence[Any], float], Any]  # of numbers, or of tensors of one, and a bound: whether they are as they must be
    wrong: Callable[[Found], str]  # the words if they are not
    warns: bool = False  # once in a process, instead of an error


def _in_range(numbers: Sequence[Any], bound: float) -> Any:
    """Whether the lowest and the highest number count something; a negative index would silently count from the end."""
    return (numbers[0] >= 0) & (numbers[1] < bound)


def _is_true(numbers: Sequence[Any], _: float) -> Any:
    return numbers[0] != 0


def _at_most(numbers: Sequence[Any], bound: float) -> Any:
    """Also False for NaN."""
    return numbers[0] <= bound


KINDS = {
    "embeddings": Kind(_at_most, _embeddings),  # their length together
    "targets": Kind(_is_true, _targets),  # whether all are finite
    "sets": Kind(_is_true, _sets),  # whether all are 0 or 1
    "classes": Kind(_in_range, _classes),
    "rows": Kind(_in_range, _rows),  # of what `about` names
    "copies": Kind(_at_most, _copies),  # the most times that a sample occurs
    "two classes": Kind(_is_true, _two_classes, warns=True),  # whether there are two
    "unstepped": Kind(lambda numbers, _: numbers[0] == 0, _unstepped, warns=True),  # whether the parameters are what they were
}


def judge(name: str, found: Found) -> None:
    """Raise the error, or warn, if the numbers are wrong for this kind of check."""
    kind = KINDS[name]
    if kind.right(found.numbers, found.bound):
        return
    if not kind.warns:
        raise ValueError(kind.wrong(found))
    warn_once(f"{found.about}: {name}", kind.wrong(found))
