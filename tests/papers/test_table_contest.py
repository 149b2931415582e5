"""The contest on tables: runs are saved and continued, means compare equal seeds, the page ranks the methods."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from papers import table_contest
from papers.__main__ import main
from papers.table_contest import METHODS, compete, means, page, run_one
from papers.table_sets import SETS


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
    with pytest.raises(ValueError, match="wine was read from another file before"):
        compete(tmp_path, ["wine"], ["kNN"], 3, 1.0)


def test_the_figures_are_of_the_test_rows() -> None:
    x, y, _ = SETS["wine"].read()
    found = run_one((x, y), "classes", METHODS["kNN"]["classes"], 3)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.2, random_state=3, stratify=y)
    scaler = StandardScaler().fit(x_train)
    model = KNeighborsClassifier().fit(scaler.transform(x_train), y_train)
    assert found["accuracy"] == pytest.approx(100 * accuracy_score(y_test, model.predict(scaler.transform(x_test))))


def test_means_are_over_the_seeds_that_all_methods_have() -> None:
    runs = [
        {"method": "a", "seed": 0, "accuracy": 90.0},
        {"method": "a", "seed": 1, "accuracy": 50.0},
        {"method": "b", "seed": 0, "accuracy": 80.0},
    ]
    assert means({"runs": runs}, "accuracy", ["a", "b", "c"]) == {"a": (90.0, 0.0, 1), "b": (80.0, 0.0, 1)}


def test_ranks_on_the_page_count_ties_by_halves(tmp_path: Path) -> None:
    runs = [
        {"method": name, "seed": 0, "accuracy": figure, "fit_cpu_seconds": 1.0}
        for name, figure in (("kNN", 9.0), ("Linear", 9.0), ("MLP", 8.0))
    ]
    (tmp_path / "wine.json").write_text(json.dumps({"set": "wine", "task": "classes", "rows": 178, "runs": runs}))
    assert "| mean rank | | | 1.50 | 1.50 | 3.00 |" in page(tmp_path)


def test_calibration_error_is_the_gap_between_confidence_and_accuracy() -> None:
    assert table_contest._calibration_error(np.full(4, 0.9), np.array([True, True, True, False])) == pytest.approx(15.0)


def test_an_unknown_set_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", "--sets", "whine"]) == 2
    assert "SET 'whine' is unknown (did you mean 'wine'?)" in capsys.readouterr().err
