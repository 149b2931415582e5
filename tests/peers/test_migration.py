"""The table of counterparts: every name of the peers is in it, and every row that claims equal values is compared."""

import inspect
import math
import re
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "docs"))
import migration_table as table  # noqa: E402

ROWS = [(title, entry) for title, (_, entries) in table.TABLES.items() for entry in entries]
CHECKED = [pytest.param(title, entry, id=f"{title.split()[-1]}-{entry.theirs}") for title, entry in ROWS if entry.check]
BASES = ("Mixin", "Base", "Generic", "Wrapper")


@pytest.mark.filterwarnings("ignore")  # of theirs
@pytest.mark.parametrize(("title", "entry"), CHECKED)
def test_values_and_gradients_are_equal(title: str, entry: table.Entry) -> None:
    if table.TABLES[title][0] == "pytorch-metric-learning":
        pytest.importorskip("pytorch_metric_learning")
    for seed in range(3):
        torch.manual_seed(seed)
        b = table.batch(seed)
        theirs, ours = entry.check(b)
        found = []
        for loss in (theirs, ours):
            z = b.z.clone().requires_grad_()
            value = loss(z)
            slope = torch.autograd.grad(value, z)[0] if value.requires_grad else torch.zeros(())
            found.append((value.detach().reshape(()), slope))
        (a, da), (m, dm) = found
        torch.testing.assert_close(m, a, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(dm, da, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("several", [1, 3])
def test_a_margin_costs_the_same_beyond_half_a_turn(several: int) -> None:
    """The own class vector is opposite: the angle and the margin together are more than pi."""
    losses, b = pytest.importorskip("pytorch_metric_learning.losses"), table.batch(0)
    options = {"num_classes": table.CLASSES, "embedding_size": table.DIMENSION, "margin": math.degrees(0.5)}
    theirs = (losses.ArcFaceLoss(**options) if several == 1 else losses.SubCenterArcFaceLoss(**options)).double()
    made = table.o.ArcFace(table.CLASSES, table.DIMENSION) if several == 1 else table.o.SubCenterArcFace(table.CLASSES, table.DIMENSION)
    ours, vectors = made.double(), theirs.W.data.T.reshape(table.CLASSES, several, table.DIMENSION)
    vectors = vectors[:, :1].expand_as(vectors) + 0.01 * vectors  # the vectors of a class are near one another
    theirs.W.data = vectors.reshape(-1, table.DIMENSION).T.clone()
    ours.references.vectors.data = vectors.reshape(table.CLASSES, -1).clone()
    z = (-vectors[b.labels, 0] + 0.01 * b.z * vectors.norm() / 10).requires_grad_()
    cosine = torch.nn.functional.cosine_similarity(z, vectors[b.labels, 0])
    assert (cosine < -math.cos(0.5)).all()
    found = [loss(z, b.labels) for loss in (theirs, ours)]
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-5)
    slopes = [torch.autograd.grad(loss, z)[0] for loss in found]
    torch.testing.assert_close(slopes[1], slopes[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("module", ["losses", "miners", "distances", "reducers", "samplers"])
def test_every_name_of_theirs_is_in_the_table(module: str) -> None:
    home = pytest.importorskip(f"pytorch_metric_learning.{module}")
    known = {name for name, thing in vars(home).items() if inspect.isclass(thing) and not any(base in name for base in BASES)}
    assert known == {entry.theirs for entry in table.TABLES[module.capitalize()][1]}


def test_every_metric_of_theirs_is_in_the_table() -> None:
    calculator = pytest.importorskip("pytorch_metric_learning.utils.accuracy_calculator").AccuracyCalculator
    assert set(calculator(k=1, knn_func=object(), kmeans_func=object()).get_function_dict()) == {entry.theirs for entry in table.METRICS}


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / "docs/migration.md").read_text(encoding="utf-8") == table.page(), "run `make docs`"


def test_the_page_for_their_users_names_every_loss_that_is_not_here() -> None:
    text = (ROOT / "docs/from-pytorch-metric-learning.md").read_text(encoding="utf-8").partition("## What nearkin does not have")[2]
    assert set(re.findall(r"`(\w+Loss)`", text)) == {entry.theirs for entry in table.LOSSES if entry.check is None}
    none = [entry.theirs for entry in table.LOSSES if not entry.ours]
    assert f"**{['No', 'One', 'Two', 'Three', 'Four', 'Five', 'Six', 'Seven'][len(none)]} losses**" in text


def test_a_wrong_claim_would_be_noticed() -> None:
    pytest.importorskip("pytorch_metric_learning")
    wrong = table.plain("SupConLoss", lambda: table.o.SupCon(0.2))
    with pytest.raises(AssertionError):
        test_values_and_gradients_are_equal("Losses", table.Entry("SupConLoss", "SupCon(0.2)", check=wrong))


def test_every_row_without_equal_values_says_why() -> None:
    assert all(entry.why for _, entry in ROWS if entry.check is None)
