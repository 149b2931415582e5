"""The loader returns the same batches for resident and for streamed sets; damaged files are reported."""

import multiprocessing
import random

import numpy as np
import pytest
import torch

from nearkin.data import DamagedImageError, Dataset, Loader
from nearkin.data import open as open_data
from nearkin.data.loader import without_damaged
from tests.data.picture_files import save

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than this machine has cores
BATCHES = [[5, 0, 3], [1], [2, 4, 4]]


@pytest.fixture
def folder(tmp_path):
    for number in range(12):
        save(tmp_path / f"{number:02}.png", number)
    return tmp_path


def served(loader, batches=BATCHES):
    return [(images.clone(), ids.tolist()) for images, ids in loader(batches)]


@pytest.mark.parametrize("workers", [0, 3])
def test_resident_and_streamed_batches_are_the_same(folder, workers):
    data = open_data(folder)
    held, streamed = Loader(data), Loader(data, resident_bytes=0, workers=workers, prefetch=1)
    assert held.resident is not None and streamed.resident is None
    for (a, ids), (b, same), batch in zip(served(held), served(streamed), BATCHES, strict=True):
        assert ids == same == batch and a.dtype == torch.uint8 and torch.equal(a, b) and torch.equal(a, data.read(batch))


def test_a_part_is_read_by_the_ids_of_the_whole(folder):
    data = open_data(folder).with_split(["train"] * 8 + ["test"] * 4).part("test")
    for loader in (Loader(data), Loader(data, resident_bytes=0, workers=0)):
        ((images, ids),) = served(loader, [torch.tensor([11, 8])])
        assert ids == [11, 8] and torch.equal(images, data.read([11, 8]))
        with pytest.raises(ValueError, match=r"ids: 2 is not in .*, whose ids run from 8 to 11"):
            served(loader, [[2]])


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_vectors(limit):
    data = Dataset("v", torch.randn(7, 3))
    ((points, ids),) = served(Loader(data, resident_bytes=limit), [[6, 1]])
    assert torch.equal(points, data.inputs[[6, 1]]) and ids == [6, 1]


def test_the_byte_limit_decides(folder):
    data = open_data(folder)
    assert data.nbytes == 12 * 3 * 8 * 8
    assert Loader(data, resident_bytes=data.nbytes).resident is not None
    assert Loader(data, resident_bytes=data.nbytes - 1).resident is None


def test_stopping_in_the_middle_of_an_epoch_leaves_no_worker_behind(folder):
    batches = Loader(open_data(folder), resident_bytes=0, workers=2)([[number] for number in range(12)])
    next(batches)
    assert len(multiprocessing.active_children()) == 2
    batches.close()
    assert multiprocessing.active_children() == []


def test_loading_does_not_change_the_global_random_numbers(folder):
    torch.manual_seed(0)
    random.seed(0)
    expected = torch.rand(1), random.random()
    torch.manual_seed(0)
    random.seed(0)
    served(Loader(open_data(folder), resident_bytes=0, workers=1))
    assert (torch.rand(1), random.random()) == expected


def test_a_large_set_is_decoded_by_workers(folder, monkeypatch):
    monkeypatch.setattr("nearkin.data.loader.MIN_FILES_FOR_WORKERS", 5)
    monkeypatch.setattr("nearkin.data.loader.CHUNK", 5)
    data = open_data(folder)
    assert torch.equal(Loader(data, workers=2).resident, data.read(data.ids))


def test_several_workers_may_read_one_zip(tmp_path):
    import zipfile

    kept = [save(tmp_path / "loose" / f"obj1__{number}.png", number, channels=1) for number in range(60)]
    with zipfile.ZipFile(tmp_path / "coil-20-proc.zip", "w", zipfile.ZIP_DEFLATED) as pack:
        for number in range(60):
            pack.write(tmp_path / "loose" / f"obj1__{number}.png", f"coil-20-proc/obj1__{number}.png")
    loader = Loader(open_data("coil-20", data_root=tmp_path), resident_bytes=0, workers=3)
    batches = served(loader, torch.split(torch.arange(60), 5))
    assert np.array_equal(torch.cat([images[:, 0] for images, _ in batches]).numpy(), np.stack(kept))


def spoil(folder, *numbers):
    for number in numbers:
        (folder / f"{number:02}.png").write_bytes(b"\x89PNG but no more")


ways = pytest.mark.parametrize(("limit", "workers"), [(0, 0), (0, 2), (1 << 20, 0)], ids=["streamed", "by workers", "held"])


@ways
def test_a_damaged_file_is_named(folder, limit, workers):
    spoil(folder, 4)
    with pytest.raises(DamagedImageError, match=r"04.png cannot be decoded .*; remove the file, or pass on_error='skip'"):
        served(Loader(open_data(folder), resident_bytes=limit, workers=workers))


@ways
def test_damaged_files_are_skipped_and_reported(folder, limit, workers):
    spoil(folder, 1, 4)
    lines = []
    data = open_data(folder, on_error="skip")
    loader = Loader(data, resident_bytes=limit, workers=workers, report=lines.append)
    for _ in range(2):  # the second time they are not tried again
        batches = served(loader)
        assert [ids for _, ids in batches] == [[5, 0, 3], [2]]  # the batch of 1 alone is left out
        assert all(len(images) == len(ids) for images, ids in batches)
    assert sorted(loader.skipped) == [1, 4] and "04.png cannot be decoded" in loader.skipped[4]
    assert sum("left out: " in line for line in lines) == 2
    assert sum("2 of 12 images are damaged and left out" in line for line in lines) == 1


def test_without_damaged_removes_damaged_files(folder):
    (folder / "04.png").write_bytes(b"no picture")
    lines = []
    left = without_damaged(open_data(folder, on_error="skip"), lines.append)
    assert len(left) == 11 and left.ids.tolist() == list(range(11)) and not any("04.png" in source for source in left.sources)
    assert any("04.png cannot be decoded" in line for line in lines) and any("1 of 12 images are damaged" in line for line in lines)
    strict = open_data(folder)
    assert without_damaged(strict) is strict  # for on_error="raise" the loader raises


def test_a_set_of_damaged_files_only_raises(folder):
    for path in folder.iterdir():
        path.write_bytes(b"no picture")
    with pytest.raises(DamagedImageError, match="none of the 12 files of .* can be decoded .*; give a folder or a table of readable"):
        without_damaged(open_data(folder, size=32, on_error="skip"), [].append)


def test_skipping_is_never_silent(folder):
    spoil(folder, 1)
    with pytest.warns(UserWarning, match=r"01.png|1 of 12 images are damaged and left out"):
        Loader(open_data(folder, on_error="skip"))


def test_many_damaged_files_are_counted_rather_than_listed(tmp_path):
    for number in range(15):
        save(tmp_path / f"{number:02}.png", number)
    spoil(tmp_path, *range(1, 14))
    lines = []
    Loader(open_data(tmp_path, on_error="skip"), report=lines.append)
    assert sum(line.startswith("left out: ") for line in lines) == 10 and any("13 of 15 images are damaged" in line for line in lines)


def test_differing_sizes_are_an_error_and_not_skipped(folder):
    save(folder / "zz.png", 1, 5, 9)
    for how in ({}, {"resident_bytes": 0, "workers": 1}):
        with pytest.raises(ValueError, match=r"^size: .*zz.png is 9 x 5, and the first image is 8 x 8; pass size"):
            served(Loader(open_data(folder, on_error="skip"), **how), [[12]])
    assert Loader(open_data(folder, size=5)).resident.shape == (13, 3, 5, 5)


def test_batches_may_be_any_iterable_of_ids():
    data = Dataset("g", torch.arange(10, dtype=torch.uint8).reshape(10, 1, 1, 1))
    (_, ids), *_ = Loader(data)(np.array([number, number + 1]) for number in (3, 5))
    assert ids.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"workers": -1}, r"workers \(-1\) must be 0 \(decode in this process\) or more"),
        ({"prefetch": 0}, r"prefetch \(0\) must be at least 1 batch for each worker"),
    ],
)
def test_wrong_arguments_are_named(how, error):
    with pytest.raises(ValueError, match=error):
        Loader(Dataset("g", torch.zeros(2, 1)), **how)
