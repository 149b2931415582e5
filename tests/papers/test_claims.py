"""Claims are decided by the runs, with the margins of all rows of a difference."""

from dataclasses import replace
from pathlib import Path

import pytest

from nearkin.train.config import Run, override
from papers.cell import AFTER_TEST, Cell
from papers.claim import Claim, Difference, claim_table, decide, outcomes, restart_table, signed
from papers.claims import CLAIMS, RESTARTS
from papers.page import page_rows, paper_page
from papers.tables import TABLES
from papers.verdict import Verdict

RESULTS = Path(__file__).resolve().parents[2] / "docs/results"
GAIN = Difference("gain", (("a", "e"), ("d", "e")), (("b", "e"), ("c", "e")))
CLAIM = Claim("anchors gain more", "table 1", (GAIN, Difference("plain", (("a", "e"),), (("b", "e"),))))
ALL = [claim for some in CLAIMS.values() for claim in some]
TRIALS = {trial.name: trial for trials, _ in TABLES.values() for trial in trials}


def rows(
    means: dict[str, float | None], margin: float, printed: dict[str, float], values: tuple[float, ...] = ()
) -> list[tuple[Cell, Verdict]]:
    return [
        (
            Cell("T", name, printed.get(name), "error %", name, "e"),
            Verdict("ours", mean, None, 1, margin, values=values, latest=values, selection="fixed"),
        )
        for name, mean in means.items()
    ]


@pytest.mark.parametrize(
    ("means", "word", "ours"),
    [
        ({"a": 10.0, "b": 6.0, "c": 9.0, "d": 8.0}, "holds", 3.0),
        ({"a": 10.0, "b": 9.5, "c": 9.0, "d": 6.0}, "does not hold", -2.5),
        ({"a": 10.0, "b": 9.0, "c": 9.0, "d": 9.9}, "not told apart", 1.9),
        ({"a": 10.0, "b": 9.0, "c": None, "d": 8.0}, "not run", None),
    ],
)
def test_a_difference_combines_the_margins_of_its_rows(means: dict[str, float | None], word: str, ours: float | None) -> None:
    found = {(cell.row, "e"): (cell, verdict) for cell, verdict in rows(means, 1.0, {"a": 10.5, "b": 9.9, "c": 10.5, "d": 10.2})}
    outcome = decide(GAIN, found)
    assert outcome.word == word and outcome.printed == pytest.approx(0.3)
    assert outcome.ours is None if ours is None else outcome.ours == pytest.approx(ours)
    assert ours is None or outcome.margin == pytest.approx(2.0)  # four rows of margin 1


def test_the_printed_difference_needs_all_printed_figures() -> None:
    found = {(cell.row, "e"): (cell, verdict) for cell, verdict in rows(dict.fromkeys("abcd", 1.0), 1.0, {"a": 1.0})}
    assert decide(GAIN, found).printed is None


def test_the_table_shows_every_difference_also_those_not_run() -> None:
    lines = claim_table([CLAIM], rows({"a": 10.0, "b": 6.0, "c": None, "d": 8.0}, 0.3, {"a": 9.0, "b": 8.0}))
    assert "| anchors gain more (table 1) | gain |  |  |  |  |  |  | not run |" in lines
    assert "|  | plain | +1.00 | +4.00 | 0.42 |  | 1 | fixed | holds, more than printed |" in lines
    unbounded = claim_table([CLAIM], rows({"a": 10.0, "b": 6.0}, 0.0, {}))
    assert any("| none: one run per row |  | 1 | fixed | holds |" in line for line in unbounded)


def test_a_claim_that_cannot_be_tested_says_why() -> None:
    lines = claim_table([Claim("first on ImageNet", "table 2", (), "ImageNet is not at hand")], [])
    assert "| first on ImageNet (table 2) |  |  |  |  |  |  |  | not run: ImageNet is not at hand |" in lines


@pytest.mark.parametrize(
    ("b", "words"), [(9.0, "holds |"), (9.9, "not told apart, less than printed |"), (10.5, "does not hold, less than printed |")]
)
def test_the_outcome_says_where_it_differs_from_print(b: float, words: str) -> None:
    lines = claim_table([CLAIM], rows({"a": 10.0, "b": b}, 0.3, {"a": 9.0, "b": 8.0}))
    assert any(f"| 0.42 |  | 1 | fixed | {words}" in line for line in lines)


def test_a_caveat_is_part_of_the_outcome_unless_nothing_was_run() -> None:
    claim = replace(CLAIM, differences=(replace(CLAIM.differences[1], caveat="confounded"),))
    assert claim_table([claim], rows({"a": 2.0, "b": 1.0}, 0.1, {}))[-2].endswith("| holds; confounded |")
    assert claim_table([claim], rows({"a": 2.0, "b": None}, 0.1, {}))[-2].endswith("| not run |")


def test_settings_selected_after_test_figures_are_marked() -> None:
    (a, one), b = rows({"a": 2.0, "b": 1.0}, 0.1, {})
    lines = claim_table([CLAIM], [(replace(a, after_test="longer"), one), b])
    assert f"| fixed {AFTER_TEST} | holds |" in lines[-2]


def test_spread_and_seeds_are_those_of_the_rows() -> None:
    found = {
        (cell.row, "e"): (cell, replace(one, seeds=3 if cell.row == "a" else 2, spread=0.02 if cell.row == "a" else 0.01))
        for cell, one in rows({"a": 2.0, "b": 1.0}, 0.1, {})
    }
    outcome = decide(CLAIM.differences[1], found)
    assert (outcome.seeds, outcome.spread) == (2, 0.02)


def test_a_row_with_one_seed_takes_the_deviation_of_the_row_it_is_compared_with() -> None:
    given = rows({"a": 12.0, "b": 10.0}, 0.3, {})
    alone = decide(CLAIM.differences[1], {(cell.row, "e"): (cell, one) for cell, one in given})
    (cell, one), (other, single) = given
    together = {("a", "e"): (cell, replace(one, seeds=3, spread=1.5, margin=3.0)), ("b", "e"): (other, single)}
    assert alone.word == "holds" and alone.margin == pytest.approx(0.3 * 2**0.5)
    assert decide(CLAIM.differences[1], together).word == "not told apart"
    assert decide(CLAIM.differences[1], together).margin == pytest.approx(3.0 * 2**0.5)


def test_a_difference_of_zero_has_no_sign() -> None:
    cell = Cell("T", "a", None, "error %", "a")
    assert [signed(cell, value) for value in (-0.001, 0.2, -0.2, None)] == ["0.00", "+0.20", "-0.20", ""]


def test_maps_fitted_on_a_part_of_the_images_are_named_in_the_differences() -> None:
    labels = [one.label for claim in ALL for one in claim.differences if "minus LDA" in one.label or one.label.startswith("ours minus")]
    labels = [one for one in labels if "all images" not in one]
    assert len(labels) == 4 and all("fitted on 10,000 images" in one for one in labels)


def test_a_cell_with_a_printed_figure_represents_its_trial() -> None:
    twice = [*rows({"a": 2.0, "b": 1.0}, 0.1, {"a": 3.0, "b": 1.0}), *rows({"a": 2.0, "b": 1.0}, 0.1, {})]
    for given in (twice, twice[::-1]):
        assert any("| plain | +2.00 | +1.00 |" in line for line in claim_table([CLAIM], given))


def test_restarts_show_best_and_worst_training_once_there_are_two() -> None:
    started = restart_table({"NCA": ("a", "e")}, rows({"a": 0.6}, 0.1, {}, values=(0.5, 0.7, 0.6)))
    assert "| NCA | error % | 3 | 0.50 | 0.70 | 0.20 |" in started
    assert restart_table({"NCA": ("a", "e")}, rows({"a": 0.6}, 0.1, {}, values=(0.6,))) == []


def test_rows_of_other_tables_bring_no_claims() -> None:
    assert claim_table([CLAIM], rows({"z": 1.0}, 0.1, {})) == []
    assert "## Claims" not in paper_page("ren2014", rows({"z": 1.0}, 0.1, {}))


def test_every_claim_uses_figures_that_some_cell_shows() -> None:
    shown = {(cell.trial, cell.figure): cell for _, cells in TABLES.values() for cell in cells}
    for claim in ALL:
        assert bool(claim.differences) != bool(claim.not_run)
        for one in claim.differences:
            assert len({shown[term].unit for term in (*one.plus, *one.minus)}) == 1, one.label
            assert set(one.plus).isdisjoint(one.minus)
    assert set(RESTARTS.values()) <= set(shown)


def test_a_claim_on_both_kinds_of_cifar_10_is_tested_on_both() -> None:
    """'Slightly better on CIFAR10 and CIFAR10+': the second is where ours differs."""
    [claim] = [one for one in ALL if one.statement.startswith("E-NCM is slightly better")]
    assert {one.label.partition(",")[0] for one in claim.differences} == {"CIFAR10", "CIFAR10+"}


def test_discovery_and_instances_are_compared_at_equal_length() -> None:
    """Computed from the JSON: our recipe, the released one, and the short trainings."""
    found = {one.label: outcome for _, one, outcome in outcomes(CLAIMS["huang2019"], page_rows("huang2019", RESULTS))}
    ours, released = (next(label for label in found if label.startswith(start)) for start in ("our recipe, 250", "released recipe, 250"))
    assert found[ours].ours == pytest.approx(84.892 - 84.61) and found[ours].word == "not told apart"
    assert found[released].ours == pytest.approx(82.04 - 82.63) and found[released].word == "not told apart"
    for claim in CLAIMS["huang2019"]:
        for one in claim.differences:
            lengths = {override(Run(), TRIALS[trial].settings).epochs for trial, _ in (*one.plus, *one.minus)}
            assert len(lengths) == 1 or not claim.statement.startswith("at equal length")


def test_comparisons_of_different_schedules_say_so_in_claim_and_outcome() -> None:
    """AND restarts in each of five rounds; Instance and DeepCluster do not."""
    page = paper_page("huang2019", page_rows("huang2019", RESULTS))
    checked = 0
    for claim in CLAIMS["huang2019"]:
        for one in claim.differences:
            runs = [override(Run(), TRIALS[trial].settings) for trial, _ in (*one.plus, *one.minus)]
            rounds = {run.objective.name == "neighborhood_discovery" and run.discovery.restart for run in runs}
            assert ("5 restarts against one" in one.caveat) == (len(rounds) > 1), one.label
            assert len(rounds) == 1 or "schedules" in claim.source, claim.statement
            checked += len(rounds) > 1
    assert checked > 12
    [line] = [line for line in page.splitlines() if "CIFAR-100, weighted kNN: AND minus Instance" in line]
    assert "| does not hold, less than printed; confounded by schedules, 5 restarts against one |" in line
