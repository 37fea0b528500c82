"""Rows in an order, so many at a time."""

import gc
import queue
import sys
import threading
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenkeel


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    data = np.arange(3000, dtype="i4").reshape(1000, 3)
    path = tmp_path_factory.mktemp("chunks") / "a.npy"
    np.save(path, data)
    return {
        name: evenkeel.open(path, budget="2MiB", engine=name) for name in ("auto", "read", "direct")
    }, data


@settings(deadline=None)
@given(
    engine=st.sampled_from(["auto", "read", "direct"]),
    n=st.integers(1, 1200),
    shuffle=st.booleans(),
    seed=st.integers(0, 2**64 - 1),
    world=st.integers(1, 5),
    drop_last=st.booleans(),
)
def test_ranks_together_are_the_whole_order(stored, engine, n, shuffle, seed, world, drop_last):
    arrays, data = stored
    array = arrays[engine]
    whole = np.concatenate([i for i, _ in array.chunks(n, shuffle, seed, with_index=True)])
    assert sorted(whole.tolist()) == list(range(1000))
    if not shuffle:
        assert (whole == np.arange(1000)).all()
    for rank in range(world):
        mine = whole[rank::world]
        at = 0
        loop = array.chunks(n, shuffle, seed, 0, rank, world, with_index=True, drop_last=drop_last)
        for index, rows in loop:
            wanted = mine[at : at + n]
            assert (index == wanted).all() and (rows == data[wanted]).all()
            at += len(index)
        assert at == (len(mine) // n * n if drop_last else len(mine))


def test_orders_are_those_written_down(folder):
    """The golden vectors of docs/orders.md."""
    np.save("ten.npy", np.arange(10))
    a = evenkeel.open("ten.npy")
    for seed, epoch, order in [
        (0, 0, [4, 9, 0, 6, 5, 7, 3, 8, 1, 2]),
        (0, 1, [8, 1, 5, 9, 6, 2, 7, 0, 4, 3]),
        (1, 0, [3, 7, 0, 6, 4, 9, 8, 5, 1, 2]),
    ]:
        (rows,) = a.chunks(10, shuffle=True, seed=seed, epoch=epoch)
        assert rows.tolist() == order


def test_each_chunk_is_the_users_own(stored):
    arrays, data = stored
    for array in arrays.values():
        kept = []
        for rows in array.chunks(30):  # changed, and not kept
            assert rows.flags.writeable and (rows >= 0).all()
            kept.append(rows.copy())
            rows[:] = -1
        assert (np.concatenate(kept) == data).all()
        assert (np.concatenate(list(array.chunks(30))) == data).all()  # kept, all of them
        parts = [rows[3:5] for rows in array.chunks(30)]  # kept in part
        assert (
            np.concatenate(parts)
            == np.concatenate([data[n + 3 : n + 5] for n in range(0, 1000, 30)])
        ).all()


def test_it_is_a_generator_and_can_be_left(stored):
    array = stored[0]["direct"]
    before = array.budget.in_use
    loop = array.chunks(10, with_index=True)
    assert isinstance(loop, types.GeneratorType)
    index, rows = next(loop)
    assert index.dtype == np.int64 and array.budget.in_use > before
    loop.close()
    assert array.budget.in_use == before
    for _ in array.chunks(10):
        break
    never_begun = array.chunks(10)
    del never_begun
    gc.collect()
    assert array.budget.in_use == before


# Large chunks are read into the memory that is handed out, small ones are copied.
@pytest.fixture(scope="module")
def large(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "numbers"
    np.arange(1_000_003).tofile(path)
    return path


@pytest.mark.parametrize("engine", ["auto", "direct", "read", "remap", "advise", "map"])
@pytest.mark.parametrize("budget", ["4MiB", "64MiB"])
@pytest.mark.parametrize("offset", [0, 8])
def test_memory_goes_round_and_holds_the_right_rows(large, engine, budget, offset):
    a = evenkeel.open(large, dtype="i8", budget=budget, engine=engine, offset=offset)
    addresses, seen = [], 0
    for rows in a.chunks(65_536):
        assert sys.getrefcount(rows) == 2
        addresses.append(rows.ctypes.data)
        assert (rows == np.arange(len(rows)) + seen + offset // 8).all()
        rows[:] = -1  # one's own
        seen += len(rows)
    assert seen == len(a)
    assert len(set(addresses)) <= 6 < len(addresses)  # with the last, a copy
    assert a.budget.peak <= a.budget.limit


@pytest.mark.parametrize("engine", ["auto", "direct", "map"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_chunks_that_are_kept_stay_as_they_are(large, engine, shuffle):
    a = evenkeel.open(large, dtype="i8", budget="7MiB", engine=engine)
    kept = list(a.chunks(100_000, shuffle, with_index=True))
    assert len({rows.ctypes.data for _, rows in kept}) == len(kept) == 11
    for index, rows in kept:
        assert (rows == index).all()
    used = a.budget.in_use
    del kept, index, rows
    assert a.budget.in_use == used  # nobody paid for them
    every_other = [rows for rows in a.chunks(100_000)][::2]
    assert [rows[0] for rows in every_other] == list(range(0, 1_000_003, 200_000))


def test_what_is_kept_outlives_the_array_and_a_broken_off_loop(large):
    with evenkeel.open(large, dtype="i8", budget="4MiB", engine="direct") as a:
        loop = a.chunks(100_000)
        kept = [next(loop), next(loop)[::-2], next(loop)]
        loop.close()
    del a, loop
    assert kept[0][0] == 0 and kept[1][0] == 199_999 and kept[2][-1] == 299_999


def test_arrays_may_be_let_go_by_another_thread(large):
    """While the loop waits for the next one, and when it does not."""
    a = evenkeel.open(large, dtype="i8", budget="4MiB", engine="direct")
    for _ in range(20):
        handed = queue.SimpleQueue()
        sums = []

        def consume(handed=handed, sums=sums):
            while (rows := handed.get()) is not None:
                sums.append(int(rows.sum()))

        other = threading.Thread(target=consume)
        other.start()
        for rows in a.chunks(100_000):
            handed.put(rows)
            del rows
        handed.put(None)
        other.join()
        assert sum(sums) == 1_000_002 * 1_000_003 // 2


def test_a_short_last_chunk_holds_no_more_than_it_needs(large):
    def anonymous():
        with open("/proc/self/status") as status:
            return int(status.read().split("RssAnon:")[1].split()[0]) << 10

    a = evenkeel.open(large, dtype="i8", budget="32MiB", engine="direct")
    next(a.chunks(1))
    before = anonymous()
    last = None
    for rows in a.chunks(300_000):  # of 2.4 MB each, read into the same memory in turn
        last = rows
    del rows
    assert len(last) == 100_003 and last[-1] == 1_000_002
    assert anonymous() - before < last.nbytes + 700_000


@pytest.mark.parametrize(
    "wrong", [{"n": 0}, {"n": -1}, {"seed": -1}, {"seed": 2**64}, {"rank": 1}, {"world": 0}]
)
def test_nonsense_is_refused_at_once(stored, wrong):
    with pytest.raises(ValueError):
        stored[0]["auto"].chunks(**{"n": 5, **wrong})


def test_counts_are_whole_numbers(stored):
    with pytest.raises(TypeError):
        stored[0]["auto"].chunks(2.5)


def test_an_array_without_rows(folder):
    np.save("none.npy", np.empty((0, 3)))
    a = evenkeel.open("none.npy")
    assert list(a.chunks(5)) == [] and list(a) == [] and len(a) == 0
    assert a[:].shape == (0, 3)


def test_a_last_chunk_that_is_dropped_ends_it(stored):
    assert [len(rows) for rows in stored[0]["auto"].chunks(300, drop_last=True)] == [300] * 3
    assert list(stored[0]["auto"].chunks(1001, drop_last=True)) == []
