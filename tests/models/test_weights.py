import os

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from nearkin.models.weights import convert_weights, load_weights


def network(seed=0, classes=2):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, classes))


def same(a, b):
    return all(torch.equal(a.state_dict()[name], value) for name, value in b.state_dict().items())


def test_safetensors(tmp_path):
    save_file(network(1).state_dict(), tmp_path / "w.safetensors")
    target = network(2)
    load_weights(target, str(tmp_path / "w.safetensors"))
    assert same(target, network(1))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": {f"module.{name}": value for name, value in state.items()}},
    ],
    ids=["plain", "wrapped", "data_parallel"],
)
def test_pth_is_converted_once(tmp_path, wrap):
    path = tmp_path / "w.pth"
    torch.save(wrap(network(1).state_dict()), path)
    target = network(2)
    load_weights(target, path)
    assert same(target, network(1))
    assert sorted(os.listdir(tmp_path)) == ["w.pth", "w.safetensors"]
    written = (tmp_path / "w.safetensors").stat().st_mtime_ns
    assert convert_weights(path) == tmp_path / "w.safetensors"
    assert (tmp_path / "w.safetensors").stat().st_mtime_ns == written
    torch.save(wrap(network(5).state_dict()), path)
    os.utime(path, (2e9, 2e9))  # newer than its copy: converted again
    load_weights(target, path)
    assert same(target, network(5))


def test_shared_and_strided_tensors_are_converted(tmp_path):
    value = torch.arange(6.0).reshape(2, 3)
    torch.save({"a": value, "b": value, "c": value.T}, tmp_path / "w.pt")
    stored = load_file(convert_weights(tmp_path / "w.pt"))
    assert torch.equal(stored["a"], value) and torch.equal(stored["b"], value) and torch.equal(stored["c"], value.T)


class Trap:
    def __reduce__(self):
        return (os.mkdir, ("sprung",))


def test_a_pickle_with_code_raises_and_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": network().state_dict(), "trap": Trap()}, tmp_path / "w.pth")
    with pytest.raises(ValueError, match=r"w.pth' holds more than tensors, or is damaged; ask its author for safetensors"):
        load_weights(network(), tmp_path / "w.pth")
    assert os.listdir(tmp_path) == ["w.pth"]


def test_the_classifier_may_be_cut(tmp_path):
    save_file(network(1, classes=1000).state_dict(), tmp_path / "w.safetensors")
    body = network(2)
    body[2] = nn.Identity()
    load_weights(body, tmp_path / "w.safetensors", cut=["2"])
    assert torch.equal(body[0].weight, network(1)[0].weight)
    with pytest.raises(ValueError, match=r"are of another network: 0 missing; 2 unknown \(2.bias, 2.weight\)"):
        load_weights(body, tmp_path / "w.safetensors")


def test_old_files_without_counters_are_fine(tmp_path):
    state = {name: value for name, value in network(1).state_dict().items() if "num_batches" not in name}
    save_file(state, tmp_path / "w.safetensors")
    load_weights(network(2), tmp_path / "w.safetensors")


def test_errors(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"nothing.safetensors' is not a file; give a local .safetensors or .pth \(nothing is downloaded\)"
    ):
        load_weights(network(), tmp_path / "nothing.safetensors")
    save_file(network(1).state_dict(), tmp_path / "w.safetensors")
    whole = (tmp_path / "w.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"cut.safetensors is not a complete safetensors file \(.*\); fetch it again"):
        load_weights(network(), tmp_path / "cut.safetensors")
    with pytest.raises(ValueError, match=r"2.bias has shape \(2,\), the network's \(3,\)"):
        load_weights(network(classes=3), tmp_path / "w.safetensors")
    with pytest.raises(
        ValueError, match=r"are of another network: 2 missing \(bias, weight\); 9 unknown \(0.bias, 0.weight, 1.bias, ...\)"
    ):
        load_weights(nn.Linear(2, 2), tmp_path / "w.safetensors")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(ValueError, match=r"list.pth' holds no dict of tensors, not even under state_dict, model"):
        convert_weights(tmp_path / "list.pth")
    (tmp_path / "junk.pth").write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match=r"junk.pth' holds more than tensors, or is damaged"):
        convert_weights(tmp_path / "junk.pth")


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_pickle_that_is_cut_off_is_named_with_the_fix(tmp_path, zipped, share):
    torch.save(network().state_dict(), tmp_path / "w.pth", _use_new_zipfile_serialization=zipped)
    whole = (tmp_path / "w.pth").read_bytes()
    (tmp_path / "w.pth").write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match=r"w.pth' (is not a complete file that torch.save wrote; fetch it again|.*or is damaged)"):
        convert_weights(tmp_path / "w.pth")
