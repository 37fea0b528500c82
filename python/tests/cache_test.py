"""The cache inside the budget, and what stats() tells about it. Files that were just written are in
the page cache, from which nothing is cached again, so these tests ask for the direct engine."""

import os
import pickle
import threading

import numpy as np
import pytest

import evenkeel

KEYS = {
    "cache_hits",
    "cache_misses",
    "cache_bytes",
    "bytes_from_cache",
    "bytes_from_page_cache",
    "bytes_from_disk",
    "requests",
    "in_flight",
    "wait_ns",
    "bytes_from_network",
    "bytes_from_disk_cache",
    "bytes_from_mapping",
    "retries",
    "hedges",
}


@pytest.fixture
def rows(tmp_path):
    values = np.arange(4096 * 256, dtype="uint32").reshape(4096, 256)
    np.save(tmp_path / "rows.npy", values)
    return tmp_path / "rows.npy", values


def read_often(array, values, times=30):
    for number in range(times):
        wanted = np.random.default_rng(number).integers(0, 300, 400)
        assert (array.take(wanted) == values[wanted]).all()


def test_rows_that_are_read_again_come_from_memory(rows):
    path, values = rows
    array = evenkeel.open(path, budget="16MiB", engine="direct", cache="2MiB")
    read_often(array, values)
    before = array.stats()
    assert set(before) == KEYS
    assert all(type(number) is int and number >= 0 for number in before.values())
    assert before["cache_hits"] > 1000
    assert 0 < before["cache_bytes"] <= 2 << 20
    assert array.budget.cached == before["cache_bytes"]
    assert "of it cached blocks" in array.budget.describe()
    read_often(array, values, 1)
    assert (array[7] == values[7]).all()
    after = array.stats()
    assert after["requests"] == before["requests"]
    assert after["bytes_from_cache"] - before["bytes_from_cache"] == 401 * 1024


def test_without_a_cache_the_disk_is_asked_each_time(rows):
    path, values = rows
    array = evenkeel.open(path, budget="16MiB", engine="direct", cache=False)
    read_often(array, values)
    stats = array.stats()
    assert stats["cache_hits"] == stats["cache_misses"] == stats["cache_bytes"] == 0
    assert stats["bytes_from_disk"] >= 30 * 100 * 1024
    assert stats["requests"] > 0 and stats["in_flight"] == 0 and stats["wait_ns"] > 0


def test_the_cache_gives_way(rows):
    path, values = rows
    budget = evenkeel.Budget("16MiB")
    array = evenkeel.open(path, budget=budget, engine="direct", cache=True)
    read_often(array, values)
    read_often(evenkeel.open(path, budget=budget, engine="direct", cache="1MiB"), values)
    share = budget.reserve(budget.left, "everything")
    assert budget.cached == 0
    assert budget.in_use <= budget.limit
    share.release()
    read_often(array, values)


def test_threads_read_at_the_same_time(rows):
    path, values = rows
    array = evenkeel.open(path, budget="64MiB", engine="direct", cache="4MiB")
    failures = []

    def work():
        try:
            read_often(array, values)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert array.stats()["cache_hits"] > 10_000


def test_tokens_and_loaders_tell_the_same(tmp_path):
    np.arange(200_000, dtype="uint16").tofile(tmp_path / "train.bin")
    train = evenkeel.tokens(tmp_path / "train.bin", budget="32MiB", engine="direct", cache="4MiB")
    with evenkeel.TokenLoader(train, 8, 64, dtype="stored") as loader:
        for _ in range(600):
            x, y = next(loader)
            assert (x[:, 0] + 1 == y[:, 0]).all()
        assert loader.stats()["cache_hits"] > 1000
        assert set(loader.stats()) == KEYS | {"batches", "batch_wait_ns"}
    assert train.stats()["cache_hits"] > 1000
    assert train.slice(0, 1000).stats()["requests"] == 0


def test_the_option_survives_pickling(rows):
    path, values = rows
    array = evenkeel.open(path, budget="16MiB", engine="direct", cache="2MiB")
    again = pickle.loads(pickle.dumps(array))
    read_often(again, values)
    assert again.stats()["cache_hits"] > 0


def test_a_file_that_changed_is_an_error_although_its_rows_are_cached(rows):
    path, values = rows
    array = evenkeel.open(path, budget="16MiB", engine="direct", cache="2MiB")
    read_often(array, values)
    with open(path, "r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"new!")
    os.utime(path, (1, 1))
    with pytest.raises(ValueError, match="written to while open"):
        array.take([7])
    with pytest.raises(ValueError, match="written to while open"):
        array[7]


@pytest.mark.parametrize("cache", ["much", -1, "64 bananas"])
def test_what_is_no_size_is_refused(rows, cache):
    with pytest.raises(ValueError, match="cache must be a number of bytes"):
        evenkeel.open(rows[0], cache=cache)


def test_what_the_budget_does_not_leave_is_refused_with_what_would_work(rows):
    with pytest.raises(MemoryError, match="use a cache of at most [0-9,]+ bytes"):
        evenkeel.open(rows[0], budget="2MiB", engine="direct", cache="8MiB")
    with pytest.raises(TypeError, match="cache must be a number of bytes"):
        evenkeel.open(rows[0], cache=[])
