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
def test_a_damaged_checkpoint_is_skipped_and_reported(tmp_path, damage):
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
    lines = []
    found = checkpoint.newest(tmp_path, lines.append)
    assert found is not None
    assert found.step == 1
    assert len(lines) == 1
    assert "step-00000002 is damaged" in lines[0]
    assert lines[0].endswith("using step-00000001")


def test_without_an_intact_checkpoint_training_starts_over(tmp_path):
    (written(tmp_path, 1) / "state.json").write_text("[]")
    lines = []
    assert checkpoint.newest(tmp_path, lines.append) is None
    assert lines[0].endswith("there is no earlier one, so training starts over")


def test_an_incomplete_folder_is_not_a_checkpoint(tmp_path):
    written(tmp_path, 1)
    (tmp_path / ".writing-step-00000002-99").mkdir()
    found = checkpoint.newest(tmp_path)
    assert found is not None
    assert found.step == 1
    written(tmp_path, 3)
    assert not list(tmp_path.glob(".writing-*"))


def test_no_checkpoint(tmp_path):
    assert checkpoint.newest(tmp_path / "nowhere") is None
    assert checkpoint.name_of_newest(tmp_path / "nowhere") is None


def test_the_name_of_the_newest(tmp_path):
    for step in (3, 20):
        written(tmp_path, step)
    assert checkpoint.name_of_newest(tmp_path) == "step-00000020"
