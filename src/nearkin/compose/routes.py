"""Routes: the way by which a composition is evaluated, chosen from what its parts declare and from the size of the work.

| route | when | what is held |
|---|---|---|
| streamed | the kernels know the affinity and the relation, and there are many pairs | O((n + m) d) |
| selected | the criterion looks at the best few of each row, and there are many pairs | O((n + m) d + n k) |
| column | each query has at most one positive, at a column that is known | the (n, m) affinities |
| dense | always | affinities, costs and candidates, (n, m) each |

All routes agree to rounding. A part that declares nothing is evaluated densely, and exactly. Nothing else in the library asks what
kind of part it has been given.
"""

from typing import Any, Literal, NamedTuple

from nearkin.compose.metrics import product_form

Route = Literal["dense", "column", "selected", "streamed"]

MANY_PAIRS = 2**22  # below, the matrix is small and the composition itself is as quick
MANY_ON_CUDA = 2**19  # where sums of powers are all that is asked for: a few launches, not a hundred: `python -m bench.small_steps`
MANY_ON_CPU = 2**18  # there the kernels are ahead sooner: `python -m bench.batches`
WIDE_ON_CPU = 384  # dimensions above which the products take most of the time, and as long in both
LISTS_ON_CPU = 8  # times as many pairs, where every positive is listed for itself


class Composition(NamedTuple):
    """The four choices of an objective; each of any class that has what its protocol asks for.

    Parameters
    ----------
    references : References
        Who may be chosen.
    affinity : Affinity
        How near each is.
    relation : Relation
        How near each should be.
    criterion : Criterion
        What the difference costs.

    Examples
    --------
    >>> from nearkin.compose import Composition, InBatch, SameLabel, SquaredEuclidean, any_positive
    >>> Composition(InBatch(), SquaredEuclidean(), SameLabel(), any_positive).criterion
    any_positive
    """

    references: Any
    affinity: Any
    relation: Any
    criterion: Any


def streams(parts: Composition) -> bool:
    """Whether the kernels know this composition: products over all pairs, a laid-out relation, and a soft criterion that fits it."""
    form = product_form(parts.affinity)
    wanted = getattr(parts.criterion, "form", None)
    return form is not None and not form.root and wanted is not None and wanted in getattr(parts.relation, "streams", ())


def selects(parts: Composition) -> bool:
    """Whether the best few of each row are enough, and can be found by products."""
    form = product_form(parts.affinity)
    return form is not None and not form.root and getattr(parts.criterion, "needs", "all") == "best"


def has_columns(parts: Composition, m: int) -> bool:
    """Whether the column of each query's one positive is known; of one answer a class there must be another to choose."""
    kind = getattr(parts.references, "columns", None)
    fits = kind is not None and kind == getattr(parts.criterion, "columns", None) and getattr(parts.relation, "column", None) is not None
    return fits and (kind != "answers" or m > 1)


def _many(parts: Composition, device: str, d: int) -> float:
    """The number of pairs from which on the kernels are ahead."""
    lists = getattr(parts.criterion, "form", None) in ("each", "pairs")
    if device == "cuda":
        return MANY_PAIRS if lists else MANY_ON_CUDA
    return MANY_ON_CPU * max(1.0, d / WIDE_ON_CPU) * (LISTS_ON_CPU if lists else 1) if device == "cpu" else MANY_PAIRS


def plan(parts: Composition, n: int, m: int, device: str, *, d: int = 0, engine: str = "auto", own: bool = True) -> Route:
    """Choose the route for n queries and m references.

    Which kernel a streamed evaluation takes is decided by the device (`nearkin.kernels.choose`) and, on CUDA, by width and precision: above
    256 dimensions (128 with "highest") the matrix library computes the products.

    Parameters
    ----------
    parts : Composition
        What is evaluated.
    n : int
        The number of queries.
    m : int
        The number of references.
    device : str
        "cpu", "cuda", ...: the kernels are ahead sooner on these two.
    d : int, default=0
        The dimensions: on a CPU, the wider, the later are the kernels ahead. 0 counts as few.
    engine : str, default="auto"
        "auto" decides by size; "dense" keeps the matrix; any other name is a kernel that must be used.
    own : bool, default=True
        Whether the references are the objective's own, not ones passed by the caller.

    Returns
    -------
    str
        "dense", "column", "selected" or "streamed".

    Examples
    --------
    >>> from nearkin import NCA
    >>> from nearkin.compose import plan
    >>> plan(NCA().parts, 100, 100, "cpu"), plan(NCA().parts, 10_000, 10_000, "cpu")
    ('dense', 'streamed')
    >>> plan(NCA().parts, 600, 600, "cpu", d=64), plan(NCA().parts, 600, 600, "cpu", d=1024)
    ('streamed', 'dense')
    """
    column = own and has_columns(parts, m)
    if engine not in ("auto", "dense"):
        return "streamed"
    if engine == "auto":
        many = MANY_PAIRS if column else _many(parts, device, d)
        if n * m >= many and streams(parts):
            return "streamed"
        if n * m >= MANY_PAIRS and selects(parts):
            return "selected"
    return "column" if column else "dense"
