"""Rows in an order, so many at a time."""

import gc
import sys
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


def test_nothing_is_kept_but_the_chunk_in_hand(stored):
    array = stored[0]["read"]
    loop = array.chunks(100)
    held = []
    for _ in range(5):
        rows = next(loop)
        assert sys.getrefcount(rows) == 2
        held.append(rows.ctypes.data)
    assert len(set(held)) == 2  # the one in hand and the next, in turn


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
