"""Claims are decided by the runs, with the margins of all rows that bear on them, and not before those rows are there."""

from dataclasses import replace

import pytest

from papers.cell import Cell
from papers.claimed import CLAIMS, RESTARTS
from papers.claims import Claim, Difference, claims_section, decide
from papers.page import results_page
from papers.tables import TABLES
from papers.verdict import Verdict

GAIN = Difference("gain", (("a", "e"), ("d", "e")), (("b", "e"), ("c", "e")))
CLAIM = Claim("anchors gain more", "[key] table 1", (GAIN, Difference("plain", (("a", "e"),), (("b", "e"),))))


def rows(
    means: dict[str, float | None], margin: float, printed: dict[str, float], values: tuple[float, ...] = ()
) -> list[tuple[Cell, Verdict]]:
    return [
        (Cell("T", name, printed.get(name), "error %", name, "e"), Verdict("ours", mean, None, 1, margin, values=values))
        for name, mean in means.items()
    ]


@pytest.mark.parametrize(
    ("means", "word", "ours"),
    [
        ({"a": 10.0, "b": 6.0, "c": 9.0, "d": 8.0}, "holds", 3.0),
        ({"a": 10.0, "b": 9.5, "c": 9.0, "d": 6.0}, "does not hold", -2.5),
        ({"a": 10.0, "b": 9.0, "c": 9.0, "d": 9.9}, "not told apart", 1.9),
        ({"a": 10.0, "b": 9.0, "c": None, "d": 8.0}, "not decided: rows missing", None),
    ],
)
def test_a_difference_has_the_margins_of_its_rows_together(means: dict[str, float | None], word: str, ours: float | None) -> None:
    found = {(cell.row, "e"): (cell, verdict) for cell, verdict in rows(means, 1.0, {"a": 10.5, "b": 9.9, "c": 10.5, "d": 10.2})}
    outcome = decide(GAIN, found)
    assert outcome.word == word and outcome.printed == pytest.approx(0.3)
    assert outcome.ours is None if ours is None else outcome.ours == pytest.approx(ours)
    assert ours is None or outcome.margin == pytest.approx(2.0)  # four rows of margin 1


def test_the_printed_difference_needs_all_printed_figures() -> None:
    found = {(cell.row, "e"): (cell, verdict) for cell, verdict in rows(dict.fromkeys("abcd", 1.0), 1.0, {"a": 1.0})}
    assert decide(GAIN, found).printed is None


def test_the_section_says_what_is_decided_and_what_is_not() -> None:
    given = rows({"a": 10.0, "b": 6.0, "c": None, "d": 8.0}, 0.3, {"a": 9.0, "b": 8.0})
    lines = claims_section([CLAIM], {}, given)
    assert "| anchors gain more ([key] table 1) | plain | +1.00 | +4.00 | 0.42 | 1 | holds, more than printed |" in lines
    assert "- anchors gain more ([key] table 1): 1 of 2 differences" in lines
    assert "- anchors gain more ([key] table 1): all of it" in claims_section([CLAIM], {}, rows(dict.fromkeys("abcd", None), 0.3, {}))
    unbounded = claims_section([CLAIM], {}, rows({"a": 10.0, "b": 6.0}, 0.0, {}))
    assert any("| none: one run a row | 1 | holds |" in line for line in unbounded)


@pytest.mark.parametrize(
    ("b", "words"), [(9.0, "holds |"), (9.9, "not told apart, less than printed |"), (10.5, "does not hold, less than")]
)
def test_a_difference_that_is_not_the_printed_one_is_told(b: float, words: str) -> None:
    lines = claims_section([CLAIM], {}, rows({"a": 10.0, "b": b}, 0.3, {"a": 9.0, "b": 8.0}))
    assert any(f"| 0.42 | 1 | {words}" in line for line in lines)


def test_a_difference_has_the_seeds_of_the_row_with_the_fewest() -> None:
    found = {(cell.row, "e"): (cell, replace(one, seeds=3 if cell.row == "a" else 2)) for cell, one in rows({"a": 2.0, "b": 1.0}, 0.1, {})}
    assert decide(CLAIM.differences[1], found).seeds == 2


def test_a_row_with_one_seed_takes_the_deviation_of_the_row_beside_it() -> None:
    given = rows({"a": 12.0, "b": 10.0}, 0.3, {})
    alone = decide(CLAIM.differences[1], {(cell.row, "e"): (cell, one) for cell, one in given})
    (cell, one), (other, single) = given
    beside = {("a", "e"): (cell, replace(one, seeds=3, spread=1.5, margin=3.0)), ("b", "e"): (other, single)}
    assert alone.word == "holds" and alone.margin == pytest.approx(0.3 * 2**0.5)
    assert decide(CLAIM.differences[1], beside).word == "not told apart"
    assert decide(CLAIM.differences[1], beside).margin == pytest.approx(3.0 * 2**0.5)


def test_maps_fitted_on_a_part_of_the_images_are_told_in_the_differences() -> None:
    said = [one.said for claim in CLAIMS for one in claim.differences if "less LDA" in one.said or one.said.startswith("ours less")]
    assert len(said) == 4 and all("fitted on 10,000 images" in one for one in said)


def test_a_cell_with_a_printed_figure_speaks_for_its_trial() -> None:
    twice = [*rows({"a": 2.0, "b": 1.0}, 0.1, {"a": 3.0, "b": 1.0}), *rows({"a": 2.0, "b": 1.0}, 0.1, {})]
    for given in (twice, twice[::-1]):
        assert any("| plain | +2.00 | +1.00 |" in line for line in claims_section([CLAIM], {}, given))


def test_restarts_show_best_and_worst_seed_once_there_are_two() -> None:
    started = claims_section([], {"NCA": ("a", "e")}, rows({"a": 0.6}, 0.1, {}, values=(0.5, 0.7, 0.6)))
    assert "| NCA | error % | 3 | 0.50 | 0.70 | 0.20 |" in started
    assert claims_section([], {"NCA": ("a", "e")}, rows({"a": 0.6}, 0.1, {}, values=(0.6,))) == []


def test_rows_of_other_tables_bring_no_section() -> None:
    assert claims_section([CLAIM], {"NCA": ("x", "e")}, rows({"z": 1.0}, 0.1, {})) == []
    assert "Claims" not in results_page(rows({"z": 1.0}, 0.1, {}))


def test_the_claims_lead_to_the_question_that_wide_tables_answer() -> None:
    cells = [next(cell for cell in TABLES[name][1] if cell.trial) for name in ("ren2014", "lu2019")]
    asked = (
        Cell("T", "softmax", None, "error %", "ren2014-mnist-softmax", "1-nn"),
        Cell("T", "NCA", None, "error %", "ren2014-mnist-nca-log", "1-nn"),
    )
    page = results_page([(cell, Verdict("ours", 1.0, None, 1, 0.1)) for cell in (*asked, *cells)])
    assert (
        page.index("## Claims") < page.index('has a section of its own, "[lu2019sampling]: does') < page.index("## [lu2019sampling]: does")
    )


def test_every_claim_asks_for_figures_that_some_cell_shows() -> None:
    shown = {(cell.trial, cell.figure): cell for _, cells in TABLES.values() for cell in cells}
    for claim in CLAIMS:
        for one in claim.differences:
            assert len({shown[term].unit for term in (*one.plus, *one.minus)}) == 1, one.said
            assert set(one.plus).isdisjoint(one.minus)
    assert set(RESTARTS.values()) <= set(shown)


def test_what_the_text_says_of_both_kinds_of_cifar_10_is_asked_of_both() -> None:
    """'Slightly better on CIFAR10 and CIFAR10+': leaving out the second would leave out where ours says otherwise."""
    [claim] = [one for one in CLAIMS if one.said.startswith("E-NCM is slightly better")]
    assert {one.said.partition(",")[0] for one in claim.differences} == {"CIFAR10", "CIFAR10+"}
