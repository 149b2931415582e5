"""The streaming engines give what the dense composition gives: value, gradient and counts, through the public door."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from nearkin import NCA, InfoNCE, InstanceDiscrimination, NCARegression, NeighborhoodDiscovery, NeighborhoodObjective, NTXent, PrecisionAtK
from nearkin.compose import routes
from nearkin.compose.affinity import InnerProduct, SquaredEuclidean
from nearkin.compose.criterion import any_positive, each_positive, expected_cost
from nearkin.compose.points import Points, fresh_ids
from nearkin.compose.references import InBatch, MemoryBank, Proxies
from nearkin.compose.relation import LabelDistance, LabelOverlap, ListedNeighbors, SameId, SameLabel
from nearkin.objectives import streaming
from nearkin.objectives.mean_of_positives import _one_positive
from tests.largest_tensor import Largest

N, D = 37, 5


def drawn(seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(N, D, generator=generator, dtype=dtype)
    z[5] = z[4]  # duplicates
    y = torch.randint(0, 6, (N,), generator=generator)
    y[7] = 99  # a singleton
    ids = torch.arange(100, 100 + N)
    ids[11] = ids[10]  # one sample drawn twice
    return z, y, ids


def both(make, call, z):
    """(value, gradient, last) of the dense engine and of another one."""
    found = []
    for engine in ("dense", "torch"):
        x = z.clone().requires_grad_()
        objective = make(engine)
        value = call(objective, x)
        (gradient,) = torch.autograd.grad((value * torch.arange(1, value.numel() + 1).reshape(value.shape)).sum(), x)
        found.append((value.detach(), gradient, repr(objective.last)))
    return found


def same(pair, tolerance=1e-10):
    (a, ga, la), (b, gb, lb) = pair
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(ga, gb, rtol=tolerance, atol=tolerance)
    assert la == lb


@pytest.mark.parametrize("form", ["log", "expected"])
@pytest.mark.parametrize("metric", ["squared_euclidean", "cosine"])
@pytest.mark.parametrize("temperature", [0.3, 2.0])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_nca(form, metric, temperature, reduction):
    z, y, ids = drawn()
    same(both(lambda e: NCA(form, temperature, metric, engine=e), lambda o, x: o(x, y, reduction=reduction), z))
    same(both(lambda e: NCA(form, temperature, metric, engine=e), lambda o, x: o(x, y, ids=ids, reduction=reduction), z))


@pytest.mark.parametrize("temperature", [0.05, 2.0])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_nt_xent_lists_each_positive(temperature, reduction, monkeypatch):
    z, y, ids = drawn()
    same(both(lambda e: NTXent(temperature, engine=e), lambda o, x: o(x, y, reduction=reduction), z))
    same(both(lambda e: NTXent(temperature, engine=e), lambda o, x: o(x, y, ids=ids, reduction=reduction), z))
    twice = torch.arange(N) % 19
    same(both(lambda e: NTXent(temperature, "views", engine=e), lambda o, x: o(x, ids=twice, reduction=reduction), z))
    monkeypatch.setattr(streaming, "LISTED", 3)  # classes that are too large to list are a matrix again
    monkeypatch.setattr(streaming, "each", None)
    same(both(lambda e: NTXent(temperature, engine=e), lambda o, x: o(x, y, reduction=reduction), z))


@pytest.mark.parametrize("read", [True, False], ids=["large classes", "as on a GPU"])
def test_nt_xent_of_many_pairs_goes_block_by_block(read, monkeypatch):
    """Where the size of the largest class may not be read, or is too large to list: no matrix of all pairs, and the same numbers."""
    monkeypatch.setattr(routes, "MANY_ON_CPU", 0)
    monkeypatch.setattr(streaming, "MOST_PAIRS", 7 * N)
    monkeypatch.setattr(streaming, "LISTED", 3)
    if not read:
        monkeypatch.setattr(streaming, "may_read", lambda _: False)
    z, y, ids = drawn()
    other, labels, theirs = drawn(1)
    theirs[:9] = ids[:9]
    for call in (
        lambda o, x: o(x, y, reduction="none"),
        lambda o, x: o(x, y, ids=ids),
        lambda o, x: o(x, y, ids=ids, references=Points(other, labels, theirs), reduction="none"),
    ):
        same(both(lambda e: NTXent(0.1, engine="auto" if e == "torch" else e), call, z))
    with Largest() as largest:
        x = z.clone().requires_grad_()
        NTXent()(x, y).backward()
    assert 7 * N <= largest.numel < 8 * N


def test_nt_xent_of_references_and_extremes():
    z, y, ids = drawn()
    other, labels, theirs = drawn(1)
    theirs[:9] = ids[:9]
    same(both(lambda e: NTXent(engine=e), lambda o, x: o(x, y, ids=ids, references=Points(other, labels, theirs)), z))
    near = torch.nn.functional.one_hot(y % 5, D).double() + 1e-9 * z  # negatives too far for a share of a float
    same(both(lambda e: NTXent(0.01, engine=e), lambda o, x: o(x, y % 5, reduction="none"), near), 1e-7)


@pytest.mark.parametrize("symmetric", [True, False])
def test_info_nce(symmetric):
    z, _, ids = drawn()
    other, _, theirs = drawn(1)
    theirs[:9] = ids[:9]

    def call(objective, x):
        return objective(x, ids=ids, references=Points(other, None, theirs), reduction="none")

    same(both(lambda e: InfoNCE(0.1, symmetric=symmetric, engine=e), call, z))


@pytest.mark.parametrize("targets", [1, 3])
def test_nca_regression(targets):
    z, _, ids = drawn()
    y = torch.randn(N, targets, dtype=torch.float64)
    same(both(lambda e: NCARegression(0.7, engine=e), lambda o, x: o(x, y, ids=ids, reduction="none"), z))
    same(both(lambda e: NCARegression(0.7, engine=e), lambda o, x: o(x, y, reduction="sum"), z))


def test_given_references_take_part_by_id():
    z, y, ids = drawn()
    other, labels, theirs = drawn(1)
    theirs[:9] = ids[:9]
    reference = other.requires_grad_()
    gradients = []

    def call(objective, x):
        value = objective(x, y, ids=ids, references=Points(reference, labels, theirs), reduction="none")
        gradients.append(torch.autograd.grad(value.sum(), reference, retain_graph=True)[0])
        return value

    same(both(lambda e: NCA(engine=e), call, z))
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-10, atol=1e-10)
    same(both(lambda e: NCA(engine=e), lambda o, x: o(x, y, ids=ids, references=Points(other.detach(), labels, fresh_ids(N))), z))


def test_memory_banks():
    z, _, _ = drawn()
    ids = torch.randperm(60, generator=torch.Generator().manual_seed(3))[:N]

    def instances(engine):
        torch.manual_seed(0)
        return InstanceDiscrimination(60, D, engine=engine).double()

    same(both(instances, lambda o, x: o(x, ids=ids, reduction="none"), z))


SOME = torch.where(torch.arange(60) % 3 == 0, torch.arange(60) % 4, -1)  # classes of a third


@pytest.mark.parametrize(
    "more",
    [{}, {"weighted": True}, {"labels": SOME}, {"weighted": True, "labels": SOME}, {"quantifier": "each"}],
    ids=["plain", "weighted", "labeled", "both", "each"],
)
def test_discovery(more):
    z, _, _ = drawn()
    ids = torch.randperm(60, generator=torch.Generator().manual_seed(3))[:N]
    ids[3] = ids[2]  # two views of one
    others = Points(z.flip(0), None, torch.cat([ids[9:], fresh_ids(9)]))  # in which some find nobody

    def make(engine):
        torch.manual_seed(0)
        objective = NeighborhoodDiscovery(60, D, k=3, engine=engine, **more).double()
        generator = torch.Generator().manual_seed(1)
        weight = torch.arange(60, dtype=torch.float64).remainder(5) / 4 if "weighted" in more else None  # 0 and 1 among them
        objective.trust(torch.randint(0, 60, (60, 3), generator=generator), torch.arange(60) % 2 == 0, weight)
        return objective

    def in_batch(engine):
        objective = make(engine)
        return NeighborhoodObjective(InBatch(), SquaredEuclidean(0.5), objective.relation, objective.criterion, engine=engine)

    same(both(make, lambda o, x: o(x, ids=ids, reduction="none"), z))
    same(both(make, lambda o, x: o(x, ids=ids, references=others, reduction="none"), z))
    same(both(in_batch, lambda o, x: o(x, ids=ids, reduction="none"), z))


def test_discovery_in_which_everybody_is_right_prices_each_at_nothing():
    def make(engine):
        objective = NeighborhoodDiscovery(3, D, k=2, quantifier="each", engine=engine).double()
        objective.trust(torch.tensor([[1, 2], [0, 2], [0, 1]]))
        return objective

    found = both(make, lambda o, x: o(x, ids=torch.arange(3), reduction="none"), drawn()[0][:3])
    same(found)
    assert not found[1][0].any() and not found[1][1].any()


@pytest.mark.parametrize("temperature", [0.1, 0.005])
def test_each_neighbor_is_priced_however_much_nearer_another_is(temperature):
    """A neighbor on the spot and one far away: the negatives are nothing beside the first, and much beside the second."""
    bank = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [-0.6, 0.8]])

    def make(engine):
        objective = NeighborhoodDiscovery(4, 2, temperature=temperature, quantifier="each", engine=engine)
        objective.references.vectors.copy_(bank)
        objective.trust(torch.tensor([[1], [0], [0], [0]]))
        return objective

    found = both(make, lambda o, x: o(x, ids=torch.tensor([0, 2]), reduction="none"), torch.tensor([[1.0, 0.001], [0.0, 1.0]]))
    same(found, 1e-4)
    assert float(found[1][0][0]) == pytest.approx(0.5 / temperature, rel=1e-2)


@pytest.mark.parametrize("more", [{"weighted": True}, {"labels": torch.arange(60_000) % 3 - 1}, {"quantifier": "each"}])
def test_discovery_over_many_points_holds_no_matrix(more, monkeypatch):
    def matrix(*_):
        raise AssertionError("an affinity of all pairs")

    objective = NeighborhoodDiscovery(60_000, 4, **more)
    monkeypatch.setattr(type(objective.affinity), "__call__", matrix)
    x = torch.randn(100, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    objective(x, ids=torch.arange(100)).backward()
    assert bool(x.grad.isfinite().all()) and bool(x.grad.any())


def test_a_batch_without_ids_is_numbered_whatever_the_engine():
    z, _, _ = drawn()
    same(both(lambda e: NeighborhoodObjective(InBatch(), InnerProduct(0.5), SameId(), any_positive, engine=e), lambda o, x: o(x), z))


def test_references_that_hold_no_right_one_price_nobody():
    z, _, ids = drawn()
    other = Points(drawn(1)[0], None, fresh_ids(N))

    def make(criterion):
        return lambda engine: NeighborhoodObjective(InBatch(), InnerProduct(0.5), SameId(), criterion, engine=engine)

    same(both(make(any_positive), lambda o, x: o(x, ids=ids, references=other, reduction="none"), z))
    same(both(make(expected_cost), lambda o, x: o(x, ids=ids, references=other, reduction="none"), z))


def test_ids_that_are_missing_are_asked_for():
    objective = NeighborhoodObjective(Proxies(4, D), InnerProduct(), SameId(), any_positive, engine="torch").double()
    with pytest.raises(ValueError, match="ids are missing: this objective knows a point by its id; pass ids="):
        objective(drawn()[0])


def test_a_labeled_bank_passes_over_the_query_itself():
    z, _, _ = drawn()
    labels, ids = torch.arange(60) % 4, torch.arange(N)

    def make(engine):
        torch.manual_seed(0)
        bank = MemoryBank(60, D, labels=labels)
        return NeighborhoodObjective(bank, InnerProduct(0.2), SameLabel(), any_positive, engine=engine).double()

    same(both(make, lambda o, x: o(x, labels[ids], ids=ids, reduction="none"), z))


def test_proxies_get_their_gradient():
    z, _, _ = drawn()
    labels = torch.arange(N) % 4
    gradients = []

    def make(engine):
        torch.manual_seed(0)
        return NeighborhoodObjective(Proxies(4, D), SquaredEuclidean(0.5), SameLabel(), expected_cost, engine=engine).double()

    def call(objective, x):
        value = objective(x, labels, reduction="none")
        gradients.append(torch.autograd.grad(value.sum(), objective.references.vectors, retain_graph=True)[0])
        return value

    same(both(make, call, z))
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-10, atol=1e-10)


def test_auto_streams_only_what_is_large_and_known(monkeypatch):
    z, y, _ = drawn()
    monkeypatch.setattr("nearkin.compose.routes.MANY_ON_CPU", N * N)
    called = []
    real = streaming.stream
    monkeypatch.setattr("nearkin.objectives.neighborhood.stream", lambda *a, **k: called.append(1) or real(*a, **k))
    NCA()(z, y)
    assert called == [1]
    PrecisionAtK(3)(z, y)
    NCA(engine="dense")(z, y)
    NCA(relation=LabelOverlap())(z, torch.nn.functional.one_hot(y.clamp(max=6)))
    assert called == [1]
    NCA()(z[:-1], y[:-1])
    assert called == [1]


def test_an_engine_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match="engine 'torch' does not know this composition; use engine='dense'"):
        NCA(relation=LabelOverlap(), engine="torch")
    for relation, criterion in [
        (LabelDistance(lambda a, b: (a - b.T).abs()), expected_cost),  # another distance of targets
        (LabelDistance(), any_positive),  # a share of right for every distance
        (ListedNeighbors(9, weighted=True), expected_cost),
        (ListedNeighbors(9, labels=torch.zeros(9, dtype=torch.int64)), each_positive),
        (SameLabel(), each_positive),
    ]:
        with pytest.raises(ValueError, match="engine 'numba' does not know this composition"):
            NeighborhoodObjective(InBatch(), InnerProduct(), relation, criterion, engine="numba")
    with pytest.raises(ValueError, match="engine 'fpga' is unknown; choose one of auto, dense, torch, numba, triton"):
        NCA(engine="fpga")
    with pytest.raises(ValueError, match="precision 'low' is unknown"):
        NCA(precision="low")


def test_second_derivatives_are_refused_in_words():
    z, y, _ = drawn()
    x = z.requires_grad_()
    (g,) = torch.autograd.grad(NCA(engine="torch")(x, y), x, create_graph=True)
    with pytest.raises(RuntimeError, match="first derivatives only.*engine='dense'"):
        g.sum().backward()
    x.grad = None
    (g,) = torch.autograd.grad(NCA(engine="dense")(x, y), x, create_graph=True)
    g.sum().backward()
    assert bool(torch.isfinite(x.grad).all())


def test_half_precision_is_lifted_and_large_numbers_survive():
    z, y, _ = drawn()
    for dtype in (torch.float16, torch.bfloat16, torch.float8_e4m3fn):
        assert NCA(engine="torch")(z.to(dtype), y).dtype == torch.float32
    far = z * 1e4
    assert torch.isfinite(NCA(engine="torch")(far.float(), y))
    torch.testing.assert_close(NCA(engine="torch")(far, y), NCA(engine="dense")(far, y), rtol=1e-9, atol=0)


STARVED = """
import resource, torch
from nearkin import InstanceDiscrimination, NCA

n, d = 20_000, 8
z, y, ids = torch.randn(n, d), torch.arange(n) % 10, torch.arange(n)
torch.set_num_threads(1)
torch.manual_seed(0)
objective = InstanceDiscrimination(n, d, engine="dense")
before = {name: value.clone() for name, value in objective.state_dict().items()}
small = NCA(engine="numba")(z[:500], y[:500])
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 200 * 2**20,) * 2)  # the matrix would take 1,600 MB
for starved in (objective, NCA(engine="dense")):
    x = z.clone().requires_grad_()
    try:
        starved(x, y, ids=ids).backward()
    except (RuntimeError, MemoryError) as error:
        assert "memory" in str(error), error
    else:
        raise SystemExit("there was memory enough")
    assert x.grad is None and starved.last is None
assert all(torch.equal(value, before[name]) for name, value in objective.state_dict().items())
for engine in ("torch", "numba"):  # and where no matrix is held, the same memory is enough
    x = z.clone().requires_grad_()
    NCA(engine=engine)(x[:3000], y[:3000]).backward()
    assert x.grad.isfinite().all()
assert torch.equal(NCA(engine="numba")(z[:500], y[:500]), small)
print("as it was")
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux says how much memory a process has")
def test_running_out_of_memory_changes_nothing():
    path = f"import sys; sys.path[:0] = {sys.path!r}\n"
    done = subprocess.run([sys.executable, "-c", path + STARVED], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "as it was", done.stderr[-2000:]


@pytest.mark.parametrize("labels", [torch.arange(60) % 6, torch.arange(60) // 10], ids=["in turn", "in runs"])
def test_each_query_of_a_class_takes_another_positive(labels: Tensor) -> None:
    """Else the gradient of the one that all take is a difference of sums over the class."""
    _, order = labels.sort(stable=True)
    low, high = (torch.searchsorted(labels.sort().values, labels, right=right) for right in (False, True))
    found = _one_positive(labels, order, low, high, torch.arange(60)[:, None])
    assert torch.equal(labels[found], labels) and bool((found != torch.arange(60)).all())
    assert torch.equal(found.sort().values, torch.arange(60))
