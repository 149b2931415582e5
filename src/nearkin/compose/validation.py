"""Checks of plain arguments, each written once: whole numbers, positive numbers, shares, choices, finite values.

Every check raises an error that names the argument, its value, what is allowed and, where it helps, why. This module imports nothing
heavy, so that the command line can refuse a bad setting before torch is loaded.
"""

import difflib
import math
from collections.abc import Collection, Iterable
from numbers import Integral, Real
from typing import Any


def check_whole(name: str, value: Any, least: int = 1, why: str = "") -> int:
    """Return `value` as an int if it is a whole number of at least `least`; a bool is no number."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} ({value!r}) must be a whole number of at least {least}" + (f": {why}" if why else ""))
    return int(value)


def check_positive(name: str, value: Any, why: str = "") -> float:
    """Return `value` as a float if it is a finite number above 0."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) < math.inf:
        raise ValueError(f"{name} ({value!r}) must be a finite number above 0" + (f": {why}" if why else ""))
    return float(value)


def check_share(name: str, value: Any, why: str = "", *, below_one: bool = False) -> float:
    """Return `value` as a float if it lies between 0 and 1; with `below_one`, 1 itself is refused."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) <= 1 or (below_one and value == 1):
        allowed = "at least 0 and below 1" if below_one else "between 0 and 1"
        raise ValueError(f"{name} ({value!r}) must be {allowed}" + (f": {why}" if why else ""))
    return float(value)


def check_device(name: str, value: str) -> None:
    """Raise a ValueError if torch cannot use a device; torch itself raises errors of several kinds."""
    import torch

    try:
        torch.zeros(1, device=value)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{name} {value!r} cannot be used here ({reason}); use cpu, or leave it out") from error


def check_choice(name: str, value: Any, allowed: Collection[str]) -> str:
    """Return `value` if it is one of a few names; an unknown one is answered with the nearest of them, and all."""
    if value not in allowed:
        raise ValueError(f"{name} {value!r} is unknown{nearest_name(str(value), allowed)}; choose one of {', '.join(allowed)}")
    return str(value)


def nearest_name(name: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the nearest known one as a guess, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def check_finite(name: str, values: Any, fix: str = "remove these rows", first: int = 0) -> Any:
    """Return `values`, an array or tensor with one row per sample, if all are finite; `first` is the number of row 0."""
    finite = abs(values) < math.inf  # NaN is below nothing
    if not bool(finite.all()):
        rows = [first + row for row, whole in enumerate(finite.reshape(len(finite), -1).all(1).tolist()) if not whole]
        raise ValueError(f"{name} hold NaN or infinity in {len(rows):,} rows, first in {rows[:5]}; {fix}")
    return values
