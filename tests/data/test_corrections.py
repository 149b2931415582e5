"""Corrected labels replace those of the data by source, and errors name the row."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from nearkin.data.corrections import corrected, labels_and_corrections, source_names
from nearkin.data.dataset import Dataset
from nearkin.data.opener import open as open_data
from tests.data.picture_files import save_tree


def vectors() -> Dataset:
    return Dataset("set", torch.zeros(4, 2), torch.tensor([0, 0, 1, 1]), ("cat", "dog"))


def table(folder: Path, *lines: str) -> str:
    path = folder / "corrected.csv"
    path.write_text("\r\n".join(lines) + "\r\n", encoding="utf-8")
    return str(path)


def test_labels_are_corrected_confirmed_and_new_classes_added(tmp_path: Path) -> None:
    lines: list[str] = []
    data = corrected(
        vectors(), table(tmp_path, "path,label,was", "set row 1,fox,cat", "set row 2,dog,dog", "set row 3,cat,dog"), lines.append
    )
    assert data.classes == ("cat", "dog", "fox") and data.labels is not None and data.labels.tolist() == [0, 2, 1, 0]
    assert lines == ["corrected.csv: 2 of 4 labels corrected, 1 as they were"]
    assert corrected(vectors(), "").labels.tolist() == [0, 0, 1, 1]  # type: ignore[union-attr]


def test_files_are_named_by_their_path_absolute_or_from_the_table(tmp_path: Path) -> None:
    save_tree(tmp_path, "a/1.png", "b/2.png")
    data = open_data(tmp_path)
    assert source_names(data)[0] == str(tmp_path / "a/1.png")
    corrections = corrected(data, table(tmp_path, "label,path", "b,a/1.png", f'"a",{tmp_path / "b/2.png"}'))
    assert corrections.labels is not None and corrections.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("path,name", "x,y"), "has no column label; corrections need path and label"),
        (("path,label",), "has no rows below its header"),
        (("path,label", "set row 1,cat", "set row 1,dog"), "set row 1 is 'cat' and, in row 3, 'dog'"),
        (("path,label", "set row 1,cat", "elsewhere,dog"), "1 of 2 paths are not in set: elsewhere"),
    ],
)
def test_errors_name_the_row(tmp_path: Path, lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        corrected(vectors(), table(tmp_path, *lines))


def test_data_without_labels_get_those_of_the_table(tmp_path: Path) -> None:
    data = corrected(Dataset("set", torch.zeros(4, 2)), table(tmp_path, "path,label", "set row 1,cat", "set row 3,dog"))
    assert data.labels is not None and data.labels.tolist() == [-1, 0, -1, 1] and data.classes == ("cat", "dog") and data.partly_labeled


def test_an_empty_label_is_none_yet(tmp_path: Path) -> None:
    said: list[str] = []
    written = table(tmp_path, "path,label", "set row 1,cat", "set row 2,", "set row 3, ")
    data = corrected(Dataset("set", torch.zeros(4, 2)), written, said.append)
    assert data.labels is not None and data.labels.tolist() == [-1, 0, -1, -1]
    assert "corrected.csv: 2 of 3 rows have no label yet; their points stay as they are" in said
    assert corrected(Dataset("set", torch.zeros(4, 2)), table(tmp_path, "path,label", "set row 1,")).labels is None


def test_labels_and_corrections_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("id,label\n1,cat\n")
    (tmp_path / "fixes.csv").write_text("path,label\n1,dog\n")
    labels, fixes = str(tmp_path / "labels.csv"), str(tmp_path / "fixes.csv")
    assert labels_and_corrections([fixes, labels, fixes]) == (labels, [fixes, fixes]) and labels_and_corrections([]) == (None, [])
    with pytest.raises(ValueError, match="--labels names 2 tables of labels: .*; give one, and others with the columns path and label"):
        labels_and_corrections([labels, labels])


def test_data_with_numbers_raise(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="names classes, and set has numbers"):
        corrected(Dataset("set", torch.zeros(4, 2), targets=torch.zeros(4, 1)), table(tmp_path, "path,label", "set row 1,cat"))


def test_plain_paths_correct_data_from_a_table(tmp_path):
    for name in ("a", "b"):
        Image.new("RGB", (4, 4)).save(tmp_path / f"{name}.png")
    (tmp_path / "t.csv").write_text("path,label\na.png,cat\nb.png,dog\n")
    data = open_data(tmp_path / "t.csv")
    for path in ("b.png", str(tmp_path / "b.png"), data.sources[1]):
        table = tmp_path / "fixes.csv"
        table.write_text(f'path,label\n"{path}",cat\n')
        assert corrected(data, str(table)).labels.tolist() == [0, 0]


def test_accepted_suggestions_are_taken_and_accepted_copies_left_out(tmp_path: Path) -> None:
    lines: list[str] = []
    path = table(
        tmp_path,
        "path,label,suggested,accept,kind",
        "set row 0,cat,dog,x,label",
        "set row 1,cat,dog,,label",
        "set row 0,cat,,no,duplicate",
        "set row 3,dog,,yes,outlier",
    )
    data = corrected(vectors(), path, lines.append)
    assert data.labels is not None and data.labels.tolist() == [1, 0, 1] and data.ids.tolist() == [0, 1, 2]
    assert lines == ["corrected.csv: 1 of 4 labels corrected, 1 as they were", "corrected.csv: 1 of 4 points left out"]


def test_points_without_labels_can_be_left_out(tmp_path: Path) -> None:
    data = corrected(Dataset("set", torch.zeros(4, 2)), table(tmp_path, "path,label,suggested,accept,kind", "set row 2,,,x,duplicate"))
    assert data.ids.tolist() == [0, 1, 3]


def test_an_accepted_row_without_a_suggestion_raises(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="row 2 is accepted and has no suggested label; write its label instead"):
        corrected(vectors(), table(tmp_path, "path,label,suggested,accept,kind", "set row 0,cat,,x,label"))
