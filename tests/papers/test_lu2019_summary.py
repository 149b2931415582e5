"""The paragraphs on table 1 of Lu et al. follow from the runs, and the shipped recipe is the one they name."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from nearkin.data import Dataset
from nearkin.train.assemble import assemble
from nearkin.train.config import Run, override
from nearkin.train.recipes import RECIPES, Recipe
from papers import lu2019, lu2019_trials
from papers.cell import AFTER_TEST
from papers.ledger import Ledger
from papers.lu2019_rows import SINGLE, by_set
from papers.lu2019_summary import counted, ranked, summary
from papers.retrieval_recipe import measured, recipe, write
from papers.tables import verdicts

RESULTS = Path(__file__).resolve().parents[2] / "docs/results"
TRIALS = {trial.name: trial for trial in lu2019_trials.TRIALS}


def ran(
    folder: Path,
    data: str,
    figures: dict[str, float],
    held_out: dict[str, float] | None = None,
    only: Iterable[str] = SINGLE,
    active: float = 100.0,
    chosen: int = -1,
) -> None:
    """Three seeds of every row of a data set at 50 %, or at the figure given for it, each with an interval of +-1."""
    for name in only:
        trial = TRIALS[f"lu2019-{data}-{name}"]
        value, tuned = figures.get(name, 0.5), (held_out or {}).get(name, 0.4)
        ledger = Ledger.read(folder, trial)
        ledger.tuning = [{"settings": dict(one), "figure": tuned, "seconds": 1.0} for one in trial.candidates()]
        ledger.chosen = dict(trial.candidates()[chosen])
        run = {
            "figures": {"precision@1": value, "active per iteration": active},
            "intervals": {"precision@1": [value - 0.01, value + 0.01]},
            "seconds": 1.0,
            "device": "CPU",
        }
        ledger.runs = [{"seed": seed, **run} for seed in range(3)]
        ledger.save(folder)


def text_of(folder: Path) -> str:
    return " ".join(summary(verdicts(lu2019.CELLS, folder))).replace(AFTER_TEST, "")


def test_there_is_no_text_before_anything_was_run(tmp_path: Path) -> None:
    assert summary(verdicts(lu2019.CELLS, tmp_path)) == []


QUESTION = "Does optimizing Prec@k beat every loss of table 1, all else being equal?"


def test_ahead_of_all_on_all_on_some_and_on_none(tmp_path: Path) -> None:
    both = {"11-prec5-printed": 0.6, "11-prec5-released": 0.6}
    ran(tmp_path, "cub", {**both, "11-npair": 0.4})
    assert f"**{QUESTION} Yes.** It is ahead of all on CUB-200-2011." in text_of(tmp_path)
    assert (
        "On CUB-200-2011, from pretrained weights, it has 60.0 ± 1.0 as printed and 60.0 ± 1.0 as released: all 9 are below it."
        in text_of(tmp_path)
    )
    ran(tmp_path, "omniglot", {"11-prec5-printed": 0.6, "11-prec5-released": 0.49, "11-angular": 0.55})
    text = text_of(tmp_path)
    assert f"**{QUESTION} Only as printed on CUB-200-2011 and Omniglot, and as released on CUB-200-2011.**" in text
    assert "It is ahead of all on CUB-200-2011, behind some of them on Omniglot." in text
    assert (
        "none and 1 of 9 are above it (Angular 55.0), none and 8 are not told apart from it (none and 8 with a higher mean)." in text
    )  # the other form is no baseline
    (tmp_path / "lu2019-cub-11-angular.json").unlink()
    assert "and as released on CUB-200-2011, as far as they were run.**" in text_of(tmp_path)
    ran(tmp_path, "cub", {})
    ran(tmp_path, "omniglot", {"11-angular": 0.55})
    assert f"{QUESTION} Not shown on CUB-200-2011, no on Omniglot.** It is among the best on CUB-200-2011, behind some" in text_of(tmp_path)
    ran(tmp_path, "cub", {"11-angular": 0.55})
    assert f"{QUESTION} No, on no data set.**" in text_of(tmp_path)
    assert "Iterations: 500 on CUB-200-2011, 1,000 on Omniglot;" in text_of(tmp_path)
    assert "Every trained row that is compared has 3 seeds;" in text_of(tmp_path)


def test_where_none_is_above_and_some_are_level_it_is_not_shown(tmp_path: Path) -> None:
    ran(tmp_path, "cub", {"11-prec5-printed": 0.51, "11-npair": 0.4})
    assert f"{QUESTION} Not shown: none is above it, but some cannot be told apart from it.** It is among the best on" in text_of(tmp_path)
    assert "none of 9 is above it, 8 are not told apart from it (none with a higher mean)." in text_of(tmp_path)


def test_of_many_that_are_above_the_best_three_are_named(tmp_path: Path) -> None:
    ran(tmp_path, "cub", {f"11-{name}": 0.6 + number / 10 for number, name in enumerate(("angular", "lifted", "npair", "proxy"))})
    text = text_of(tmp_path)
    assert "4 of 9 are above it (Proxy-NCA 90.0, N-pair 80.0, Lifted structure 70.0, ...), 5 are not" in text and "behind some of" in text
    ran(tmp_path, "cub", {f"11-{name}": 0.7 for name in lu2019_trials.TABLE_1} | {"11-npair": 0.4})
    assert "It is behind most of them on CUB-200-2011." in text_of(tmp_path)


@pytest.mark.parametrize(
    ("floor", "words"), [(0.4, ""), (0.5, "raw pixels are not told apart from it (50.0)"), (0.6, "raw pixels are above it, too")]
)
def test_what_was_there_before_is_named_where_prec_at_k_is_not_above_it(floor: float, words: str, tmp_path: Path) -> None:
    ran(tmp_path, "cifar", {})
    ran(tmp_path, "cifar", {"floor-pixels": floor}, only=["floor-pixels"])
    assert words in text_of(tmp_path) and ("raw pixels" in text_of(tmp_path)) == bool(words)


@pytest.mark.parametrize(("active", "stuck"), [(318.1, False), (319.97, True)])  # at random it is 318
def test_a_training_in_which_every_neighbor_stays_misplaced_is_told(active: float, stuck: bool, tmp_path: Path) -> None:
    ran(tmp_path, "cifar", {}, active=active)
    assert ("There at least 99.9 % of the 5 nearest in a batch" in text_of(tmp_path)) == stuck


def test_other_forms_and_losses_with_class_vectors_have_their_say(tmp_path: Path) -> None:
    ran(tmp_path, "cub", {"any-proxy": 0.6, "any-softmax": 0.7, "any-e-ncm": 0.4})
    assert "Of its 9 other forms (other k, terms and margins, a memory) none is ahead of them all anywhere." in text_of(tmp_path)
    vectors = "against either form: 2 of 3 above (Normalized softmax 70.0, Proxy-NCA 60.0) and 1 below on CUB-200-2011."
    assert vectors in text_of(tmp_path)
    ran(tmp_path, "cub", {"11-prec1-printed": 0.6})
    assert "memory) these are ahead of every loss of table 1: Prec@1 on CUB-200-2011." in text_of(tmp_path)


def test_which_edge_of_two_rates_was_taken_and_whether_four_were_enough(tmp_path: Path) -> None:
    ran(tmp_path, "cub", {}, chosen=-1)
    ran(tmp_path, "omniglot", {}, chosen=0)
    ran(tmp_path, "cifar", {}, chosen=1)  # the second of four rates, and the lower of two with the second setting
    assert "The lower rate was chosen by 0 of 32 on CUB-200-2011, 32 of 32 on Omniglot, 32 of 32 on CIFAR-100." in text_of(tmp_path)
    assert "neither the lowest nor the highest in 4 of 12 cases." in text_of(tmp_path)


def test_longer_trainings_are_told_as_far_as_they_were_run(tmp_path: Path) -> None:
    question = "**Does longer training change the result?"
    untried = "Not run on {}. Prec@5 starts with a collapsed embedding, so short trainings may understate it"
    ran(tmp_path, "cub", {})
    ran(tmp_path, "cifar", {})
    assert f"{question}** {untried.format('CUB-200-2011 and CIFAR-100')}" in text_of(tmp_path)
    ran(tmp_path, "cub", {"longer-11-prec5-printed": 0.56}, only=["longer-11-prec5-printed"])
    text = "On CUB-200-2011 it has 56.0 ± 1.0 as printed (short: 50.0); "
    assert f"{question}** {lu2019_trials.TIMES} times as many iterations, 3 seeds, with the settings" in text_of(tmp_path)
    assert text + "its baselines have not been run as long. " + untried.format("CIFAR-100") in text_of(tmp_path)
    ran(tmp_path, "cub", {"longer-2-proxy": 0.7}, only=["longer-2-proxy", "longer-any-e-ncm"])
    below = "below Prec@5: E-NCM with uniform batches 50.0 (short: 50.0); "
    assert text + below + "above Prec@5: Proxy-NCA with 2 images per class 70.0 (short: 50.0)." in text_of(tmp_path)


@pytest.mark.parametrize(
    ("baseline", "words"),
    [
        (
            0.4,
            "Open on CUB-200-2011: of the 9 losses of table 1 one per data set was run as long with equal batches. It is below Prec@5",
        ),
        (0.51, "It is not told apart from one or both of its forms on CUB-200-2011.**"),
        (0.6, "No on CUB-200-2011: of the 9 losses of table 1 one per data set was run as long with equal batches. It is above Prec@5"),
    ],
)
def test_the_baseline_with_equal_batches_decides_what_longer_trainings_say(baseline: float, words: str, tmp_path: Path) -> None:
    ran(tmp_path, "cub", {"11-triplet-weighted": 0.4})
    figures = {"longer-11-prec5-printed": 0.5, "longer-11-prec5-released": 0.53, "longer-11-triplet-weighted": baseline}
    ran(tmp_path, "cub", figures, only=figures)
    assert words in text_of(tmp_path) and "the short training of the baseline with equal batches is below Prec@5." in text_of(tmp_path)
    assert sum(name.startswith("11-") for name in lu2019_trials.LONGER["cub"]) == 3  # both forms, and one baseline


def test_a_longer_training_borrows_the_margin_of_its_short_one(tmp_path: Path) -> None:
    """Its own interval over queries, +-1, would tell 50 and 53 apart."""
    ran(tmp_path, "cub", {})
    ledger = Ledger.read(tmp_path, TRIALS["lu2019-cub-11-prec5-printed"])
    for run, value in zip(ledger.runs, (0.46, 0.5, 0.54), strict=True):
        run["figures"]["precision@1"] = value
    ledger.save(tmp_path)
    figures = {"longer-11-prec5-printed": 0.53, "longer-11-triplet-weighted": 0.5}
    ran(tmp_path, "cub", figures, only=figures)
    assert "it has 53.0 ± 8.0 as printed" in text_of(tmp_path)
    assert "not told apart from one or both of its forms on CUB" in text_of(tmp_path)


def test_how_many_are_above_the_untouched_network(tmp_path: Path) -> None:
    ran(tmp_path, "cub", {"11-angular": 0.6, "2-npair": 0.6, "any-softmax": 0.3})
    assert "untouched" not in text_of(tmp_path)
    ran(tmp_path, "cub", {}, only=["floor-pretrained"])
    floor = "Pretrained network untouched (1,280 dimensions): 50.0; of 36 models 2 above it, 1 below, 33 not told apart."
    assert floor in text_of(tmp_path)
    ran(tmp_path, "cub", {"floor-projected": 0.4}, only=["floor-projected"])  # in the models' own number of dimensions
    assert floor in text_of(tmp_path) and "dimensions as the models): 40.0; of 36 models 35 above it, 1 below, 0 not" in text_of(tmp_path)


@pytest.mark.parametrize(
    ("released", "with_2", "word"),
    [
        (0.5, 0.4, "the batches explain the lead"),
        (0.6, 0.4, "the lead stays with equal batches, and the batches add to it"),
        (0.6, 0.5, "the lead stays with equal batches"),
        (0.7, 0.6, "the lead stays with equal batches, and is larger than with the paper's"),
        (0.5, 0.5, "with the paper's batches there is no lead to explain"),
        (0.6, 0.7, "with the paper's batches there is no lead to explain, and with equal ones there is"),
        (0.51, 0.494, "with equal batches it is gone, but the effect of the batches is within its margin"),
    ],
)
def test_whether_batches_explain_the_lead(released: float, with_2: float, word: str, tmp_path: Path) -> None:
    ran(tmp_path, "cub", {"11-prec5-released": released, **{name: with_2 for name in SINGLE if name.startswith("2-")}})
    text = text_of(tmp_path)
    lead, strongest = 100 * (released - with_2), 100 * (released - 0.5)
    assert (
        f"| CUB-200-2011 | {lead:+.1f} ± 1.4 ({lead:+.1f}) | {strongest:+.1f} ± 1.4 ({strongest:+.1f}) |" in text and f"| {word} |" in text
    )
    short = "Yes" if word.startswith("the batches explain") else "There is none to explain" if "no lead" in word else "No"
    assert f"explain its lead? {short}.**" in text
    assert "Prec@5 is 7.3 points of P@1 above the median of the 9 losses of table 1 and 3.5 above the strongest" in text


def test_losses_that_hardly_learn_make_no_lead(tmp_path: Path) -> None:
    """Four of nine at a tenth would draw a mean far below Prec@5, which is behind the median."""
    poor = {f"2-{name}": 0.1 for name in ("lifted", "triplet-hard", "contrastive", "npair")}
    ran(tmp_path, "cub", {"11-prec5-released": 0.47, **poor})
    text = text_of(tmp_path)
    assert "| CUB-200-2011 | -3.0 ± 1.4 (-3.0) |" in text
    assert "there is no lead to explain | 5 of 9: Uniform triplets 50.0," in text


def test_the_recipe_is_chosen_on_held_out_classes_and_told_with_its_test_figures(tmp_path: Path) -> None:
    ran(tmp_path, "cub", {"11-nca": 0.7}, {"any-softmax": 0.6, "11-nca": 0.5})
    ran(tmp_path, "cifar", {}, {"any-softmax": 0.5, "11-nca": 0.55})
    ran(tmp_path, "omniglot", {}, {"any-softmax": 0.5, "11-nca": 0.5})
    assert ranked(counted(by_set(verdicts(lu2019.CELLS, tmp_path))))[:2] == ["any-softmax", "11-nca"]
    text = text_of(tmp_path)
    assert "Normalized softmax with uniform batches: of the 36 rows that were tuned on all of CUB-200-2011, Omniglot, CIFAR-100" in text
    assert "53.3 on average (one run each, so without a margin). The next, NCA on cosines with 11 images per class, has 51.7" in text
    assert "CUB-200-2011: 50.0 ± 1.0; of 35 others 0 below it, 1 above (NCA on cosines with 11 images per class 70.0), 34 not told" in text
    made = json.loads(write(tmp_path, tmp_path / "made.json").read_text())
    assert made["row"] == "any-softmax" and made["settings"]["sampler.name"] == "shuffled"
    rates = {data: made[part]["optimizer.learning_rate"] for data, part in (("cifar", "settings"), ("cub", "pretrained"))}
    assert rates == {data: lu2019_trials.SETS[data].rates[-1] for data in rates}
    (tmp_path / "lu2019-cifar-any-softmax.json").unlink()  # what was not run everywhere is not recommended
    assert measured(tmp_path)["row"] == "11-nca"


def test_without_one_of_the_data_sets_there_is_no_recipe(tmp_path: Path) -> None:
    ran(tmp_path, "omniglot", {})
    ran(tmp_path, "cub", {})
    ran(tmp_path, "cifar", {}, only=["11-npair"])  # an incomplete table does not count
    with pytest.raises(ValueError, match="half the rows on each of CUB-200-2011, CIFAR-100, Omniglot; run `python -m papers"):
        measured(tmp_path)
    assert "Which recipe is best?" not in text_of(tmp_path)
    ran(tmp_path, "cifar", {})
    assert "Which recipe is best?" in text_of(tmp_path)
    assert measured(tmp_path)["settings"]["optimizer.learning_rate"] == lu2019_trials.SETS["cifar"].rates[-1]


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
    tuned = lu2019_trials.SETS["cub"].settings
    assert all(cropped[leaf] == tuned[leaf] for leaf in ("network.rate", "network.statistics"))
    override(Run(), cropped)


def test_the_recipe_that_is_shipped_is_the_one_that_was_measured() -> None:
    assert RECIPES["retrieval"] == Recipe.of(measured(RESULTS))
