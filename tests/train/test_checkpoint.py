import json

import pytest
import torch

from nearkin.train import checkpoint


def written(folder, step):
    return checkpoint.save(folder, step, {"w": torch.arange(4.0) + step, "r": torch.get_rng_state()}, {"epoch": step})


def test_round_trip_keeps_tensors_and_values(tmp_path):
    written(tmp_path, 7)
    found = checkpoint.newest(tmp_path)
    assert found is not None
    assert found.step == 7
    assert found.state == {"epoch": 7}
    assert torch.equal(found.tensors["w"], torch.arange(4.0) + 7)


def test_the_newest_two_are_kept(tmp_path):
    for step in (1, 2, 3, 4):
        written(tmp_path, step)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000003", "step-00000004"]


@pytest.mark.parametrize("damage", ["truncate", "flip", "edit", "remove", "null", "empty"])
def test_a_damaged_checkpoint_is_passed_over_with_a_word(tmp_path, damage):
    written(tmp_path, 1)
    last = written(tmp_path, 2)
    tensors, page = last / "tensors.safetensors", last / "state.json"
    if damage == "truncate":
        tensors.write_bytes(tensors.read_bytes()[:-3])
    elif damage == "flip":
        raw = bytearray(tensors.read_bytes())
        raw[-1] ^= 1
        tensors.write_bytes(bytes(raw))
    elif damage == "edit":
        content = json.loads(page.read_text())
        content["body"] = content["body"].replace('"epoch": 2', '"epoch": 9')
        page.write_text(json.dumps(content))
    elif damage == "remove":
        page.unlink()
    else:
        page.write_text({"null": "null", "empty": ""}[damage])
    said = []
    found = checkpoint.newest(tmp_path, said.append)
    assert found is not None
    assert found.step == 1
    assert len(said) == 1
    assert "step-00000002 is damaged" in said[0]
    assert said[0].endswith("using step-00000001")


def test_without_a_whole_one_the_training_is_told_to_begin_anew(tmp_path):
    (written(tmp_path, 1) / "state.json").write_text("[]")
    said = []
    assert checkpoint.newest(tmp_path, said.append) is None
    assert said[0].endswith("there is no earlier one, so training starts over")


def test_a_half_written_folder_is_never_taken_for_a_checkpoint(tmp_path):
    written(tmp_path, 1)
    (tmp_path / ".writing-step-00000002-99").mkdir()
    found = checkpoint.newest(tmp_path)
    assert found is not None
    assert found.step == 1
    written(tmp_path, 3)
    assert not list(tmp_path.glob(".writing-*"))


def test_nothing_there(tmp_path):
    assert checkpoint.newest(tmp_path / "nowhere") is None
    assert checkpoint.name_of_newest(tmp_path / "nowhere") is None


def test_the_newest_is_told_by_name(tmp_path):
    for step in (3, 20):
        written(tmp_path, step)
    assert checkpoint.name_of_newest(tmp_path) == "step-00000020"
