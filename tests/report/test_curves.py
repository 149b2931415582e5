"""Curves show the values that were passed, axes that do not start at zero say so, and the log is read correctly."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nearkin.report.curves import PairCurves, Series, line, pr_roc, training_curves
from nearkin.report.drawing import as_bytes, save
from nearkin.report.training_log import History, learning_rates, read_log
from nearkin.train.config import DiscoveryChoice, OptimizerChoice, Run, ScheduleChoice

TITLES = {"title": "t", "x_label": "k", "y_label": "accuracy"}


def test_a_line_shows_its_values_interval_and_chance() -> None:
    axes = line([1, 5, 9], [Series("a", [0.2, 0.4, 0.5], [0.1, 0.3, 0.4], [0.3, 0.5, 0.6])], chance=0.1, **TITLES).axes[0]
    drawn, chance = axes.lines
    assert np.allclose(drawn.get_ydata(), [20, 40, 50]) and np.allclose(drawn.get_xdata(), [1, 5, 9])
    assert np.allclose(chance.get_ydata(), 10)
    band = axes.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(10) and band[:, 1].max() == pytest.approx(60)
    assert axes.get_ylim()[0] == 0 and axes.get_ylabel() == "accuracy (%)"


def test_an_axis_that_does_not_start_at_zero_says_so_and_has_a_minimal_span() -> None:
    axes = line([1, 2], [Series("a", [0.991, 0.992])], chance=0.1, **TITLES).axes[0]
    low, high = axes.get_ylim()
    assert max(axes.get_yticks()) <= 100 and low > 0 and high - low > 4 and axes.get_ylabel().endswith("axis does not start at 0")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "chance: 10.0 % (below)"]


def test_other_numbers_keep_their_scale_and_wide_ranges_get_a_logarithmic_axis() -> None:
    axes = line([1, 10, 100], [Series("mae", [3, 2, 2.5])], share=False, chance=9.0, **TITLES).axes[0]
    assert axes.get_xscale() == "log" and axes.get_ylabel() == "accuracy" and np.allclose(axes.lines[0].get_ydata(), [3, 2, 2.5])
    assert [text.get_text() for text in axes.get_legend().get_texts()][1] == "chance: 9 (above)"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "10", "100"]


def test_positions_may_have_names() -> None:
    axes = line([0, 1], [Series("probe", [0.5, 0.6])], ticks=["conv1", "a very long layer"], **TITLES).axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["conv1", "a very long…"]


def test_the_two_curves_of_pairs_show_chance_and_areas() -> None:
    t = np.linspace(0, 1, 5)
    left, right = pr_roc([PairCurves("model", t, 1 - t, t, np.sqrt(t), 0.5, 0.67)], positive_share=0.25).axes
    assert np.allclose(left.lines[0].get_ydata(), 1 - t) and np.allclose(left.lines[1].get_ydata(), 0.25)
    assert np.allclose(right.lines[0].get_ydata(), np.sqrt(t)) and np.allclose(right.lines[1].get_ydata(), [0, 1])
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["model: 0.500", "chance: 0.250"]
    assert [text.get_text() for text in right.get_legend().get_texts()] == ["model: 0.670", "chance: 0.500"]


def test_many_curves_of_pairs_have_their_legends_below_and_inside_the_picture() -> None:
    t = np.linspace(0, 1, 5)
    figure = pr_roc([PairCurves(f"model {i}", t, 1 - t, t, t, 0.5, 0.5) for i in range(6)], positive_share=0.25)
    figure.canvas.draw()
    for axes in figure.axes:
        legend, labels = axes.get_legend().get_window_extent(), axes.xaxis.label.get_window_extent()
        assert legend.y1 <= labels.y0 and legend.y0 >= 0


def test_training_curves_leave_out_epochs_without_a_figure() -> None:
    loss, figure, rate = training_curves([1, 2, 3], [2, 1, 0.01], {"1-nn": [np.nan, 0.5, 0.6]}, [0.5, 1], [0.1, 0.2]).axes
    assert loss.get_yscale() == "log" and rate.get_yscale() == "linear"
    assert np.allclose(figure.lines[0].get_xdata(), [2, 3]) and np.allclose(rate.lines[0].get_ydata(), [0.1, 0.2])
    assert len(training_curves([1], [2], {}, [1], [0.1]).axes) == 2


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_figures_are_written_the_same_twice(tmp_path: Path, suffix: str) -> None:
    figure = line([1, 2], [Series("a", [0.5, 0.6])], **TITLES)
    path = save(figure, tmp_path / "deep" / f"figure{suffix}")
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml") and b"<dc:date>" not in path.read_bytes()
    assert as_bytes(figure, ".png") == as_bytes(figure, ".png")


def test_errors_of_curves(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"path .*f.gif ends with '.gif'; figures are written as .png or .svg"):
        save(line([1], [Series("a", [0.5])], **TITLES), tmp_path / "f.gif")
    with pytest.raises(ValueError, match="series is empty"):
        line([1], [], **TITLES)
    with pytest.raises(ValueError, match=r"y of 'a' has shape \(1,\); pass 2 numbers, one for each position"):
        line([1, 2], [Series("a", [0.5])], **TITLES)
    with pytest.raises(ValueError, match="ticks has 1 names for 2 positions; pass one for each"):
        line([1, 2], [Series("a", [0.5, 0.6])], ticks=["conv1"], **TITLES)
    with pytest.raises(ValueError, match="y holds no finite number"):
        line([1], [Series("a", [np.nan])], **TITLES)
    with pytest.raises(ValueError, match="curves is empty"):
        pr_roc([], positive_share=0.1)


def written(path: Path, *lines: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps({"time": 1.0, **one}) + "\n" for one in lines))
    return path


def test_the_log_is_read_with_the_later_of_two_equal_epochs(tmp_path: Path) -> None:
    path = written(
        tmp_path / "log.jsonl",
        {"kind": "message", "text": "objective nca"},
        {"kind": "epoch", "epoch": 1, "loss": 2.0, "steps": 10, "points_per_second": 5, "1-nn": 0.5, "dimensions used": 7.5},
        {"kind": "epoch", "epoch": 2, "loss": 9.0, "steps": 20, "points_per_second": 5},
        {"kind": "epoch", "epoch": 2, "loss": 1.0, "steps": 20, "points_per_second": 5},
    )
    history = read_log(path)
    assert history.epochs.tolist() == [1, 2] and history.losses.tolist() == [2, 1] and history.steps.tolist() == [10, 20]
    assert list(history.validation) == ["1-nn"] and history.validation["1-nn"][0] == 0.5 and np.isnan(history.validation["1-nn"][1])


def test_errors_of_the_log(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="log.jsonl does not exist"):
        read_log(tmp_path / "log.jsonl")
    with pytest.raises(ValueError, match="lists no epoch"):
        read_log(written(tmp_path / "log.jsonl", {"kind": "message", "text": "hello"}))


def test_learning_rates_follow_the_schedule_and_a_plateau_schedule_uses_the_losses() -> None:
    history = History(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 1.0]), np.array([10.0, 20.0, 30.0]), {})
    run = Run(epochs=3, optimizer=OptimizerChoice(learning_rate=0.5), schedule=ScheduleChoice("milestones", 0.0, (0.5,), 0.1))
    at, rates = learning_rates(run, history)
    assert len(at) == 30 and at[0] == pytest.approx(0.1) and at[-1] == 3
    assert np.allclose(rates[:20], 0.5) and np.allclose(rates[20:], 0.05)
    rounds = Run(
        epochs=3, discovery=DiscoveryChoice(rounds=2), optimizer=OptimizerChoice(learning_rate=1.0), schedule=ScheduleChoice(warmup=0.0)
    )
    restarted = learning_rates(rounds, history, "neighborhood_discovery")[1]  # three rounds of one epoch each
    assert (
        np.allclose(restarted[:10], restarted[10:20])
        and np.allclose(restarted[10:20], restarted[20:])
        and restarted[0] == 1
        and restarted[9] < 0.1
    )
    uneven = replace(rounds, discovery=DiscoveryChoice(rounds=1))  # rounds of 2 epochs and 1
    shorter = learning_rates(uneven, history, "neighborhood_discovery")[1]
    assert shorter[0] == shorter[20] == 1 and shorter[19] < 0.01 and np.allclose(shorter[20:], restarted[20:])
    assert learning_rates(rounds, history, "nca")[1][10] == pytest.approx(0.75)  # one cosine over all
    stuck = Run(epochs=3, optimizer=OptimizerChoice(learning_rate=0.5), schedule=ScheduleChoice("plateau", 0.0, factor=0.1, patience=1))
    assert np.allclose(learning_rates(stuck, history)[1], np.repeat([0.5, 0.5, 0.05], 10))


@pytest.mark.parametrize("count", [2, 6])
def test_the_legend_of_many_lines_is_outside_the_plot(count: int) -> None:
    figure = line([1, 2], [Series(f"line {i}", [i / 10, 0.9]) for i in range(count)], title="T", x_label="x", y_label="y")
    figure.canvas.draw()
    (axes,) = figure.axes
    box, page = axes.get_legend().get_window_extent(), figure.bbox
    assert (box.x0 > axes.get_window_extent().x1) == (count > 4) and box.x1 < page.x1
