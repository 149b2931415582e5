"""The columns of feature tables: recognized, left out, refused, checked and encoded."""

import warnings
from datetime import datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearkin.data.columns import MOST_CATEGORIES, TableSchema, read_columns

ROWS = 30


def people() -> dict[str, list[Any]]:
    return {
        "id": list(range(ROWS)),
        "age": [20.0 + at if at % 7 else None for at in range(ROWS)],
        "job": [("cook", "smith", "clerk")[at % 3] for at in range(ROWS)],
        "member": [at % 2 == 0 for at in range(ROWS)],
        "since": [datetime(2020, 1 + at % 12, 3) for at in range(ROWS)],
        "planet": ["earth"] * ROWS,
        "empty": [None] * ROWS,
        "code": [f"x-{at}" for at in range(ROWS)],
    }


def kinds(schema: TableSchema) -> dict[str, str]:
    return {column.name: column.kind for column in schema.columns}


def as_table(form: str, folder: Path) -> Any:
    if form == "mapping":
        return people()
    if form in ("pandas", "polars"):
        return pytest.importorskip(form).DataFrame(people())
    if form == "parquet":
        pytest.importorskip("pyarrow")
        pytest.importorskip("polars").DataFrame(people()).write_parquet(folder / "people.parquet")
        return folder / "people.parquet"
    cells = people()
    lines = [",".join(cells)] + [",".join("" if cells[name][at] is None else str(cells[name][at]) for name in cells) for at in range(ROWS)]
    (folder / "people.csv").write_text("\n".join(lines))
    return str(folder / "people.csv")


@pytest.mark.parametrize("form", ["mapping", "pandas", "polars", "parquet", "csv"])
def test_columns_are_recognized_in_every_kind_of_table(form: str, tmp_path: Path) -> None:
    table = as_table(form, tmp_path)
    schema = TableSchema.learned(table)
    assert kinds(schema) == {"age": "number", "job": "category", "member": "boolean", "since": "date"}
    assert set(schema.left_out) == {"id", "planet", "empty", "code"}
    rows = schema.encode(table)
    assert schema.number_names == ("age", "age missing", "since day", "since weekday", "since day of year")
    assert rows.numbers[1].tolist() == [21.0, 0.0, 18295.0, 0.0, 34.0]  # Monday, February 3, 2020
    assert np.isnan(rows.numbers[0, 0]) and rows.numbers[0, 1] == 1
    assert rows.categories[:3].tolist() == [[2, 2], [3, 1], [1, 2]]
    assert TableSchema.from_json(schema.to_json()) == schema


def test_missing_extra_and_reordered_columns_are_named() -> None:
    schema = TableSchema.learned(people())
    some = people()
    with pytest.raises(ValueError, match="columns are missing: job"):
        schema.encode({name: some[name] for name in some if name != "job"})
    with pytest.raises(ValueError, match="columns are not in the schema: color"):
        schema.encode({**some, "color": ["red"] * ROWS})
    with pytest.raises(ValueError, match=r"another order: id \(now 8, was 1\)"):
        schema.encode({name: some[name] for name in reversed(some)})
    assert len(schema.encode({**some, "label": [1] * ROWS}, without=["label"]).numbers) == ROWS


def test_retyped_columns_are_named() -> None:
    schema, some = TableSchema.learned(people()), people()
    for name, cells, said in (
        ("age", ["old"] * ROWS, "'age' was a number in training, and now holds 'old'"),
        ("age", [datetime(2020, 1, 1)] * ROWS, "'age' was a number in training, and is now a date"),
        ("job", [1.5] * ROWS, r"'job' was a category in training \(clerk, cook, smith\), and is now a number"),
        ("age", ["old", "new"] * (ROWS // 2), "now holds 'old', 'new'$"),
        ("job", ["7", "1,200"] * (ROWS // 2), r"'job' was a category in training \(clerk, cook, smith\), and now holds numbers"),
        ("member", ["perhaps"] * ROWS, "'member' was a boolean in training, and now holds 'perhaps'"),
        ("member", [7] * ROWS, "'member' was a boolean in training, and is now a number"),
        ("since", ["soon"] * ROWS, "'since' was a date in training, and now holds 'soon'"),
    ):
        with pytest.raises(ValueError, match=said):
            schema.encode({**some, name: cells})


def test_cells_that_are_missing_or_unseen_at_prediction_are_encoded() -> None:
    schema = TableSchema.learned({"a": [1.0, 2.0, 3.0], "b": ["x", "y", "x"], "c": ["x", None, "y"]})
    rows = schema.encode({"a": [None, 5.0], "b": ["z", None], "c": [None, "z"]})
    assert np.isnan(rows.numbers[0, 0]) and rows.numbers[1, 0] == 5
    assert rows.categories.tolist() == [[0, 3], [0, 0]]


def test_categories_of_whole_numbers_stay_the_same_when_a_cell_is_missing() -> None:
    pandas = pytest.importorskip("pandas")
    schema = TableSchema.learned(pandas.DataFrame({"zip": pandas.Series([1, 2, 1], dtype="category")}))
    assert kinds(schema) == {"zip": "category"}
    assert schema.encode(pandas.DataFrame({"zip": pandas.Series([2, None], dtype="category")})).categories.tolist() == [[2], [0]]
    assert schema.encode(pandas.DataFrame({"zip": [9]})).categories.tolist() == [[0]]  # a number like the others, and not seen


@pytest.mark.parametrize("dtype", ["object", "string"])
def test_texts_of_pandas_may_be_missing(dtype: str) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"b": pandas.Series(["x", pandas.NA, "y", "x"], dtype=dtype)})
    schema = TableSchema.learned(table)
    assert kinds(schema) == {"b": "category"}
    assert schema.encode(table).categories[:, 0].tolist()[0] != schema.encode(table).categories[1, 0]


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([f"a very long story about row {at}" for at in range(ROWS)], "column 'c' holds free text"),
        ([*map(str, range(ROWS - 1)), "abc"], r"column 'c' holds numbers and 1 other cells \('abc'\)"),
        ([f"{at},5" for at in range(ROWS)], "decimal commas"),
        (["1.234.567", *(f"{at}.500" for at in range(1, ROWS))], r"points for thousands \('1.234.567'\)"),
        (["1.234,50", *(f"{at}" for at in range(1, ROWS))], r"points for thousands \('1.234,50'\)"),
        ([np.inf, *range(ROWS)], "column 'c' holds infinity in 1 rows"),
        ([f"-${at}.50" for at in range(ROWS)], r"sign of money or percent \('-\$0.50'\).*--category 'c'"),
        ([f"{at} EUR" if at else "free" for at in range(ROWS)], r"sign of money or percent \('1 EUR'\)"),
        ([f"({at}.00)" if at % 3 else f"{at}.00" for at in range(ROWS)], r"with spaces or other marks \('\(1.00\)'\)"),
        ([f"{at} kg" for at in range(ROWS)], r"numbers with a unit \('0 kg'\); write them without it"),
        ([f"{at % 28 + 1}-Mar-2024" for at in range(ROWS)], r"day and month may be mistaken \('1-Mar-2024'\).*--category 'c'"),
        ([f"Mar {at % 28 + 1}, 2024 9:30 AM" for at in range(ROWS)], "day and month may be mistaken"),
        (["unknown", *(f"3/{at % 28 + 1}/24" for at in range(ROWS))], r"day and month may be mistaken \('3/1/24'\)"),
    ],
)
def test_columns_that_cannot_be_used_are_refused_by_name(cells: list[Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TableSchema.learned({"c": cells, "d": list(np.random.default_rng(0).normal(size=len(cells)))})


def test_names_that_resemble_amounts_and_dates_stay_categories() -> None:
    for names in (["36 months", "60 months"], ["1.2.10", "1.2.9"], ["12-34-56", "65-43-21"], ["10.0.0.1", "10.0.0.2"], ["A5", "B5"]):
        assert kinds(TableSchema.learned({"c": names * ROWS})) == {"c": "category"}


def test_dates_that_begin_with_the_year_are_dates_in_other_forms_too() -> None:
    known = TableSchema.learned({"c": [f"2024-03-{at + 1:02} 09:05" for at in range(ROWS)]})
    wanted = known.encode({"c": ["2024-03-07 09:05"]}).numbers
    for cell in ("2024/3/7 9:05", "2024.03.07 09:05:00", "2024-03-07 9:05 UTC", "2024-03-07T09:05:00Z"):
        np.testing.assert_array_equal(known.encode({"c": [cell]}).numbers, wanted)


def test_times_are_numbers_of_seconds_also_in_a_later_table() -> None:
    cells = [f"{at % 24}:{at:02}" for at in range(ROWS)]
    schema = TableSchema.learned({"c": cells})
    assert schema.described() == "c  number of seconds"
    later = ["12:30", "12:30:01.5", "1:05 PM", "12:05 am", "1 days 02:00:00", "-1 days +23:00:00"]
    assert schema.encode({"c": later}).numbers[:, 0].tolist() == [45000, 45001.5, 47100, 300, 93600, -3600]
    assert TableSchema.from_json(schema.to_json()) == schema
    with pytest.raises(ValueError, match="'c' was a number in training, and now holds '12:30'"):
        TableSchema.learned({"c": [1.5, 2, 4]}).encode({"c": ["12:30"]})
    typed = TableSchema.learned({"c": [time(at % 24, at) for at in range(ROWS)]})
    assert typed.encode({"c": ["12:30"]}).numbers.tolist() == typed.encode({"c": [time(12, 30)]}).numbers.tolist() == [[45000]]


def test_a_time_in_a_zone_is_the_same_in_every_kind_of_table(tmp_path: Path) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"t": pandas.date_range("2024-01-01", periods=3, freq="5h", tz="Europe/Berlin"), "x": [1.0, 2, 3]})
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    schema = TableSchema.learned(frame)
    for same in (polars.from_pandas(frame), tmp_path / "t.parquet", tmp_path / "t.csv"):
        np.testing.assert_array_equal(schema.encode(same).numbers, schema.encode(frame).numbers)


def test_numbers_that_begin_with_0_are_said() -> None:
    with pytest.warns(UserWarning, match="column 'c' holds numbers that begin with 0 such as '00501': .* by --category 'c'"):
        assert kinds(TableSchema.learned({"c": ["00501", "99501"] * ROWS})) == {"c": "number"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kinds(TableSchema.learned({"c": ["01", "12", "0.5"] * ROWS})) == {"c": "number"}


def test_bins_and_periods_of_pandas_are_categories_and_dates() -> None:
    pandas = pytest.importorskip("pandas")
    bins = pandas.cut(pandas.Series(np.arange(ROWS)), 3)
    frame = pandas.DataFrame({"bin": bins, "object": bins.astype(object), "month": pandas.period_range("2024-01", periods=ROWS, freq="M")})
    schema = TableSchema.learned(frame)
    assert kinds(schema) == {"bin": "category", "object": "category", "month": "date"}
    assert len(schema.columns[0].categories) == 3 and schema.columns[0].categories == schema.columns[1].categories


def test_a_column_of_structures_is_refused_by_name_and_can_be_ignored() -> None:
    polars = pytest.importorskip("polars")
    for cells in ([{"a": 1, "b": at} for at in range(3)], [[1, at] for at in range(3)]):
        with pytest.raises(
            TypeError, match="column 's'.* write one such value, or several columns, or leave the column out by --ignore 's'"
        ):
            read_columns(polars.DataFrame({"x": [1.0, 2.0, 3.0], "s": cells}))
        assert read_columns(polars.DataFrame({"s": cells}), ["s"])["s"].plain().tolist() == [None] * 3


def test_a_parquet_file_with_two_columns_of_a_name_is_refused_by_it(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table([[1], [2]], names=["a", "a"]), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="t.parquet: column 'a' is there twice"):
        read_columns(tmp_path / "t.parquet")


def test_a_later_boolean_may_be_written_as_1_and_0() -> None:
    schema = TableSchema.learned({"c": ["yes", "no"] * ROWS})
    assert schema.encode({"c": ["1", "0"]}).categories.tolist() == schema.encode({"c": ["yes", "no"]}).categories.tolist()


def test_a_later_column_of_other_categories_alone_is_said() -> None:
    schema = TableSchema.learned({"c": read_columns({"c": ["00501", "10115"] * ROWS})["c"].as_categories()})
    with pytest.warns(UserWarning, match="column 'c' holds no category of the training .'00501', '10115'.*but '501'"):
        schema.encode({"c": ["501"] * ROWS})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schema.encode({"c": ["501"]})
        schema.encode({"c": ["501", "10115"] * ROWS})


def test_numbers_among_many_other_cells_are_categories_and_said() -> None:
    mixed = [str(at) if at % 2 else "unknown" for at in range(ROWS)]
    words = rf"column 'c' holds numbers in {ROWS // 2} of {ROWS} cells and others \('unknown'.*so it is read as categories: leave the other"
    with pytest.warns(UserWarning, match=words):
        assert kinds(TableSchema.learned({"c": mixed}))["c"] == "category"
    assert kinds(TableSchema.learned({"c": ["1", "2", "A", "B"] * 20}))["c"] == "category"  # codes, of which nothing is said


def test_points_that_may_separate_thousands_are_said() -> None:
    with pytest.warns(UserWarning, match="three decimals such as '1.234': they are read as decimals; if the point separates"):
        assert kinds(TableSchema.learned({"c": ["1.234", "950", "12.500"] * 20})) == {"c": "number"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for usual in (["1.5", "2.250", "3"], ["1.234", "2.345", "0.125"], ["0.125", "1", "2"]):
            assert kinds(TableSchema.learned({"c": usual * 20})) == {"c": "number"}


def test_ids_with_gaps_are_left_out_and_amounts_are_not() -> None:
    rng = np.random.default_rng(0)
    rising = np.cumsum(rng.integers(1, 9, ROWS)).astype(float)
    mixed = rng.permutation(rising)
    table = {"visit": rising, "price": mixed, "customerId": mixed, "order no": mixed, "paid": mixed, "last": rising[::-1].copy()}
    schema = TableSchema.learned(table)
    assert set(kinds(schema)) == {"price", "paid"}
    assert schema.left_out["visit"] == "whole numbers that rise from row to row, like an id with gaps (--keep uses it)"
    assert "fall from row to row" in schema.left_out["last"] and "of its own in every row" in schema.left_out["customerId"]
    assert set(kinds(TableSchema.learned(table, keep=("visit", "customerId")))) == {"price", "paid", "visit", "customerId"}


def test_a_column_without_a_name_gets_one(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(",a\n" + "".join(f"{at},{at % 3}\n" for at in range(ROWS)))  # as pandas writes its index
    assert tuple(TableSchema.learned(tmp_path / "t.csv").left_out) == ("Unnamed: 0",)


def test_numbers_with_thousands_separators_are_numbers() -> None:
    schema = TableSchema.learned({"c": ["1,200", "3,400.5", "7"]})
    assert schema.encode({"c": ["1,200", "2", ""]}).numbers[:2, 0].tolist() == [1200.0, 2.0]


def test_a_comma_behind_a_leading_zero_is_no_separator_of_thousands() -> None:
    with pytest.raises(ValueError, match="column 'c' holds numbers with decimal commas .'0,582'.; write a point instead"):
        TableSchema.learned({"c": ["0,582", "1,200", "3,400"]})


def test_numbers_near_each_other_and_far_from_0_stay_apart() -> None:
    """Moments since 1970 that differ by seconds are equal in 32 bits, in which a training holds them."""
    moments = 1.7e9 + np.arange(40.0) * 0.5
    schema = TableSchema.learned({"moment": moments[::-1].copy(), "size": np.arange(40.0) / 7})
    moved = schema.encode({"moment": moments, "size": moments}).numbers
    assert len(np.unique(moved[:, 0].astype(np.float32))) == 40 and np.allclose(np.diff(moved[:, 0]), 0.5)
    assert np.array_equal(moved[:, 1], moments), "others stay as they are"
    usual = np.random.default_rng(0).random(20_000)  # a few of so many are equal in 32 bits
    assert len(np.unique(usual.astype(np.float32))) < 20_000 and TableSchema.learned({"share": usual}).columns[0].offset == 0
    again = TableSchema.from_json(schema.to_json())
    assert again == schema and again.columns[0].offset == 1.7e9 + 10.0


def test_amounts_of_money_in_decimals_and_durations_are_numbers() -> None:
    cells = read_columns({"price": [Decimal("1.25"), None, Decimal("3")], "took": [timedelta(seconds=90), timedelta(0), None]})
    assert [cells[name].said for name in cells] == ["number", "duration"]
    assert TableSchema.learned(cells).described() == "price  number, some missing\ntook   number of seconds, some missing"
    assert TableSchema.learned(cells).encode(cells).numbers[1].tolist()[2:] == [0.0, 0.0]
    assert cells["price"].plain().tolist() == [1.25, None, 3.0] and cells["took"].plain().tolist() == [90.0, 0.0, None]
    typed = read_columns({"took": np.array([90_000, "NaT"], dtype="timedelta64[ms]")})["took"]
    assert typed.said == "duration" and typed.plain().tolist() == [90.0, None]


def test_the_index_that_pandas_keeps_in_a_file_is_no_column(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.DataFrame({"a": [1.0, 2.0, 3.0]}).sample(frac=1, random_state=0).to_parquet(tmp_path / "t.parquet")
    assert list(read_columns(tmp_path / "t.parquet")) == ["a"]


def test_bad_tables_are_refused(tmp_path: Path) -> None:
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    (tmp_path / "none.csv").write_text("a,b\n")
    (tmp_path / "torn.csv").write_text("a,b\n1,2\n3\n")
    for name, said in (("twice", "'a' is there twice"), ("none", "no rows below its header"), ("torn", "line 3 has 1 cells")):
        with pytest.raises(ValueError, match=said):
            read_columns(tmp_path / f"{name}.csv")
    with pytest.raises(ValueError, match="no column is left to learn from: a .the same value in every row"):
        TableSchema.learned({"a": [1, 1]})
    with pytest.raises(ValueError, match="differ in length"):
        read_columns({"a": [1], "b": [1, 2]})
    with pytest.raises(TypeError, match="column 'a', row 0: every argument must be a string"):
        read_columns({"a": [{"foo": "bar"}, 1]})


def test_rare_categories_beyond_the_limit_count_as_unseen() -> None:
    common = [f"c{at}" for at in range(MOST_CATEGORIES)] * 3
    schema = TableSchema.learned({"c": [*common, "rare", "rarer"]})
    assert schema.category_counts == (MOST_CATEGORIES,)
    assert "category of 1,000, the most frequent (all others count as one): c0, c1" in schema.described()
    assert schema.encode({"c": ["rare", "c7"]}).categories[0, 0] == 0


def test_too_many_columns_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="the table has 10,001 columns, and at most 10,000 are supported"):
        TableSchema.learned({f"c{at}": [1.0, 2.0] for at in range(10_001)})


def test_a_file_of_far_too_many_columns_is_refused_before_its_rows_are_read(tmp_path) -> None:
    table = tmp_path / "wide.csv"
    table.write_text(",".join(f"c{at}" for at in range(20_001)) + "\n1,2\n")  # its row has two cells only
    with pytest.raises(ValueError, match="the table has 20,001 columns, and at most 10,000 are supported"):
        read_columns(table)


def test_a_hundred_thousand_categories_are_cut_to_the_most_frequent() -> None:
    cells = [f"c{at % 100_000}" for at in range(200_000)]
    schema = TableSchema.learned({"a": cells, "b": [float(at % 7) for at in range(200_000)]})
    assert schema.category_counts == (1000,)
