"""Checks of an objective's arguments: embeddings, labels, ids, references. Errors name the argument, the value and the fix."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearkin.compose.outcome import REDUCTIONS, Outcome
from nearkin.compose.points import EMPTY, Points
from nearkin.compose.relation import Supervision
from nearkin.compose.validation import check_choice
from nearkin.compose.value_checks import broken, checked, checked_range, extremes, held, largest, length, may_read

KEPT = (torch.float32, torch.float64)
HALF = (torch.bfloat16, torch.float16)
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_embeddings(embeddings: Any, name: str = "embeddings") -> Tensor:
    """Return a finite (n, d) float tensor; 16 and 8 bits become float32, where exponentials are safe."""
    check_shape(embeddings, name)
    return check_finite_embeddings(embeddings, name)


def check_shape(embeddings: Any, name: str = "embeddings") -> None:
    """Check that embeddings are an (n, d) float tensor, without a look at their values."""
    if not isinstance(embeddings, Tensor) or not embeddings.is_floating_point():
        kind = embeddings.dtype if isinstance(embeddings, Tensor) else type(embeddings).__name__
        raise TypeError(f"{name} must be a float tensor, not {kind}; pass the network's output")
    if embeddings.ndim != 2:
        raise ValueError(
            f"{name} has shape {tuple(embeddings.shape)}; it must be (n, d), one row for each sample; flatten the other dimensions"
        )
    if 0 in embeddings.shape:
        raise ValueError(f"{name} is empty, shape {tuple(embeddings.shape)}; a batch needs at least one row and one column")


def check_finite_embeddings(embeddings: Tensor, name: str = "embeddings", keeps_half: bool = False) -> Tensor:
    """Return embeddings whose squares can be summed; 16 and 8 bits become float32, where exponentials are safe, unless kernels do that."""
    kept = KEPT + HALF if keeps_half else KEPT
    converted: Tensor = embeddings if embeddings.dtype in kept else embeddings.float()
    return _not_too_long(converted, name, largest(converted.dtype))


def _not_too_long(x: Tensor, name: str, bound: float) -> Tensor:
    """Return x if all its rows together are finite and no longer than a bound; where it cannot be read at once the error comes later."""
    found = length(x)
    if not may_read(x):
        return held(x, checked("embeddings", [found], name, bound))
    if not float(found) <= bound:
        raise ValueError(_broken(x.detach().double(), name, bound))
    return x


def _broken(x: Tensor, name: str, bound: float) -> str:
    """What is wrong with these embeddings, and in which rows."""
    bad = ~torch.isfinite(x).all(1)
    peak = x.abs().amax(1)
    found = torch.nan if bad.any() else min(float(peak.max()) * float((x / peak.max()).norm()), torch.finfo(x.dtype).max)
    rows = bad if bad.any() else peak > 1e-3 * peak.max()
    return broken(name, found, bound, f", first in rows {rows.nonzero()[:5, 0].tolist()}")


def check_not_mapped(embeddings: Any) -> None:
    """Refuse tensors of torch.func.vmap: an objective compares the rows of one batch, and reads and checks that batch."""
    if torch.compiler.is_compiling() or not isinstance(embeddings, Tensor):
        return
    while torch._C._functorch.is_functorch_wrapped_tensor(embeddings):
        if torch._C._functorch.is_batchedtensor(embeddings):
            raise RuntimeError(
                "torch.func.vmap does not work on objectives: each compares the rows of one batch; call it once for every batch, in a "
                "loop. torch.func.grad works"
            )
        embeddings = torch._C._functorch.get_unwrapped(embeddings)


def check_labels(labels: Any, supervision: Supervision, like: Tensor, name: str = "labels") -> Tensor | None:
    """Return labels of the kind that the relation reads, on the embeddings' device, whatever their values; None if it reads ids."""
    if supervision == "ids":
        return None
    if labels is None:
        raise ValueError(f"{name} are missing: pass {_EXPECTED[supervision]}")
    labels = _as_tensor(labels, name, like.device)
    if len(labels) != len(like):
        raise ValueError(f"{name} has {len(labels)} entries for {len(like)} embeddings; pass one for each")
    if supervision == "classes":
        return _check_classes(labels, name)
    if supervision == "sets" and labels.ndim != 2:
        raise ValueError(f"{name} has shape {tuple(labels.shape)}; label sets must be (n, C), one column for each label")
    if supervision == "numbers" and (labels.ndim > 2 or labels.is_complex()):
        raise ValueError(f"{name} has shape {tuple(labels.shape)}; targets must be real numbers of shape (n,) or (n, t)")
    return labels  # type: ignore[no-any-return]


def check_label_values(labels: Tensor | None, supervision: Supervision, like: Tensor, name: str = "labels") -> Tensor | None:
    """Return these labels if sets are zeros and ones and numbers finite; numbers become (n, t) of the type of `like`."""
    if labels is None or supervision == "classes":
        return labels
    if supervision == "sets":
        return held(labels, checked("sets", [((labels == 0) | (labels == 1)).all()], name))
    return _check_numbers(labels, like, name)


_EXPECTED = {
    "classes": "one integer class for each embedding, shape (n,)",
    "numbers": "the targets, shape (n,) or (n, t)",
    "sets": "multi-hot label sets of zeros and ones, shape (n, C)",
}


def _as_tensor(values: Any, name: str, device: torch.device) -> Tensor:
    if not isinstance(values, Tensor):
        array = np.array(values)  # a copy: torch accepts neither read-only nor reversed arrays
        if array.dtype.kind in "USO":
            raise TypeError(
                f"{name} have dtype {array.dtype}, not numbers; encode names first: codes, classes = nearkin.encode_labels({name})"
            )
        values = torch.from_numpy(array)
    if values.ndim == 0:
        raise ValueError(f"{name} is a single value; pass one entry for each embedding")
    if values.device == device:
        return values  # type: ignore[no-any-return]
    if device.type == "cuda" and values.device.type == "cpu" and values.is_pinned():
        values = values.clone()  # the caller may fill pinned memory again before the copy has been made
    placed: Tensor = values.to(device, non_blocking=device.type == "cuda")
    return placed


def _check_classes(labels: Tensor, name: str) -> Tensor:
    if labels.ndim != 1:
        raise ValueError(
            f"{name} has shape {tuple(labels.shape)}; classes must be (n,). For multi-hot label sets use "
            "NCA(relation=LabelOverlap()), for numbers use NCARegression()"
        )
    if labels.is_floating_point() or labels.is_complex():
        raise TypeError(
            f"{name} have dtype {labels.dtype}; classes must be integers. For numbers use NCARegression(), for classes convert with .long()"
        )
    return labels.long() if labels.dtype in WHOLE or labels.dtype == torch.bool else labels.to(torch.int64)


def _check_numbers(labels: Tensor, like: Tensor, name: str) -> Tensor:
    if may_read(labels):
        if not bool(torch.isfinite(labels).all()):
            rows = (~torch.isfinite(labels.reshape(len(labels), -1))).any(1).nonzero()[:5, 0].tolist()
            raise ValueError(f"{name} contain NaN or infinity, first in rows {rows}; drop these samples or fill in their targets")
        zero = None
    else:
        zero = checked("targets", [torch.isfinite(labels).all()], name)
    return held(labels.reshape(len(labels), -1).to(torch.float32 if like.dtype in HALF else like.dtype), zero)


def check_ids(ids: Any, like: Tensor, name: str = "ids") -> Tensor | None:
    """Return integer ids (n,), or None."""
    if ids is None:
        return None
    ids = _as_tensor(ids, name, like.device)
    if ids.dtype not in WHOLE:
        raise TypeError(f"{name} have dtype {ids.dtype}; ids must be integers, the samples' numbers in the data set")
    if ids.shape != (len(like),):
        raise ValueError(f"{name} has shape {tuple(ids.shape)} for {len(like)} embeddings; pass one integer for each")
    whole: Tensor = ids.long()
    return whole


def as_points(references: Any) -> Points:
    """Return the references= of a call as Points."""
    if not isinstance(references, tuple) or not 1 <= len(references) <= 3:
        raise TypeError(f"references must be Points(embeddings, labels, ids), not {type(references).__name__}")
    return Points(*references)


def check_references(references: Any, batch: Points, supervision: Supervision) -> Points:
    """Return the references= of a call, checked and converted as the batch was."""
    passed = as_points(references)
    embeddings = check_embeddings(passed.embeddings, "references.embeddings").to(batch.embeddings.dtype)
    if embeddings.device != batch.embeddings.device:
        raise ValueError(f"references are on {embeddings.device} and embeddings on {batch.embeddings.device}; move them to the same device")
    if embeddings.shape[1] != batch.embeddings.shape[1]:
        raise ValueError(
            f"references have {embeddings.shape[1]} dimensions and embeddings {batch.embeddings.shape[1]}; "
            "compute both with the same network"
        )
    labels = check_labels(passed.labels, supervision, embeddings, "references.labels")
    labels = check_label_values(labels, supervision, embeddings, "references.labels")
    if labels is not None and batch.labels is not None and labels.shape[1:] != batch.labels.shape[1:]:
        raise ValueError(
            f"references.labels have shape {tuple(labels.shape)} and labels {tuple(batch.labels.shape)}; "
            "both need the same number of columns"
        )
    ids = check_ids(passed.ids, embeddings, "references.ids")
    if ids is None or batch.ids is None:
        raise ValueError(
            "references= needs ids on both sides, to know which reference is the query itself: pass ids= for the batch and "
            "Points(embeddings, labels, ids) for the references, with equal ids for the same sample. "
            "For references that are none of the queries use ids=nearkin.compose.fresh_ids(m)"
        )
    return Points(embeddings, labels, ids)


def check_dimension(embeddings: Tensor, dimension: int | None) -> None:
    """Check that embeddings are as wide as the objective's own class vectors or bank."""
    if dimension is not None and embeddings.shape[1] != dimension:
        raise ValueError(
            f"embeddings have {embeddings.shape[1]} dimensions, but this objective was built for {dimension}; "
            "build it with dimension= the network's output size"
        )


INSTEAD = {
    "ref_emb": "write ids=torch.arange(len(embeddings)), "
    "references=nearkin.Points(ref_emb, ref_labels, nearkin.compose.fresh_ids(len(ref_emb)))",
    "indices_tuple": "choosing pairs is part of an objective, such as Triplet('hard') or MultiSimilarity(), so that no pairs are passed",
}
INSTEAD["ref_labels"] = INSTEAD["ref_emb"]


def refuse_unknown(misplaced: tuple[Any, ...], unknown: dict[str, Any]) -> None:
    """Refuse arguments that a call does not take, with what to write in the place of those of pytorch-metric-learning."""
    if misplaced or unknown:
        name = next(iter(unknown), "indices_tuple")
        known = "it takes embeddings, labels, ids=, references= and reduction="
        given = f"argument {name!r}" if unknown else f"third argument by position, {type(misplaced[0]).__name__}"
        raise TypeError(f"an objective takes no {given}; {INSTEAD.get(name, known)}")


def check_reduction(reduction: str) -> None:
    """Check that reduction is mean, sum or none."""
    check_choice("reduction", reduction, REDUCTIONS)


def check_known(labels: Tensor, count: int) -> Tensor:
    """Return labels that are among the C classes of the anchors, proxies or centers."""
    return checked_range("classes", labels, "labels", count)


def check_two_classes(*labels: Tensor, objective: str = "the objective") -> Tensor | None:
    """Warn, once, if queries and references hold one class only; empty slots have none. A single point is allowed, and skipped.

    Returns
    -------
    Tensor or None
        () bool, whether there are two classes, for `contrasted`; None where there are.
    """
    if all(len(some) <= 1 for some in labels):
        return None
    if may_read(labels[0]):
        low, high = extremes(labels[0])
        if low != high:  # the common case: the queries alone have two
            return None
    first = labels[0][0]
    two = (labels[0] != first).any()
    for some in labels[1:]:
        if some is not labels[0]:
            two = two | ((some != first) & (some != EMPTY)).any()
    zero = checked("two classes", [two], objective)
    if may_read(two):
        return None if bool(two) else two
    return two if zero is None else two & (zero == 0)


def contrasted(outcome: Outcome, two: Tensor | None) -> Outcome:
    """Return the outcome, or one in which every query is skipped where `two`, of `check_two_classes`, says that there is one class."""
    if two is None:
        return outcome
    values, weight, active = (torch.where(two, part, 0) for part in outcome[:3])
    return Outcome(values, weight, active, outcome.clamped)


def check_twice(ids: Tensor) -> None:
    """Check that every id occurs exactly twice: the two views of a sample."""
    if not may_read(ids):  # a wrong number of views shows in the shapes or the value
        return
    ranked = ids.sort().values
    pairs = ranked[: len(ranked) // 2 * 2].reshape(-1, 2)
    if len(ranked) % 2 or bool((pairs[:, 0] != pairs[:, 1]).any()) or bool((pairs[1:, 0] == pairs[:-1, 0]).any()):
        raise ValueError(
            "ids must occur exactly twice each, for the two views of every sample: pass torch.cat([first, second]) with "
            "ids=torch.cat([ids, ids]); in `nearkin train` set views=2"
        )


def check_fourth_powers(embeddings: Tensor) -> Tensor:
    """Return embeddings whose fourth powers can be summed, as squared covariances are: a bound lower than that of squares."""
    return _not_too_long(embeddings, "embeddings", math.sqrt(largest(embeddings.dtype)))
