"""Tables as data: tuning never reads the test part, runs are kept, and the command line lists them."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from nearkin.data.sources.local_files import MissingFileError
from nearkin.train.config import Run, override
from papers import running, trial_run
from papers.__main__ import main as papers_main
from papers.cell import Cell, Trial
from papers.ledger import Job, Ledger
from papers.running import run_trials
from papers.tables import TABLES, chosen, verdicts
from papers.trial_run import Place
from papers.verdict import judge
from tests.papers.saved import result

HERE = Place("data", "cpu")
TRIAL = Trial("made", "digits", {"epochs": "1"}, {"optimizer.learning_rate": ("0.1", "0.2"), "batch_size": ("10",)}, seeds=2)


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
        {"optimizer.learning_rate": "0.1", "batch_size": "10"},
        {"optimizer.learning_rate": "0.2", "batch_size": "10"},
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
    assert Ledger.read(tmp_path, changed).runs == []  # saved runs of other settings do not count


def test_errors_are_tuned_to_be_small() -> None:
    trial = replace(TRIAL, method="pose")
    ledger = Ledger("made")
    for job, value in zip(ledger.missing(trial), (30.0, 20.0), strict=True):
        ledger.add(job, result(value))
    assert ledger.chosen == trial.candidates()[1]


def test_a_method_without_a_validation_part_is_not_tuned() -> None:
    with pytest.raises(ValueError, match="has values to tune, but method 'raw' has no validation part"):
        trial_run.perform(Job(replace(TRIAL, method="raw"), {}, None), HERE)


def test_a_budget_stops_between_runs_and_resuming_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Job] = []

    def perform(job: Job, place: Place) -> dict[str, object]:
        done.append(job)
        return result(0.5)

    monkeypatch.setattr(running, "perform", perform)
    reported: list[str] = []
    assert not run_trials([TRIAL], tmp_path, HERE, reported.append, minutes=0)
    assert done == [] and reported == []
    assert run_trials([TRIAL], tmp_path, HERE, reported.append)
    assert len(done) == 4 and len(reported) == 4 and "seed 1" in reported[-1]
    assert run_trials([TRIAL], tmp_path, HERE, reported.append) and len(done) == 4


def test_first_seeds_of_all_come_first_and_trials_without_data_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, int | None]] = []

    def perform(job: Job, place: Place) -> dict[str, object]:
        if job.trial.name == "absent":
            raise MissingFileError("svhn: train_32x32.mat is missing")
        done.append((job.trial.name, job.seed))
        return result(0.5)

    monkeypatch.setattr(running, "perform", perform)
    plain = replace(TRIAL, tune={}, seeds=2)
    reported: list[str] = []
    trials = [replace(plain, name=name) for name in ("first", "absent", "second")]
    assert run_trials(trials, tmp_path, HERE, reported.append)
    assert done == [("first", 0), ("second", 0), ("first", 1), ("second", 1)]
    assert reported[1] == "absent, seed 0: skipped; svhn: train_32x32.mat is missing" and len(reported) == 5


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_run_that_fails_stops_no_other_trial(at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def perform(job: Job, _: Place) -> dict[str, object]:
        if job.trial.name == "bad":
            raise ValueError("the bad one")
        return result(0.5)

    monkeypatch.setattr(running, "perform", perform)
    monkeypatch.setattr(running, "ProcessPoolExecutor", lambda count, **_: ThreadPoolExecutor(count))
    reported: list[str] = []
    with pytest.raises(ValueError, match="the bad one"):
        run_trials([replace(TRIAL, name="bad"), TRIAL], tmp_path, HERE, reported.append, at_once=at_once)
    assert any(line.startswith("bad, tuning") and line.endswith("failed, ValueError: the bad one") for line in reported)
    assert len(json.loads((tmp_path / "made.json").read_text())["runs"]) == 2 and not (tmp_path / "bad.json").exists()


def test_ensembles_wait_until_all_others_are_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In parallel an ensemble would start before its members are known."""
    monkeypatch.setattr(running, "perform", lambda *_: result(0.5))
    monkeypatch.setattr(running, "ProcessPoolExecutor", lambda count, **_: ThreadPoolExecutor(count))
    reported: list[str] = []
    pair = replace(TRIAL, name="pair", settings={"ensemble": "made"}, tune={}, seeds=2)
    assert run_trials([pair, TRIAL], tmp_path, HERE, reported.append, at_once=2)
    assert [line.partition(":")[0] for line in reported][-2:] == ["pair, seed 0", "pair, seed 1"]


def test_times_are_taken_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parallel runs: their figures count, their seconds do not; the first seed of a timed trial comes last, alone."""
    seconds = iter((9.0, 9.0, 9.0, 2.0))
    monkeypatch.setattr(running, "perform", lambda *_: {**result(0.5), "seconds": next(seconds)})
    monkeypatch.setattr(running, "ProcessPoolExecutor", lambda count, **_: ThreadPoolExecutor(count))
    reported: list[str] = []
    trials = [replace(TRIAL, name=name, tune={}, seeds=2) for name in ("timed", "other")]
    assert run_trials(trials, tmp_path, HERE, reported.append, at_once=2, timed={"timed"})
    assert [line.partition(":")[0] for line in reported][-1] == "timed, seed 0"
    runs = {trial.name: json.loads((tmp_path / f"{trial.name}.json").read_text())["runs"] for trial in trials}
    assert [run.get("beside") for run in runs["timed"]] == [None, 1] and [run.get("beside") for run in runs["other"]] == [1, 1]
    took = judge(Cell("T", "r", None, "seconds", "timed", "seconds"), runs["timed"], None)
    assert (took.mean, took.seeds, took.beside) == (2.0, 1, 0)
    accuracy = judge(Cell("T", "r", None, "accuracy %", "other", "1-nn"), runs["other"], None)
    assert (accuracy.seeds, accuracy.seconds, accuracy.beside) == (2, 9.0, 1)
    assert judge(Cell("T", "r", None, "seconds", "other", "seconds"), runs["other"], None).word == "not run"


def test_tuning_has_no_test_part(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def train(run, folder, *, data, device):  # type: ignore[no-untyped-def]
        seen.append((set(data.parts), run.data.validation, run.seed, run.epochs))
        return {"curve": [{"1-nn": 0.5}], "test": {"1-nn": 0.4}, "seconds": 1.0}

    monkeypatch.setattr(trial_run, "train", train)
    trial = replace(TRIAL, tuning_epochs=7)
    assert trial_run.perform(Job(trial, {}, None), HERE)["figures"] == {"1-nn": 0.5}
    assert trial_run.perform(Job(trial, {}, 3), HERE)["figures"] == {"1-nn": 0.4}
    assert seen == [({"train"}, 0.1, trial_run.TUNING_SEED, 7), ({"train", "test"}, 0.0, 3, 1)]


@pytest.mark.parametrize(("above", "again"), [("cifar-nca-beyond", "cifar-nca-decay"), ("mnist-nca-decay", "mnist-nca-cooler")])
def test_a_row_noted_as_the_training_above_it_again_is(above: str, again: str) -> None:
    folder = Path(__file__).parents[2] / "docs/results"
    trials = {trial.name: trial for trial in TABLES["ren2014"][0]}
    ledgers = [Ledger.read(folder, trials[f"ren2014-{name}"]) for name in (above, again)]
    first, second = (override(Run(), {"objective.options.temperature": "1.0", **one.settings["settings"], **one.chosen}) for one in ledgers)
    assert first == second and all(one.chosen for one in ledgers)


@pytest.mark.parametrize(("data", "share"), [("mnist", 5), ("cifar10", None), ("cifar100", 51)])
def test_a_large_margin_that_a_training_ends_before_is_in_its_note(data: str, share: int | None) -> None:
    """1 / (1 + 1000 (1 + 2.5e-5 step)^-35) of it is in; the steps are those that the saved run made."""
    name = f"hao2018-{data}-l-softmax-4-p0.1"
    cell = next(cell for cell in TABLES["hao2018"][1] if cell.trial == name)
    trial = next(trial for trial in TABLES["hao2018"][0] if trial.name == name)
    [run] = Ledger.read(Path(__file__).parents[2] / "docs/results", trial).runs
    steps = round(run["figures"]["images"] / 256)
    share_of_it = f"{share} % of it at the last of {steps:,} steps"
    assert (share_of_it in cell.note) if share else ("before the margin is in" not in cell.note)
    assert round(100 / (1 + 1000 * (1 + 2.5e-5 * steps) ** -35)) == (share or 100)


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
    assert chosen(["ren2014"])[1] == TABLES["ren2014"][1]  # with the cited rows
    assert all(cell.trial for cell in chosen(["ren2014-mnist"])[1])
    with pytest.raises(ValueError, match=r"TABLE 'digit' is unknown|TABLE 'dogits' is unknown .did you mean 'digits'"):
        chosen(["dogits"])


@pytest.mark.soak
def test_a_cheap_cell_from_the_command_line_to_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results"
    words = ["digits-nca", "--out", str(out), "--device", "cpu"]
    assert papers_main(words) == 0
    held = json.loads((out / "digits-nca.json").read_text())
    assert len(held["tuning"]) == 2 and [run["seed"] for run in held["runs"]] == [0, 1]
    assert sorted(path.name for path in out.iterdir()) == ["digits-nca.json"]
    assert f"images {held['runs'][0]['figures']['images']:,.0f}" in " ".join(capsys.readouterr().out.split())
    [(_, verdict)] = verdicts(chosen(["digits-nca"])[1], out)
    assert verdict.mean is not None and verdict.mean < 10 and verdict.seeds == 2
    assert "| NCA, 1-NN | error % |" in (tmp_path / "papers" / "codes.md").read_text()
    assert "[Ren et al. (2014)](ren2014.md)" in (tmp_path / "papers" / "index.md").read_text()
    before = (out / "digits-nca.json").read_bytes()
    assert papers_main([*words, "--resume"]) == 0 and (out / "digits-nca.json").read_bytes() == before
    capsys.readouterr()
    assert papers_main(["--list", "--out", str(out)]) == 0
    listed = capsys.readouterr().out
    assert "not run" in listed and max(map(len, listed.splitlines())) <= 80 and "…" not in listed
    for cell in chosen([])[1]:
        assert cell.table.split(":")[0][:60] in listed and cell.row.split()[0] in listed


def test_the_list_counts_the_cells_of_a_wide_row_by_their_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [trial] = chosen(["lu2019-cub-2-angular"])[0]
    ledger = Ledger.read(tmp_path, trial)
    ledger.runs = [{**result(0.5), "seed": 0, "figures": {"precision@1": 0.7, "precision@3": 0.4}}]
    ledger.save(tmp_path)
    assert papers_main(["lu2019-cub-2-angular", "--list", "--out", str(tmp_path)]) == 0
    listed = " ".join(capsys.readouterr().out.split())
    others = len(chosen(["lu2019-cub-2-angular"])[1]) - 2
    assert f"Angular † 55.47 70.00 (1) 1 better, 1 short, {others} not run" in listed


def test_the_list_writes_numbers_as_the_page_does_and_marks_what_is_reached(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trials = {trial.name: trial for name in ("huang2019", "ren2014") for trial in TABLES[name][0]}
    for name, figures in (("and-base", {"round 1 consistent": 2026.0}), ("ren2014-mnist-nca-beyond", {"10-nn": 0.9959})):
        ledger = Ledger.read(tmp_path, trials[name])
        ledger.runs = [{**result(0.5), "seed": 0, "figures": figures}]
        ledger.save(tmp_path)
    assert papers_main(["and-base", "ren2014-mnist-nca-beyond", "--list", "--out", str(tmp_path)]) == 0
    listed = capsys.readouterr().out
    assert "2,026 (1)" in listed and "2026" not in listed
    assert "0.41 (1)" in listed and "ours ✗" in listed
    assert "the target where nothing is printed; ✗ it does not" in " ".join(listed.split())
    assert papers_main(["and-base", "--list", "--out", str(tmp_path)]) == 0
    assert "✗" not in capsys.readouterr().out  # nor a legend where there are no marks
