"""Every tutorial runs in a process of its own, without a warning, and what it prints supports what it says."""

import ast
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = {path.stem: path for path in sorted((ROOT / "examples").glob("[0-9][0-9]_*.py"))}


@cache
def printed(name: str) -> str:
    """What a tutorial prints."""
    paths = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "COLUMNS": "120"}
    strict = ["-W", "error", "-W", "ignore:FigureCanvasAgg is non-interactive"]
    command = [sys.executable, *strict, str(TUTORIALS[name])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def figures(name: str, start: str) -> list[float]:
    """The numbers with a decimal point on each line that starts like this."""
    return [float(word) for line in printed(name).splitlines() if line.startswith(start) for word in re.findall(r"\d+\.\d+", line)]


def test_the_tutorials_are_numbered_without_gaps() -> None:
    assert len(TUTORIALS) >= 6
    assert [name[:2] for name in TUTORIALS] == [f"{number:02}" for number in range(1, len(TUTORIALS) + 1)]


@pytest.mark.parametrize("path", TUTORIALS.values(), ids=TUTORIALS)
def test_each_has_a_title_and_draws(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == '"""' and lines[2] == "=" * len(lines[1])
    assert "plt.show()" in lines and "# %%" in lines


@pytest.mark.soak
def test_two_trained_numbers_come_near_to_all_pixels() -> None:
    raw, nca, center = figures("01_loss_in_a_plain_loop", "5-NN accuracy")
    assert nca > 90 and center > 70
    assert raw > max(nca, center)  # the text says so


@pytest.mark.soak
def test_a_folder_of_photos_is_trained_evaluated_indexed_and_searched() -> None:
    text = printed("02_your_own_photos")
    assert "240 points added" in text and text.count("ring") >= 3
    (line,) = [line for line in text.splitlines() if "precision@1 " in line]
    assert float(re.findall(r"(\d+\.\d) %", line)[0]) > 80


@pytest.mark.soak
def test_neighbors_by_outcome_predict_better() -> None:
    pairs = figures("03_numbers_instead_of_classes", "mean absolute error")
    for before, after in zip(pairs[2::2], pairs[3::2], strict=True):  # k = 10 and more
        assert 40 < after < before - 0.5 and before < 50


@pytest.mark.soak
def test_each_round_without_labels_helps_and_raw_pixels_stay_ahead() -> None:
    raw, untrained, instances, half, everything = figures("04_no_labels", "5-NN accuracy")
    assert untrained + 2 < instances < everything < raw and half > instances - 1


@pytest.mark.soak
def test_learned_maps_of_wine_are_not_behind_pca() -> None:
    accuracy = {name: figures("05_scikit_learn_pipeline", name)[0] for name in ("PCA", "LinearNCA", "NeighborhoodEmbedding")}
    assert min(accuracy["LinearNCA"], accuracy["NeighborhoodEmbedding"]) > accuracy["PCA"] - 1 > 90


@pytest.mark.soak  # the documentation runs it, too
def test_the_service_gives_the_neighbors_of_the_index() -> None:
    text = printed("06_search_and_serve")
    labels = re.findall(r"label (\d)", text)
    assert "exact: True" in text and "\nok\n" in text and str(labels) in text


@pytest.mark.soak
def test_objectives_of_ones_own_learn() -> None:
    assert min(figures("07_compose_your_own", "each") + figures("07_compose_your_own", "same")) > 70


def test_a_loss_of_another_paper_takes_at_most_fifteen_lines() -> None:
    name = "08_a_loss_of_another_paper"
    source = TUTORIALS[name].read_text(encoding="utf-8")
    losses = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name in ("decoupled", "narrow")]
    assert len(losses) == 2 and all(node.end_lineno - node.lineno + 1 <= 15 for node in losses)


@pytest.mark.soak  # the documentation runs it, too
def test_a_loss_of_another_paper_learns() -> None:
    plain, wide, both, slim = figures("08_a_loss_of_another_paper", "decoupled")
    assert plain > 90 and both > 90 and slim < wide


@pytest.mark.soak
def test_a_lightning_module_learns_with_a_memory() -> None:
    pytest.importorskip("lightning")
    before, after = figures("09_lightning", "5-NN accuracy")
    assert after > 95 > before + 3


@pytest.mark.soak  # the documentation runs it, too
def test_the_trainer_of_hugging_face_learns() -> None:
    pytest.importorskip("accelerate")
    before, after = figures("10_hugging_face_trainer", "5-NN accuracy")
    assert after > before + 10
