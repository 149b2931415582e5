"""Tables as text files: delimiters, encodings, line ends, and what is packed or damaged."""

import gzip
import re
import warnings
from pathlib import Path

import pytest

from nearkin.data import delimited
from nearkin.data import open as open_data
from nearkin.data.columns import TableSchema, read_columns
from nearkin.data.corrections import corrected, is_corrections
from nearkin.data.sources.table import numbered_cells

PLAIN = 'price,town,label\n3.14,Köln,u\n-1250.5,"Bonn, West",v\n7,Ulm,u\n'
GERMAN = "price;town;label\r\n3,14;Köln;u\r\n-1.250,5;Bonn, West;v\r\n7;Ulm;u\r\n"
TABS = "price\ttown\tlabel\r\n3,14\tKöln\tu\r\n-1250,5\tBonn, West\tv\r\n7\tUlm\tu\r\n"
ODD = {
    "excel in Germany": ("t.csv", GERMAN.encode("cp1252"), ("semicolons between", "decimals", "Windows-1252, since it is not UTF-8")),
    "excel's sep": ("t.csv", ("sep=;\r\n" + GERMAN).encode("utf-8-sig"), ("semicolons between", "price ('3,14')")),
    "unicode text": ("t.txt", TABS.encode("utf-16"), ("tabs between", "price ('3,14')", "UTF-16")),
    "unicode text, big endian": ("t.csv", b"\xfe\xff" + TABS.encode("utf-16-be"), ("tabs between", "UTF-16")),
    "old Mac": ("t.csv", PLAIN.replace("\n", "\r").encode(), ()),
    "pipes": ("t.csv", "price|town|label\n3.14|Köln|u\n-1250.5|Bonn, West|v\n7|Ulm|u\n".encode(), ("pipes between",)),
    "packed": ("t.csv.gz", gzip.compress(PLAIN.encode(), mtime=0), ()),
    "packed and German": ("t.csv.gz", gzip.compress(GERMAN.encode("cp1252"), mtime=0), ("semicolons between", "Windows-1252")),
    "a minus sign": ("t.csv", PLAIN.replace("-1250.5", "\u22121250.5").encode(), ()),
    "thousands": ("t.csv", PLAIN.replace("-1250.5", "-1\u00a0250.5").encode(), ()),
    "blank lines": ("t.csv", ("\n" + PLAIN.replace("\n", "\n  \n\n")).encode(), ()),
    "semicolons in a .tsv": ("t.tsv", GERMAN.encode(), ("semicolons between",)),
}


def put(folder: Path, content: bytes | str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("form", ODD)
def test_a_table_says_the_same_in_every_form(form: str, tmp_path: Path) -> None:
    name, content, said = ODD[form]
    lines: list[str] = []
    data = open_data(put(tmp_path, content, name), report=lines.append)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = open_data(put(tmp_path, PLAIN, "plain.csv"))
    assert data.columns == plain.columns == {"price": [3.14, -1250.5, 7.0], "town": ["Köln", "Bonn, West", "Ulm"]}
    assert data.classes == plain.classes and data.table == plain.table
    told = [line for line in lines if "is read with" in line]
    assert len(told) == bool(said) and all(part in told[0] for part in said), told


def test_each_schema_reads_the_other_form(tmp_path: Path) -> None:
    plain, german = put(tmp_path, PLAIN, "a.csv"), put(tmp_path, GERMAN, "b.csv")
    for one, other in ((plain, german), (german, plain)):
        schema = TableSchema.learned(one, ["label"])
        assert schema.encode(other, ["label"]).numbers.tolist() == [[3.14], [-1250.5], [7.0]]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("text\nhello; world\nbye; world\n", {"text": ["hello; world", "bye; world"]}),
        ('text;label\n"a; b";x\n"c ""d"", e; f";y\n', {"text": ["a; b", 'c "d", e; f'], "label": ["x", "y"]}),
        ("name, first;age\nBob;3\nJo;4\n", {"name, first": ["Bob", "Jo"], "age": ["3", "4"]}),
        ('a;b\n"x\ny;z";2\nw;3\n', {"a": ["x\ny;z", "w"], "b": ["2", "3"]}),
        ("my text\nhello world\nfoo bar\n", {"my text": ["hello world", "foo bar"]}),
        ("product name\niphone 5\npixel 7\n", {"product name": ["iphone 5", "pixel 7"]}),
        ("a b l\n1 2.5 x\n3 4.5 y\n", {"a": ["1", "3"], "b": ["2.5", "4.5"], "l": ["x", "y"]}),
        ("x y z l\n1,5 2,5 3 a\n3,5 1 2 b\n", {"x": ["1.5", "3.5"], "y": ["2.5", "1"], "z": ["3", "2"], "l": ["a", "b"]}),
        ("full name\tage\nJo Doe\t3\nBo Roe\t6\n", {"full name": ["Jo Doe", "Bo Roe"], "age": ["3", "6"]}),
        ('"sep=\t"\na\tb\n1\t2\n', {"a": ["1"], "b": ["2"]}),
        ("sep=,\na,b;c\n1,2;3\n", {"a": ["1"], "b;c": ["2;3"]}),
        ("zip;day\n01234;31.12.2024\n00123;1.1.2024\n", {"zip": ["01234", "00123"], "day": ["31.12.2024", "1.1.2024"]}),
    ],
)
def test_the_delimiter_is_found(text: str, columns: dict[str, list[str]], tmp_path: Path) -> None:
    found = read_columns(put(tmp_path, text))
    assert {name: cells.values.tolist() for name, cells in found.items()} == columns


def test_commas_are_kept_wherever_they_fit_and_another_that_fits_is_named(tmp_path: Path) -> None:
    lines: list[str] = []
    found = read_columns(put(tmp_path, "name, first;age\nMiller, Bob;3\nDoe, Jo;4\n"), report=lines.append)
    assert list(found) == ["name", "first;age"]
    assert "semicolons would separate its columns, too: write sep=; as its first line if they do" in lines[0]
    assert list(read_columns(put(tmp_path, "a,b\n1,2\n", "one.tsv"))) == ["a,b"], "as it was read before"
    cells = read_columns(put(tmp_path, "a\tb\n1,234\t0,5\n2,345\t0,7\n", "two.tsv"))
    assert cells["a"].values.tolist() == ["1,234", "2,345"] and cells["b"].values.tolist() == ["0,5", "0,7"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.csv", b"a,b\n1,x\n2,\x81\n", "is neither UTF-8 nor Windows-1252 (byte 0x81 near byte 10); save it again as CSV, UTF-8"),
        ("t.csv", b"\xff\xfea", "is damaged UTF-16"),
        ("t.csv", b"a,b\n1,2\n1,x\x00y\n", "line 3 holds a NUL byte"),
        (
            "t.csv",
            "a,b\n1,2\n".encode("utf-16-le"),
            "line 1 holds a NUL byte, which no text has: it is damaged, no table, or UTF-16",
        ),
        ("t.csv", b"PK\x03\x04...", "is a workbook of Excel or a zip archive; save its table as CSV UTF-8, or unpack it"),
        ("t.csv.gz", gzip.compress(PLAIN.encode(), mtime=0)[:-6], "is damaged (Compressed file ended"),
        ("t.csv.gz", b"\x1f\x8bzzzz", "is damaged ("),
        ("t.csv", b"a;b;l\n1;2;x\n3;4\n", "line 3 has 2 cells, and the header (a, b, l) has 3; fix that line"),
        ("t.csv", b"sep=;\na;b\n1;2\n\n3\n", "line 5 has 1 cells"),
        (
            "t.csv",
            b"a\tb;c\tl\n1\t2;3\tx\n",
            "semicolons (2 columns) and tabs (3 columns) separate its columns alike; write the right one",
        ),
        ("t.txt", b"some prose here\nof lines that differ\n", "(row 1 has 4 words, and the header 3); save it as CSV with commas"),
        ("t.data", b"x s n\ny f c\n", "its spaces are not clearly between columns; save it as CSV with commas"),
        ("t.data", b"5.1 3.5 a\n4.9 3.0 b\n", "has no header: its first row holds numbers; add a first row"),
        (
            "t.txt",
            b"a\tb\n1,234\tx\n2,345\ty\n",
            "column 'a' holds numbers whose comma may separate decimals or thousands ('1,234')",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    path = put(tmp_path, content, name)
    with pytest.raises(ValueError, match=re.escape(said)) as error:
        read_columns(path)
    assert str(path) in str(error.value)


def test_a_column_that_is_ignored_may_have_commas_of_any_kind(tmp_path: Path) -> None:
    path = put(tmp_path, "a\tb\n1,234\tx\n2,345\ty\n", "t.txt")
    assert read_columns(path, ["a"])["b"].values.tolist() == ["x", "y"]


def test_a_mix_of_decimal_commas_and_points_is_refused(tmp_path: Path) -> None:
    for other in ("3.14", "abc"):
        path = put(tmp_path, "a;label\n" + "".join(f"{at},5;{'uv'[at % 2]}\n" for at in range(30)) + f"{other};u\n")
        with pytest.raises(ValueError, match="column 'a' holds numbers with"):
            TableSchema.learned(path, ["label"])


def test_a_delimiter_at_the_end_of_each_line_is_no_column(tmp_path: Path) -> None:
    for mark in ",;":
        rows = [f"{at % 7}{mark}{'uv'[at % 2]}" for at in range(30)]
        ended = put(tmp_path, "".join(f"{line}{mark}\n" for line in [f"a{mark}label", *rows]), "ended.csv")
        usual = put(tmp_path, "".join(f"{line}\n" for line in [f"a{mark}label", *rows]), "usual.csv")
        for one, other in ((ended, usual), (usual, ended)):
            assert TableSchema.learned(one, ["label"]).encode(other, ["label"]).numbers[:, 0].tolist() == [at % 7 for at in range(30)]
        short = put(tmp_path, f"a{mark}\n3{mark}\n", "short.csv")
        assert TableSchema.learned(ended, ["label"]).encode(short).numbers.tolist() == [[3.0]], "the label is missing before it, too"
    with pytest.raises(ValueError, match="not in the schema: Unnamed: 1"):
        TableSchema.learned({"a": [1, 2]}).encode({"a": [1, 2], "": [1, 2]})


def test_lines_are_counted_behind_what_is_skipped(tmp_path: Path) -> None:
    assert numbered_cells(put(tmp_path, 'sep=;\r\n\r\na;b\r\n"x\r\ny";1\r\n\r\nz;2\r\n')).numbers == [5, 7]


def test_a_byte_far_below_and_a_torn_row_far_below(tmp_path: Path) -> None:
    """Only the first lines decide on the delimiter, and all bytes on the encoding."""
    many = b"a;b\n" + b"1,5;x\n" * 30_000
    with pytest.warns(UserWarning, match="is read with .* Windows-1252"):
        assert read_columns(put(tmp_path, many + b"2,5;\xfc\n"))["b"].values[-1] == "ü"
    with pytest.raises(ValueError, match="line 30002 has 3 cells, and the header"):
        read_columns(put(tmp_path, many + b"2,5;x;y\n"))


def test_a_file_that_unpacks_to_very_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "MOST_UNPACKED", 2**21)
    path = put(tmp_path, gzip.compress(b"a,b\n" + b"1,2\n" * 2**20), "t.csv.gz")
    with pytest.raises(ValueError, match="unpacks to more than 100 times its size; unpack it by gunzip"):
        read_columns(path)


def test_corrections_that_a_spreadsheet_saved_are_read(tmp_path: Path) -> None:
    data = open_data(put(tmp_path, "a,label\n" + "".join(f"{at % 7},{'uv'[at % 2]}\n" for at in range(30))))
    table = put(tmp_path, f"path;label\r\n{data.sources[0]};früh\r\n".encode("cp1252"), "problems.csv")
    assert is_corrections(table)
    lines: list[str] = []
    assert "früh" in corrected(data, str(table), lines.append).classes and "semicolons between its columns" in lines[0]


def test_texts_and_labels_of_other_forms_are_read(tmp_path: Path) -> None:
    path = put(tmp_path, 'text;label\r\n"Gut; sehr gut";u\r\nNaja, nicht übel;v\r\n'.encode("cp1252"))
    data = open_data(path, text_column="text", report=print)
    assert list(data.inputs.texts) == ["Gut; sehr gut", "Naja, nicht übel"] and data.classes == ("u", "v")
    assert data.sources[1] == "t.csv row 3"


def test_a_zip_says_to_unpack_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ends with '.zip'; unpack it, or pack one file as .csv.gz; give a folder"):
        open_data(put(tmp_path, b"PK\x03\x04", "t.zip"))
