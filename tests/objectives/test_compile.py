"""torch.compile takes every objective as one graph, for any batch size, and computes what the objective computes without it."""

import copy
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter, CompileCounterWithBackend

from bench.catalog import CLASSES, DIMENSION, SIZE, Batch, Case, batch, cases, leaves
from nearkin.compose import InBatch, SameLabel, SquaredEuclidean, any_positive, each_positive, routes
from nearkin.compose.points import Points
from nearkin.objectives import (
    NCA,
    ArcFace,
    Contrastive,
    FastAP,
    InfoNCE,
    InstanceDiscrimination,
    NCARegression,
    NeighborhoodDiscovery,
    NeighborhoodObjective,
    NPair,
    Objective,
    Softmax,
    SupCon,
    Triplet,
    one_operator,
)

every = pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
each = pytest.mark.parametrize("case", cases(options=False), ids=lambda case: case.name)
DRAWS = "Triplet, choice=distance-weighted"
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),  # torch.compile's own
    pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning"),
]


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def found(call: Any, objective: Any, some: Batch) -> list[Tensor]:
    """Value and gradients of the embeddings and of the objective's own vectors."""
    live = some.embeddings.detach().requires_grad_()
    torch.manual_seed(3)
    loss = call(live, some.labels, ids=some.ids)
    gradients = torch.autograd.grad(loss, leaves(objective, live), allow_unused=True, materialize_grads=True)
    return [loss.detach(), *gradients]


def compared(objective: Any, backend: Any, sizes: tuple[int, ...], rtol: float = 1.3e-6, atol: float = 1e-5, **how: Any) -> None:
    """The compiled objective next to itself, with an update between any two steps."""
    compiled = torch.compile(objective, fullgraph=True, backend=backend, **how)
    for n in sizes:
        some = batch(objective.supervision, n)
        torch.testing.assert_close(found(compiled, objective, some), found(objective, objective, some), rtol=rtol, atol=atol)
        objective.update(some.embeddings, some.labels, ids=some.ids)


@each
def test_every_objective_is_one_graph_that_stays(case: Case) -> None:
    counter = CompileCounter()
    compared(case.build(), counter, (32, 32))
    assert counter.frame_count == 1, "state moves, and the graph stays"


@each
@pytest.mark.parametrize("grad", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_the_loss_of_held_out_points_is_the_same(case: Case, grad: bool) -> None:
    """Compiled while nothing is recorded, as in a validation loop, or of points that take no gradient."""
    objective = case.build()
    some = batch(objective.supervision, 32)
    losses = []
    for call in (objective, torch.compile(objective, fullgraph=True, backend="eager")):
        torch.manual_seed(3)
        with torch.set_grad_enabled(grad):
            losses.append(call(some.embeddings.detach(), some.labels, ids=some.ids).detach())
    torch.testing.assert_close(losses[1], losses[0], rtol=1.3e-6, atol=1e-5)


@pytest.mark.parametrize("learned", [False, True])
def test_two_sides_are_one_graph(learned: bool) -> None:
    objective, counter = InfoNCE(learn_temperature=learned), CompileCounter()
    compiled = torch.compile(objective, fullgraph=True, backend=counter)
    for n in (32, 32):
        sides = [batch("ids", n, dtype=kind).embeddings.float().requires_grad_() for kind in (torch.float32, torch.bfloat16)]
        ids = torch.arange(n)
        results = []
        for call in (objective, compiled):
            loss = call(sides[0], ids=ids, references=Points(sides[1], None, ids.flip(0)))
            results.append([loss.detach(), *torch.autograd.grad(loss, [*sides, *objective.parameters()])])
        torch.testing.assert_close(*results)
    assert counter.frame_count == 1


@pytest.mark.parametrize("make", [NCA, lambda: Softmax(CLASSES, DIMENSION)])
def test_one_graph_for_any_size(make: Any) -> None:
    counter = CompileCounter()
    compared(make(), counter, (32, 24, 40), dynamic=True)
    assert counter.frame_count == 1


@pytest.mark.soak
@every
def test_one_graph_for_any_size_of_every_objective(case: Case) -> None:
    objective, counter = case.build(), CompileCounter()
    compared(objective, counter, (32, 24, 40, 34))
    assert counter.frame_count <= 2, "one graph for the first size, and one for all others"
    last = objective.last
    while isinstance(last, dict):  # of a weighted sum
        last = next(iter(last.values()))
    assert last.queries == 34


@pytest.fixture
def everyday(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU counts as a device that waits for the host."""
    monkeypatch.setattr(one_operator, "DEVICES", frozenset(["cpu"]))


ONE = ("NCA", "NCARegression", "ArcFace", "InstanceDiscrimination", "PrecisionAtK", "CenterLoss")


@pytest.mark.parametrize("case", [case for case in cases(options=False) if case.name in ONE], ids=lambda case: case.name)
def test_everyday_batches_are_one_operator(case: Case, everyday: None) -> None:
    """Values, gradients, counts and the state that moves, with one graph for the first size and one for all others."""
    objective, counter = case.build(), CompileCounterWithBackend("aot_eager")
    compared(objective, counter, (32, 32, 24, 40))
    assert counter.frame_count <= 2
    names = [str(node.target) for graph in counter.graphs for node in graph.graph.nodes if node.op == "call_function"]
    assert sum("autograd_function_apply" in name for name in names) >= 1 and not any("mm" in name for name in names)


def test_settings_that_change_are_seen_by_the_operator_and_copies_are_their_own(everyday: None) -> None:
    objective, some = NCA(), batch("classes", 12)
    compiled = torch.compile(objective, fullgraph=True, backend="aot_eager")
    live = some.embeddings.requires_grad_()
    torch.testing.assert_close(compiled(live, some.labels), NCA()(live, some.labels))
    objective.affinity = SquaredEuclidean(0.1)
    torch.testing.assert_close(compiled(live, some.labels), NCA(temperature=0.1)(live, some.labels))
    other = copy.deepcopy(objective)
    other.affinity = SquaredEuclidean(3.0)
    copied = torch.compile(other, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(copied(live, some.labels), NCA(temperature=3.0)(live, some.labels))
    torch.testing.assert_close(compiled(live, some.labels), NCA(temperature=0.1)(live, some.labels))
    assert objective.last is not None and objective.last.valid == 12


def test_wrong_values_are_errors_in_words_inside_of_the_operator(everyday: None) -> None:
    some = batch("classes", 12)
    softmax = torch.compile(Softmax(3, DIMENSION), fullgraph=True, backend="aot_eager")
    live = some.embeddings.requires_grad_()
    with pytest.raises(ValueError, match="labels run from 0 to 3, but this objective was built for the classes 0 to 2"):
        softmax(live, some.labels)
    with pytest.raises(ValueError, match="labels has 11 entries for 12 embeddings"):
        softmax(live, some.labels[:11])
    assert softmax(live, some.labels % 3).isfinite()


def test_half_precision_goes_in_and_its_gradient_comes_out(everyday: None) -> None:
    objective, some = NCA(), batch("classes", 12)
    live, plain = (some.embeddings.half().requires_grad_() for _ in range(2))
    loss = torch.compile(objective, fullgraph=True, backend="aot_eager")(live, some.labels)
    expected = objective(plain, some.labels)
    (2.0**10 * loss).backward()
    (2.0**10 * expected).backward()
    assert loss.dtype == torch.float32 and live.grad is not None and live.grad.dtype == torch.float16
    torch.testing.assert_close([loss.detach(), live.grad], [expected.detach(), plain.grad])


@dataclass
class Scaled:
    """A caller's affinity whose setting changes, and which reads a constant of the caller's module."""

    scale: float = 1.0

    def __call__(self, queries: Tensor, references: Tensor) -> Tensor:
        return queries @ references.T * (self.scale * FACTOR)


FACTOR = 1.0


def test_no_guards_on_code_and_all_on_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever changes in the objective, in its parts, in the arguments and in the caller's own module is seen."""
    counter, some = CompileCounter(), batch("classes", 12)
    objective = NeighborhoodObjective(InBatch(), Scaled(), SameLabel(), any_positive)
    compiled = torch.compile(objective, fullgraph=True, backend=counter)

    def agrees(count: int, **how: Any) -> None:
        torch.testing.assert_close(compiled(some.embeddings, some.labels, **how), objective(some.embeddings, some.labels, **how))
        assert counter.frame_count == count

    agrees(1)
    agrees(1)
    objective.affinity.scale = 0.5
    agrees(2)
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 2.0)
    agrees(3)
    objective.criterion = each_positive
    agrees(4)
    agrees(5, reduction="sum")
    agrees(6, ids=some.ids)
    agrees(6, ids=some.ids)


def test_few_guards_are_left() -> None:
    objective, some = NCA(), batch("classes", 12)
    torch.compile(objective, fullgraph=True, backend="eager")(some.embeddings, some.labels)
    (entry,) = torch._dynamo.eval_frame._debug_get_cache_entry_list(Objective.forward.__code__)
    words = str(entry.guard_manager)
    assert words.count("_MATCH: ") < 60 and "__import_nearkin_dot_compose_dot_routes" not in words
    assert "L['self'].affinity.temperature == 1.0" in words


def test_a_step_of_the_caller_keeps_its_own_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    objective, some, counter = NCA(), batch("classes", 12), CompileCounter()

    def step(x: Tensor) -> Tensor:
        return objective(x, some.labels) * FACTOR

    compiled = torch.compile(step, fullgraph=True, backend=counter)
    torch.testing.assert_close(compiled(some.embeddings), step(some.embeddings))
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 3.0)
    torch.testing.assert_close(compiled(some.embeddings), step(some.embeddings))
    objective.affinity = SquaredEuclidean(0.1)
    torch.testing.assert_close(compiled(some.embeddings), step(some.embeddings))
    assert counter.frame_count == 3


STREAMED = {
    "classes": NCA,
    "expected": lambda: NCA("expected"),
    "cosine": lambda: NCA(temperature=0.1, metric="cosine"),
    "numbers": NCARegression,
    "bank": lambda: InstanceDiscrimination(SIZE, DIMENSION),
    "lists": lambda: NeighborhoodDiscovery(SIZE, DIMENSION, k=2),
    "weighted": lambda: NeighborhoodDiscovery(SIZE, DIMENSION, weighted=True),
    "each": lambda: NeighborhoodDiscovery(SIZE, DIMENSION, quantifier="each"),
    "semi": lambda: NeighborhoodDiscovery(SIZE, DIMENSION, labels=torch.arange(SIZE) % CLASSES),
}


QUICK = ("classes", "numbers", "weighted", "semi")


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.soak) for name in STREAMED])
@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.soak)])
def test_the_kernels_are_operators_of_the_graph(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MANY_PAIRS", 0)
    monkeypatch.setattr(routes, "MANY_ON_CPU", 0)
    compared(STREAMED[name](), backend, (32,) if backend == "eager" else (32, 24, 40))


@pytest.mark.parametrize("name", ["classes", *[pytest.param(name, marks=pytest.mark.soak) for name in ("numbers", "lists")]])
def test_operators_pass_torchs_own_checks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes, types and layouts of the fake results, the registered gradient, and tracing with symbolic sizes."""
    from nearkin.kernels import operators

    monkeypatch.setattr(routes, "MANY_ON_CPU", 0)
    seen: list[tuple[Any, ...]] = []
    real = operators.soft_values
    monkeypatch.setattr(operators, "soft_values", lambda *given: (seen.append(given), real(*given))[1])
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    objective = STREAMED[name]()
    some = batch(objective.supervision, 12)
    some.loss(objective)
    monkeypatch.undo()
    given = [x.clone().requires_grad_() if isinstance(x, Tensor) and x.is_floating_point() and i == 0 else x for i, x in enumerate(seen[0])]
    torch.library.opcheck(real, tuple(given))


@pytest.mark.parametrize("make", [NCA, lambda: NCA(engine="torch"), Contrastive, Triplet, NPair])
def test_a_batch_of_one_class_is_zero(make: Any) -> None:
    """Without the warning of an eager call: to call Python from a graph takes too long on a CPU."""
    objective, some = make(), batch("classes", 12)
    compiled = torch.compile(objective, fullgraph=True, backend="eager")
    live = some.embeddings.requires_grad_()
    loss = compiled(live, torch.zeros_like(some.labels))
    (gradient,) = torch.autograd.grad(loss, live)
    assert loss == 0 and not gradient.any() and objective.last is not None and objective.last.skipped == 12
    assert compiled(live, some.labels) > 0, "the next call works"


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.soak)])
def test_wrong_values_are_errors_in_words_inside_of_a_graph(backend: str) -> None:
    some = batch("classes", 12)
    made = NCA(), Softmax(3, DIMENSION), InstanceDiscrimination(8, DIMENSION), NCARegression(), FastAP()
    nca, softmax, bank, regression, ranks = (torch.compile(objective, fullgraph=True, backend=backend) for objective in made)
    for wrong in (torch.nan, torch.inf, 1e17):
        with pytest.raises(RuntimeError, match="embeddings contains NaN or infinity, or numbers so large that their squares overflow"):
            nca(some.embeddings * wrong, some.labels)
    with pytest.raises(RuntimeError, match="embeddings contains NaN"):
        ranks(some.embeddings * torch.nan, some.labels)
    with pytest.raises(RuntimeError, match="labels hold others, but this objective was built for the classes 0 to 2"):
        softmax(some.embeddings, some.labels)
    with pytest.raises(RuntimeError, match="ids hold others, but the bank has the slots 0 to 7"):
        bank(some.embeddings, ids=some.ids)
    with pytest.raises(RuntimeError, match="labels contain NaN or infinity"):
        regression(some.embeddings, some.labels * torch.nan)
    assert nca(some.embeddings, some.labels).isfinite() and softmax(some.embeddings, some.labels % 3).isfinite()


def test_the_compiler_keeps_the_assertion() -> None:
    nca, some = torch.compile(NCA(), fullgraph=True), batch("classes", 12)
    with torch.no_grad(), pytest.raises(RuntimeError, match="embeddings contains NaN or infinity"):
        nca(some.embeddings * torch.nan, some.labels)


@pytest.mark.soak
@every
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_whole_compilers(case: Case, backend: str) -> None:
    if case.name == DRAWS and backend == "inductor":
        pytest.skip("the compiler draws other random numbers")
    compared(case.build(), backend, (32, 24, 40), rtol=1e-4)


@pytest.mark.parametrize("make", [NCA, lambda: NCA(metric="cosine"), Contrastive, Triplet, lambda: Softmax(CLASSES, DIMENSION)])
def test_transposed_embeddings(make: Any) -> None:
    some = batch("classes", 12)
    compared_once(make(), some._replace(embeddings=some.embeddings.T.contiguous().T))


def compared_once(objective: Any, some: Batch) -> None:
    compiled = torch.compile(objective, fullgraph=True, backend="eager")
    live = some.embeddings.requires_grad_()
    results = []
    for call in (objective, compiled):
        loss = call(live, some.labels, ids=some.ids)
        results.append([loss.detach(), *torch.autograd.grad(loss, leaves(objective, live))])
    torch.testing.assert_close(results[1], results[0], rtol=1.3e-6, atol=1e-5)


def slope_of(objective: Any) -> Any:
    some = batch("classes", 12)
    return torch.func.grad(lambda x: some._replace(embeddings=x).loss(objective))


@pytest.mark.parametrize("make", [NCA, SupCon, Triplet, lambda: ArcFace(CLASSES, DIMENSION)])
def test_torch_func_grad_inside_is_refused_in_words(make: Any) -> None:
    """torch (2.13) would leave gradients of our own out, and take the rest for the gradient."""
    with pytest.raises(torch._dynamo.exc.Unsupported, match="call torch.func.grad without torch.compile, or compile the loss alone"):
        torch.compile(slope_of(make()), fullgraph=True, backend="eager")(batch("classes", 12).embeddings)


def test_torch_func_grad_inside_is_right_where_torch_knows_the_gradient() -> None:
    slope, x = slope_of(Softmax(CLASSES, DIMENSION)), batch("classes", 12).embeddings
    torch.testing.assert_close(torch.compile(slope, fullgraph=True, backend="eager")(x), slope(x), rtol=1e-4, atol=1e-5)
