"""Verdicts, and the pages that show them: rows, margins, targets, marks, and diverged runs."""

import math
from dataclasses import replace

import pytest

from papers.cell import LEGEND, Ablation, Cell
from papers.comparison import comparison_table, order
from papers.layout import paragraphs
from papers.page import paper_page
from papers.row_table import row_table
from papers.tables import TABLES
from papers.verdict import Verdict, judge
from papers.wide_table import below, wide_table
from tests.papers.saved import result


def table(*found: tuple[Cell, Verdict]) -> str:
    by_trial = {(cell.trial, cell.figure): verdict for cell, verdict in found}
    return "\n".join(row_table(found, by_trial))


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
        (0.83, "error %", (), "not run"),
    ],
)
def test_verdicts(printed: float | None, unit: str, values: tuple[float, ...], word: str) -> None:
    cell = Cell("t", "r", printed, unit, "made")  # type: ignore[arg-type]
    found = judge(cell, [result(value) for value in values], "mnist")
    assert found.word == word and found.seeds == len(values)
    assert judge(replace(cell, trial=None), [], None).word == "cited"
    assert judge(replace(cell, trial=None, unavailable="no data"), [], None).word == "not run"


def test_diverged_runs_are_counted_and_shown() -> None:
    lost = {"figures": {}, "seconds": 0.0, "whole_seconds": 9.0, "device": "CPU", "date": "2026-11-15"}
    cell, taken = Cell("T", "a row", 0.83, "error %", "made"), Cell("T", "time", None, "seconds", "made", "seconds")
    some, none = judge(cell, [lost, result(0.9917, 4.0), lost], "mnist"), judge(cell, [lost, lost], "mnist")
    assert (some.word, some.seeds, some.diverged, some.seconds) == ("reproduced", 1, 2, 4.0)
    assert (none.word, none.seeds, none.diverged, none.mean) == ("diverged", 0, 2, None)
    assert judge(taken, [lost, result(0.9917, 4.0)], "mnist").values == (4.0,)
    page = table((cell, some), (replace(cell, row="another"), none))
    assert "| reproduced ✓ | 2 of 3 diverged |" in page and "| CPU | diverged | 2 of 2 diverged |" in page
    wide = replace(cell, wide=True, column="P@1")
    assert "| a row | 1, 2 of 3 diverged |" in "\n".join(wide_table([(wide, some)]))
    assert "| a row | 0, 2 of 2 diverged |" in "\n".join(wide_table([(wide, none), (replace(wide, row="b"), some)]))


def test_a_figure_that_only_the_first_seed_has_is_no_divergence() -> None:
    cell = Cell("T", "a row", None, "length", "made", "length")
    found = judge(cell, [{**result(0.5), "figures": {"1-nn": 0.5, "length": 0.25}}, result(0.5)], "mnist")
    assert (found.seeds, found.diverged, cell.text(found.mean)) == (1, 0, "0.2500")


def test_every_training_of_a_seed_counts_and_the_latest_are_named() -> None:
    cell = Cell("T", "a row", None, "accuracy %", "made")
    runs = [{**result(0.80), "seed": 0}, {**result(0.84, 9.0), "seed": 1, "earlier": "why"}, {**result(0.88), "seed": 1}]
    found = judge(cell, runs, "mnist")
    assert found.mean == pytest.approx(84.0) and found.spread == pytest.approx(4.0)
    assert (found.seeds, found.count, found.seconds) == (2, "2 (3 trainings)", 1.0)
    note = "mean of all 3 trainings of 2 seeds; the latest of each seed alone have 84.00 ± 5.66"
    assert f"| 84.00 | 4.00 | 2 (3 trainings) | 1.0 |  | CPU | ours | {note} |" in table((cell, found))
    same = judge(cell, [{**result(0.8), "seed": 0, "earlier": "why"}, {**result(0.8), "seed": 0}], "mnist")
    assert same.count == "1 (2 trainings)" and "latest" in same.repeats(cell)  # one seed has no spread of its own
    assert judge(cell, [result(0.8), result(0.9)], "mnist").repeats(cell) == ""


def test_the_whole_of_a_run_has_seconds_of_its_own() -> None:
    cell = Cell("T", "all of it", None, "seconds", "made", "whole_seconds")
    assert judge(cell, [{**result(0.5), "whole_seconds": 7.5}], "mnist").mean == 7.5
    page = paper_page("ren2014", [(one, judge(one, [], None)) for one in TABLES["ren2014"][1]])
    assert page.index("## Time to accuracy") < page.index("One recipe for each data set") < page.index("| MNIST, captured: 10-NN")
    assert "MNIST 8 epochs, shifts, rate 0.3; CIFAR-10 28 epochs, crop and flip, rate 0.1" in " ".join(page.split())


def test_the_binomial_margin_is_that_of_ten_thousand() -> None:
    found = judge(Cell("t", "r", 1.0, "error %", "made"), [result(0.99)], "mnist")
    assert found.margin == pytest.approx(100 * 1.96 * math.sqrt(0.01 * 0.99 / 10_000)) and found.spread is None
    assert judge(Cell("t", "r", 1.0, "seconds", "made", "seconds"), [result(0.99)], "mnist").mean == 1.0


def test_marks_compare_with_the_print_and_with_a_target_only_where_nothing_is_printed() -> None:
    ours = Cell("t", "r", None, "error %", "made", target=0.35)
    assert judge(ours, [result(0.995)], "mnist").reached(ours) is False
    assert judge(ours, [result(0.9970)], "mnist").reached(ours) is True
    both = replace(ours, printed=0.26, target=0.32)
    assert judge(both, [result(0.9970)], "mnist").reached(both) is False
    equal = Cell("t", "r", 1.0, "error %", "made")
    assert judge(equal, [result(0.99)], "mnist").reached(equal) is True  # despite rounding
    assert not [cell for _, cells in TABLES.values() for cell in cells if cell.printed is not None and cell.target is not None]


def test_a_figure_missed_by_less_than_two_digits_show_says_by_how_much() -> None:
    target, printed = Cell("T", "a", None, "error %", "made", target=8.4), Cell("T", "b", 8.4, "error %", "made")
    near, reached = ([result(value)] for value in (1 - 0.08403, 1 - 0.08399))
    page = table(*((cell, judge(cell, near, "mnist")) for cell in (target, printed)))
    assert "✗ | target 8.4, missed by 0.003 |" in page and "✗ | printed, missed by 0.003 |" in page
    assert "✓ | target 8.4 |" in table((target, judge(target, reached, "mnist")))


def test_intervals_of_the_runs_widen_the_margin() -> None:
    cell = Cell("t", "r", None, "accuracy %", "made", "map")
    runs = [{**result(0.5), "figures": {"map": 0.5}, "intervals": {"map": [0.48, 0.54]}}]
    assert judge(cell, runs, "cub").margin == pytest.approx(3.0) and judge(cell, [{**runs[0], "intervals": {}}], "cub").margin == 0


def test_the_table_names_every_row_its_state_and_how_its_settings_were_selected() -> None:
    cells = [Cell("A table", "a row", 1.0, "error %", "made", column="MNIST", note="why"), Cell("A table", "theirs", 2.0, "error %")]
    ours = replace(judge(cells[0], [result(0.995)], "mnist"), selection="held-out tenth")
    page = table((cells[0], ours), (cells[1], judge(cells[1], [], None)))
    assert "| a row | MNIST | error % | 1.00 | 0.50 |  | 1 | 1.0 | held-out tenth | CPU | better ✓ | why |" in page
    assert "| theirs |  | error % | 2.00 |  |  |  |  |  |  | cited |  |" in page


def test_a_table_that_is_only_cited_has_its_figures_in_columns() -> None:
    cells = [
        Cell("T", row, value, "accuracy %", column=column, unavailable="no data" if row == "own" else "")
        for row, column, value in (("other", "conv1", 1.0), ("other", "conv2", 2.0), ("own", "conv2", 3.0))
    ]
    page = table(*((cell, judge(cell, [], None)) for cell in cells))
    assert "| row | conv1 | conv2 | verdict | note |" in page
    assert "| other | 1.00 | 2.00 | cited |  |" in page and "| own |  | 3.00 | not run | no data |" in page


def test_a_second_figure_has_a_column_of_its_own() -> None:
    cell = Cell("T", "anchors", 28.0, "error %", "made", "class vectors", extra="1-nn")
    found = judge(cell, [{**result(0.461), "figures": {"class vectors": 0.724, "1-nn": 0.461}}], "cifar100")
    page = table((cell, found), (replace(cell, row="another", trial="x"), judge(cell, [], None)))
    assert "| ours | spread | 1-NN | seeds |" in page and "| 28.00 | 27.60 |  | 53.90 | 1 |" in page


def test_a_short_row_lists_its_ablations_and_no_other_row_does() -> None:
    changed = (Ablation("shifted", "other", "1-nn"), Ablation("longer", "unrun", "1-nn"))
    cell = Cell("A table", "a row", 1.0, "error %", "made", note="raw", ablations=changed)
    others = [(other, judge(other, [result(0.985)], "mnist")) for other in [Cell("A table", "another", None, "error %", "other")]]
    short, good = (judge(cell, [result(value)], "mnist") for value in (0.95, 0.99))
    assert "| short ✗ | raw; ablations: shifted 1.50 |" in table((cell, short), *others)
    assert "| short ✗ | raw; no ablation has been run |" in table((cell, short))
    assert "| short ✗ | raw |" in table((replace(cell, ablations=()), short))
    assert "| reproduced ✓ | raw |" in table((cell, good), *others)


def test_rows_with_settings_chosen_after_test_figures_are_marked_in_both_kinds_of_table() -> None:
    cell = Cell("T", "a row", 1.0, "error %", "made", note="raw", after_test="epochs raised")
    found = judge(cell, [result(0.99)], "mnist")
    page = table((cell, found))
    assert "| a row † |" in page and "| raw; † epochs raised |" in page and f"{LEGEND}; the note gives the reason." in page
    assert "†" not in table((replace(cell, after_test=""), found))
    wide = replace(cell, wide=True, column="P@1")
    assert "| a row † | 1 |" in "\n".join(wide_table([(wide, found)])) and "† epochs raised." in below([(wide, found)])


def verdict_of(mean: float, margin: float) -> Verdict:
    return Verdict("ours", mean, 0.0, 3, margin)


def test_two_rows_are_told_apart_by_both_margins_together() -> None:
    assert order(verdict_of(50, 3), verdict_of(45.1, 4)) == 0 and order(verdict_of(50, 3), verdict_of(44.9, 4)) == 1
    assert order(verdict_of(40, 3), verdict_of(45.1, 4)) == -1


def test_a_wide_table_holds_all_columns_of_a_row_and_the_comparison_says_which_are_ahead() -> None:
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

    page = paper_page("lu2019", [(cell, found(cell)) for cell in rows])
    assert (
        "| Angular | 1 | 55.0 ± 1.0 | 2.5 | rate 0.1 (51.0) |" in page
        and "| Lifted | not run |  |  |  |" in page
        and "| *the same, as printed* |  | *61.1* |  |  |" in page
    )
    assert "| 1: N-pair | 1: Contrastive | 1 of 3 |" in page
    assert "P@1 | 60.0 ± 1.0 | 1: N-pair" in page
    assert (
        "batches of 64 with 11 images per class" in " ".join(page.split())
        and "| CUB-200-2011 at 128 px | mobilenet-v2, pretrained | 64 | crop | bfloat16 | 500 (250) | 0.0005, 0.002 |" in page
    )
    assert page.index("Prec@5 beats every loss") < page.index("How the rows were made") < page.index("## T\n")
    assert comparison_table([]) == []


def test_the_page_explains_terms_once_in_lines_that_can_be_read() -> None:
    cells = [cell for cell in TABLES["taylor2010"][1] if "COIL" in cell.table]
    page = paper_page("taylor2010", [(cell, judge(cell, [], None)) for cell in cells])
    words = " ".join(page.split())
    assert words.count('The figure "own zero" subtracts the mean deviation of each object') == 1
    assert "| row | figure | unit |" in page  # figures of one trial, and no data sets
    text = [line for line in page.splitlines() if not line.startswith(("|", "#")) and "](index.md" not in line]
    assert max(map(len, text)) <= 145


def test_a_list_has_no_empty_lines_between_its_items() -> None:
    assert paragraphs(["a\nb", "- c", "- " + 80 * "d e ", "- f", "g"])[1:4:2] == ["", "- " + " ".join(["d e"] * 34) + " d"]
    assert paragraphs(["- c", "- f", "g"]) == ["- c", "- f", "", "g", ""]
    row = f"| {200 * 'wide '}|"
    assert paragraphs(["a", "| b |", row, "- c", "d"]) == ["a", "", "| b |", row, "", "- c", "", "d", ""]  # lines of a table stay whole


def test_speeds_are_whole_numbers_and_seconds_list_every_run() -> None:
    speed, taken = Cell("T", "fast", None, "queries/s", "made", "code"), Cell("T", "slow", None, "seconds", "made", "seconds")
    runs = [{**result(0.5), "figures": {"code": 23458.75}, "seconds": seconds} for seconds in (16.7, 0.9)]
    page = table(*((cell, judge(cell, runs, "mnist")) for cell in (speed, taken)))
    assert "| fast | queries/s |  | 23,459 | 0 | 2 |" in page and "| ours | runs: 16.70, 0.90 |" in page
