"""Rows in an order, so many at a time."""

import gc
import io
import json
import pickle
import queue
import sys
import threading

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


@settings(deadline=None, max_examples=50)
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
    whole = np.concatenate([i for i, _ in array.batches(n, shuffle, seed, with_index=True)])
    assert sorted(whole.tolist()) == list(range(1000))
    if not shuffle:
        assert (whole == np.arange(1000)).all()
    for rank in range(world):
        mine = whole[rank::world]
        at = 0
        loop = array.batches(n, shuffle, seed, 0, rank, world, with_index=True, drop_last=drop_last)
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
        (rows,) = a.batches(10, shuffle=True, seed=seed, epoch=epoch)
        assert rows.tolist() == order


def test_each_chunk_is_the_users_own(stored):
    arrays, data = stored
    for array in arrays.values():
        kept = []
        for rows in array.batches(30):  # changed, and not kept
            assert rows.flags.writeable and (rows >= 0).all()
            kept.append(rows.copy())
            rows[:] = -1
        assert (np.concatenate(kept) == data).all()
        assert (np.concatenate(list(array.batches(30))) == data).all()  # kept, all of them
        parts = [rows[3:5] for rows in array.batches(30)]  # kept in part
        assert (
            np.concatenate(parts)
            == np.concatenate([data[n + 3 : n + 5] for n in range(0, 1000, 30)])
        ).all()


def test_it_gives_its_memory_back_when_it_is_left(stored):
    array = stored[0]["direct"]
    before = array.budget.in_use
    loop = array.batches(10, with_index=True)
    index, rows = next(loop)
    assert index.dtype == np.int64 and array.budget.in_use > before
    loop.close()
    assert array.budget.in_use == before
    with pytest.raises(ValueError, match="used after close"):
        next(loop)
    for _ in array.batches(10):
        break
    never_begun = array.batches(10)
    del never_begun
    gc.collect()
    assert array.budget.in_use == before
    ended = array.batches(10)
    assert len(list(ended)) == 100 and array.budget.in_use == before
    with array.batches(10) as loop:
        next(loop)
    assert array.budget.in_use == before and "closed" in repr(loop)


# Large chunks are read into the memory that is handed out, small ones are copied.
@pytest.fixture(scope="module")
def large(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "numbers"
    np.arange(1_000_003).tofile(path)
    return path


@pytest.fixture(scope="module")
def many_chunks(tmp_path_factory):
    path = tmp_path_factory.mktemp("many_chunks") / "numbers"
    np.arange(2_500_003).tofile(path)
    return path


@pytest.mark.parametrize("engine", ["auto", "direct", "read", "remap", "advise", "map"])
@pytest.mark.parametrize("budget", ["4MiB", "64MiB"])
@pytest.mark.parametrize("offset", [0, 8])
def test_memory_goes_round_and_holds_the_right_rows(many_chunks, engine, budget, offset):
    a = evenkeel.open(many_chunks, dtype="i8", budget=budget, engine=engine, offset=offset)
    addresses, seen = [], 0
    for rows in a.batches(65_536):
        assert sys.getrefcount(rows) == 2
        addresses.append(rows.ctypes.data)
        assert (rows == np.arange(len(rows)) + seen + offset // 8).all()
        rows[:] = -1  # one's own
        seen += len(rows)
    assert seen == len(a)
    # 16 buffers for chunks of this size, spares, and the last chunk, a copy.
    assert len(set(addresses)) <= 20 < len(addresses)
    assert a.budget.peak <= a.budget.limit


@pytest.mark.parametrize("engine", ["auto", "direct", "map"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_chunks_that_are_kept_stay_as_they_are(large, engine, shuffle):
    a = evenkeel.open(large, dtype="i8", budget="7MiB", engine=engine)
    kept = list(a.batches(100_000, shuffle, with_index=True))
    assert len({rows.ctypes.data for _, rows in kept}) == len(kept) == 11
    for index, rows in kept:
        assert (rows == index).all()
    used = a.budget.in_use
    del kept, index, rows
    assert a.budget.in_use == used  # the budget does not cover them
    every_other = [rows for rows in a.batches(100_000)][::2]
    assert [rows[0] for rows in every_other] == list(range(0, 1_000_003, 200_000))


def test_what_is_kept_outlives_the_array_and_a_broken_off_loop(large):
    with evenkeel.open(large, dtype="i8", budget="4MiB", engine="direct") as a:
        loop = a.batches(100_000)
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
        for rows in a.batches(100_000):
            handed.put(rows)
            del rows
        handed.put(None)
        other.join()
        assert sum(sums) == 1_000_002 * 1_000_003 // 2


def test_a_short_last_chunk_holds_no_more_than_it_needs(large, python):
    """In a process where nothing else takes memory."""
    program = """
        import sys, evenkeel
        def anonymous():
            with open("/proc/self/status") as status:
                return int(status.read().split("RssAnon:")[1].split()[0]) << 10
        a = evenkeel.open(sys.argv[1], dtype="i8", budget="32MiB", engine="direct")
        for rows in a.batches(300_000):
            break
        del rows
        before = anonymous()
        last = None
        for rows in a.batches(300_000):  # of 2.4 MB each, read into the same memory in turn
            last = rows
        del rows
        assert len(last) == 100_003 and last[-1] == 1_000_002
        print(anonymous() - before - last.nbytes)
    """
    assert int(python(program, large)) < 700_000  # the other chunks are larger by 1,600,000


@pytest.mark.parametrize(
    "wrong", [{"n": 0}, {"n": -1}, {"seed": -1}, {"seed": 2**64}, {"rank": 1}, {"world": 0}]
)
def test_nonsense_is_refused_at_once(stored, wrong):
    with pytest.raises(ValueError):
        stored[0]["auto"].batches(**{"n": 5, **wrong})


def test_counts_are_whole_numbers(stored):
    a = stored[0]["auto"]
    with pytest.raises(TypeError, match="n must be a whole number; got 2.5"):
        a.batches(2.5)
    with pytest.raises(TypeError, match="seed must be a whole number; got None"):
        a.batches(5, shuffle=True, seed=None)
    with pytest.raises(TypeError, match="block must be a whole number; got 1.5"):
        a.batches(5, shuffle="blocks", block=1.5)
    with pytest.raises(TypeError, match="position must be a whole number; got '3'"):
        a.batches(5).seek("3")
    with pytest.raises(ValueError, match="rows of a batch, must be 1 or more"):
        a.batches(0)


def test_an_array_without_rows(folder):
    np.save("none.npy", np.empty((0, 3)))
    a = evenkeel.open("none.npy")
    assert list(a.batches(5)) == [] and list(a) == [] and len(a) == 0
    assert a[:].shape == (0, 3)


def test_a_last_chunk_that_is_dropped_ends_it(stored):
    assert [len(rows) for rows in stored[0]["auto"].batches(300, drop_last=True)] == [300] * 3
    assert list(stored[0]["auto"].batches(1001, drop_last=True)) == []


# --- a place in the order


@settings(deadline=None, max_examples=30)
@given(
    engine=st.sampled_from(["auto", "read", "direct"]),
    n=st.integers(1, 400),
    shuffle=st.booleans(),
    world=st.integers(1, 3),
    drop_last=st.booleans(),
    data=st.data(),
)
def test_seek_and_start_give_the_batches_from_there_on(
    stored, engine, n, shuffle, world, drop_last, data
):
    array = stored[0][engine]
    options = dict(n=n, shuffle=shuffle, world=world, with_index=True, drop_last=drop_last)
    everything = [index.tolist() for index, _ in array.batches(**options)]
    loop = array.batches(**options)
    assert len(loop) == len(everything)
    for _ in range(3):
        at = data.draw(st.integers(0, len(everything)))
        loop.seek(at)
        assert loop.position == at and loop.epoch == 0
        assert [index.tolist() for index, _ in zip_next(loop)] == everything[at:]
    started = array.batches(**options, start=at)
    assert [index.tolist() for index, _ in zip_next(started)] == everything[at:]
    loop.seek(0)
    if everything:
        assert next(loop)[0].tolist() == everything[0]


def zip_next(loop):
    """All that `next` gives: without iter(), which would begin another epoch at the end."""
    while True:
        try:
            yield next(loop)
        except StopIteration:
            return


def test_seek_outside_is_refused_and_changes_nothing(stored):
    loop = stored[0]["direct"].batches(300)
    next(loop)
    for wrong in (-1, 5, 2**64):
        with pytest.raises(IndexError, match="of 4"):
            loop.seek(wrong)
    with pytest.raises(TypeError):
        loop.seek(1.5)
    assert loop.position == 1 and next(loop)[0, 0] == 900
    with pytest.raises(IndexError, match="start is 5, of 4 batches"):
        stored[0]["direct"].batches(300, start=5)


@pytest.mark.parametrize("engine", ["auto", "direct"])
def test_each_loop_goes_through_the_next_epoch(stored, engine):
    array = stored[0][engine]

    def epoch(number):
        loop = array.batches(64, shuffle=True, seed=5, epoch=number, with_index=True)
        return np.concatenate([index for index, _ in loop]).tolist()

    loop = array.batches(64, shuffle=True, seed=5, epoch=3, with_index=True)
    for number in (3, 4, 5):
        assert np.concatenate([index for index, _ in loop]).tolist() == epoch(number)
        assert loop.epoch == number and loop.position == len(loop)
    assert list(zip_next(loop)) == []  # an iterator that has ended stays ended
    first = next(iter(loop))[0]
    assert loop.epoch == 6 and first.tolist() == epoch(6)[:64]
    rest = [index for index, _ in loop]  # the loop above ended early; this one continues it
    assert loop.epoch == 6 and np.concatenate(rest).tolist() == epoch(6)[64:]


def test_epochs_that_are_counted_outside(stored):
    array = stored[0]["direct"]
    loop = array.batches(300, shuffle=True)
    seen = []
    for epoch in range(3):
        loop.set_epoch(epoch)
        seen.append(np.concatenate(list(loop))[:, 0].tolist())
        assert loop.epoch == epoch
    wanted = [
        np.concatenate(list(array.batches(300, shuffle=True, epoch=epoch)))[:, 0].tolist()
        for epoch in range(3)
    ]
    assert seen == wanted
    loop.set_epoch(7)
    next(loop)
    loop.set_epoch(7)  # already there: a loop that was resumed keeps its place
    assert loop.position == 1
    with pytest.raises(ValueError):
        loop.set_epoch(-1)


def test_a_state_goes_on_where_it_was_taken(stored):
    array = stored[0]["direct"]
    loop = array.batches(60, shuffle=True, seed=9, epoch=2)
    for _ in range(5):
        next(loop)
    saved = json.loads(json.dumps(loop.state_dict()))
    rest = np.concatenate(list(loop))
    for n in (60, 100, 20):
        other = array.batches(n, shuffle=True, seed=9)
        other.load_state_dict(saved)
        assert other.epoch == 2 and other.position == 300 // n
        assert (np.concatenate(list(other)) == rest).all()
    shared = [array.batches(30, shuffle=True, seed=9, rank=rank, world=2) for rank in range(2)]
    for other in shared:
        other.load_state_dict(saved)
    parts = [np.concatenate(list(other)) for other in shared]
    assert (parts[0] == rest[::2]).all() and (parts[1] == rest[1::2]).all()

    at_the_end = loop.state_dict()
    other.load_state_dict(at_the_end)
    assert list(zip_next(other)) == []
    assert next(iter(other)) is not None and other.epoch == 3


def test_states_of_other_data_and_orders_are_refused(stored, folder):
    array = stored[0]["direct"]
    loop = array.batches(70, shuffle=True, seed=9)
    next(loop)
    saved = loop.state_dict()
    for options in ({"seed": 8}, {"shuffle": False}, {"n": 60}, {"world": 2}):
        other = array.batches(**{"n": 70, "shuffle": True, "seed": 9, **options})
        with pytest.raises(ValueError, match=next(iter(options))):
            other.load_state_dict(saved)
    np.save("b.npy", np.zeros((1000, 3), "i4"))
    with pytest.raises(ValueError, match="data"):
        evenkeel.open("b.npy").batches(70, shuffle=True, seed=9).load_state_dict(saved)
    for wrong in ({}, None, {"state": "1"}):
        with pytest.raises(ValueError, match="not a state"):
            loop.load_state_dict(wrong)
    assert loop.position == 1


def test_progress_bars_know_how_long_it_takes(stored):
    tqdm = pytest.importorskip("tqdm")
    loop = stored[0]["direct"].batches(30, start=4)
    bar = tqdm.tqdm(loop, initial=loop.position, file=io.StringIO())
    assert bar.total == len(loop) == 34
    assert sum(len(rows) for rows in bar) == 1000 - 4 * 30


@pytest.mark.parametrize("shuffle", [7, 0, 1, "yes", None, [True]])
def test_shuffle_is_true_or_false(stored, shuffle):
    with pytest.raises(ValueError, match="shuffle must be True or False"):
        stored[0]["auto"].batches(10, shuffle=shuffle)
    assert len(stored[0]["auto"].batches(10, shuffle=np.True_)) == 100


def test_threads_share_the_batches(large):
    a = evenkeel.open(large, dtype="i8", budget="4MiB", engine="direct")
    loop, seen = a.batches(20_000, with_index=True), []

    def take():
        for index, rows in zip_next(loop):
            assert (index == rows).all()
            seen.append(int(index[0]))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(0, 1_000_003, 20_000))


def test_a_call_that_a_signal_broke_off_can_be_repeated(stored, monkeypatch):
    array = stored[0]["direct"]
    loop = array.batches(100)
    next(loop)

    class Broken:
        """As the reader is after a signal handler raised: closed."""

        closed, position = True, 1

        def next(self):
            return 100

        def read(self, index):
            raise TimeoutError

        def drop(self):
            pass

    loop._source = Broken()
    with pytest.raises(TimeoutError):
        next(loop)
    assert loop.position == 1 and next(loop)[0, 0] == 300


class Interrupted:
    """A reader in which a signal handler raises before or after a call has done its work."""

    def __init__(self, source, call, after):
        self._source, self._call, self._after = source, call, after

    def __getattr__(self, name):
        method = getattr(self._source, name)
        if name != self._call:
            return method

        def call(*args):
            if self._after:
                method(*args)
            raise KeyboardInterrupt

        return call


@pytest.mark.parametrize("engine", ["auto", "read"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    "move", [lambda loop, _: loop.seek(5), lambda loop, state: loop.load_state_dict(state)]
)
def test_a_seek_that_is_interrupted_changes_nothing(stored, engine, after, move):
    loop = stored[0][engine].batches(100)
    next(loop)
    state = {**loop.state_dict(), "rows": 500}
    loop._source = Interrupted(loop._source, "seek", after)
    with pytest.raises(KeyboardInterrupt):
        move(loop, state)
    assert loop.position == 1
    assert [rows[0, 0] for rows in loop] == list(range(300, 3000, 300))


@pytest.mark.parametrize("after", [False, True])
def test_a_next_that_is_interrupted_is_given_again_and_holds_no_memory(large, after):
    a = evenkeel.open(large, dtype="i8", budget="4MiB", engine="read")
    order = [index for index, _ in a.batches(50_000, shuffle=True, seed=1, with_index=True)]
    loop = a.batches(50_000, shuffle=True, seed=1, with_index=True)
    next(loop)
    used = a.budget.in_use
    loop._source = Interrupted(loop._source, "read", after)
    with pytest.raises(KeyboardInterrupt) as caught:
        next(loop)
    loop._source = loop._source and loop._source._source
    index, rows = next(loop)  # `caught` still refers to the first reader
    assert loop.position == 2 and (index == order[1]).all() and (rows == index).all()
    assert a.budget.in_use <= used and caught


@pytest.mark.parametrize("start", [1, 9])
def test_a_batch_is_not_lost_if_a_handler_raises_right_after_its_read(stored, start):
    loop = stored[0]["read"].batches(100, start=start)
    loop._source.read()  # and then, in CPython 3.9, the handler raised
    assert next(loop)[0, 0] == start * 300 and loop.position == start + 1


@pytest.mark.not_emulated("a signal each 0.7 ms leaves no time for the program")
@pytest.mark.parametrize("engine", ["auto", "read"])
def test_batches_are_those_of_the_position_whatever_signal_handlers_raise(folder, python, engine):
    said = python(
        """
        import signal, sys, numpy as np, evenkeel
        class Tick(Exception): pass
        armed = False
        def handler(*_):
            global armed
            if armed:
                armed = False
                raise Tick
        np.save("rows.npy", np.arange(400_000).reshape(-1, 2))
        loop = evenkeel.open("rows.npy", budget="16MiB", engine=sys.argv[1]).batches(500)
        wrong, ticks, seeks, taken = [], 0, 0, 0
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
        while ticks < 300:
            try:
                armed = True
                if taken % 7 == 0:
                    loop.seek(taken * 31 % 390)
                    seeks += 1
                rows = next(loop, None)
                taken += 1
                if rows is not None and rows[0, 0] != (loop.position - 1) * 1000:
                    wrong.append((loop.position, int(rows[0, 0])))
                armed = False
            except Tick:
                ticks += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(wrong[:3], seeks > 3, taken > 20)
        """,
        engine,
    )
    assert said == "[] True True\n"


def test_it_cannot_be_sent(stored):
    with pytest.raises(TypeError, match="state_dict"):
        pickle.dumps(stored[0]["auto"].batches(10))


def test_the_old_name_still_works_and_says_so(stored):
    array = stored[0]["auto"]
    with pytest.warns(DeprecationWarning, match="batches"):
        loop = array.chunks(300, shuffle=True, seed=1)
    assert (next(loop) == next(array.batches(300, shuffle=True, seed=1))).all()
