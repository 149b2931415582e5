"""The paragraphs on top of table 1 of Lu et al. says what the runs say, whichever way they fall, and the recipe is what it names."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from nearkin.data import Dataset
from nearkin.reproduce import lu2019
from nearkin.reproduce.lu2019_answer import SINGLE, answer, by_set, counted, ranked
from nearkin.reproduce.retrieval_recipe import measured, recipe, write
from nearkin.reproduce.running import Ledger
from nearkin.reproduce.tables import verdicts
from nearkin.run import Run, override
from nearkin.train.assemble import assemble
from nearkin.train.recipes import RECIPES, Recipe

RESULTS = Path(__file__).resolve().parents[2] / "docs/results"
TRIALS = {trial.name: trial for trial in lu2019.TRIALS}


def ran(folder: Path, data: str, figures: dict[str, float], held_out: dict[str, float] | None = None, only: Iterable[str] = SINGLE) -> None:
    """Three seeds of every row of a data set at 50 %, or at the figure given for it, each with an interval of +-1."""
    for name in only:
        trial = TRIALS[f"lu2019-{data}-{name}"]
        value, tuned = figures.get(name, 0.5), (held_out or {}).get(name, 0.4)
        ledger = Ledger.read(folder, trial)
        ledger.tuning = [{"settings": dict(one), "figure": tuned, "seconds": 1.0} for one in trial.candidates()]
        ledger.chosen = dict(trial.candidates()[-1])
        run = {
            "figures": {"precision@1": value},
            "intervals": {"precision@1": [value - 0.01, value + 0.01]},
            "seconds": 1.0,
            "device": "CPU",
        }
        ledger.runs = [{"seed": seed, **run} for seed in range(3)]
        ledger.save(folder)


def told(folder: Path) -> str:
    return " ".join(answer(verdicts(lu2019.CELLS, folder)))


def test_nothing_is_said_before_anything_was_run(tmp_path: Path) -> None:
    assert answer(verdicts(lu2019.CELLS, tmp_path)) == []


def test_ahead_of_all_on_all_on_some_and_on_none(tmp_path: Path) -> None:
    ran(tmp_path, "cub", {"11-prec5-printed": 0.6, "11-prec5-released": 0.6, "11-npair": 0.4})
    ran(tmp_path, "omniglot", {"11-prec5-printed": 0.6, "11-prec5-released": 0.49, "11-angular": 0.55})
    text = told(tmp_path)
    assert "Is Prec@5 as printed ahead of every loss of table 1, all else being equal? Yes.**" in text
    assert "Is Prec@5 as released ahead of every loss of table 1, all else being equal? Only on CUB-200-2011.**" in text
    assert "Omniglot: 49.0 ± 1.0, 0 of 9 are below it, 1 above (Angular 55.0), 8 not told apart." in text  # the other form is no rival
    (tmp_path / "lu2019-cub-11-angular.json").unlink()
    assert "as printed ahead of every loss of table 1, all else being equal? Yes, as far as they were run.**" in told(tmp_path)
    ran(tmp_path, "cub", {})
    assert "as released ahead of every loss of table 1, all else being equal? No.**" in told(tmp_path)
    assert "Every trained row that is compared here has 3 seeds;" in told(tmp_path)


def test_where_none_is_above_and_some_are_level_it_is_not_shown(tmp_path: Path) -> None:
    ran(tmp_path, "cub", {"11-prec5-printed": 0.51, "11-npair": 0.4})
    assert "all else being equal? Not shown: none is above it, but some cannot be told apart from it.**" in told(tmp_path)


def test_of_many_that_are_above_the_best_three_are_named(tmp_path: Path) -> None:
    ran(tmp_path, "cub", {"11-angular": 0.6, "11-npair": 0.8, "11-lifted": 0.7, "11-proxy": 0.9})
    assert "5 not told apart" in told(tmp_path) and "4 above (Proxy-NCA 90.0, N-pair 80.0, Lifted structure 70.0, ...)" in told(tmp_path)


def test_how_many_are_above_the_network_as_it_came(tmp_path: Path) -> None:
    ran(tmp_path, "cub", {"11-angular": 0.6, "2-npair": 0.6, "any-softmax": 0.3})
    assert "untouched" not in told(tmp_path)
    ran(tmp_path, "cub", {}, only=["floor-pretrained"])
    told_of = "Pretrained network untouched (1,280 dimensions) has 50.0; 2 of 36 are above that, 1 below, 33 not told apart."
    assert told_of in told(tmp_path)
    ran(tmp_path, "cub", {"floor-projected": 0.4}, only=["floor-projected"])  # in the models' own number of dimensions
    assert told_of in told(tmp_path) and "dimensions as the models) has 40.0; 35 of 36 are above that, 1 below, 0 not" in told(tmp_path)


@pytest.mark.parametrize(
    ("released", "with_2", "word"),
    [
        (0.5, 0.4, "the batches explain the lead."),
        (0.6, 0.4, "the lead stays with equal batches, and the batches add to it."),
        (0.6, 0.5, "the lead stays with equal batches."),
        (0.7, 0.6, "the lead stays with equal batches, and is larger than with the document's."),
        (0.5, 0.5, "under the document's batches there is no lead to explain."),
        (0.6, 0.7, "under the document's batches there is no lead to explain, and with equal ones there is."),
        (0.51, 0.494, "with equal batches it is gone, though what batches change is within its margin."),
    ],
)
def test_whether_batches_explain_the_lead(released: float, with_2: float, word: str, tmp_path: Path) -> None:
    ran(tmp_path, "cub", {"11-prec5-released": released, **{name: with_2 for name in SINGLE if name.startswith("2-")}})
    text = told(tmp_path)
    assert word in text and f"is {100 * (released - with_2):+.1f} ± 1.4 points" in text
    assert f"explain its lead? {'Yes' if word.startswith('the batches explain') else 'No'}.**" in text
    assert "Prec@5 is 7.3 points above the middle one of the 9 losses of table 1 and 3.5 above the strongest" in text


def test_losses_that_hardly_learn_make_no_lead(tmp_path: Path) -> None:
    """Four of nine at a tenth would draw a mean far below Prec@5, which is behind the middle one."""
    poor = {f"2-{name}": 0.1 for name in ("lifted", "triplet-hard", "contrastive", "npair")}
    ran(tmp_path, "cub", {"11-prec5-released": 0.47, **poor})
    text = told(tmp_path)
    assert "(over the strongest) is -3.0 ± 1.4 points (-3.0) where they have 2 images a class" in text
    assert "there is no lead to explain." in text
    assert "- CUB-200-2011, under the document's batches: 47.0 ± 1.0, 4 of 9 are below it, 5 above" in text


def test_the_recipe_is_chosen_on_held_out_classes_and_told_with_its_test_figures(tmp_path: Path) -> None:
    ran(tmp_path, "cub", {"11-nca": 0.7}, {"any-softmax": 0.6, "11-nca": 0.5})
    ran(tmp_path, "cifar", {}, {"any-softmax": 0.5, "11-nca": 0.55})
    ran(tmp_path, "omniglot", {}, {"any-softmax": 0.5, "11-nca": 0.5})
    assert ranked(counted(by_set(verdicts(lu2019.CELLS, tmp_path))))[:2] == ["any-softmax", "11-nca"]
    text = told(tmp_path)
    assert "Normalised softmax with uniform batches: of the 36 rows that were tuned on all of CUB-200-2011, Omniglot, CIFAR-100" in text
    assert "53.3 on average; 51.7 has the next, NCA on cosines with 11 images a class" in text
    assert "CUB-200-2011: 50.0 ± 1.0, 0 of 35 are below it, 1 above (NCA on cosines with 11 images a class 70.0), 34 not told" in text
    made = json.loads(write(tmp_path, tmp_path / "made.json").read_text())
    assert made["row"] == "any-softmax" and made["settings"]["sampler.name"] == "shuffled"
    rates = {data: made[part]["optimiser.learning_rate"] for data, part in (("cifar", "settings"), ("cub", "pretrained"))}
    assert rates == {data: lu2019.SETS[data].rates[-1] for data in rates}
    (tmp_path / "lu2019-cifar-any-softmax.json").unlink()  # what was not run everywhere is not recommended
    assert measured(tmp_path)["row"] == "11-nca"


def test_without_one_of_the_data_sets_there_is_no_recipe(tmp_path: Path) -> None:
    ran(tmp_path, "omniglot", {})
    ran(tmp_path, "cub", {})
    ran(tmp_path, "cifar", {}, only=["11-npair"])  # a table cut short has no say
    with pytest.raises(ValueError, match="half the rows on each of CUB-200-2011, CIFAR-100, Omniglot; run `nearkin reproduce"):
        measured(tmp_path)
    assert "What is the best recipe?" not in told(tmp_path)
    ran(tmp_path, "cifar", {})
    assert "What is the best recipe?" in told(tmp_path)
    assert measured(tmp_path)["settings"]["optimiser.learning_rate"] == lu2019.SETS["cifar"].rates[-1]


@pytest.mark.parametrize("name", SINGLE)
def test_every_row_would_make_a_recipe_that_trains(name: str, tmp_path: Path) -> None:
    """On a folder of images, from scratch and with weights: the settings are known leaves, and a step is made with them."""
    fresh, pretrained = (dict(TRIALS[f"lu2019-{data}-{name}"].candidates()[0]) for data in ("cifar", "cub"))
    made = Recipe.of(recipe(name, fresh, pretrained, "a test"))
    images = torch.randint(0, 256, (480, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    data = Dataset("birds", images, torch.arange(40).repeat_interleave(12), tuple(f"kind {number}" for number in range(40)))
    for given in ({"data.size": "16"}, {"data.size": "16", "network.weights": "some.safetensors"}):
        leaves = {**made.leaves(str(tmp_path), given), **given, "network.name": "linear"}
        assert leaves["objective.name"] == TRIALS[f"lu2019-cub-{name}"].settings["objective.name"] and leaves["data.split"] == "classes"
        assert leaves["augment.name"] == "crop_flip" and "preprocess.options.crop" not in leaves  # crops are of 128 pixels
        for weights in ("network.weights", "network.statistics"):
            leaves.pop(weights, None)
        parts = assemble(override(Run(), leaves), data, torch.device("cpu"))
        assert torch.isfinite(parts.step(next(iter(parts.sampler))))
    cropped = made.leaves(str(tmp_path), {"network.weights": "some.safetensors"})
    assert (cropped["data.size"], cropped["augment.options.size"]) == ("128", "112")
    tuned = lu2019.SETS["cub"].settings
    assert all(cropped[leaf] == tuned[leaf] for leaf in ("network.rate", "network.statistics"))
    override(Run(), cropped)


def test_the_recipe_that_is_shipped_is_the_one_that_was_measured() -> None:
    shipped = RECIPES["retrieval"]
    try:
        found = measured(RESULTS)
    except ValueError:
        assert "a small trial" in shipped.source  # it says so as long as the table has not been run
        return
    assert shipped == Recipe.of(found)
