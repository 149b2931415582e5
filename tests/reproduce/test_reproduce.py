"""Tables as data: tuning never meets the test part, runs are kept, verdicts are earned."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from nearkin import cli
from nearkin.data.sources.shelf import MissingFileError
from nearkin.reproduce import running
from nearkin.reproduce.cell import Ablation, Cell, Trial
from nearkin.reproduce.contest import apart
from nearkin.reproduce.page import paragraphs, results_page, wide_table
from nearkin.reproduce.running import Job, Ledger, Place, run_trials
from nearkin.reproduce.tables import TABLES, chosen, verdicts
from nearkin.reproduce.verdict import Verdict, judge
from nearkin.run import Run, override

HERE = Place("data", "cpu")
TRIAL = Trial("made", "digits", {"epochs": "1"}, {"optimiser.learning_rate": ("0.1", "0.2"), "batch_size": ("10",)}, seeds=2)


def result(value: float, seconds: float = 1.0) -> dict[str, object]:
    return {"figures": {"1-nn": value}, "seconds": seconds, "device": "CPU", "date": "2026-11-15"}


def test_every_cell_has_its_trial_and_every_run_its_settings() -> None:
    for trials, cells in TABLES.values():
        names = [trial.name for trial in trials]
        assert len(names) == len(set(names))
        assert {cell.trial for cell in cells if cell.trial} <= set(names)
        for trial in trials:
            if trial.method == "train":
                for candidate in trial.candidates():
                    override(Run(), {**trial.settings, **candidate})  # an unknown leaf raises


def test_candidates_are_all_combinations() -> None:
    assert TRIAL.candidates() == [
        {"optimiser.learning_rate": "0.1", "batch_size": "10"},
        {"optimiser.learning_rate": "0.2", "batch_size": "10"},
    ]
    assert replace(TRIAL, tune={}).candidates() == [{}]


def test_tuning_comes_first_then_the_seeds_with_what_it_chose(tmp_path: Path) -> None:
    ledger = Ledger.read(tmp_path, TRIAL)
    jobs = ledger.missing(TRIAL)
    assert [job.seed for job in jobs] == [None, None]
    ledger.add(jobs[0], result(0.7))
    assert ledger.missing(TRIAL) == [jobs[1]]
    ledger.add(jobs[1], {**result(0.9), "figures": {}})  # diverged: never chosen
    assert ledger.chosen == TRIAL.candidates()[0]
    assert [job.seed for job in ledger.missing(TRIAL)] == [0, 1]
    ledger.add(Job(TRIAL, ledger.chosen, 1), result(0.8))
    ledger.save(tmp_path)
    assert [job.seed for job in Ledger.read(tmp_path, TRIAL).missing(TRIAL)] == [0]
    changed = replace(TRIAL, settings={"epochs": "2"})
    assert Ledger.read(tmp_path, changed).runs == []  # saved runs of other settings say nothing about these


def test_errors_are_tuned_to_be_small() -> None:
    trial = replace(TRIAL, method="pose")
    ledger = Ledger("made")
    for job, value in zip(ledger.missing(trial), (30.0, 20.0), strict=True):
        ledger.add(job, result(value))
    assert ledger.chosen == trial.candidates()[1]


def test_a_method_without_a_validation_part_is_not_tuned() -> None:
    with pytest.raises(ValueError, match="has values to tune, but method 'raw' has no validation part"):
        running.perform(Job(replace(TRIAL, method="raw"), {}, None), HERE)


def test_a_budget_stops_between_runs_and_a_resumption_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Job] = []

    def perform(job: Job, place: Place) -> dict[str, object]:
        done.append(job)
        return result(0.5)

    monkeypatch.setattr(running, "perform", perform)
    said: list[str] = []
    assert not run_trials([TRIAL], tmp_path, HERE, said.append, minutes=0)
    assert done == [] and said == []
    assert run_trials([TRIAL], tmp_path, HERE, said.append)
    assert len(done) == 4 and len(said) == 4 and "seed 1" in said[-1]
    assert run_trials([TRIAL], tmp_path, HERE, said.append) and len(done) == 4


def test_first_seeds_of_all_come_first_and_what_has_no_data_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, int | None]] = []

    def perform(job: Job, place: Place) -> dict[str, object]:
        if job.trial.name == "absent":
            raise MissingFileError("svhn: train_32x32.mat is missing")
        done.append((job.trial.name, job.seed))
        return result(0.5)

    monkeypatch.setattr(running, "perform", perform)
    plain = replace(TRIAL, tune={}, seeds=2)
    said: list[str] = []
    trials = [replace(plain, name=name) for name in ("first", "absent", "second")]
    assert run_trials(trials, tmp_path, HERE, said.append)
    assert done == [("first", 0), ("second", 0), ("first", 1), ("second", 1)]
    assert said[1] == "absent, seed 0: left out; svhn: train_32x32.mat is missing" and len(said) == 5


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_run_that_fails_stops_no_other_trial(at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def perform(job: Job, _: Place) -> dict[str, object]:
        if job.trial.name == "bad":
            raise ValueError("the bad one")
        return result(0.5)

    monkeypatch.setattr(running, "perform", perform)
    monkeypatch.setattr(running, "ProcessPoolExecutor", lambda count, **_: ThreadPoolExecutor(count))
    said: list[str] = []
    with pytest.raises(ValueError, match="the bad one"):
        run_trials([replace(TRIAL, name="bad"), TRIAL], tmp_path, HERE, said.append, at_once=at_once)
    assert any(line.startswith("bad, tuning") and line.endswith("failed, ValueError: the bad one") for line in said)
    assert len(json.loads((tmp_path / "made.json").read_text())["runs"]) == 2 and not (tmp_path / "bad.json").exists()


def test_ensembles_wait_until_all_others_are_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Side by side an ensemble would begin while its members are not known yet."""
    monkeypatch.setattr(running, "perform", lambda *_: result(0.5))
    monkeypatch.setattr(running, "ProcessPoolExecutor", lambda count, **_: ThreadPoolExecutor(count))
    said: list[str] = []
    pair = replace(TRIAL, name="pair", settings={"ensemble": "made"}, tune={}, seeds=2)
    assert run_trials([pair, TRIAL], tmp_path, HERE, said.append, at_once=2)
    assert [line.partition(":")[0] for line in said][-2:] == ["pair, seed 0", "pair, seed 1"]


def test_times_are_taken_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs side by side: their figures count, their seconds do not; the first seed of what is timed comes last, by itself."""
    seconds = iter((9.0, 9.0, 9.0, 2.0))
    monkeypatch.setattr(running, "perform", lambda *_: {**result(0.5), "seconds": next(seconds)})
    monkeypatch.setattr(running, "ProcessPoolExecutor", lambda count, **_: ThreadPoolExecutor(count))
    said: list[str] = []
    trials = [replace(TRIAL, name=name, tune={}, seeds=2) for name in ("timed", "other")]
    assert run_trials(trials, tmp_path, HERE, said.append, at_once=2, timed={"timed"})
    assert [line.partition(":")[0] for line in said][-1] == "timed, seed 0"
    runs = {trial.name: json.loads((tmp_path / f"{trial.name}.json").read_text())["runs"] for trial in trials}
    assert [run.get("beside") for run in runs["timed"]] == [None, 1] and [run.get("beside") for run in runs["other"]] == [1, 1]
    took = judge(Cell("T", "r", None, "seconds", "timed", "seconds"), runs["timed"], None)
    assert (took.mean, took.seeds, took.beside) == (2.0, 1, 0)
    accuracy = judge(Cell("T", "r", None, "accuracy %", "other", "1-nn"), runs["other"], None)
    assert (accuracy.seeds, accuracy.seconds, accuracy.beside) == (2, 9.0, 1)
    assert judge(Cell("T", "r", None, "seconds", "other", "seconds"), runs["other"], None).word == "not run here"


def test_tuning_has_no_test_part_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def train(run, folder, *, data, device):  # type: ignore[no-untyped-def]
        seen.append((set(data.parts), run.data.validation, run.seed, run.epochs))
        return {"curve": [{"1-nn": 0.5}], "test": {"1-nn": 0.4}, "seconds": 1.0}

    monkeypatch.setattr(running, "train", train)
    trial = replace(TRIAL, tuning_epochs=7)
    assert running.perform(Job(trial, {}, None), HERE)["figures"] == {"1-nn": 0.5}
    assert running.perform(Job(trial, {}, 3), HERE)["figures"] == {"1-nn": 0.4}
    assert seen == [({"train"}, 0.1, running.TUNING_SEED, 7), ({"train", "test"}, 0.0, 3, 1)]


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


def test_the_row_that_chose_a_decay_is_the_training_above_it_again() -> None:
    folder = Path(__file__).parents[2] / "docs/results"
    trials = {trial.name: trial for trial in TABLES["ren2014"][0]}
    above, again = (Ledger.read(folder, trials[f"ren2014-cifar-{name}"]) for name in ("nca-beyond", "nca-decay"))
    assert {**above.settings["settings"], **above.chosen} == {**again.settings["settings"], **again.chosen}


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
    assert "✗ that it does not" in page


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


def test_every_printed_figure_that_can_be_run_has_ablations_and_those_have_rows() -> None:
    cells = [cell for name in ("ren2014", "hao2018") for cell in TABLES[name][1]]
    shown = {(cell.trial, cell.figure): cell.unit for cell in cells}
    for cell in cells:
        if cell.trial is not None and cell.printed is not None:
            assert cell.ablations, cell.row
        for one in cell.ablations:
            assert shown[one.trial, one.figure] == cell.unit and one.trial != cell.trial


def test_names_of_tables_and_trials() -> None:
    trials, cells = chosen(["digits"])
    assert {trial.name for trial in trials} == {"digits-nca", "digits-softmax"} and len(cells) == 2
    assert [trial.name for trial in chosen(["digits-n"])[0]] == ["digits-nca"]
    assert len(chosen([])[1]) == sum(len(cells) for _, cells in TABLES.values())
    assert chosen(["ren2014"])[1] == TABLES["ren2014"][1]  # the cited rows, too
    assert all(cell.trial for cell in chosen(["ren2014-mnist"])[1])
    with pytest.raises(ValueError, match=r"TABLE 'digit' is unknown|TABLE 'dogits' is unknown; did you mean 'digits'"):
        chosen(["dogits"])


def test_a_cheap_cell_from_the_command_line_to_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results"
    words = ["reproduce", "digits-nca", "--out", str(out), "--device", "cpu"]
    assert cli.main(words) == 0
    held = json.loads((out / "digits-nca.json").read_text())
    assert len(held["tuning"]) == 2 and [run["seed"] for run in held["runs"]] == [0, 1]
    [(_, verdict)] = verdicts(chosen(["digits-nca"])[1], out)
    assert verdict.mean is not None and verdict.mean < 10 and verdict.seeds == 2
    assert "| NCA, 1-NN | error % |" in (tmp_path / "results.md").read_text()
    before = (out / "digits-nca.json").read_bytes()
    assert cli.main([*words, "--resume"]) == 0 and (out / "digits-nca.json").read_bytes() == before
    capsys.readouterr()
    assert cli.main(["reproduce", "--list", "--out", str(out)]) == 0
    listed = capsys.readouterr().out
    assert "not run here" in listed and max(map(len, listed.splitlines())) <= 80 and "…" not in listed
    for cell in chosen([])[1]:
        assert cell.table.split(":")[0][:60] in listed and cell.row.split()[0] in listed


def test_the_list_counts_the_cells_of_a_wide_row_by_their_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [trial] = chosen(["lu2019-cub-2-angular"])[0]
    ledger = Ledger.read(tmp_path, trial)
    ledger.runs = [{**result(0.5), "seed": 0, "figures": {"precision@1": 0.7, "precision@3": 0.4}}]
    ledger.save(tmp_path)
    assert cli.main(["reproduce", "lu2019-cub-2-angular", "--list", "--out", str(tmp_path)]) == 0
    listed = " ".join(capsys.readouterr().out.split())
    others = len(chosen(["lu2019-cub-2-angular"])[1]) - 2
    assert f"Angular 55.47 70.00 (1) 1 better, 1 short, {others} not run here" in listed


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
    assert page.index("does optimising Prec@k beat") < page.index("How these rows were made") < page.index("## T\n")


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


def test_the_list_writes_numbers_as_the_page_does_and_says_what_is_reached(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trials = {trial.name: trial for name in ("huang2019", "ren2014") for trial in TABLES[name][0]}
    for name, figures in (("and-base", {"round 1 consistent": 2026.0}), ("ren2014-mnist-nca-beyond", {"10-nn": 0.9959})):
        ledger = Ledger.read(tmp_path, trials[name])
        ledger.runs = [{**result(0.5), "seed": 0, "figures": figures}]
        ledger.save(tmp_path)
    assert cli.main(["reproduce", "and-base", "ren2014-mnist-nca-beyond", "--list", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "2,026 (1)" in told and "2026" not in told
    assert "0.41 (1)" in told and "ours ✗" in told


def test_intervals_of_the_runs_widen_the_margin() -> None:
    cell = Cell("t", "r", None, "accuracy %", "made", "map")
    runs = [{**result(0.5), "figures": {"map": 0.5}, "intervals": {"map": [0.48, 0.54]}}]
    assert judge(cell, runs, "cub").margin == pytest.approx(3.0) and judge(cell, [{**runs[0], "intervals": {}}], "cub").margin == 0
