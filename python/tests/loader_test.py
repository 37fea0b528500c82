"""evenkeel.Loader: batches of rows of one or several arrays."""

import gc
import pickle
import threading
import weakref

import numpy as np
import pytest

import evenkeel

ROWS = 103


@pytest.fixture
def x():
    np.save("x.npy", np.arange(ROWS * 5, dtype=np.float32).reshape(ROWS, 5))
    return evenkeel.open("x.npy", budget="16MiB")


@pytest.fixture
def y():
    np.save("y.npy", np.arange(ROWS) * 7)
    return evenkeel.open("y.npy", budget="16MiB")


def row_of(x):
    return (x[:, 0] // 5).astype(int)


def test_one_array_gives_arrays(x):
    with evenkeel.Loader(x, 10, seed=3) as loader:
        batches = list(loader)
    assert [len(batch) for batch in batches] == [10] * 10 + [3]
    assert batches[0].dtype == np.float32 and batches[0].flags.c_contiguous
    assert sorted(np.concatenate([row_of(batch) for batch in batches])) == list(range(ROWS))


def test_a_tuple_gives_tuples_and_a_dict_dicts(x, y):
    for batch in evenkeel.Loader((x, y), 10):
        assert type(batch) is tuple
        assert (row_of(batch[0]) * 7 == batch[1]).all()
    for batch in evenkeel.Loader({"b": x, "a": y}, 10):
        assert list(batch) == ["b", "a"]
        assert (row_of(batch["b"]) * 7 == batch["a"]).all()
    (only,) = next(evenkeel.Loader((x,), ROWS))
    assert len(only) == ROWS


@pytest.mark.parametrize("order", ["sequential", "shuffled", "random"])
@pytest.mark.parametrize("prefetch", [0, 4])
def test_batches_are_what_explain_says(x, y, order, prefetch):
    with evenkeel.Loader((x, y), 9, order=order, seed=5, prefetch=prefetch, steps=30) as loader:
        for features, labels in loader:
            origins = loader.explain(loader.step - 1)
            assert [origin["row"] * 7 for origin in origins] == labels.tolist()
            assert [origin["row"] for origin in origins] == row_of(features).tolist()


@pytest.fixture
def large():
    """Too large for its budget, so that it is read in windows."""
    np.save("large.npy", np.arange(2_000_000, dtype=np.int32).reshape(200_000, 10))
    np.save("numbers.npy", np.arange(200_000))
    budget = evenkeel.Budget("4MiB")
    return {name: evenkeel.open(f"{name}.npy", budget=budget) for name in ("large", "numbers")}


def test_blocks_show_every_row_once_and_neighbours_come_apart(large):
    with evenkeel.Loader(large, 500, order="blocks", seed=1, window=20_000, block=100) as loader:
        epochs = []
        for _ in range(2):
            numbers = []
            for batch in loader:
                assert (batch["large"][:, 3] == batch["numbers"] * 10 + 3).all()
                numbers.append(batch["numbers"])
            epochs.append(np.concatenate(numbers))
        text = loader.describe()
        assert loader.blocks_in_use == (100, 200, 64)
    assert all((np.sort(epoch) == np.arange(200_000)).all() for epoch in epochs)
    assert (epochs[0] != epochs[1]).mean() > 0.99
    assert (np.abs(np.diff(epochs[0])) == 1).mean() < 0.02
    assert "blocks: 100 rows" in text and "quality: " in text


def test_blocks_are_taken_from_a_state_unless_told(large):
    numbers = large["numbers"]
    sizes = {"order": "blocks", "block": 50, "window": 10_000}
    with evenkeel.Loader(numbers, 500, **sizes) as loader:
        next(loader)
        state = loader.state_dict()
        expected = next(loader).tolist()
    with evenkeel.Loader(numbers, 500, order="blocks") as loader:
        assert loader.blocks_in_use != (50, 200, 64)
        loader.load_state_dict(state)
        assert loader.blocks_in_use == (50, 200, 64)
        assert next(loader).tolist() == expected
    with (
        evenkeel.Loader(numbers, 500, order="blocks", block=40) as loader,
        pytest.raises(ValueError, match="the state has block 50, this loader has 40"),
    ):
        loader.load_state_dict(state)


def test_wrong_blocks_are_refused(large):
    data = large["large"]
    for options, words in [
        ({"block": 10}, 'belong to order="blocks"'),
        ({"order": "blocks", "block": 0}, "loader: block must be 1 row or more"),
        ({"order": "blocks", "streams": 3, "rank": 0, "world": 2}, "does not divide the 3 streams"),
        ({"order": "blocks", "block": 10, "window": 100 * 64}, None),
    ]:
        if words is None:
            evenkeel.Loader(data, 500, **options).close()
            continue
        with pytest.raises(ValueError, match=words):
            evenkeel.Loader(data, 500, **options)
    with pytest.raises(ValueError, match="smaller than a step of 5,000 rows"):
        evenkeel.Loader(data, 5000, order="blocks", block=10, window=4000)
    with pytest.raises(MemoryError, match="do not fit"):
        evenkeel.Loader(data, 500, order="blocks", block=1000, window=150_000)
    with pytest.warns(evenkeel.ShuffleWarning, match="a window of 10 blocks"):
        evenkeel.Loader(data, 500, order="blocks", block=1000, window=10_000).close()


def test_every_loop_is_the_next_epoch(x):
    loader = evenkeel.Loader(x, 10, seed=1)
    assert len(loader) == 11
    epochs = []
    for epoch in range(3):
        assert loader.epoch == epoch
        epochs.append(np.concatenate([row_of(batch) for batch in loader]).tolist())
    assert all(sorted(rows) == list(range(ROWS)) for rows in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    batches = x.batches(10, shuffle=True, seed=1)
    for epoch in epochs:  # the same order as that of Array.batches
        assert np.concatenate([row_of(batch) for batch in batches]).tolist() == epoch


def test_steps_begin_anew_and_epochs_go_on(x):
    with evenkeel.Loader(x, 10, steps=3) as loader:
        first, second = ([batch.tolist() for batch in loader] for _ in range(2))
        assert len(loader) == 3 and first == second
    with evenkeel.Loader(x, 10, epochs=2, drop_last=True) as loader:
        assert len(loader) == 20 == len(list(loader))
        assert loader.epoch == 2
    with evenkeel.Loader(x, 10, order="random") as loader, pytest.raises(TypeError, match="steps="):
        len(loader)


def test_ranks_share_an_epoch(x, monkeypatch):
    seen = []
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "4")
        with evenkeel.Loader(x, 6, seed=2) as loader:
            assert (loader.rank, loader.world, len(loader)) == (rank, 4, 5)
            seen += [row for batch in loader for row in row_of(batch)]
    assert sorted(seen) == list(range(ROWS))


def test_resumes_on_another_number_of_ranks(x, y):
    with evenkeel.Loader((x, y), 12, seed=4) as whole:
        for _ in range(3):
            next(whole)
        state = pickle.loads(pickle.dumps(whole.state_dict()))
        expected = sorted(next(whole)[1].tolist())
    found = []
    for rank in range(3):
        with evenkeel.Loader((x, y), 4, seed=4, rank=rank, world=3, prefetch=rank) as part:
            part.load_state_dict(state)
            assert part.step == 3
            found += next(part)[1].tolist()
    assert sorted(found) == expected


def test_a_state_of_other_data_or_order_is_refused(x, y):
    state = evenkeel.Loader(x, 10).state_dict()
    for loader, difference in [
        (evenkeel.Loader(y, 10), "its data is"),
        (evenkeel.Loader((x, y), 10), "its data is"),
        (evenkeel.Loader(x, 10, seed=1), "its seed is 0, this loader's is 1"),
        (evenkeel.Loader(x, 10, order="random"), "its order is shuffled"),
    ]:
        with loader, pytest.raises(ValueError, match=difference):
            loader.load_state_dict(state)
    with evenkeel.Loader(x, 10) as loader:
        for wrong in ({}, None, {"state": "tokens"}):
            with pytest.raises(
                ValueError, match="not a state of a Loader|not the state of a loader"
            ):
                loader.load_state_dict(wrong)


def test_wrong_input_is_refused(x, y):
    np.save("short.npy", np.arange(ROWS - 1))
    short = evenkeel.open("short.npy", budget="16MiB")
    for data, options, error, words in [
        ((x, short), {}, ValueError, "same number of rows; there are 103 rows in .*x.npy and 102"),
        ((), {}, ValueError, "no arrays were given"),
        ({}, {}, ValueError, "no arrays were given"),
        ([], {}, ValueError, "mixture is empty"),
        ([x, y], {}, TypeError, "give arrays that belong together as a tuple"),
        (np.arange(3), {}, TypeError, "arrays of evenkeel.open"),
        (np.eye(3), {}, TypeError, r"got array\(\[\[1., 0., 0.\], \[0."),  # on one line
        ([((x,), 1), ((x, y), 1)], {}, ValueError, "a set has 2 arrays, the first has 1"),
        ([({"a": x}, 1), ({"b": x}, 1)], {}, ValueError, "same fields: 'a' and 'b'"),
        (x, {"order": "sorted"}, ValueError, "the orders are"),
        (x, {"rank": 1}, ValueError, "both rank and world"),
        (x, {"rank": 2, "world": 2}, ValueError, "rank must be 0 or 1"),
        (x, {"steps": 1, "epochs": 1}, ValueError, "exclude each other"),
        (x, {"order": "random", "epochs": 1}, ValueError, "has no epochs"),
        (x, {"transform": 3}, TypeError, "transform must be a function"),
        (x, {"seed": -1}, ValueError, "seed must be 0 or more"),
        (x, {"order": 3}, TypeError, "order must be a string; got 3"),
    ]:
        with pytest.raises(error, match=words):
            evenkeel.Loader(data, 4, **options)
    for size in (0, -1):
        with pytest.raises(ValueError, match="batch_size"):
            evenkeel.Loader(x, size)
    with pytest.raises(ValueError, match="an epoch has 103 samples, less than one step"):
        evenkeel.Loader(x, 104, drop_last=True)
    with pytest.raises(MemoryError, match="raise the budget, or take a smaller batch_size"):
        evenkeel.Loader(x, 10_000_000)


def test_weights_and_sizes_of_numpy_are_numbers(x):
    with evenkeel.Loader([(x, 3), (x, 1)], 4) as loader:
        expected = next(loader)
    sets = [(x, np.int64(3)), (x, np.float32(1))]
    with evenkeel.Loader(sets, np.uint8(4)) as loader:
        np.testing.assert_array_equal(next(loader), expected)


def test_a_world_of_numpys_integer_makes_the_same_order(x):
    sets, blocks = [(x, 1), (x, 2)], {"order": "blocks", "block": 1, "window": 512}
    with evenkeel.Loader(sets, 80, rank=1, world=4, **blocks) as loader:
        expected = loader.explain(0)
    with evenkeel.Loader(sets, 80, rank=np.int8(1), world=np.uint8(4), **blocks) as loader:
        assert loader.explain(0) == expected  # 4 * 80 does not fit 8 bits
        assert type(loader.rank) is int and type(loader.world) is int


def test_a_mixture_takes_sets_by_their_weights(x):
    np.save("other.npy", -1 - np.arange(200, dtype=np.float32).reshape(40, 5))
    other = evenkeel.open("other.npy", budget="16MiB")
    with evenkeel.Loader([({"x": x}, 3), ({"x": other}, 1)], 20, steps=10) as loader:
        for batch in loader:
            assert (batch["x"][:, 0] < 0).sum() == 5
        assert {origin["set"] for origin in loader.explain(0)} == {0, 1}


def test_sets_of_a_mixture_have_one_dtype(folder):
    for name, dtype in (("date", "M8[s]"), ("time", "m8[s]"), ("number", "i8")):
        np.save(f"{name}.npy", np.arange(40).astype(dtype))
    date, time, number = (evenkeel.open(f"{name}.npy") for name in ("date", "time", "number"))
    for other in (time, number):
        with pytest.raises(ValueError, match=r"of one dtype and row shape: .*date.*|stores"):
            evenkeel.Loader([(date, 1), (other, 1)], 4, steps=1)
    evenkeel.Loader([(date, 1), (date, 1)], 4, steps=1).close()


def test_epochs_of_empty_batches_and_mixtures(x):
    with evenkeel.Loader(x, 1, rank=4, world=34) as last:
        last.seek(7)  # its batch has no rows: 34 * 3 = 102
        assert (last.epoch, len(last.explain(7))) == (1, 0)
    with evenkeel.Loader([(x, 1), (x, 1)], 50, steps=10) as mixture:
        mixture.seek(9)
        assert mixture.epoch == 0 == mixture.epoch_samples


def test_a_window_in_rows_is_compared_as_rows(large):
    numbers = large["numbers"]
    with evenkeel.Loader(numbers, 500, order="blocks", block=50, window=10_000) as loader:
        state = loader.state_dict()
    with evenkeel.Loader(numbers, 500, order="blocks", window=10_000) as loader:
        assert loader.blocks_in_use[0] != 50
        loader.load_state_dict(state)
        assert loader.blocks_in_use == (50, 200, 64)
    with (
        evenkeel.Loader(numbers, 500, order="blocks", window=20_000) as loader,
        pytest.raises(ValueError, match="the state has window 200, this loader has 400"),
    ):
        loader.load_state_dict(state)


def test_a_state_whose_windows_do_not_fit_changes_nothing(large):
    roomy = {name: evenkeel.open(f"{name}.npy", budget="64MiB") for name in large}
    sizes = {"order": "blocks", "block": 1000, "window": 150_000}
    with evenkeel.Loader(roomy, 500, **sizes) as loader:
        state = loader.state_dict()
    with evenkeel.Loader(large, 500, order="blocks", seed=0) as loader:
        before = loader.blocks_in_use
        next(loader)
        with pytest.raises(MemoryError, match="do not fit"):
            loader.load_state_dict(state)
        assert (loader.step, loader.blocks_in_use) == (1, before)
        for step in range(1, 40):
            batch = next(loader)
            assert [origin["row"] for origin in loader.explain(step)] == batch["numbers"].tolist()
            assert (batch["large"][:, 3] == batch["numbers"] * 10 + 3).all()


def test_close_gives_windows_back(large):
    budget = large["numbers"].budget
    loader = evenkeel.Loader(large, 500, order="blocks", window=20_000, block=100)
    next(loader)
    assert "a window of blocks" in str(budget.uses())
    loader.close()
    assert "window" not in str(budget.uses())


def test_a_cycle_through_transform_is_collected(x):
    class Owner:
        def __init__(self):
            self.loader = evenkeel.Loader(x, 10, transform=self.transform)

        def transform(self, batch):
            return self

    owner = Owner()
    assert next(owner.loader) is owner
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("columns", [5, 4096])  # copied, and lent
def test_a_batch_whose_arrays_could_not_be_made_comes_again(columns):
    np.save("wide.npy", np.arange(40 * columns).reshape(40, columns))
    wide = evenkeel.open("wide.npy", budget="16MiB")
    with evenkeel.Loader(wide, 4, seed=1) as loader:
        expected = [batch[:, 0].tolist() for batch in loader]
        calls = 0

        def convert(array):
            nonlocal calls
            calls += 1
            if calls % 3 == 1:
                raise KeyError(calls)
            return array

        loader.convert = convert
        loader.seek(0)
        seen = []
        while len(seen) < len(expected):
            assert loader.step == len(seen)
            try:
                seen.append(next(loader)[:, 0].tolist())
            except KeyError:
                pass
        assert seen == expected and calls > len(expected)


def test_transform_runs_in_the_thread_that_asks(x):
    threads = []

    def transform(batch):
        threads.append(threading.current_thread())
        return batch.sum()

    with evenkeel.Loader(x, 10, transform=transform) as loader:
        assert sum(loader) == x[:].sum()
    assert set(threads) == {threading.current_thread()} and len(threads) == 11


def test_an_error_of_transform_is_the_users(x):
    def fail(batch):
        raise KeyError("mine")

    with evenkeel.Loader(x, 10, transform=fail) as loader, pytest.raises(KeyError, match="mine"):
        next(loader)


def test_batches_are_the_users_own(x):
    big = np.arange(40_000, dtype=np.int64).reshape(2000, 20)
    np.save("big.npy", big)
    with evenkeel.open("big.npy", budget="16MiB") as array:
        kept = list(evenkeel.Loader(array, 700, order="sequential"))
    for batch in kept:
        batch += 1
    assert (np.concatenate(kept) == big + 1).all()


def test_any_dtype(folder):
    records = np.zeros(50, [("a", "<i4"), ("b", ">f8"), ("name", "S5")])
    records["a"], records["b"] = np.arange(50), np.arange(50) / 2
    np.save("records.npy", records)
    dates = np.arange("2000-01", "2004-03", dtype="datetime64[M]")
    np.save("dates.npy", dates)
    loader = evenkeel.Loader(
        (evenkeel.open("records.npy"), evenkeel.open("dates.npy")), 20, order="sequential"
    )
    parts = list(loader)
    assert (np.concatenate([part[0] for part in parts]) == records).all()
    assert (np.concatenate([part[1] for part in parts]) == dates).all()


def test_describe_and_repr(x, y):
    loader = evenkeel.Loader((x, y), 10)
    assert repr(loader) == "<evenkeel.Loader: 10 of 103 rows, shuffled, rank 0 of 1, step 0>"
    text = loader.describe()
    assert "10 rows of 28 bytes" in text and "loop: 11 batches" in text and "x.npy" in text
    loader.close()
    loader.close()
    assert repr(loader) == "<evenkeel.Loader: closed>"
    assert loader.describe() == "loader: closed"
    with pytest.raises(ValueError, match="used after close"):
        next(loader)
    with pytest.raises(TypeError, match="RowIterableDataset"):
        pickle.dumps(loader)


def test_seeks_and_closes_from_threads(x, y):
    loader = evenkeel.Loader((x, y), 5, order="random")
    loader.seek(1000)
    assert loader.step == 1000
    seen, lock = set(), threading.Lock()

    def take():
        try:
            for features, labels in loader:
                assert (row_of(features) * 7 == labels).all()
                with lock:
                    seen.add(loader.step)
        except ValueError as error:
            assert "close" in str(error)  # noqa: PT017

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(seen) < 50 and any(thread.is_alive() for thread in threads):
        pass
    loader.close()
    for thread in threads:
        thread.join()
    assert len(seen) >= 50


def test_a_child_of_fork_needs_its_own(x, python):
    python("""
        import os, numpy, evenkeel
        numpy.save("x.npy", numpy.arange(100))
        x = evenkeel.open("x.npy", budget="16MiB")
        loader = evenkeel.Loader(x, 10)
        next(loader)
        child = os.fork()
        if child == 0:
            try:
                next(loader)
            except ValueError as error:
                assert "made before a fork" in str(error)
                assert len(list(evenkeel.Loader(x, 10))) == 10
                loader.close()
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert len(list(loader)) == 9
    """)


def test_loaders_have_one_base_as_nanobind_2_wants():
    for loader in (evenkeel.Loader, evenkeel.TokenLoader):
        assert all(len(each.__bases__) <= 1 for each in loader.__mro__), loader.__mro__
