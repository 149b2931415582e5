import pytest

from nearkin.train.config import Run, leaves, override


def test_json_round_trip():
    run = override(Run(), {"objective.options.temperature": "0.1", "schedule.milestones": "[0.3, 0.6]", "network.weights": "w.safetensors"})
    assert Run.from_json(run.to_json()) == run


def test_overrides_reach_leaves_and_options():
    run = override(
        Run(), {"optimizer.learning_rate": "1", "network.normalize": "true", "objective.name": "nca", "sampler.options.per_class": "11"}
    )
    assert run.optimizer.learning_rate == 1.0
    assert run.network.normalize is True
    assert run.objective.name == "nca"
    assert run.sampler.options == {"per_class": 11}
    assert Run().sampler.options == {}


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("optimizer.learning_rat", "1", "'optimizer.learning_rat' is unknown .did you mean 'optimizer.learning_rate'"),
        ("optimizer", "1", "setting 'optimizer' is unknown"),
        ("epochs.more", "1", "setting 'epochs.more' is unknown .did you mean 'epochs'"),
        ("epochs", "many", r"epochs \('many'\) must be of type int"),
        ("epochs", "true", r"epochs \(True\) must be of type int"),
        ("optimizer.name", "lion", "optimizer.name 'lion' is unknown; choose one of sgd, adam"),
        ("epochs", "0", r"epochs \(0\) must be a whole number of at least 1"),
        ("batch_size", "0", r"batch_size \(0\) must be a whole number of at least 1"),
        ("least_steps", "-1", r"least_steps \(-1\) must be a whole number of at least 0"),
    ],
)
def test_a_wrong_setting_names_the_right_one(setting, value, message):
    with pytest.raises(ValueError, match=message):
        override(Run(), {setting: value})


def test_an_edited_file_with_an_unknown_leaf_is_refused():
    with pytest.raises(ValueError, match="setting 'optimizer.rate' is unknown .did you mean"):
        Run.from_json('{"optimizer": {"rate": 1}}')
    with pytest.raises(ValueError, match="must be a mapping of settings"):
        Run.from_json('{"optimizer": 3}')


def test_leaves_are_listed():
    assert {"data.source", "network.options", "epochs", "schedule.milestones"} <= set(leaves())
