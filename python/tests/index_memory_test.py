"""Indexes of rows of a few bytes: their row numbers take more memory than the result."""

import re
import tracemalloc

import numpy as np
import pytest

import evenkeel

MIB = 1 << 20
BUDGET = 8 * MIB
ROWS = 16 * MIB


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    data = np.random.default_rng(0).integers(0, 255, ROWS, dtype=np.uint8)
    path = tmp_path_factory.mktemp("stored") / "bytes.bin"
    data.tofile(path)
    return path, data


def allocated(read):
    """The most bytes that NumPy and Python allocated meanwhile, and the result."""
    tracemalloc.start()
    try:
        result = read()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


CASES = {
    "every other": lambda: slice(None, 10 * MIB, 2),
    "backwards": lambda: slice(2 * MIB, None, -1),
    "int64": lambda: np.random.default_rng(1).integers(0, ROWS, 2 * MIB),
    "negative int32": lambda: np.random.default_rng(2).integers(-ROWS, 0, 2 * MIB, np.int32),
    "mask": lambda: np.random.default_rng(4).random(ROWS, np.float32) < 0.125,
}


@pytest.mark.parametrize("case", CASES)
def test_row_numbers_stay_in_the_budget(stored, case):
    path, data = stored
    index = CASES[case]()
    # NumPy itself converts numbers of other sizes to find the shape of the result.
    numbers = not isinstance(index, slice) and index.dtype != bool
    by_numpy = 8 * index.size if numbers and index.dtype != np.int64 else 0
    with evenkeel.open(path, dtype="uint8", budget=BUDGET) as a:
        reads = [lambda: a.take(index)] if numbers else []
        if not by_numpy:
            reads.append(lambda: a[index])
        for read in reads:
            most, got = allocated(read)
            np.testing.assert_array_equal(got, data[index])
            assert most <= BUDGET
    tokens = evenkeel.tokens(path, dtype="uint8", budget=BUDGET)
    most, got = allocated(lambda: tokens[index])
    np.testing.assert_array_equal(got, data[index])
    assert most <= BUDGET + by_numpy


def test_one_column_of_many_rows_by_number(tmp_path):
    data = np.arange(1 << 20, dtype=np.float32).reshape(-1, 4)
    np.save(tmp_path / "rows.npy", data)
    index = np.random.default_rng(3).integers(-len(data), len(data), 1 << 17)
    with evenkeel.open(tmp_path / "rows.npy", budget="4MiB", engine="read") as a:
        for columns in (0, slice(1, 3), slice(None, None, -2)):
            most, got = allocated(lambda columns=columns: a[index, columns])
            np.testing.assert_array_equal(got, data[index, columns])
            assert most <= a.budget.limit
        with pytest.raises(IndexError, match="is out of bounds for axis 0 with size 262144"):
            a[np.append(index, len(data)), 0]


@pytest.mark.parametrize("count", [5_000, 60_000, 300_000])
def test_one_column_of_rows_that_do_not_fit(tmp_path, count):
    """The numbers of 60,000 rows can be sorted in the budget, but the rows do not fit."""
    data = np.arange(80_000 * 64, dtype=np.float32).reshape(-1, 64)
    np.save(tmp_path / "rows.npy", data)
    index = np.random.default_rng(3).permutation(np.arange(count) % len(data))
    with evenkeel.open(tmp_path / "rows.npy", budget="16MiB", engine="read") as a:
        np.testing.assert_array_equal(a[index, 1], data[index, 1])


@pytest.mark.parametrize("share", [0.9, 0.5, 0.01])
def test_columns_of_rows_that_a_mask_selects(tmp_path, share):
    data = np.arange(1 << 20, dtype=np.float32).reshape(-1, 4)
    np.save(tmp_path / "rows.npy", data)
    mask = np.random.default_rng(5).random(2 * len(data))[::2] < share  # not contiguous
    mask[:50_000] = False
    with evenkeel.open(tmp_path / "rows.npy", budget="5MiB", engine="read") as a:
        for columns in (0, slice(1, 3), slice(None, None, -2), (..., -1)):
            index = (mask, *columns) if isinstance(columns, tuple) else (mask, columns)
            most, got = allocated(lambda index=index: a[index])
            np.testing.assert_array_equal(got, data[index])
            assert most <= a.budget.limit
        for wrong in ((mask[:-1],), (mask, 4), (mask, 0, 0)):
            with pytest.raises(IndexError) as error:
                data[wrong]
            with pytest.raises(IndexError, match=re.escape(str(error.value))):
                a[wrong]


def test_a_wrong_row_number_reads_nothing(stored):
    path, data = stored
    out = np.zeros(1 << 16, np.uint8)
    index = np.arange(1 << 16)
    index[-1] = ROWS
    with evenkeel.open(path, dtype="uint8", budget=BUDGET) as a:
        with pytest.raises(IndexError, match=f"index {ROWS} is out of bounds"):
            a.take(index, out=out)
    assert not out.any()
