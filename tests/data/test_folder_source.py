"""Folders: classes, no classes, splits above them, and their errors."""

import numpy as np
import pytest

from nearkin.data import open as open_data
from tests.data.picture_files import channels_first, save, save_tree


def test_a_folder_for_each_class(tmp_path):
    save_tree(tmp_path, "dog/b.png", "dog/deep/er/a.PNG", "cat/c.png")
    (tmp_path / "dog" / "notes.txt").write_text("not an image")
    (tmp_path / "dog" / "._b.png").write_bytes(b"")  # as macOS writes it
    (tmp_path / ".cache").mkdir()
    data = open_data(tmp_path)
    assert data.classes == ("cat", "dog") and data.labels.tolist() == [0, 1, 1]
    assert data.supervision == "classes" and set(data.split) == {"all"} and data.name == tmp_path.name
    assert [source.rpartition("/")[2] for source in data.sources] == ["c.png", "b.png", "a.PNG"]
    assert data.describe().startswith(
        f"{tmp_path.name}: 3 color images 8 x 8 (files, decoded when needed); 2 classes, by folder (cat, dog)"
    )


def test_a_folder_without_classes(tmp_path):
    first = save(tmp_path / "a.png")
    save(tmp_path / "b.jfif", 1)  # a JPEG, as Windows sometimes names it
    data = open_data(str(tmp_path))
    assert data.labels is None and data.supervision == "ids" and len(data) == 2
    assert np.array_equal(data.read([0])[0].numpy(), channels_first(first))


def test_splits_above_the_classes(tmp_path):
    save_tree(tmp_path, "train/cat/1.png", "train/dog/2.png", "val/dog/3.png", "test/cat/4.png", "test/cow/5.png")
    data = open_data(tmp_path)
    assert data.classes == ("cat", "cow", "dog")
    assert data.parts == {"train": 2, "validation": 1, "test": 2}
    test = open_data(tmp_path, split="test")
    assert test.labels.tolist() == [0, 1] and test.ids.tolist() == data.part("test").ids.tolist()
    assert open_data(tmp_path, split="val").ids.tolist() == data.part("validation").ids.tolist()


def test_splits_without_classes(tmp_path):
    save_tree(tmp_path, "train/1.png", "test/2.png")
    data = open_data(tmp_path)
    assert data.labels is None and data.parts == {"train": 1, "test": 1}


def test_class_names_of_any_script_and_numbers_by_value(tmp_path):
    save_tree(tmp_path / "a", "été/1.png", "犬/2.png", "Ωμέγα 2/3.png")
    assert open_data(tmp_path / "a").classes == ("été", "Ωμέγα 2", "犬")
    save_tree(tmp_path / "b", "10/1.png", "9/2.png")
    assert open_data(tmp_path / "b").classes == ("9", "10")


def test_one_class_is_read_and_reported(tmp_path):
    save_tree(tmp_path, "cat/1.png", "cat/2.png")
    lines = []
    data = open_data(tmp_path, report=lines.append)
    assert data.classes == ("cat",) and any("has one class only (cat)" in line for line in lines)
    assert "1 class, by folder (cat)" in lines[-1]


def test_an_empty_class_folder_is_an_error_or_skipped_and_reported(tmp_path):
    save_tree(tmp_path, "cat/1.png", "dog/2.png")
    (tmp_path / "cow").mkdir()
    with pytest.raises(ValueError, match=r"no images in cow; remove the empty folders, or pass on_error='skip' .nearkin train: --skip-damaged"):
        open_data(tmp_path)
    lines = []
    assert open_data(tmp_path, on_error="skip", report=lines.append).classes == ("cat", "dog")
    assert "left out 1 folders without images: cow" in lines[0]
    with pytest.warns(UserWarning, match="left out 1 folders without images: cow"):  # never silent, even without a reporter
        open_data(tmp_path, on_error="skip")


def test_photographs_in_unreadable_formats_are_reported(tmp_path):
    save(tmp_path / "a" / "cat.png", 0)
    (tmp_path / "a" / "IMG_1.HEIC").write_bytes(b"0")
    (tmp_path / "b.dng").write_bytes(b"0")
    lines = []
    assert len(open_data(tmp_path, report=lines.append)) == 1
    assert any(
        "left out 2 files in a format that cannot be read (IMG_1.HEIC, b.dng); convert them to JPEG or PNG" in line for line in lines
    )
    with pytest.warns(UserWarning, match="left out 2 files in a format that cannot be read"):
        open_data(tmp_path)


def test_an_empty_folder(tmp_path):
    with pytest.raises(ValueError, match=r"holds no images; looked for .bmp, .*.webp in it and in its folders"):
        open_data(tmp_path)


def test_unreadable_formats_are_reported_before_the_error_of_an_empty_folder(tmp_path):
    save_tree(tmp_path, "cat/1.png")
    (tmp_path / "dog").mkdir()
    for name in ("IMG_1.heic", "._IMG_1.heic", "notes.txt"):
        (tmp_path / "dog" / name).write_bytes(b"whatever")
    for folder, refusal in ((tmp_path, "no images in dog"), (tmp_path / "dog", "holds no images")):
        lines = []
        with pytest.raises(ValueError, match=refusal):
            open_data(folder, report=lines.append)
        assert lines == [f"{folder}: left out 1 files in a format that cannot be read (IMG_1.heic); convert them to JPEG or PNG"]


def test_images_next_to_class_folders(tmp_path):
    save_tree(tmp_path, "cat/1.png", "stray.png")
    message = r"has 1 images \(stray.png\) next to its class folders \(cat\); move them .*; if the folders are not classes, list all files"
    with pytest.raises(ValueError, match=message):
        open_data(tmp_path)


def test_classes_next_to_splits(tmp_path):
    save_tree(tmp_path, "train/cat/1.png", "dog/2.png")
    with pytest.raises(ValueError, match=r"has split folders \(train\) and other folders with images \(dog\) next to them"):
        open_data(tmp_path)


def test_a_split_without_classes_next_to_one_with(tmp_path):
    save_tree(tmp_path, "train/cat/1.png", "val/2.png")
    with pytest.raises(ValueError, match=r"validation has no class folders, and the other splits have; use class folders in all"):
        open_data(tmp_path)
