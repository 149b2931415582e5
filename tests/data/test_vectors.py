"""Vectors that are given: files, frames and arrays, and bad input of every kind, which is refused or counted with the fix."""

import os

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from PIL import Image

from nearkin import data as sources
from nearkin.data import VectorColumns, open_vectors
from nearkin.data.sources import vector_tables

N, D = 12, 4


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "id": [f"p{row}" for row in range(N)],
            "embedding": list(rng.normal(size=(N, D)).astype(np.float32)),
            "label": ["cat", "dog", None] * 4,
            "price": rng.random(N),
            "shop": ["Berlin", "Paris"] * 6,
            "sold": pd.to_datetime(["2026-01-02"] * N),
        }
    )


def vectors_of(frame):
    return torch.from_numpy(np.stack(frame["embedding"].to_list()))


def check(data, frame):
    assert torch.equal(data.inputs, vectors_of(frame)) and data.classes == ("cat", "dog")
    assert data.labels.tolist() == [0, 1, -1] * 4 and list(data.sources) == frame["id"].to_list()
    assert data.columns["shop"] == ["Berlin", "Paris"] * 6 and np.allclose(data.columns["price"], frame["price"])
    assert data.columns["sold"][0].startswith("2026-01-02")


def test_a_parquet_file_a_pandas_and_a_polars_frame_are_the_same_points(frame, tmp_path):
    frame.to_parquet(tmp_path / "v.parquet")
    for what in (tmp_path / "v.parquet", str(tmp_path / "v.parquet"), frame, pl.from_pandas(frame)):
        check(open_vectors(what), frame)


def test_a_column_that_looks_like_classes_is_named_where_there_is_no_label(frame):
    said = []
    open_vectors(frame.drop(columns="label"), report=said.append)
    assert any("so there are no labels; --label-column names one, such as shop" in line for line in said)
    said.clear()
    open_vectors(frame, report=said.append)
    open_vectors(frame.drop(columns=["label", "shop"]), report=said.append)
    assert not any("--label-column" in line for line in said)


def test_a_parquet_file_is_read_in_parts(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(vector_tables, "PART", 5)
    frame.to_parquet(tmp_path / "v.parquet")
    check(open_vectors(tmp_path / "v.parquet"), frame)


def test_columns_that_count_up_are_vectors():
    table = {"e0": [1.0, 2.0], "e1": [3.0, 4.0], "e10": [7.0, 8.0], "label": ["a", "b"]}
    with pytest.raises(ValueError, match="no column of vectors"):
        open_vectors(table)
    table["e2"] = table.pop("e10")
    assert open_vectors(table).inputs.tolist() == [[1, 3, 7], [2, 4, 8]]


def test_arrays_files_of_arrays_and_tensors(tmp_path):
    x = np.arange(8, dtype=np.float64).reshape(4, 2)
    np.save(tmp_path / "v.npy", x)
    np.savez(tmp_path / "v.npz", embeddings=x, labels=np.array([0, 1, -1, 1]), classes=np.array(["a", "b"]), sources=np.array(list("wxyz")))
    (tmp_path / "labels.csv").write_text("label,color\na,red\nb,blue\n,red\nb,red\n")
    by_file = open_vectors(tmp_path / "v.npy", labels=tmp_path / "labels.csv")
    named = open_vectors(tmp_path / "v.npz")
    for found in (
        by_file,
        named,
        open_vectors(x, labels=["a", "b", None, "b"]),
        open_vectors(torch.from_numpy(x), labels=["a", "b", "", "b"]),
    ):
        assert found.inputs.tolist() == x.tolist() and found.labels.tolist() == [0, 1, -1, 1] and found.classes == ("a", "b")
    assert by_file.columns == {"color": ["red", "blue", "red", "red"]} and list(named.sources) == list("wxyz")


def test_labels_whose_ids_count_the_rows_in_another_order_are_refused(tmp_path):
    np.save(tmp_path / "v.npy", np.eye(3, dtype=np.float32))
    (tmp_path / "l.csv").write_text("id,label\n2,c\n1,b\n0,a\n")
    with pytest.raises(ValueError, match=r"its column 'id' counts the rows in another order.*sort it by 'id'"):
        open_vectors(tmp_path / "v.npy", labels=tmp_path / "l.csv")
    (tmp_path / "l.csv").write_text("id,label\n0,a\n1,b\n2,c\n")
    assert open_vectors(tmp_path / "v.npy", labels=tmp_path / "l.csv").labels.tolist() == [0, 1, 2]


def test_labels_are_joined_by_id(tmp_path):
    (tmp_path / "labels.csv").write_text("id,label\np3,a\np1,b\np9,b\n")
    said = []
    data = open_vectors({"id": ["p1", "p2", "p3"], "x": np.eye(3)}, labels=tmp_path / "labels.csv", report=said.append)
    assert [data.classes[number] if number >= 0 else None for number in data.labels.tolist()] == ["b", None, "a"]
    assert any("1 of 3 vectors have no row there, and 1 of its rows have no vector" in line for line in said)


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        (["a|b", "b", ""], "sets"),
        ([["a", "b"], ["b"], []], "sets"),
        ([0.5, 1.0, 2.0], "numbers"),
        ([1.0, float("nan"), 2.0], "classes"),
        ([3, 1, 2], "classes"),
    ],
)
def test_labels_are_classes_numbers_or_sets(label, kind):
    assert open_vectors({"x": np.eye(3), "label": label}).supervision == kind


def test_roles_of_columns_can_be_named():
    table = {
        "a": np.eye(3),
        "b": 2 * np.eye(3),
        "genre": ["x", "y", "y"],
        "stars": [1.0, 2.0, 3.0],
        "key": ["k1", "k2", "k3"],
        "junk": [1, 2, 3],
    }
    with pytest.raises(ValueError, match="several columns of vectors: a, b; name one with --vector-column"):
        open_vectors(table)
    data = open_vectors(table, columns=VectorColumns(vector="b", label="genre", targets=["stars"], id="key", keep=[]), report=print)
    assert (
        data.inputs[0, 0] == 2
        and data.classes == ("x", "y")
        and data.target_names == ("stars",)
        and list(data.sources) == ["k1", "k2", "k3"]
    )
    assert data.columns == {}
    with pytest.raises(ValueError, match="has no column 'gnre'"):
        open_vectors(table, columns=VectorColumns(vector="b", label="gnre"))


def test_the_text_that_is_named_is_the_one_that_is_shown():
    table = {"x": np.eye(2), "body": ["hello", "world"], "text": [1, 2]}
    assert open_vectors(table, columns=VectorColumns(text="body")).columns == {"text": ["hello", "world"], "text (given)": [1, 2]}


def test_days_are_shown_without_a_time(tmp_path):
    table = pd.DataFrame({"embedding": list(np.eye(3)), "added": pd.to_datetime(["2026-02-21", "2026-02-22", None])})
    table["seen"] = pd.to_datetime(["2026-02-21 00:00", "2026-02-22 10:30", None])
    table.to_parquet(tmp_path / "v.parquet")
    data = open_vectors(tmp_path / "v.parquet")
    assert data.columns["added"] == ["2026-02-21", "2026-02-22", None]
    assert data.columns["seen"] == ["2026-02-21T00:00:00", "2026-02-22T10:30:00", None]


def test_minus_one_is_an_unknown_class_in_array_files(tmp_path):
    np.savez(tmp_path / "v.npz", x=np.eye(4), y=[-1, 0, 1, 0])
    assert open_vectors(tmp_path / "v.npz").labels.tolist() == [-1, 0, 1, 0]
    np.savez(tmp_path / "v.npz", x=np.eye(4), y=[-1, 1, 1, -1])  # two classes, as of a support vector machine
    assert open_vectors(tmp_path / "v.npz").classes == ("-1", "1")


def test_images_of_a_folder_belong_to_the_vectors(tmp_path):
    for name in ("a", "b"):
        Image.new("RGB", (8, 8), (200, 0, 0)).save(tmp_path / f"{name}.png")
    data = open_vectors(np.eye(2), images=tmp_path)
    assert [os.path.basename(path) for path in data.pictures] == ["a.png", "b.png"] and list(data.sources) == list(data.pictures)
    said = []
    data = open_vectors({"x": np.eye(3), "path": ["b.png", "a.png", "gone.png"]}, images=tmp_path, report=said.append)
    assert [os.path.basename(path) for path in data.pictures] == ["b.png", "a.png", ""]
    assert any("1 of 3 images do not exist" in line and "gone.png" in line for line in said)
    with pytest.raises(ValueError, match="there are 2 for 3 vectors"):
        open_vectors(np.eye(3), images=tmp_path)


def test_rows_that_are_not_finite_are_an_error_or_left_out_and_counted(frame, tmp_path):
    frame["embedding"] = [None if row == 3 else vector * (np.nan if row == 7 else 1) for row, vector in enumerate(frame["embedding"])]
    frame.to_parquet(tmp_path / "v.parquet")
    with pytest.raises(ValueError, match=r"2 of 12 vectors are missing or not finite \(NaN or infinity\): row 3, row 7; fix them"):
        open_vectors(tmp_path / "v.parquet")
    said = []
    data = open_vectors(tmp_path / "v.parquet", on_error="skip", report=said.append)
    assert len(data) == N - 2 and "p3" not in data.sources and "p7" not in data.sources and data.columns["shop"][3] == "Berlin"
    assert any("2 of 12 vectors" in line for line in said)


def test_numbers_beyond_float32_are_reported_with_their_row():
    x = np.eye(3)
    x[1, 1] = 1e300
    with pytest.raises(ValueError, match="1 of 3 vectors are missing or not finite .* row 1"):
        open_vectors(x)


def test_ids_that_occur_twice_are_refused():
    with pytest.raises(ValueError, match=r"1 rows have an id that an earlier row has \('b'\); give each row an id of its own"):
        open_vectors({"id": ["a", "b", "b"], "x": np.eye(3)})
    assert len(open_vectors({"id": ["a", "b", "b"], "x": np.eye(3)}, columns=VectorColumns(id=""))) == 3


def test_lengths_that_differ_are_refused(tmp_path):
    with pytest.raises(ValueError, match="labels has 2 entries for 3 vectors"):
        open_vectors(np.eye(3), labels=["a", "b"])
    with pytest.raises(ValueError, match=r"the columns differ in length: x \(3\), label \(2\)"):
        open_vectors({"x": np.eye(3), "label": ["a", "b"]})
    np.save(tmp_path / "v.npy", np.eye(3))
    (tmp_path / "labels.csv").write_text("label\na\nb\n")
    with pytest.raises(ValueError, match=r"labels.csv has 2 rows for 3 vectors"):
        open_vectors(tmp_path / "v.npy", labels=tmp_path / "labels.csv")
    with pytest.raises(ValueError, match="give all the same length"):
        open_vectors({"x": [[1.0, 2.0], [1.0]]})
    pd.DataFrame({"x": [[1.0, 2.0], [1.0]]}).to_parquet(tmp_path / "ragged.parquet")
    with pytest.raises(ValueError, match="row 1 has a vector of 1 numbers, and others of 2"):
        open_vectors(tmp_path / "ragged.parquet")


def test_labels_for_half_of_the_rows_are_kept_and_counted():
    said = []
    data = open_vectors({"x": np.eye(4), "label": ["a", None, "b", ""]}, report=said.append)
    assert data.labels.tolist() == [0, -1, 1, -1] and any("2 of 4 rows have no 'label'" in line and "kept" in line for line in said)


def test_of_very_many_columns_the_first_are_kept_and_the_others_named(tmp_path):
    table = {"x": [[1.0, 2.0], [3.0, 4.0]], **{f"note {chr(97 + at // 26)}{at}": ["u", "v"] for at in range(300)}, "label": ["a", "b"]}
    pd.DataFrame(table).to_parquet(tmp_path / "wide.parquet")
    said = []
    data = open_vectors(tmp_path / "wide.parquet", report=said.append)
    assert len(data.columns) == vector_tables.MOST_COLUMNS and data.classes == ("a", "b")
    assert any("200 others" in line or "are left out" in line for line in said)


def test_a_file_that_changes_while_it_is_read_is_refused(frame, tmp_path, monkeypatch):
    path = tmp_path / "v.parquet"
    frame.to_parquet(path)
    read = vector_tables._lists

    def while_another_writes(*arguments):
        frame.iloc[:5].to_parquet(path)
        return read(*arguments)

    monkeypatch.setattr(vector_tables, "_lists", while_another_writes)
    with pytest.raises(ValueError, match="changed while it was read, so nothing of it is used"):
        open_vectors(path)


def test_a_damaged_file_and_one_of_another_kind(tmp_path):
    (tmp_path / "v.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(ValueError, match="is damaged or no Parquet file"):
        open_vectors(tmp_path / "v.parquet")
    (tmp_path / "v.xlsx").write_bytes(b"")
    with pytest.raises(ValueError, match=r"ends with '\.xlsx'; give vectors as \.parquet"):
        open_vectors(tmp_path / "v.xlsx")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        open_vectors(tmp_path / "none.parquet")


def test_without_pyarrow_the_message_names_the_extra(frame, tmp_path, monkeypatch):
    frame.to_parquet(tmp_path / "v.parquet")
    real = vector_tables.import_module

    def missing(name):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name)

    monkeypatch.setattr(vector_tables, "import_module", missing)
    with pytest.raises(ImportError, match=r"Parquet needs pyarrow, which is not installed; pip install 'nearkin\[table\]'"):
        open_vectors(tmp_path / "v.parquet")


def test_data_open_reads_a_parquet_file_of_vectors(frame, tmp_path):
    frame.to_parquet(tmp_path / "v.parquet")
    check(sources.open(tmp_path / "v.parquet"), frame)


def test_a_subset_keeps_columns_and_pictures(frame):
    part = open_vectors(frame).subset([5, 1])
    assert part.columns["shop"] == ["Paris", "Paris"] and np.allclose(part.columns["price"], frame["price"][[5, 1]])
