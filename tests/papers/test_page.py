"""Verdicts are earned, and the page tells them: rows, margins, goals, and what diverged."""

import math
from dataclasses import replace

import pytest

from papers.cell import Ablation, Cell
from papers.contest import apart
from papers.page import paragraphs, results_page, wide_table
from papers.tables import TABLES
from papers.verdict import Verdict, judge
from tests.papers.saved import result


@pytest.mark.parametrize(
    ("printed", "unit", "values", "word"),
    [
        (0.83, "error %", (0.9917, 0.9917), "reproduced"),
        (0.83, "error %", (0.9950, 0.9952), "better"),
        (0.83, "error %", (0.9800, 0.9801), "short"),
        (75.2, "accuracy %", (0.80, 0.81), "better"),
        (75.2, "accuracy %", (0.70, 0.71), "short"),
        (75.2, "accuracy %", (0.70, 0.80), "reproduced"),  # two standard deviations are wide
        (None, "accuracy %", (0.70,), "ours"),
        (0.83, "error %", (), "not run here"),
    ],
)
def test_verdicts(printed: float | None, unit: str, values: tuple[float, ...], word: str) -> None:
    cell = Cell("t", "r", printed, unit, "made")  # type: ignore[arg-type]
    found = judge(cell, [result(value) for value in values], "mnist")
    assert found.word == word and found.seeds == len(values)
    assert judge(replace(cell, trial=None), [], None).word == "cited"


def test_runs_that_diverged_are_counted_and_told() -> None:
    lost = {"figures": {}, "seconds": 0.0, "whole_seconds": 9.0, "device": "CPU", "date": "2026-11-15"}
    cell, taken = Cell("T", "a row", 0.83, "error %", "made"), Cell("T", "time", None, "seconds", "made", "seconds")
    some, none = judge(cell, [lost, result(0.9917, 4.0), lost], "mnist"), judge(cell, [lost, lost], "mnist")
    assert (some.word, some.seeds, some.diverged, some.seconds) == ("reproduced", 1, 2, 4.0)
    assert (none.word, none.seeds, none.diverged, none.mean) == ("diverged", 0, 2, None)
    assert judge(taken, [lost, result(0.9917, 4.0)], "mnist").values == (4.0,)
    page = results_page([(cell, some), (replace(cell, row="another"), none)])
    assert "| reproduced ✓ | 2 of 3 diverged |" in page and "| CPU | diverged | 2 of 2 diverged |" in page
    wide = replace(cell, wide=True, column="P@1")
    assert "| a row | 1, 2 of 3 diverged |" in "\n".join(wide_table([(wide, some)]))
    assert "| a row | 0, 2 of 2 diverged |" in "\n".join(wide_table([(wide, none), (replace(wide, row="b"), some)]))


def test_a_figure_that_only_the_first_seed_leaves_is_no_divergence() -> None:
    cell = Cell("T", "a row", None, "length", "made", "length")
    found = judge(cell, [{**result(0.5), "figures": {"1-nn": 0.5, "length": 0.25}}, result(0.5)], "mnist")
    assert (found.seeds, found.diverged, cell.told(found.mean)) == (1, 0, "0.2500")


def test_the_whole_of_a_run_has_seconds_of_its_own() -> None:
    cell = Cell("T", "all of it", None, "seconds", "made", "whole_seconds")
    assert judge(cell, [{**result(0.5), "whole_seconds": 7.5}], "mnist").mean == 7.5
    page = results_page([(one, judge(one, [], None)) for one in TABLES["ren2014"][1]])
    assert page.index("## Time to accuracy") < page.index("One recipe for each data set") < page.index("| MNIST, captured: 10-NN")
    assert "MNIST 8 epochs, shifts, rate 0.3; CIFAR-10 28 epochs, crop and flip, rate 0.1" in " ".join(page.split())


def test_the_binomial_margin_is_that_of_ten_thousand() -> None:
    found = judge(Cell("t", "r", 1.0, "error %", "made"), [result(0.99)], "mnist")
    assert found.margin == pytest.approx(100 * 1.96 * math.sqrt(0.01 * 0.99 / 10_000)) and found.spread is None
    assert judge(Cell("t", "r", 1.0, "seconds", "made", "seconds"), [result(0.99)], "mnist").mean == 1.0


def test_what_was_wanted_may_be_more_than_what_is_printed() -> None:
    cell = Cell("t", "r", 0.75, "error %", "made", wanted=0.35)
    assert judge(cell, [result(0.995)], "mnist").reached(cell) is False
    assert judge(cell, [result(0.9970)], "mnist").reached(cell) is True
    equal = Cell("t", "r", 1.0, "error %", "made")
    assert judge(equal, [result(0.99)], "mnist").reached(equal) is True  # whatever rounding says


def test_a_goal_that_is_missed_by_less_than_two_digits_show_says_by_how_much() -> None:
    wanted, printed = Cell("T", "a", 8.89, "error %", "made", wanted=8.4), Cell("T", "b", 8.4, "error %", "made")
    near, reached = ([result(value)] for value in (1 - 0.08403, 1 - 0.08399))
    page = results_page([(cell, judge(cell, near, "mnist")) for cell in (wanted, printed)])
    assert "✗ | wanted 8.4, missed by 0.003 |" in page and "✗ | printed, missed by 0.003 |" in page
    assert "✓ | wanted 8.4 |" in results_page([(wanted, judge(wanted, reached, "mnist"))])
    assert "✗ that it does not" in " ".join(page.split())


def test_intervals_of_the_runs_widen_the_margin() -> None:
    cell = Cell("t", "r", None, "accuracy %", "made", "map")
    runs = [{**result(0.5), "figures": {"map": 0.5}, "intervals": {"map": [0.48, 0.54]}}]
    assert judge(cell, runs, "cub").margin == pytest.approx(3.0) and judge(cell, [{**runs[0], "intervals": {}}], "cub").margin == 0


def test_the_page_names_every_row_and_its_state() -> None:
    cells = [Cell("A table", "a row", 1.0, "error %", "made", column="MNIST", note="why"), Cell("A table", "theirs", 2.0, "error %")]
    page = results_page([(cells[0], judge(cells[0], [result(0.995)], "mnist")), (cells[1], judge(cells[1], [], None))])
    assert "| a row | MNIST | error % | 1.00 | 0.50 |  | 1 | 1.0 | CPU | better ✓ | why |" in page
    assert "| theirs |  | error % | 2.00 |  |  |  |  |  | cited |  |" in page


def test_a_short_row_tells_its_ablations_and_no_other_row_does() -> None:
    changed = (Ablation("shifted", "other", "1-nn"), Ablation("longer", "unrun", "1-nn"))
    cell = Cell("A table", "a row", 1.0, "error %", "made", note="raw", ablations=changed)
    others = [(other, judge(other, [result(0.985)], "mnist")) for other in [Cell("A table", "another", None, "error %", "other")]]
    short, good = (judge(cell, [result(value)], "mnist") for value in (0.95, 0.99))
    assert "| short ✗ | raw; ablations: shifted 1.50 |" in results_page([(cell, short), *others])
    assert "| short ✗ | raw; no ablation has been run here |" in results_page([(cell, short)])
    assert "| short ✗ | raw |" in results_page([(replace(cell, ablations=()), short)])
    assert "| reproduced ✓ | raw |" in results_page([(cell, good), *others])


def verdict_of(mean: float, margin: float) -> Verdict:
    return Verdict("ours", mean, 0.0, 3, margin)


def test_two_rows_are_told_apart_by_both_margins_together() -> None:
    assert apart(verdict_of(50, 3), verdict_of(45.1, 4)) == 0 and apart(verdict_of(50, 3), verdict_of(44.9, 4)) == 1
    assert apart(verdict_of(40, 3), verdict_of(45.1, 4)) == -1


def test_a_wide_table_holds_all_columns_of_a_row_and_says_who_is_ahead() -> None:
    def cells(row: str, printed: float | None = None) -> list[Cell]:
        return [
            Cell("T", row, printed, "accuracy %", row, "p1", "P@1", wide=True),
            Cell("T", row, None, "seconds", row, "s", "s", wide=True),
        ]

    rows = [cell for row in ("Prec@5 as printed", "Angular", "N-pair", "Contrastive", "Lifted") for cell in cells(row)]
    rows += cells("Proxy", 61.07)
    p1 = {"Prec@5 as printed": 0.6, "Angular": 0.55, "N-pair": 0.65, "Contrastive": 0.602}

    def found(cell: Cell) -> Verdict:
        value = p1.get(cell.row)
        run = (
            {"figures": {"p1": value, "s": 2.5}, "intervals": {"p1": [value - 0.01, value + 0.01]}, "seconds": 1.0, "device": "CPU"}
            if value
            else None
        )
        judged = judge(cell, [run] if run else [], "cub")
        return replace(judged, chosen="rate 0.1", held_out=0.51) if cell.row == "Angular" else judged

    page = results_page([(cell, found(cell)) for cell in rows])
    assert (
        "| Angular | 1 | 55.0 ± 1.0 | 2.5 | rate 0.1 (51.0) |" in page
        and "| Lifted | not run here |  |  |  |" in page
        and "| *the same, as printed* |  | *61.1* |  |  |" in page
    )
    assert "| 1: N-pair | 1: Contrastive | 1 of 3 |" in page
    assert "P@1 | 60.0 ± 1.0 | 1: N-pair" in page
    assert (
        "batches of 64 with 11 images a class" in " ".join(page.split())
        and "| CUB-200-2011 at 128 px | mobilenet-v2, pretrained | 64 | crop | bfloat16 | 500 (250) | 0.0005, 0.002 |" in page
    )
    assert page.index("does optimizing Prec@k beat") < page.index("How these rows were made") < page.index("## T\n")


def test_the_page_says_what_a_documents_terms_mean_once_in_lines_that_can_be_read() -> None:
    cells = [cell for cell in TABLES["taylor2010"][1] if "COIL" in cell.table]
    page = results_page([(cell, judge(cell, [], None)) for cell in cells])
    words = " ".join(page.split())
    assert words.count('the figure "own zero" takes each object\'s mean deviation away') == 1
    assert "| row | figure | unit |" in page  # figures of one trial, and no data sets
    text = [line for line in page.splitlines() if not line.startswith(("|", "#"))]
    assert max(map(len, text)) <= 145


def test_a_list_has_no_empty_lines_between_its_items() -> None:
    assert paragraphs(["a\nb", "- c", "- " + 80 * "d e ", "- f", "g"])[1:4:2] == ["", "- " + " ".join(["d e"] * 34) + " d"]
    assert paragraphs(["- c", "- f", "g"]) == ["- c", "- f", "", "g", ""]
    row = f"| {200 * 'wide '}|"
    assert paragraphs(["a", "| b |", row, "- c", "d"]) == ["a", "", "| b |", row, "", "- c", "", "d", ""]  # lines of a table stay whole


def test_speeds_are_whole_numbers_and_seconds_tell_every_run() -> None:
    speed, taken = Cell("T", "fast", None, "queries/s", "made", "code"), Cell("T", "slow", None, "seconds", "made", "seconds")
    runs = [{**result(0.5), "figures": {"code": 23458.75}, "seconds": seconds} for seconds in (16.7, 0.9)]
    page = results_page([(cell, judge(cell, runs, "mnist")) for cell in (speed, taken)])
    assert "| fast | queries/s |  | 23,459 | 0 | 2 |" in page and "| ours | runs: 16.70, 0.90 |" in page
