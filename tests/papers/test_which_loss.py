"""The contest of losses is fair and can be built: equal tuning, equal batches, options that the objectives know."""

import pytest
import torch

from nearkin.train.config import Run, override
from nearkin.train.objective_choice import OBJECTIVES, WITHOUT_LABELS, build
from papers.tables import chosen
from papers.unseen import OWN
from papers.which_loss import BATCHES, CONTENDERS, FEW_CLASSES, TRIALS

LEFT_OUT = {  # no contenders, and why
    *WITHOUT_LABELS,  # learn without labels
    *("nca_regression", "nca_of_sets", "direct_regression"),  # for other labels
    *(
        "nearest_class_mean",
        "softmax",
        "hinge",
        "large_margin_softmax",
        "center_loss",
        "center_pull",
    ),  # classify, and are poor at unseen classes
    *("npair", "matryoshka"),  # a special case of NT-Xent; a wrapper
}


def test_every_objective_for_classes_takes_part() -> None:
    assert {one.settings["objective.name"] for one in CONTENDERS.values()} == set(OBJECTIVES) - LEFT_OUT


def test_every_row_has_four_tuning_runs_and_three_seeds() -> None:
    assert len(TRIALS) == 5 * len(CONTENDERS) and len({trial.name for trial in TRIALS}) == len(TRIALS)
    for trial in TRIALS:
        assert len(trial.candidates()) == 4 and trial.seeds == 3
        assert all(trial.settings[leaf] == value for leaf, value in {**BATCHES, **FEW_CLASSES.get(trial.data, {})}.items())
    assert [len(part) for part in chosen(["which-loss"])] == [len(TRIALS)] * 2


@pytest.mark.parametrize("trial", [trial for trial in TRIALS if trial.data == "coil"], ids=lambda trial: trial.name)
def test_every_candidate_can_be_built(trial) -> None:
    for candidate in trial.candidates():
        settings = {leaf: value for leaf, value in {**trial.settings, **candidate}.items() if leaf not in OWN}
        run = override(Run(), settings)
        objective = build(run.objective.name, run.objective.options, num_classes=10, dimension=8, size=50)
        assert isinstance(objective, torch.nn.Module)
