"""Parts of another package compose with ours, stream if they declare how, and are deployed by the metric they declare."""

import ast
import inspect
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

import nearkin
from nearkin import NeighborhoodObjective, compose
from nearkin.compose import InBatch, Points, SameLabel, SquaredEuclidean, any_positive, cosine, expected_cost, fresh_ids, plan
from nearkin.index.collection import build_index, open_index
from nearkin.models.folder import build_network
from nearkin.serve.app import make_app
from nearkin.train.assemble import deployed
from nearkin.train.loop import fit, save
from tests.serve.small_model import D, make_model, make_pictures, opened, picture
from tests.third_party.parts import Dot, NextLabel, SameParity, ScaledCosine, Surprise, manhattan, mean_of_positives

N = 41
ROOT = Path(__file__).parents[2]


def drawn(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.arange(N)
    ids[5] = ids[4]  # one sample drawn twice
    return torch.randn(N, 6, generator=generator, dtype=torch.float64), torch.randint(0, 5, (N,), generator=generator), ids


def value_and_gradient(objective: NeighborhoodObjective, references: Points | None = None) -> tuple[torch.Tensor, ...]:
    z, y, ids = drawn()
    z.requires_grad_()
    values = objective(z, y, ids=ids, references=references, reduction="none")
    (gradient,) = torch.autograd.grad((values * torch.arange(1, N + 1)).sum(), z)
    return values.detach(), gradient


@pytest.mark.parametrize(
    ("affinity", "relation", "criterion"),
    list(
        product(
            [ScaledCosine(), Dot(0.5), cosine(0.3), SquaredEuclidean(2.0)],
            [SameParity(), SameLabel()],
            [Surprise(), any_positive, expected_cost],
        )
    ),
)
@pytest.mark.parametrize("own", [True, False])
def test_declared_parts_stream_with_the_value_and_gradient_of_the_matrix(affinity, relation, criterion, own: bool) -> None:
    z, y, _ = drawn(1)
    others = None if own else Points(z, y, fresh_ids(N))
    dense, streamed = (
        value_and_gradient(NeighborhoodObjective(InBatch(), affinity, relation, criterion, engine=engine), others)
        for engine in ("dense", "torch")
    )
    torch.testing.assert_close(streamed, dense, rtol=1e-9, atol=1e-9)


def test_parts_that_declare_nothing_are_dense_and_right() -> None:
    objective = NeighborhoodObjective(InBatch(), manhattan, NextLabel(), mean_of_positives)
    assert plan(objective.parts, 10**6, 10**6, "cpu") == plan(objective.parts, 10**6, 10**6, "cuda") == "dense"
    z, y, ids = drawn()
    expected = []
    for i in range(N):
        near = [float((z[i] - z[j]).abs().sum()) for j in range(N) if abs(int(y[i] - y[j])) == 1]
        expected.append(sum(near) / len(near) if near else 0.0)
    torch.testing.assert_close(objective(z, y, ids=ids, reduction="none"), torch.tensor(expected, dtype=torch.float64))
    with pytest.raises(ValueError, match="engine 'torch' does not know this composition"):
        NeighborhoodObjective(InBatch(), manhattan, NextLabel(), mean_of_positives, engine="torch")
    assert tuple(objective.deployment()) == ("squared_euclidean", None)


@pytest.mark.soak
def test_many_pairs_of_declared_parts_take_no_matrix() -> None:
    """30,000 points: their matrix alone would take 3.6 GB. The whole process, kernels compiled on the way, takes less than 2.5."""
    code = """
import resource, torch
from nearkin import NeighborhoodObjective
from nearkin.compose import InBatch
from tests.third_party.parts import SameParity, ScaledCosine, Surprise
z = torch.randn(30000, 8, requires_grad=True)
NeighborhoodObjective(InBatch(), ScaledCosine(), SameParity(), Surprise())(z, torch.arange(30000)).backward()
assert z.grad.isfinite().all() and z.grad.any()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert int(done.stdout) < 2500


def test_the_declared_metric_is_the_one_that_is_deployed(tmp_path: Path) -> None:
    objective = NeighborhoodObjective(InBatch(), Dot(2.0), SameLabel(), any_positive)
    folder = make_model(tmp_path / "model")
    about = {**nearkin.load(folder).about, **deployed(objective)}
    assert about["metric"] == "inner_product" and about["temperature"] == 2.0
    data = opened(make_pictures(tmp_path / "pictures", each=8))
    network = build_network(about)
    images = torch.rand(len(data), *about["shape"], generator=torch.Generator().manual_seed(0))
    fit(network, objective, images, data.labels, epochs=1, batch_size=8, learning_rate=1e-3, seed=0)
    save(folder, network, about)
    build_index(folder, data, device="cpu")
    collection = open_index(folder, device="cpu")
    query = picture("red", 77)
    z = np.asarray(collection.model.encode([query]))[0].astype(np.float64)
    known = {i: np.asarray(collection.index.vectors([i]))[0].astype(np.float64) for i in range(len(data))}
    by_dot = sorted(known, key=lambda i: (-float(known[i] @ z), i))[:5]
    by_distance = sorted(known, key=lambda i: (float(((known[i] - z) ** 2).sum()), i))[:5]
    assert by_dot != by_distance, "the two rank alike here, and nothing is shown"
    found = collection.search(query, 5)
    assert [hit.id for hit in found.hits] == by_dot
    assert found.hits[0].affinity == pytest.approx(float(known[by_dot[0]] @ z), rel=1e-5)
    with TestClient(make_app(collection), base_url="http://127.0.0.1") as client:
        page = client.post("/search?k=5", json={"vector": z.tolist()}).json()
    assert [hit["id"] for hit in page["neighbors"]] == by_dot and len(z) == D


CONCRETE = {
    name
    for name in compose.__all__
    if inspect.isclass(getattr(compose, name)) and name not in ("Points", "Related", "Layout", "Outcome", "Composition", "References")
}


def test_nothing_outside_compose_asks_for_the_class_of_a_part() -> None:
    """No isinstance on a concrete affinity, relation, criterion or set of references: parts declare what engines need."""
    assert {"SquaredEuclidean", "SameLabel", "BestK", "MemoryBank"} <= CONCRETE
    source = Path(inspect.getfile(nearkin)).parent
    asked = []
    for path in sorted(source.rglob("*.py")):
        if path.relative_to(source).parts[0] == "compose":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass"):
                named = {leaf.id for leaf in ast.walk(node.args[1]) if isinstance(leaf, ast.Name)}
                named |= {leaf.attr for leaf in ast.walk(node.args[1]) if isinstance(leaf, ast.Attribute)}
                asked += [f"{path.relative_to(source)}:{node.lineno} {name}" for name in sorted(named & (CONCRETE | {"BankPart"}))]
    assert not asked


def test_the_training_loop_names_no_objective() -> None:
    source = (Path(inspect.getfile(nearkin)).parent / "train/training.py").read_text(encoding="utf-8")
    named = {name for name in nearkin.objectives.__all__ if name not in ("Objective",)}
    imported = {alias.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert not named & imported
