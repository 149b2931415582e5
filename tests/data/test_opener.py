"""One door: it finds out what it is given, and says what it does not understand."""

import pytest

from nearkin.data import open as open_data
from nearkin.data.opener import absolute_source
from tests.data.picture_files import save, save_tree


def test_a_name_wins_over_a_folder_of_that_name(tmp_path, monkeypatch):
    save_tree(tmp_path / "digits", "a/1.png", "b/2.png")
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match="digits is a known set, and is taken; for what is here under that name write ./digits"):
        assert len(open_data("digits")) == 1797
    assert len(open_data("./digits")) == len(open_data(tmp_path / "digits")) == 2


def test_the_report_says_what_was_opened():
    said = []
    open_data("digits", report=said.append)
    assert said == ["digits: 1,797 gray images 8 x 8; 10 classes (0, 1, 2, ...); all 1,797; to learn from: classes"]


def test_size_and_channels_reach_named_sets():
    assert open_data("digits", size=16, channels=3).shape == (3, 16, 16)


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"size": 0}, r"size \(0\) must be at least 1 pixel"),
        ({"channels": 2}, r"channels \(2\) must be 1 \(gray\) or 3 \(color\)"),
        ({"on_error": "ignore"}, r"on_error 'ignore' is unknown; choose 'raise' or 'skip'"),
        ({"supervision": "labels"}, r"supervision 'labels' is unknown; choose one of classes, numbers, sets, ids"),
        ({"supervision": "numbers"}, r"supervision 'numbers': digits brings none of it"),
        ({"split": "train"}, r"split 'train' is not in digits, which has all; make one with nearkin.data.partition"),
    ],
)
def test_wrong_wishes_are_named(how, error):
    with pytest.raises(ValueError, match=error):
        open_data("digits", **how)


def test_a_slip_of_the_pen():
    with pytest.raises(FileNotFoundError, match=r"what: 'cifr10' is neither .* Did you mean 'cifar-10'\? Known are digits, stick"):
        open_data("cifr10")
    with pytest.raises(FileNotFoundError, match=r"what: '/no/such/folder' is neither a file or folder nor a known data set. Known are"):
        open_data("/no/such/folder")


def test_a_file_of_another_kind(tmp_path):
    save(tmp_path / "one.png")
    with pytest.raises(
        ValueError, match=r"what: .*one.png ends with '.png'; give a folder, a file ending with .csv, .tsv, .parquet, .npz, .npy"
    ):
        open_data(tmp_path / "one.png")


def test_own_data_are_called_by_their_whole_path_and_known_sets_by_their_name(tmp_path, monkeypatch):
    (tmp_path / "mnist").mkdir()
    monkeypatch.chdir(tmp_path)
    assert [absolute_source(what) for what in ("mnist", "./mnist", "", "gone.csv")] == ["mnist", str(tmp_path / "mnist"), "", "gone.csv"]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert absolute_source("~/mnist") == str(tmp_path / "mnist")
