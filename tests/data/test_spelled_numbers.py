"""Numbers as texts spell them: separators of thousands, minus signs and decimal commas."""

import pytest

from nearkin.data.spelled_numbers import decimal_commas, number_of, with_point


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("\u22125", -5.0),
        ("\u22121,234.5", -1234.5),
        ("1 234", 1234.0),
        ("1\u00a0234\u00a0567.5", 1234567.5),
        ("-1\u202f234", -1234.0),
        ("1'234", 1234.0),
        ("1\u2019234", 1234.0),
        ("1,234", 1234.0),
        ("1e-5", 1e-5),
    ],
)
def test_numbers_are_read(cell: str, number: float) -> None:
    assert number_of(cell) == number


@pytest.mark.parametrize("cell", ["1 2", "1 23", "12 34", "0 123", "1 234'567", "1 234 56", "1_000", "nan", "\u2212", "a", "", "3,14"])
def test_other_texts_are_no_numbers(cell: str) -> None:
    assert number_of(cell) is None


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("3,14", "3.14"),
        ("\u22121.234,5", "-1234.5"),
        ("1\u00a0234,5", "1234.5"),
        (",5", ".5"),
        ("1,5e-05", "1.5e-05"),
        ("1.234", "1234"),
        ("7", "7"),
        ("NA", "NA"),
        ("", ""),
        ("0.5", "0.5"),
    ],
)
def test_a_decimal_comma_becomes_a_point(cell: str, text: str) -> None:
    assert with_point(cell) == text


def found(*columns: list[str], usual: bool = True) -> dict[int, str]:
    return decimal_commas([f"c{at}" for at in range(len(columns))], columns, usual=usual)


def test_columns_with_decimal_commas_are_found() -> None:
    assert found(["3,14", "2"], ["x", "y"]) == {0: "3,14"}
    assert found(["3,14", "", "?"]) == {0: "3,14"}
    assert found(["3,14", "abc"]) == {} and found(["3,14", "3.15"]) == {}, "a mix is left to those who refuse it"
    assert found(["1.234.567", "89"]) == {0: "1.234.567"} and found(["1.234", "2"]) == {}
    assert found(["3,14"], ["1.234"]) == {0: "3,14", 1: "1.234"}, "where commas are decimal, points are not"
    assert found(["3,14"], ["1.25"], ["1.234"]) == {0: "3,14"}, "points are decimal, too"


def test_a_comma_that_may_separate_thousands_is_decided_by_the_other_columns() -> None:
    assert found(["1,234"], ["0,5"], usual=False) == {0: "1,234", 1: "0,5"}
    assert found(["1,234"], ["2.5"]) == {} and found(["1,234"], ["1,234,567"]) == {}
    assert found(["1,234"], ["x"], usual=True) == {0: "1,234"}
    words = r"column 'c0' holds numbers whose comma may separate decimals or thousands \('1,234'\); write them with a decimal point"
    with pytest.raises(ValueError, match=words):
        found(["1,234"], ["x"], usual=False)
    with pytest.raises(ValueError, match=words):
        found(["1,234"], ["3,14"], ["2.5"])
