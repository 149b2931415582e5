"""Every known set, read from small files in its official layout; missing files are named with their source."""

import gzip

import numpy as np
import pytest
import torch

from nearkin.data import SETS, MissingFileError
from nearkin.data import open as open_data
from tests.data import official_files as official
from tests.data.picture_files import save, save_tree


def test_digits_need_no_file(tmp_path):
    data = open_data("digits", data_root=tmp_path / "nowhere")
    assert data.shape == (1, 8, 8) and len(data) == 1797 and int(data.inputs.max()) == 255 and data.supervision == "classes"


@pytest.mark.parametrize(("name", "folder"), [("mnist", "mnist"), ("MNIST", "MNIST/raw"), ("Fashion_MNIST", "fashion-mnist")])
@pytest.mark.parametrize("packed", [True, False])
def test_idx_files_compressed_or_not(tmp_path, name, folder, packed):
    held = official.write_idx(tmp_path / folder, packed=packed)
    data = open_data(name, data_root=tmp_path)
    assert data.parts == {"train": 5, "test": 3} and data.labels.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert np.array_equal(data.read([6])[0, 0].numpy(), held["t10k"][1])
    assert data.classes[9] == ("9" if "fashion" not in folder else "Ankle boot")
    assert "t10k-images-idx3-ubyte" in data.sources[6] and data.sources[6].endswith("row 1")
    assert open_data(name, data_root=tmp_path, split="test").ids.tolist() == [5, 6, 7]  # ids of the whole set


def test_sets_with_the_same_file_names_are_not_confused(tmp_path):
    official.write_idx(tmp_path / "mnist")
    with pytest.raises(MissingFileError, match=r"fashion-mnist: train-images-idx3-ubyte.gz .* is missing"):
        open_data("fashion-mnist", data_root=tmp_path)
    assert len(open_data("mnist", data_root=tmp_path / "mnist")) == 8  # the folder itself may be the root
    official.write_idx(tmp_path / "FashionMNIST" / "raw")
    with pytest.raises(MissingFileError, match=r"mnist: train-images"):
        open_data("mnist", data_root=tmp_path / "FashionMNIST" / "raw")


@pytest.mark.parametrize("packed", [False, True])
def test_cifar_10(tmp_path, packed):
    images = official.write_cifar10(tmp_path / ("elsewhere" if packed else "."))
    if packed:
        official.tar(tmp_path / "cifar-10-binary.tar.gz", tmp_path / "elsewhere" / "cifar-10-batches-bin")
    data = open_data("cifar10", data_root=tmp_path)
    assert data.labels.tolist() == [1, 2, 3, 4, 5, 9] and data.parts == {"train": 5, "test": 1} and data.classes[9] == "truck"
    assert np.array_equal(data.read([5])[0].numpy(), images[5])


def test_cifar_100_fine_and_coarse(tmp_path):
    official.write_cifar100(tmp_path / "cifar-100")
    fine, coarse = (open_data(name, data_root=tmp_path) for name in ("cifar-100", "cifar-100-coarse"))
    assert fine.labels.tolist() == [2, 1, 0] and fine.classes == ("apple", "baby", "bear")
    assert coarse.labels.tolist() == [1, 0, 1] and coarse.classes == ("food", "living")
    assert torch.equal(fine.inputs, coarse.inputs)
    official.write_cifar100(tmp_path / "bare", coarse_names=False)
    assert open_data("cifar-100-coarse", data_root=tmp_path / "bare").classes == ("0", "1")


def test_svhn(tmp_path):
    held = official.write_svhn(tmp_path / "svhn", "train", "test", "extra")
    data = open_data("svhn", data_root=tmp_path)
    assert data.labels.tolist() == [0, 3, 0, 3] and data.parts == {"train": 2, "test": 2}
    assert np.array_equal(data.read([3])[0].numpy(), held["test"][:, :, :, 1].transpose(2, 0, 1))
    assert open_data("svhn", data_root=tmp_path, split="extra").ids.tolist() == [4, 5]


@pytest.mark.parametrize("packed", [False, True])
def test_omniglot(tmp_path, packed):
    official.write_omniglot(tmp_path / ("elsewhere" if packed else "omniglot"))
    if packed:
        (tmp_path / "omniglot").mkdir()
        for part in ("images_background", "images_evaluation"):
            official.zipped(tmp_path / "omniglot" / f"{part}.zip", tmp_path / "elsewhere" / part)
    data = open_data("omniglot", data_root=tmp_path)
    assert len(data.classes) == 6 and data.classes[0] == "Ge_ez/character01" and data.parts == {"train": 12, "test": 6}
    train, test = data.part("train"), data.part("test")
    assert not set(train.labels.tolist()) & set(test.labels.tolist()) and data.shape == (1, 8, 8)
    assert test.read(test.ids[:2]).shape == (2, 1, 8, 8)


def test_omniglot_as_arrays(tmp_path):
    x = np.arange(4 * 9, dtype=np.uint8).reshape(4, 3, 3)
    np.savez(tmp_path / "omniglot28.npz", x=x, y=np.array([0, 1, 1, 0]), classes=np.array(["A/1", "B/1"]), is_eval=np.array([False, True]))
    data = open_data("omniglot", data_root=tmp_path)
    assert data.split.tolist() == ["train", "test", "test", "train"] and data.classes == ("A/1", "B/1")
    np.savez(tmp_path / "omniglot28.npz", x=x)
    with pytest.raises(ValueError, match=r"omniglot28.npz holds no y, classes, is_eval"):
        open_data("omniglot", data_root=tmp_path)


@pytest.mark.parametrize("packed", [False, True])
def test_coil_20(tmp_path, packed):
    home = tmp_path / ("elsewhere" if packed else "coil-20") / "coil-20-proc"
    save_tree(home, "obj1__0.png", "obj1__10.png", "obj1__9.png", "obj10__0.png", "obj2__71.png", channels=1)
    if packed:
        official.zipped(tmp_path / "coil-20-proc.zip", home)
    data = open_data("coil20", data_root=tmp_path)
    assert data.classes == ("obj1", "obj2", "obj10") and data.labels.tolist() == [0, 0, 0, 1, 2]
    assert data.targets.flatten().tolist() == [0.0, 45.0, 50.0, 355.0, 0.0] and data.target_names == ("degrees",)
    assert data.supervision == "classes" and open_data("coil20", data_root=tmp_path, supervision="numbers").supervision == "numbers"
    assert data.read([3]).shape == (1, 1, 8, 8)


def test_coil_20_with_a_manifest(tmp_path):
    save_tree(tmp_path / "coil20", "images/a.png", "images/b.png", channels=1)
    (tmp_path / "coil20" / "manifest.csv").write_text("path,object,degrees\nimages/a.png,obj01,0\nimages/b.png,obj02,5\n")
    data = open_data("coil-20", data_root=tmp_path)
    assert data.classes == ("obj01", "obj02") and data.targets.tolist() == [[0.0], [5.0]] and data.name == "coil-20"


def test_cub(tmp_path):
    official.write_cub(tmp_path / "CUB_200_2011")
    data = open_data("cub", data_root=tmp_path)
    assert data.labels.tolist() == [0, 1, 1] and data.split.tolist() == ["train", "train", "test"]
    assert data.classes == ("001.Albatross", "002.Auk") and data.sources[2].endswith("images/002.Auk/c.jpg")


def test_cub_sorted_into_folders(tmp_path):
    save_tree(tmp_path / "cub200", "train/001.Albatross/a.png", "test/002.Auk/b.png")
    data = open_data("cub-200-2011", data_root=tmp_path)
    assert data.parts == {"train": 1, "test": 1} and data.classes == ("001.Albatross", "002.Auk") and data.name == "cub-200-2011"


@pytest.mark.parametrize("write", [official.write_cars_devkit, official.write_cars_list])
def test_cars(tmp_path, write):
    write(tmp_path / "cars")
    data = open_data("cars196", data_root=tmp_path)
    assert data.classes == ("Audi S4", "BMW M3") and data.parts == {"train": 2, "test": 1}
    assert sorted(data.labels.tolist()) == [0, 1, 1] and data.part("test").labels.tolist() == [1]
    assert data.read(data.ids).shape == (3, 3, 8, 8)


@pytest.mark.parametrize("packed", [False, True])
def test_online_products(tmp_path, packed):
    home = tmp_path / ("elsewhere" if packed else ".") / "Stanford_Online_Products"
    official.write_products(home)
    if packed:
        official.zipped(tmp_path / "Stanford_Online_Products.zip", home)
    data = open_data("sop", data_root=tmp_path)
    assert data.classes == ("1", "2", "11319") and data.labels.tolist() == [0, 1, 2] and data.parts == {"train": 2, "test": 1}
    assert data.read([2]).shape == (1, 3, 8, 8)


def test_dogs(tmp_path):
    official.write_dogs(tmp_path / "dogs")
    data = open_data("dogs", data_root=tmp_path)
    assert data.classes == ("Chihuahua", "Pug") and data.labels.tolist() == [0, 1, 1] and data.parts == {"train": 2, "test": 1}
    assert data.read([2]).shape == (1, 3, 8, 8)


def test_imagenet_folders(tmp_path):
    save_tree(tmp_path / "imagenet", "train/n01440764/a.JPEG", "train/n01443537/b.JPEG", "val/n01440764/c.JPEG", channels=1)
    data = open_data("imagenet", data_root=tmp_path, size=6)
    assert data.classes == ("n01440764", "n01443537") and data.parts == {"train": 2, "validation": 1} and data.shape == (3, 6, 6)


@pytest.mark.parametrize("name", [name for name in SETS if name not in ("digits", "stick-figures")])
def test_a_missing_file_is_named_with_the_folders_searched_and_the_source(tmp_path, name):
    with pytest.raises(MissingFileError) as caught:
        open_data(name, data_root=tmp_path)
    text = str(caught.value)
    assert text.startswith(f"{name}: ") and " is missing; looked in " in text and str(tmp_path / SETS[name].folders[0]) in text
    assert SETS[name].home in text and ("download=True" in text) == bool(SETS[name].files)


def test_the_missing_file_itself_is_named(tmp_path):
    official.write_idx(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(MissingFileError, match=r"mnist: t10k-labels-idx1-ubyte.gz \(or t10k-labels-idx1-ubyte, t10k-labels.idx1-ubyte\)"):
        open_data("mnist", data_root=tmp_path)
    official.write_cub(tmp_path / "cub-200-2011")
    (tmp_path / "cub-200-2011" / "train_test_split.txt").unlink()
    with pytest.raises(MissingFileError, match=r"cub-200-2011: train_test_split.txt is missing"):
        open_data("cub", data_root=tmp_path)


def test_the_error_names_an_archive_that_must_be_unpacked(tmp_path):
    (tmp_path / "CUB_200_2011.tgz").write_bytes(b"")
    with pytest.raises(MissingFileError, match=r"images.txt is missing; .*Unpack CUB_200_2011.tgz, or pass download=True"):
        open_data("cub", data_root=tmp_path)


def test_the_python_version_of_cifar_is_never_read(tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    with pytest.raises(MissingFileError, match=r"cifar-10-binary.tar.gz .*is missing.*The Python version is a pickle and is never read"):
        open_data("cifar-10", data_root=tmp_path)


def test_the_error_says_why_a_set_cannot_be_fetched(tmp_path):
    with pytest.raises(
        MissingFileError, match=r"It cannot be fetched automatically: get it from https://image-net.org.* Registered researchers"
    ):
        open_data("imagenet", data_root=tmp_path, download=True)


def damaged(tmp_path, what):
    if what == "idx magic":
        official.write_idx(tmp_path / "mnist", packed=False)
        (tmp_path / "mnist" / "train-images-idx3-ubyte").write_bytes(b"<html>" * 10)
        return "mnist"
    if what == "idx cut":
        official.write_idx(tmp_path / "mnist", packed=False)
        path = tmp_path / "mnist" / "train-images-idx3-ubyte"
        path.write_bytes(path.read_bytes()[:-3])
        return "mnist"
    if what == "gz cut":
        official.write_idx(tmp_path / "mnist")
        path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
        path.write_bytes(path.read_bytes()[:-12])
        return "mnist"
    if what == "idx pair":
        official.write_idx(tmp_path / "mnist")
        (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(official.idx(np.zeros(2, np.uint8))))
        return "mnist"
    if what == "cifar cut":
        official.write_cifar10(tmp_path)
        (tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin").write_bytes(b"\1" * 3000)
        return "cifar-10"
    if what == "cifar part":
        official.write_cifar10(tmp_path)
        (tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin").unlink()
        return "cifar-10"
    if what == "cifar tar":
        (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"\x1f\x8b not really")
        return "cifar-10"
    if what == "cifar class":
        official.write_cifar100(tmp_path)
        (tmp_path / "cifar-100-binary" / "test.bin").write_bytes(official.cifar_record(0, 99)[0])
        return "cifar-100"
    if what == "mat":
        official.write_svhn(tmp_path / "svhn", "train", "test")
        (tmp_path / "svhn" / "test_32x32.mat").write_bytes(b"MATLAB" * 50)
        return "svhn"
    save(tmp_path / "coil-20-proc" / "x.png")
    return "coil-20"


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("idx magic", r"train-images-idx3-ubyte does not begin as an idx file of bytes in 3 dimensions"),
        ("idx cut", r"train-images-idx3-ubyte announces \(5, 4, 4\) bytes but holds 77; it is damaged"),
        ("gz cut", r"train-images-idx3-ubyte.gz is damaged"),
        ("idx pair", r"t10k-images-idx3-ubyte.gz holds 3 images but its labels are 2; the two files do not belong together"),
        ("cifar cut", r"data_batch_3.bin has 3,000 bytes, which are not whole records of 3073; it is damaged"),
        ("cifar part", r"cifar-10-batches-bin holds no data_batch_3.bin; it is not the whole binary version"),
        ("cifar tar", r"cifar-10-binary.tar.gz is damaged"),
        ("cifar class", r"holds class 99 but fine_label_names.txt has 3 names; it is damaged"),
        ("mat", r"test_32x32.mat cannot be read as a MATLAB file"),
        ("coil", r"coil-20-proc holds no files named obj1__0.png"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, what, error):
    with pytest.raises(ValueError, match=error):
        open_data(damaged(tmp_path, what), data_root=tmp_path)
