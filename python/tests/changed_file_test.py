"""Files that change under an open array: the old data or an error that names the file."""

import os
import time

import numpy as np
import pytest

import evenkeel

ROWS, COLUMNS, LARGE = 3000, 256, slice(0, 2900)


def _replace(path, data):
    np.save("new.npy", data)
    os.rename("new.npy", path)


def _rewrite(path):
    time.sleep(0.02)  # times of files move in ticks of the kernel's clock
    with open(path, "r+b") as file:
        file.seek(128)
        file.write(np.full((ROWS, COLUMNS), 2, np.int32).tobytes())


def _rewrite_and_set_mtime_back(path):
    before = os.stat(path)
    _rewrite(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture
def mapped(folder):
    """3 MB of ones that fit the budget, but not together with a result of nearly all rows."""
    np.save("a.npy", np.ones((ROWS, COLUMNS), np.int32))
    with evenkeel.open("a.npy", budget="4MiB") as array:
        assert (array[0] == 1).all()
        assert array.engine.startswith("map")
        yield array


NEW_FILES = {
    "same": np.full((ROWS, COLUMNS), 2, np.int32),
    "dtype": np.full((ROWS, COLUMNS), 2, np.float32),
    "shape": np.full((2000, 128), 2, np.int32),
}


@pytest.mark.parametrize("new", [*NEW_FILES, "deleted"])
@pytest.mark.parametrize("first", ["slice", "chunks"])
def test_replaced_or_deleted_it_stays_the_old_data(mapped, new, first):
    if new == "deleted":
        os.unlink("a.npy")
    else:
        _replace("a.npy", NEW_FILES[new])
    reads = [
        lambda: mapped[LARGE],
        lambda: np.concatenate(list(mapped.batches(1200, shuffle=True))),
    ]
    for read in reads if first == "slice" else reversed(reads):
        assert (mapped[0] == 1).all()
        assert (read() == 1).all()
    assert not mapped.engine.startswith("map")
    assert mapped.shape == (ROWS, COLUMNS)


@pytest.mark.parametrize("rewrite", [_rewrite, _rewrite_and_set_mtime_back])
def test_rewritten_it_is_an_error_every_time(mapped, rewrite):
    rewrite("a.npy")
    for _ in range(2):
        for read in (
            lambda: mapped[0],
            lambda: mapped[LARGE],
            lambda: list(mapped.batches(1000)),
        ):
            with pytest.raises(ValueError, match=r"a\.npy"):
                read()
    assert "closed" not in repr(mapped)


def test_a_slice_that_fails_leaves_the_array_as_it_was(mapped):
    chunks = iter(mapped.batches(500))
    next(chunks)
    for _ in range(3):
        with pytest.raises(MemoryError):
            mapped[LARGE]
        assert (mapped[0] == 1).all()
        assert "closed" not in repr(mapped)
    assert (next(chunks) == 1).all()
