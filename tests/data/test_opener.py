"""`open` recognizes what it is given, and its errors name what it does not know."""

import pytest

from nearkin.data import open as open_data
from nearkin.data.opener import absolute_source
from tests.data.picture_files import save, save_tree


def test_a_name_wins_over_a_folder_of_that_name(tmp_path, monkeypatch):
    save_tree(tmp_path / "digits", "a/1.png", "b/2.png")
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match="digits names a known set, which is opened; for the file or folder of that name write ./digits"):
        assert len(open_data("digits")) == 1797
    assert len(open_data("./digits")) == len(open_data(tmp_path / "digits")) == 2


def test_the_report_describes_the_data():
    lines = []
    open_data("digits", report=lines.append)
    assert lines == ["digits: 1,797 gray images 8 x 8; 10 classes (0, 1, 2, ...); all 1,797; to learn from: classes"]


def test_size_and_channels_reach_named_sets():
    assert open_data("digits", size=16, channels=3).shape == (3, 16, 16)


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"size": 0}, r"size \(0\) must be at least 1 pixel"),
        ({"channels": 2}, r"channels \(2\) must be 1 \(gray\) or 3 \(color\)"),
        ({"on_error": "ignore"}, r"on_error 'ignore' is unknown; choose one of raise, skip"),
        ({"supervision": "labels"}, r"supervision 'labels' is unknown; choose one of classes, numbers, sets, ids"),
        ({"supervision": "numbers"}, r"supervision 'numbers' is not in digits"),
        ({"split": "train"}, r"split 'train' is not in digits, which has all; make one with nearkin.data.partition"),
    ],
)
def test_wrong_arguments_are_named(how, error):
    with pytest.raises(ValueError, match=error):
        open_data("digits", **how)


def test_a_misspelled_name_proposes_a_known_one():
    with pytest.raises(FileNotFoundError, match=r"^'cifr10' is neither .* Did you mean 'cifar-10'\? Known are digits, stick"):
        open_data("cifr10")
    with pytest.raises(FileNotFoundError, match=r"^'/no/such/folder' is neither a file or folder nor a known data set. Known are"):
        open_data("/no/such/folder")


def test_a_file_with_an_unknown_suffix(tmp_path):
    save(tmp_path / "one.png")
    with pytest.raises(
        ValueError,
        match=r"what: .*one.png ends with '.png'; give a folder, a file ending with .csv, .tsv, .txt, .data, .dat, .parq",
    ):
        open_data(tmp_path / "one.png")


def test_sources_are_absolute_paths_or_names_of_known_sets(tmp_path, monkeypatch):
    (tmp_path / "mnist").mkdir()
    monkeypatch.chdir(tmp_path)
    assert [absolute_source(what) for what in ("mnist", "./mnist", "", "gone.csv")] == ["mnist", str(tmp_path / "mnist"), "", "gone.csv"]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert absolute_source("~/mnist") == str(tmp_path / "mnist")
