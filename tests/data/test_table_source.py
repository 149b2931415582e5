"""Tables: all columns, and errors with row numbers as in an editor."""

import sys

import pytest

from nearkin.data import open as open_data
from nearkin.data.sources.table import read_cells
from tests.data.picture_files import save_tree


@pytest.fixture
def table(tmp_path):
    save_tree(tmp_path, "img/a.png", "img/b.png", "img/ç d.png")

    def write(text, name="table.csv", encoding="utf-8"):
        (tmp_path / name).write_text(text, encoding=encoding)
        return tmp_path / name

    return write


def test_labels_splits_and_groups(table):
    data = open_data(
        table("path,label,split,group\nimg/a.png,dog,train,rex\n\nimg/b.png,cat,Val,tom\nimg/ç d.png,dog,test,rex\n", encoding="utf-8-sig")
    )
    assert data.labels.tolist() == [1, 0, 1] and data.classes == ("cat", "dog") and data.name == "table"
    assert data.parts == {"train": 1, "validation": 1, "test": 1}
    assert data.groups.tolist() == [0, 1, 0]
    assert data.sources[1].endswith("img/b.png (table.csv row 4)")
    assert data.read([2]).shape == (1, 3, 8, 8)


def test_columns_by_other_names_and_several_targets(table):
    path = table("file;x\n")
    path = table("file\tkind\tx\ty\tset\nimg/a.png\tk\t1\t-2.5\ttrain\nimg/b.png\tk\t3e2\t4\ttest\n", "t.tsv")
    data = open_data(path, path_column="file", target_columns="x,y", split_column="set")
    assert data.targets.tolist() == [[1.0, -2.5], [300.0, 4.0]] and data.target_names == ("x", "y")
    assert data.supervision == "numbers" and data.labels is None
    assert open_data(path, path_column="file", label_column="kind", target_columns=["x"]).supervision == "classes"


def test_a_target_column_alone_means_numbers(table):
    data = open_data(table("path,target\nimg/a.png,1\nimg/b.png,2\n"))
    assert data.supervision == "numbers" and data.targets.tolist() == [[1.0], [2.0]]
    both = table("path,label,target\nimg/a.png,u,1\nimg/b.png,v,2\n")
    assert open_data(both).supervision == "classes" and open_data(both).targets is not None
    assert open_data(both, supervision="numbers").supervision == "numbers"


def test_several_labels_of_one_image(table):
    data = open_data(table("path,label\nimg/a.png,red|round\nimg/b.png,red\nimg/ç d.png,\n"))
    assert data.supervision == "sets" and data.classes == ("red", "round")
    assert data.sets.int().tolist() == [[1, 1], [1, 0], [0, 0]]


def test_without_labels(table):
    assert open_data(table("path\nimg/a.png\nimg/b.png\n")).supervision == "ids"


def test_a_wrong_path_is_an_error_with_its_row_or_is_skipped_and_reported(table):
    path = table("path,label\nimg/a.png,u\n\nimg/lost.png,v\nimg/b.png,v\n")
    with pytest.raises(FileNotFoundError, match=r"table.csv: 1 of 3 files do not exist: row 4 \(.*img/lost.png\). Paths are relative to"):
        open_data(path)
    lines = []
    data = open_data(path, on_error="skip", report=lines.append)
    assert data.labels.tolist() == [0, 1] and "left out 1 of 3 rows whose file does not exist: row 4" in lines[0]


def test_many_wrong_paths_are_listed_up_to_ten(table):
    rows = "".join(f"img/lost{number}.png\n" for number in range(13))
    with pytest.raises(FileNotFoundError, match=r"13 of 14 files do not exist: row 3 .*row 12 \([^)]*\) and 3 more"):
        open_data(table("path\nimg/a.png\n" + rows))
    with pytest.raises(FileNotFoundError, match=r"on_error='skip' .nearkin train: --skip-damaged. to leave those rows out"):
        open_data(table("path\nimg/a.png\nx.png\n"))
    with pytest.raises(FileNotFoundError, match=r"2 of 2 files do not exist"):  # nothing left: an error even when skipping
        open_data(table("path\nx.png\ny.png\n"), on_error="skip")


@pytest.mark.parametrize(
    ("text", "how", "error"),
    [
        ("image,label\nimg/a.png,u\n", {}, r"table.csv has no column 'path'; its columns are image, label. Set the names with path_column"),
        ("path,label\nimg/a.png,u\n", {"target_columns": "x,y"}, r"has no column 'x', 'y'; its columns are path, label"),
        (
            "path,label\nimg/a.png,u\n",
            {"label_column": "class"},
            r"has no column 'class'.* \(nearkin train: --set data.label_column=",
        ),
        ("path,label\n", {}, r"table.csv has no rows below its header"),
        ("", {}, r"table.csv has no rows below its header"),
        ("path,label\nimg/a.png,u\nimg/b.png\n", {}, r"row 3 has 1 cells, and the header has 2; fix that row"),
        ("path,label\nimg/a.png,\nimg/b.png,\n", {}, r"no row has a 'label'; fill some in, or remove the column to train without classes"),
        ("path,target\nimg/a.png,1\nimg/b.png,tall\n", {}, r"row 3 has 'target' = 'tall', which is not a finite number"),
        ("path,target\nimg/a.png,nan\n", {}, r"row 2 has 'target' = 'nan', which is not a finite number"),
        ("path,split\nimg/a.png,tarin\n", {}, r"row 2 has 'split' = 'tarin'; it must be train, validation or test"),
    ],
)
def test_errors_name_the_fix(table, text, how, error):
    with pytest.raises(ValueError, match=error):
        open_data(table(text), **how)


def test_a_table_without_paths_holds_rows(table):
    data = open_data(table("a,b,label\n0.5,x,cat\n1.5,y,dog\n2.5,x,cat\n"))
    assert data.table is not None and data.shape == (2,) and data.classes == ("cat", "dog")
    assert data.subset([1]).columns == {"a": [1.5], "b": ["y"]} and data.inputs[:, 0].tolist() == [0.5, 1.5, 2.5]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("photo,width,height\nimg/a.png,3,4\n", "Set the names with path_column"),
        (
            "name,kind,width,height\na,u,3,4\n",
            "has no column 'label' or 'target' to learn from; name one with --label .* its columns are name",
        ),
        ("c0,c1\n1,2\n", "has no column 'label' or 'target' to learn from"),
        ("0.5,0.0,0.0\n1,2,3\n", "has no header: its first row holds numbers; add a first row with the names of the columns"),
        ("0.5,0.0,cat\n1,2,dog\n", "has no header"),
        ("# written by a scale\na,b,label\n1,2,u\n", "begins with a comment .# written by a scale.; remove the lines before"),
        ("a b label\n1,2,u\n", r"line 2 has 3 cells, and the header .a b label. has 1; fix that line, or the header"),
    ],
)
def test_the_error_for_other_tables_says_what_to_do(table, text, error):
    with pytest.raises(ValueError, match=error):
        open_data(table(text))


def test_an_empty_label_is_an_unknown_class(table):
    lines = []
    data = open_data(table("path,label\nimg/a.png,u\nimg/b.png,\n"), report=lines.append)
    assert data.labels.tolist() == [0, -1] and data.classes == ("u",) and data.partly_labeled
    assert any("1 of 2 rows have no 'label'; their class is unknown" in line for line in lines)
    assert "1 class (u), known for 1" in data.describe()


def test_a_table_in_another_encoding(tmp_path):
    save_tree(tmp_path, "a.png", "b.png")
    (tmp_path / "latin.csv").write_bytes("path;label;target\na.png;été;0,5\nb.png;hiver;1.250,75\n".encode("latin-1"))
    lines = []
    data = open_data(tmp_path / "latin.csv", report=lines.append)
    assert data.classes == ("hiver", "été") and data.targets.tolist() == [[0.5], [1250.75]]
    assert any("semicolons between its columns" in line and "Windows-1252, since it is not UTF-8" in line for line in lines)
    (tmp_path / "neither.csv").write_bytes(b"path,label\na.png,\x81\n")
    with pytest.raises(ValueError, match=r"neither.csv is neither UTF-8 nor Windows-1252 \(byte 0x81 near byte 17\); save it again"):
        open_data(tmp_path / "neither.csv")


def test_parquet_without_its_extra_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r"t.parquet: Parquet needs pyarrow.*; pip install 'nearkin\[table\]', or save"):
        open_data(tmp_path / "t.parquet")


def test_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow (the extra [table]) is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    save_tree(tmp_path, "a.png", "b.png")
    cells = {"path": ["a.png", "b.png"], "label": [7, 10], "target": [0.5, 1.5], "split": ["train", "test"]}
    parquet.write_table(arrow.table(cells), tmp_path / "t.parquet")
    data = open_data(tmp_path / "t.parquet")
    assert data.classes == ("7", "10") and data.targets.tolist() == [[0.5], [1.5]] and data.parts == {"train": 1, "test": 1}
    parquet.write_table(arrow.table({"path": ["a.png", "b.png"], "label": ["u", None]}), tmp_path / "n.parquet")
    assert open_data(tmp_path / "n.parquet").labels.tolist() == [0, -1]


def test_a_cell_may_be_a_text_of_a_million_words(tmp_path):
    (tmp_path / "t.csv").write_text("text,label\n" + "word " * 1_000_000 + ",a\nshort,b\n")
    assert [len(cell) for cell in read_cells(tmp_path / "t.csv")["text"]] == [5_000_000, 5]
