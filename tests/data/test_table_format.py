"""Encoded rows of a table as distances use them, and rows that say too little."""

import numpy as np
import pytest

from nearkin.data.columns import TableSchema
from nearkin.data.table_format import TableFormat

NAN = float("nan")


@pytest.fixture
def encoded():
    """100 rows; two have no length, width or job."""
    rng = np.random.default_rng(0)
    length, width = 50 + 9 * rng.normal(size=(2, 100))
    job = [str(one) for one in rng.choice(["cook", "smith"], 100)]
    for row in (3, 60):
        length[row] = width[row] = NAN
        job[row] = ""
    day = [f"2024-03-{row % 28 + 1:02d}" for row in range(100)]
    table = {"length": length, "day": day, "width": width, "job": job}
    schema = TableSchema.learned(table)
    numbers, codes = schema.encode(table)
    return TableFormat(schema), np.concatenate([numbers, codes], 1)


def test_marks_of_missing_cells_stay_0_and_1_and_numbers_are_standardized(encoded):
    table, rows = encoded
    assert table.schema.number_names == ("length", "length missing", "day day", "day weekday", "day day of year", "width", "width missing")
    found = table.standardized(rows, rows)
    assert found.shape == (100, table.width)
    for at in (1, 6):
        assert set(found[:, at]) == {0, 1} and found[:, at].nonzero()[0].tolist() == [3, 60]
    plain = found[:, [0, 2, 3, 4, 5]]
    assert np.abs(plain.mean(0)).max() < 1e-5 and np.allclose(plain[:, 1:4].std(0), 1, atol=1e-5) and not found[[3, 60]][:, [0, 5]].any()
    assert np.allclose(found[rows[:, 0] > 0, 0].std(), 1, atol=1e-5)


def test_rows_that_lack_the_same_cells_are_not_far_from_all_others(encoded):
    table, rows = encoded
    found = table.standardized(rows, rows)
    apart = np.linalg.norm(found[:, None] - found, axis=2)
    nearest = np.sort(apart, 1)[:, 2]
    assert nearest[[3, 60]].max() < 3 * np.median(nearest)


def test_rows_with_more_than_half_of_their_cells_missing_say_too_little(encoded):
    table, rows = encoded
    assert table.mostly_missing(rows).nonzero()[0].tolist() == [3, 60]  # 3 of 4
    rows[3, 0] = 50.0
    assert table.mostly_missing(rows).nonzero()[0].tolist() == [60]  # 2 of 4 are half
