"""The contest of losses: equal tuning, parts that never mix, jobs in a fair order, and a page from the saved runs."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from nearkin.train.config import Run, override
from nearkin.train.objective_choice import OBJECTIVES, WITHOUT_LABELS, build
from papers.__main__ import main
from papers.which_loss import CONTENDERS, SEEDS, SETS, candidates, chosen, waiting
from papers.which_loss_data import SEEN, TRAIN, UNSEEN, parts_of, tuning_parts
from papers.which_loss_page import page_of, ranks, recommended

LEFT_OUT = {  # no contenders, and why
    *WITHOUT_LABELS,  # learn without labels
    *("nca_regression", "nca_of_sets", "direct_regression"),  # for other labels
    *("center_pull", "matryoshka"),  # a part of the center loss; a wrapper
}


def test_every_objective_for_classes_takes_part() -> None:
    assert {one.settings["objective.name"] for one in CONTENDERS.values()} == set(OBJECTIVES) - LEFT_OUT


@pytest.mark.parametrize("row", CONTENDERS)
def test_every_row_has_four_tuning_runs_that_can_be_built(row: str) -> None:
    for name, setting in SETS.items():
        assert len(candidates(name, row)) == 4
        for candidate in candidates(name, row):
            run = override(Run(), {**setting.settings, **CONTENDERS[row].settings, **candidate})
            objective = build(run.objective.name, run.objective.options, num_classes=10, dimension=8, size=50)
            assert isinstance(objective, torch.nn.Module)


def test_tuning_sees_the_training_part_alone() -> None:
    labels = np.repeat(np.arange(20), 10)
    parts = np.where(labels < 10, np.where(np.arange(200) % 10 < 8, TRAIN, SEEN), UNSEEN)
    found = tuning_parts(parts, labels, labels // 2)
    assert (found[parts != TRAIN] == -1).all() and (found[parts == TRAIN] >= 0).all()
    outside = set(labels[found == UNSEEN])
    assert len(outside) == 4 and not outside & set(labels[found == TRAIN]) and set(labels[found == SEEN]) == set(labels[found == TRAIN])
    assert len({label // 2 for label in outside}) == 2  # whole groups


def test_a_set_is_tuned_and_then_seeded_before_the_next_one() -> None:
    rows, saved = ["softmax", "nca"], {}
    order = []
    while (job := next(waiting(saved, ["cub", "coil"], rows), None)) is not None:
        order.append(job.key)
        figures = {"seen 1-nn": 0.5 + 0.1 * job.number, "unseen map@r": 0.5, "unseen p@1": 0.5}
        saved[job.key] = {"figures": figures, "settings": dict(job.settings), "steps": job.steps}
    assert len(order) == 2 * 2 * (4 + SEEDS) and all(key.startswith("cub") for key in order[:14])
    assert order[8:11] == ["cub/softmax/seed/0", "cub/nca/seed/0", "cub/softmax/seed/1"]
    assert chosen(saved, "cub", "nca") == candidates("cub", "nca")[3]
    saved["cub/nca/seed/0"]["steps"] += 1  # of other settings: trained again
    assert [job.key for job in waiting(saved, ["cub", "coil"], rows)] == ["cub/nca/seed/0"]


def test_ranks_share_ties_and_the_recommendation_follows_held_out_figures_alone() -> None:
    assert ranks([0.3, 0.9, 0.3]).tolist() == [2.5, 1.0, 2.5]
    saved = {}
    for at, row in enumerate(CONTENDERS):
        for number, settings in enumerate(candidates("coil", row)):
            figures = {"seen 1-nn": at / 100, "unseen map@r": at / 100, "unseen p@1": 0.5}
            saved[f"coil/{row}/tuning/{number}"] = {"figures": figures, "settings": settings, "steps": 1}
        for number in range(SEEDS):
            figures = {"seen 1-nn": 1 - at / 100, "unseen map@r": 0.9, "unseen p@1": 0.9}
            saved[f"coil/{row}/seed/{number}"] = {"figures": figures, "settings": {}, "steps": 1, "device": "a device"}
    assert recommended(saved)[0] == list(CONTENDERS)[-1]
    page = page_of(saved)
    assert f"**{CONTENDERS[list(CONTENDERS)[-1]].row}** has the best mean rank" in page and "Run on a device" in page
    del saved["coil/softmax/seed/0"]
    with pytest.raises(ValueError, match="no set of the contest is complete"):
        recommended(saved)


def _packed(folder: Path) -> None:
    """A set of noise in the place of COIL-20: 24 objects with 15 views."""
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(24), 15)
    part = np.where(labels < 12, np.where(np.arange(360) % 3 == 2, SEEN, TRAIN), UNSEEN)
    x = np.clip(draw.integers(0, 256, (24, 1, 8, 8))[labels] + draw.normal(0, 20, (360, 1, 8, 8)), 0, 255).astype(np.uint8)
    np.savez(folder / "coil.npz", x=x, labels=labels, part=part)


@pytest.mark.soak
def test_a_contest_is_run_by_processes_and_goes_on_where_it_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _packed(tmp_path)
    sizes = [len(part) for part in parts_of("coil", tmp_path, torch.device("cpu"), tuning=False)]
    assert sizes == [120, 60, 180]
    out = tmp_path / "docs" / "results"
    words = [
        "which-loss",
        "--data",
        str(tmp_path),
        "--out",
        str(out),
        "--sets",
        "coil",
        "--rows",
        "nca",
        "--shorter",
        "75",
        "--device",
        "cpu",
    ]
    assert main([*words, "--at-once", "2"]) == 0
    saved = json.loads((out / "which-loss.json").read_text())
    assert len(saved) == 4 + SEEDS and all(entry["figures"]["seen 1-nn"] > 0.3 for entry in saved.values())
    assert "NCA on cosines" in (tmp_path / "docs" / "papers" / "which_loss.md").read_text()
    capsys.readouterr()
    assert main(words) == 0
    assert "coil/nca" not in capsys.readouterr().out  # nothing is trained again


def test_missing_data_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"coil\.npz does not exist; pack the data first"):
        parts_of("coil", tmp_path, torch.device("cpu"), tuning=False)
