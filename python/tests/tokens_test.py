"""Token streams and loaders; NumPy slicing is the oracle."""

import collections
import itertools
import os
import pickle
import re
import threading

import numpy as np
import pytest

import evenkeel

COUNT = 300_000  # token i has the value i mod 65,536


@pytest.fixture
def stored(tmp_path):
    path = tmp_path / "train.bin"
    (np.arange(COUNT) % 65536).astype(np.uint16).tofile(path)
    return path


@pytest.fixture
def train(stored):
    return evenkeel.tokens(stored, budget="16MiB", engine="direct")


def sliced(path, starts, block_size):
    """What nanoGPT's get_batch does."""
    data = np.memmap(path, np.uint16, "r")
    x = np.stack([data[i : i + block_size].astype(np.int64) for i in starts])
    y = np.stack([data[i + 1 : i + 1 + block_size].astype(np.int64) for i in starts])
    return x, y


def batches(loader, count):
    return [tuple(np.array(part) for part in next(loader)) for _ in range(count)]


def same(one, other):
    return len(one) == len(other) and all(
        np.array_equal(a, b) for p, q in zip(one, other) for a, b in zip(p, q)
    )


# --- streams


def test_xy_is_what_slicing_a_memmap_gives(stored, train):
    starts = np.random.default_rng(1).integers(0, COUNT - 100, 50)
    for got, wanted in zip(train.xy(starts, 100), sliced(stored, starts, 100)):
        assert got.dtype == np.int64
        np.testing.assert_array_equal(got, wanted)


def test_xy_takes_lists_and_other_dtypes(stored, train):
    x, y = train.xy([0, 7], 5, dtype="int32")
    assert x.dtype == np.int32
    assert y[1].tolist() == [8, 9, 10, 11, 12]
    assert train.xy([], 5)[0].shape == (0, 5)
    assert train.xy(np.array([3], np.uint8), 2, dtype=train.dtype)[0].dtype == np.uint16


def test_xy_fills_what_it_is_given(train):
    out = np.zeros((2, 4), np.int64), np.zeros((2, 4), np.int64)
    x, y = train.xy([5, 9], 4, out=out)
    assert x is out[0] and y is out[1]
    assert x[1].tolist() == [9, 10, 11, 12]


@pytest.mark.parametrize(
    "out",
    [np.zeros((2, 5), np.int64), np.zeros((2, 4), np.int32), np.zeros((4, 2), np.int64).T],
    ids=["shape", "dtype", "order"],
)
def test_out_of_another_kind_is_refused(train, out):
    with pytest.raises(ValueError, match="it takes int64 of shape"):
        train.xy([5, 9], 4, out=(out, out))


def test_starts_outside_are_index_errors(train):
    with pytest.raises(IndexError, match="before the first token"):
        train.xy([-1], 4)
    with pytest.raises(IndexError, match="300,000"):
        train.xy([COUNT - 4], 4)
    with pytest.raises(TypeError, match="whole numbers"):
        train.xy([0.5], 4)
    with pytest.raises(ValueError, match="block_size"):
        train.xy([1], 0)


def test_a_stream_says_what_it_is(stored, train):
    assert len(train) == COUNT
    assert train.dtype == np.uint16
    assert train.paths == [str(stored)]
    assert repr(train).startswith(
        "<evenkeel.Tokens train.bin: 300,000 uint16, raw (uint16 assumed)"
    )
    assert len(repr(train)) < 100
    for part in ("direct", "16 MiB", "in use", "train.bin", train.fingerprint):
        assert part in train.describe()


def test_pickling_sends_the_recipe(train):
    text = pickle.dumps(train)
    assert len(text) < 2000
    again = pickle.loads(text)
    assert again.fingerprint == train.fingerprint
    np.testing.assert_array_equal(again.xy([77], 3)[0], train.xy([77], 3)[0])


def test_a_missing_file_is_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        evenkeel.tokens(tmp_path / "none.bin")


def test_a_stream_becomes_an_array_within_the_budget(stored, train):
    data = np.fromfile(stored, np.uint16)
    np.testing.assert_array_equal(np.asarray(train), data)
    assert np.asarray(train, dtype="i8").dtype == np.int64
    assert list(evenkeel.tokens(stored, stop=70_000))[65_530:] == data[65_530:70_000].tolist()
    assert train.xy([3], 2, dtype="stored")[0].dtype == np.uint16
    small = evenkeel.tokens(stored, budget="1MiB", engine="direct")
    with pytest.raises(MemoryError, match="train.bin.*budget of 1 MiB"):
        np.asarray(small)
    torch = pytest.importorskip("torch")
    with pytest.raises(MemoryError, match="budget of 1 MiB"):
        torch.as_tensor(small)
    assert (torch.as_tensor(train).numpy() == data).all()


@pytest.mark.parametrize("engine", ["auto", "read", "direct"])
def test_indexing_is_numpys(stored, engine):
    data = np.fromfile(stored, np.uint16)
    train = evenkeel.tokens(stored, budget="16MiB", engine=engine)
    rng = np.random.default_rng(0)
    mask = rng.random(COUNT) < 0.01
    for index in [
        *(0, -1, np.int64(7), slice(None), slice(5, 9), slice(-5, None), slice(9, 5)),
        *(slice(100, 90, -2), slice(None, None, 1000), [3, 1, 3], rng.integers(-9, 9, (4, 2))),
        *(mask, [], ..., (..., 3), None, (None, slice(2, 4)), (), np.array(6)),
    ]:
        got, wanted = train[index], data[index]
        assert type(got) is type(wanted) and got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)
    for wrong in (COUNT, -COUNT - 1, [COUNT], (1, 2), 1.5, "x"):
        with pytest.raises(IndexError):
            train[wrong]


def test_parts_of_a_stream(stored):
    data = np.fromfile(stored, np.uint16)
    part = evenkeel.tokens(stored, budget="16MiB", start=1000, stop=-1000)
    assert len(part) == COUNT - 2000 and (part[:] == data[1000:-1000]).all()
    again = pickle.loads(pickle.dumps(part.slice(10, 20)))
    assert again[:].tolist() == data[1010:1020].tolist()
    assert part.slice(-5)[:].tolist() == data[-1005:-1000].tolist()
    assert part.slice(0, 9).budget.limit == part.budget.limit
    x, y = part.xy([0], 4)
    assert x.tolist() == [[1000, 1001, 1002, 1003]]
    with pytest.raises(IndexError):
        part.xy([COUNT - 2000 - 4], 4)
    for wrong in ({"start": COUNT}, {"stop": COUNT + 1}, {"start": 5, "stop": 5}):
        with pytest.raises(ValueError, match="300,000 tokens"):
            evenkeel.tokens(stored, **wrong)


def test_split_for_training_and_validation(stored):
    train, validation = evenkeel.tokens(stored, budget="16MiB").split(0.9)
    assert (len(train), len(validation)) == (270_000, 30_000)
    assert validation[0] == 270_000 % 65536 and train.fingerprint != validation.fingerprint
    state = None
    for part, first, end in ((train, 0, 270_000), (validation, 270_000, 300_000)):
        with evenkeel.TokenLoader(part, 4, 100, order="shuffled", seed=1) as loader:
            if state is not None:
                with pytest.raises(ValueError):
                    loader.load_state_dict(state)
            for step in range(20):
                origins = loader.explain(step)
                x, y = next(loader)
                for row, origin in zip(x, origins):
                    start = first + origin["start"]
                    assert start + 100 < end and row[0] == start % 65536
                    assert origin["offset"] == 2 * start
            state = loader.state_dict()
    half, rest = evenkeel.tokens(stored, budget="16MiB").split(0.5)
    assert len(half) == len(rest) and half.fingerprint != rest.fingerprint
    for wrong in (0, 1, -0.5, 1.5, float("nan"), 1e-9):
        with pytest.raises(ValueError, match="split"):
            train.split(wrong)


def test_a_megatron_pair_by_its_prefix(tmp_path):
    tokens = np.arange(12, dtype=np.uint16)
    tokens.tofile(tmp_path / "corpus.bin")
    lengths, documents = np.array([7, 5], np.int32), np.array([0, 1, 2], np.int64)
    (tmp_path / "corpus.idx").write_bytes(
        b"MMIDIDX\0\0"
        + np.array([1], np.uint64).tobytes()
        + b"\x08"
        + np.array([2, 3], np.uint64).tobytes()
        + lengths.tobytes()
        + np.array([0, 14], np.int64).tobytes()
        + documents.tobytes()
    )
    for folder_too in (False, True):
        if folder_too:
            (tmp_path / "corpus").mkdir()
        for prefix in (tmp_path / "corpus", [tmp_path / "corpus"], str(tmp_path / "corpus")):
            found = evenkeel.tokens(prefix)
            assert found.format == "megatron" and found[:].tolist() == tokens.tolist()
            assert found.paths == [str(tmp_path / "corpus.bin")]
    assert len(pickle.loads(pickle.dumps(found))) == 12


# --- loaders


@pytest.mark.parametrize("wrong", ["train.bin", [], None, [("train.bin", 1)]], ids=str)
def test_what_is_no_stream_is_named(wrong):
    with pytest.raises(TypeError, match="evenkeel.tokens"):
        evenkeel.TokenLoader(wrong, 4, 64)


@pytest.mark.parametrize(
    "more",
    [{"seed": -1}, {"batch_size": 0}, {"prefetch": -1}, {"rank": 2, "world": 2}, {"order": "odd"}],
    ids=str,
)
def test_options_that_make_no_sense_are_value_errors(train, more):
    with pytest.raises(ValueError):
        evenkeel.TokenLoader(train, **{"batch_size": 4, "block_size": 64, **more})


def test_a_loader_stays_in_its_process(train):
    loader = evenkeel.TokenLoader(train, 4, 64)
    with pytest.raises(TypeError, match="state_dict"):
        pickle.dumps(loader)
    loader.close()
    assert "closed" in repr(loader)


@pytest.mark.parametrize("order", ["random", "shuffled", "covering"])
def test_batches_are_what_explain_says(stored, train, order):
    with evenkeel.TokenLoader(train, 4, 64, order=order, seed=5) as loader:
        for step in range(6):
            starts = [row["start"] for row in loader.explain(step)]
            x, y = next(loader)
            wanted = sliced(stored, starts, 64)
            np.testing.assert_array_equal(x, wanted[0])
            np.testing.assert_array_equal(y, wanted[1])


def test_an_epoch_of_shuffled_ranks_shows_each_block_once(train):
    loaders = [
        evenkeel.TokenLoader(train, 2, 512, order="shuffled", seed=1, rank=r, world=2, epochs=1)
        for r in (0, 1)
    ]
    steps = len(loaders[0])
    seen = [row["start"] for one in loaders for step in range(steps) for row in one.explain(step)]
    assert len(seen) == len(set(seen)) == steps * 4
    assert steps * 4 + 4 > (COUNT - 1) // 512


def test_arrays_are_the_users_to_keep(train):
    with evenkeel.TokenLoader(train, 4, 64, seed=2, steps=40) as loader:
        kept = list(loader)
        again = batches(iter(loader), 40)
    assert same(kept, again)
    with evenkeel.TokenLoader(train, 4, 64, seed=2, steps=40) as loader:
        part = [x[1, 3:9] for x, _ in loader]  # views keep their batch
    assert all(np.array_equal(p, x[1, 3:9]) for p, (x, _) in zip(part, kept))


def test_resumes_also_on_another_world(train):
    whole = evenkeel.TokenLoader(train, 8, 64, seed=3)
    next(whole), next(whole)
    state = pickle.loads(pickle.dumps(whole.state_dict()))
    wanted = batches(whole, 3)
    again = evenkeel.TokenLoader(train, 8, 64, seed=3, prefetch=0)
    again.load_state_dict(state)
    assert again.step == 2
    assert same(batches(again, 3), wanted)
    halves = [evenkeel.TokenLoader(train, 4, 64, seed=3, rank=r, world=2) for r in (0, 1)]
    for half in halves:
        half.load_state_dict(state)
    for x, _ in wanted:
        got = np.concatenate([next(half)[0] for half in halves])
        np.testing.assert_array_equal(got, x)


def test_a_state_of_other_data_is_refused(tmp_path, train):
    other = tmp_path / "other.bin"
    np.zeros(5000, np.uint16).tofile(other)
    loader = evenkeel.TokenLoader(evenkeel.tokens(other, budget="16MiB"), 4, 64)
    with pytest.raises(ValueError, match="data"):
        loader.load_state_dict(evenkeel.TokenLoader(train, 4, 64).state_dict())
    with pytest.raises(ValueError, match="no state"):
        loader.load_state_dict({"model": 1})


def test_a_loader_in_one_short_line(train):
    with evenkeel.TokenLoader(train, 12, 1024, order="covering", seed=3) as loader:
        loader.seek(10**9)
        assert repr(loader) == (
            "<evenkeel.TokenLoader: 12 x 1024 int64, covering, rank 0 of 1, step 1000000000>"
        )
    assert repr(loader) == "<evenkeel.TokenLoader: closed>"


def test_seeks_at_once(train):
    loader = evenkeel.TokenLoader(train, 4, 64, seed=4)
    wanted = batches(loader, 5)
    loader.seek(3)
    assert same(batches(loader, 2), wanted[3:])
    with pytest.raises(ValueError):
        loader.seek(-1)


def test_steps_end_and_begin_anew(train):
    loader = evenkeel.TokenLoader(train, 4, 64, steps=3)
    assert len(loader) == len(list(loader)) == len(list(loader)) == 3
    with pytest.raises(TypeError, match="steps"):
        len(evenkeel.TokenLoader(train, 4, 64))


def test_epochs_end_and_the_next_loop_goes_on(train):
    loader = evenkeel.TokenLoader(train, 7, 512, order="shuffled", epochs=2)
    blocks = (COUNT - 1) // 512
    assert len(loader) == 2 * blocks // 7
    endless = evenkeel.TokenLoader(train, 7, 512, order="shuffled")
    first, second = list(loader), list(loader)
    assert len(first) == len(second) == len(loader)
    assert same([*first, *second], batches(endless, 2 * len(loader)))
    assert loader.step == 2 * len(loader)
    with pytest.raises(StopIteration):
        next(loader)
    again = evenkeel.TokenLoader(train, 7, 512, order="shuffled", epochs=2)
    again.load_state_dict({"state": endless.state_at(len(loader) + 5)})
    assert same(list(again), second[5:])


def test_a_loader_without_an_end_has_no_length(train):
    for order in ("random", "shuffled"):
        loader = evenkeel.TokenLoader(train, 4, 64, order=order)
        with pytest.raises(TypeError, match="steps= or epochs="):
            len(loader)
        assert bool(loader) is True


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"epochs": 1}, 'order "random" has no epochs'),
        ({"epochs": 1, "steps": 1, "order": "shuffled"}, "steps and epochs exclude each other"),
        ({"epochs": 0, "order": "shuffled"}, "epochs must be 1 or more"),
        ({"steps": 0}, "steps must be 1 or more"),
        ({"epochs": 1, "order": "shuffled", "world": 4000, "rank": 0}, "less than one step"),
        ({"rank": 2, "world": 2}, "rank must be 0 or 1 for world=2; got 2"),
        ({"rank": 9, "world": 4}, "rank must be 0 to 3 for world=4; got 9"),
        ({"dtype": "int16"}, "int16"),
    ],
    ids=str,
)
def test_messages_say_what_was_wrong(train, more, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        evenkeel.TokenLoader(train, 4, 64, **more)


def test_a_checkpoint_of_another_batch_size_says_so(train):
    loader = evenkeel.TokenLoader(train, 4, 64)
    state = {"state": loader.state_at(5)}  # 20 samples
    with pytest.raises(ValueError, match="has 20 samples, which is not divisible by .* = 3"):
        evenkeel.TokenLoader(train, 3, 64).load_state_dict(state)


@pytest.mark.parametrize("step", [2**64 - 1, 2**60, 2**64, -1])
def test_a_step_out_of_range_is_refused(train, step):
    loader = evenkeel.TokenLoader(train, 16, 64)
    with pytest.raises(ValueError, match="step"):
        loader.seek(step)
    with pytest.raises(ValueError, match="step"):
        loader.explain(step)
    next(loader)
    assert loader.step == 1


def test_batches_lie_in_the_memory_they_were_read_into(train):
    """And it is used again: a loop that lets go of its batches stays at the same few addresses."""
    with evenkeel.TokenLoader(train, 16, 512, prefetch=2) as loader:
        used = train.budget.in_use
        addresses = set()
        for _ in range(100):
            x, y = next(loader)
            addresses.add(x.ctypes.data)
            assert x.base is not None and x.flags.writeable
        assert len(addresses) <= 4
        kept = [next(loader) for _ in range(20)]
        assert len({x.ctypes.data for x, _ in kept}) == 20
        assert train.budget.in_use == used
        again = evenkeel.TokenLoader(train, 16, 512, prefetch=0)
        again.seek(100)
        assert same(kept, batches(again, 20))
        again.close()
    assert all(int(x[0, 0]) >= 0 for x, _ in kept)  # they outlive the loader


# --- several threads


@pytest.mark.parametrize("engine", ["auto", "direct", "read"])
@pytest.mark.parametrize("prefetch", [0, 4])
def test_several_threads_take_each_batch_once(stored, engine, prefetch):
    train = evenkeel.tokens(stored, budget="16MiB", engine=engine)
    loader = evenkeel.TokenLoader(train, 4, 64, seed=6, steps=400, prefetch=prefetch)
    seen = [[] for _ in range(4)]

    def work(mine):
        for x, _ in loader:
            mine.append(tuple(x[:, 0].tolist()))
            if len(mine) > 400:
                return  # two loops

    threads = [threading.Thread(target=work, args=(mine,), daemon=True) for mine in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    wanted = [tuple(r["start"] % 65536 for r in loader.explain(s)) for s in range(400)]
    got = collections.Counter(itertools.chain(*seen))
    # A thread that begins its loop after the end begins the next one.
    assert set(got) == set(wanted) and len(got) == 400


@pytest.mark.parametrize("engine", ["auto", "direct", "read"])
def test_closing_while_another_thread_is_in_next(stored, engine):
    train = evenkeel.tokens(stored, budget="16MiB", engine=engine)
    for _ in range(15):
        loader = evenkeel.TokenLoader(train, 16, 256)
        begun, wrong = threading.Event(), []

        def work(loader=loader, begun=begun, wrong=wrong):
            try:
                while True:
                    next(loader)
                    begun.set()
            except ValueError as error:
                if "used after close\nhint: create a new loader" not in str(error):
                    wrong.append(error)
            except BaseException as error:  # noqa: BLE001
                wrong.append(error)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        begun.wait()
        loader.close()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not wrong


def test_seeking_while_another_thread_is_in_next(train):
    loader = evenkeel.TokenLoader(train, 4, 64, seed=8)
    starts = {tuple(r["start"] % 65536 for r in loader.explain(s)) for s in range(4000)}
    stop, wrong = threading.Event(), []

    def work():
        while not stop.is_set():
            x, _ = next(loader)
            if tuple(x[:, 0].tolist()) not in starts:
                wrong.append(x)

    thread = threading.Thread(target=work)
    thread.start()
    for step in range(200):
        loader.seek(step % 50)
    stop.set()
    thread.join(60)
    assert not thread.is_alive() and not wrong
    loader.close()


def test_the_interpreter_ends_with_a_daemon_thread_in_next(stored, python):
    python(
        """
        import sys, threading, evenkeel
        train = evenkeel.tokens(sys.argv[1], budget="16MiB", engine="read")
        loader = evenkeel.TokenLoader(train, 8, 256)
        begun = threading.Event()
        def forever():
            while True:
                next(loader)
                begun.set()
        for _ in range(3): threading.Thread(target=forever, daemon=True).start()
        begun.wait()
        """,
        stored,
    )


def test_mixtures_keep_to_their_weights(tmp_path, train):
    path = tmp_path / "other.bin"
    np.full(5000, 7, np.uint16).tofile(path)
    other = evenkeel.tokens(path, budget=train.budget)
    with evenkeel.TokenLoader([(train, 3), (other, 1)], 4, 64) as loader:
        sets = [row["set"] for step in range(20) for row in loader.explain(step)]
        assert sets.count(1) == 20
        next(loader)
    with pytest.raises(ValueError, match="weight"):
        evenkeel.TokenLoader([(train, 1), (other, float("nan"))], 4, 64)


def test_used_after_close_is_a_value_error(train):
    loader = evenkeel.TokenLoader(train, 4, 64)
    next(loader)
    loader.close()
    loader.close()
    with pytest.raises(ValueError, match="after close"):
        next(loader)


def test_what_does_not_fit_the_budget_is_a_memory_error(train):
    with pytest.raises(MemoryError, match="budget"):
        evenkeel.TokenLoader(train, 4096, 1024)


def test_a_stale_file_arrives_as_an_error(stored, train):
    loader = evenkeel.TokenLoader(train, 4, 64)
    next(loader)
    with open(stored, "r+b") as file:
        file.truncate(1000)
    with pytest.raises(ValueError, match="train.bin"):
        for _ in range(100):
            next(loader)


@pytest.mark.parametrize(
    "names",
    [
        ("RANK", "WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ],
)
def test_rank_and_world_come_from_the_environment(train, monkeypatch, names):
    monkeypatch.setenv(names[0], "1")
    monkeypatch.setenv(names[1], "4")
    loader = evenkeel.TokenLoader(train, 4, 64)
    assert (loader.rank, loader.world) == (1, 4)
    alone = evenkeel.TokenLoader(train, 4, 64, rank=0, world=1)
    assert (alone.rank, alone.world) == (0, 1)
    monkeypatch.setenv(names[0], "one")
    with pytest.raises(ValueError, match=names[0]):
        evenkeel.TokenLoader(train, 4, 64)


def test_rank_without_world_is_refused(train):
    with pytest.raises(ValueError, match="both"):
        evenkeel.TokenLoader(train, 4, 64, rank=1)


def test_the_interpreter_ends_cleanly_with_loaders_alive(stored, python):
    python(
        """
        import sys, evenkeel
        train = evenkeel.tokens(sys.argv[1], budget="16MiB", engine="direct")
        loader = evenkeel.TokenLoader(train, 8, 256, prefetch=8)
        next(loader)
        keep = [loader, iter(loader)]
        keep.append(keep)
        """,
        stored,
    )


def test_a_child_of_fork_is_told_to_make_its_own(stored, python):
    python(
        """
        import os, sys, evenkeel
        train = evenkeel.tokens(sys.argv[1], budget="16MiB", engine="direct")
        loader = evenkeel.TokenLoader(train, 8, 256)
        next(loader)
        child = os.fork()
        if child == 0:
            try:
                next(loader)
            except ValueError as error:
                assert "fork" in str(error), error
            next(evenkeel.TokenLoader(train, 8, 256))
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        next(loader)
        """,
        stored,
    )


def test_torch_is_not_imported_for_those_who_do_not_use_it(stored, python):
    python(
        """
        import sys, evenkeel
        train = evenkeel.tokens(sys.argv[1], budget="16MiB")
        next(evenkeel.TokenLoader(train, 8, 256))
        assert "torch" not in sys.modules
        """,
        stored,
    )


def test_one_node_shares_a_budget(stored, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert evenkeel.tokens(stored, budget="64MiB/node").budget.limit == 16 << 20


@pytest.mark.parametrize("name", ["LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE"])
def test_a_node_of_no_number_of_processes_is_refused(stored, monkeypatch, name):
    monkeypatch.setenv(name, "abc")
    with pytest.raises(ValueError, match=f"{name}.*abc"):
        evenkeel.tokens(stored, budget="64MiB/node")
    assert evenkeel.tokens(stored, budget="64MiB").budget.limit == 64 << 20


def test_batches_keep_to_the_budget(tmp_path, python):
    """The kernel's figures, in a process of its own."""
    path = tmp_path / "large.bin"
    np.zeros(128 << 20, np.uint8).tofile(path)
    os.sync()
    python(
        """
        import sys, evenkeel
        train = evenkeel.tokens(sys.argv[1], budget="32MiB", engine="direct")
        loader = evenkeel.TokenLoader(train, 32, 1024)
        for _ in range(20): next(loader)
        with evenkeel.profile(files=[sys.argv[1]]) as profile:
            for _ in range(3000): next(loader)
        assert profile.peaks["cache"] < 1 << 20, profile.peaks
        """,
        path,
    )
