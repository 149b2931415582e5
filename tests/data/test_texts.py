"""Texts: tables, folders of .txt, tokenizers, leaks, and what is wrong with them."""

import pytest
import torch

from nearkin import data as sources
from nearkin.data import Dataset, LeakError, Texts, check_leaks
from nearkin.data.texts import LENGTH, SubwordTokenizer, WordTokenizer, hashed_words, tokenizer_from, words_of

ROWS = "text,kind,stars\nA red car,car,1\nA blue boat,boat,2\nThe old car,car,3\n"


def table(tmp_path, content: str = ROWS):
    path = tmp_path / "t.csv"
    path.write_text(content)
    return path


def test_a_table_of_texts_with_classes_or_numbers(tmp_path) -> None:
    data = sources.open(table(tmp_path), text_column="text", label_column="kind")
    assert data.kind == "texts" and data.classes == ("boat", "car") and data.labels.tolist() == [1, 0, 1]
    assert list(data.inputs.texts) == ["A red car", "A blue boat", "The old car"] and data.sources[1] == "t.csv row 3"
    assert "3 texts; 2 classes" in data.describe()
    numbers = sources.open(table(tmp_path), text_column="text", target_columns="stars")
    assert numbers.supervision == "numbers" and numbers.targets[:, 0].tolist() == [1, 2, 3]
    sets = sources.open(table(tmp_path, "text,label\na b,x|y\nc d,y\n"), text_column="text")
    assert sets.supervision == "sets"


def test_texts_of_a_row_that_belong_together_are_a_class_and_a_group(tmp_path) -> None:
    data = sources.open(table(tmp_path, "q,a,split\nhow?,so,train\nwhy?,because,test\n"), text_column="q,a")
    assert list(data.inputs.texts) == ["how?", "so", "why?", "because"]
    assert data.labels.tolist() == data.groups.tolist() == [0, 0, 1, 1] and data.parts == {"train": 2, "test": 2}
    assert data.sources[3] == "t.csv row 3, a"


def test_a_folder_of_texts_with_a_folder_for_each_class(tmp_path) -> None:
    for split in ("train", "test"):
        for label in ("good", "bad"):
            (tmp_path / split / label).mkdir(parents=True)
            (tmp_path / split / label / "1.txt").write_text(f"{label} and {split}")
    data = sources.open(tmp_path)
    assert data.kind == "texts" and data.classes == ("bad", "good") and data.parts == {"train": 2, "test": 2}
    (tmp_path / "test" / "good" / "1.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ValueError, match=r"1\.txt is not a text in UTF-8.*save it again"):
        sources.open(tmp_path)


def test_a_text_beside_photographs_is_no_data_set(tmp_path) -> None:
    (tmp_path / "readme.txt").write_text("about")
    with pytest.raises(ValueError, match="holds no images"):
        sources.open(tmp_path)


def test_empty_texts_are_named_or_left_out(tmp_path) -> None:
    path = table(tmp_path, "text,label\nhello,a\n  ,b\nthere,b\n")
    with pytest.raises(ValueError, match=r"1 of 3 rows have an empty 'text': row 3; fill them in, remove them, or pass on_error='skip'"):
        sources.open(path, text_column="text")
    lines: list[str] = []
    data = sources.open(path, text_column="text", on_error="skip", report=lines.append)
    assert len(data) == 2 and any("left out 1 of 3 rows with an empty text" in line for line in lines)
    (tmp_path / "f" / "a").mkdir(parents=True)
    (tmp_path / "f" / "a" / "1.txt").write_text("one")
    (tmp_path / "f" / "a" / "2.txt").write_text(" \n")
    with pytest.raises(ValueError, match=r"1 of 2 texts are empty: .*2\.txt"):
        sources.open(tmp_path / "f")
    assert len(sources.open(tmp_path / "f", on_error="skip", report=lines.append)) == 1


def test_a_missing_column_is_named(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"has no column 'body'; its columns are text, kind, stars.*text_column"):
        sources.open(table(tmp_path), text_column="body")


def test_the_same_text_in_two_splits_is_a_leak() -> None:
    data = Dataset("toy", Texts(["one", "two", "one"])).with_split(["train", "train", "test"])
    with pytest.raises(LeakError, match=r"toy row 0 \[train\] = toy row 2 \[test\]"):
        check_leaks(data)


def test_a_subset_reads_its_own_texts_and_needs_a_tokenizer() -> None:
    data = Dataset("toy", Texts(["a b", "b c", "c a"], WordTokenizer(("a", "b", "c"), 4)))
    assert data.subset([2, 0]).read([2]).tolist() == [[2, 0, -1, -1]] and data.shape == (4,) and data.nbytes == 48
    with pytest.raises(ValueError, match="these texts have no tokenizer"):
        Dataset("toy", Texts(["a"])).read([0])


def test_words_are_followed_by_the_pairs_they_form() -> None:
    assert words_of("Not good, NOT bad") == ["not", "not good", "good", "good not", "not", "not bad", "bad"]


def test_hashed_words_tell_texts_apart_and_have_length_one() -> None:
    rows = hashed_words(["a red car", "a red car", "an old boat"])
    assert torch.allclose(rows.norm(dim=1), torch.ones(3)) and torch.equal(rows[0], rows[1]) and float(rows[0] @ rows[2]) < 0.5


def test_a_text_of_a_million_words_costs_no_more_than_its_beginning() -> None:

    text = "word other " * 500_000
    assert WordTokenizer(("word",), 8)([text]).tolist() == [[0] * 8]
    assert hashed_words([text]).isfinite().all()
    tokenizers = pytest.importorskip("tokenizers")
    seen = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "word": 1}, unk_token="[UNK]"))
    seen.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    assert SubwordTokenizer(seen.to_str(), 6)([text]).tolist() == [[1, 0, 1, 0, 1, 0]]


def test_tokenizers_come_back_from_their_file(tmp_path) -> None:
    path = tmp_path / "tokenizer.json"
    made = WordTokenizer(("a", "a b"), 3)
    path.write_text(made.content())
    assert tokenizer_from(path, 3) == made and LENGTH == 512
    for content in ("{", '{"model": {}}'):
        path.write_text(content)
        with pytest.raises((ValueError, ImportError), match=r"tokenizer\.json is not a complete tokenizer\.json|nearkin\[text\]"):
            tokenizer_from(path, 3)
    with pytest.raises(FileNotFoundError, match=r"the tokenizer is missing: .*put the tokenizer\.json of the encoder there"):
        tokenizer_from(tmp_path / "none.json", 3)
