"""Token loaders; NumPy slicing is the oracle."""

import collections
import itertools
import os
import pickle
import re
import threading

import numpy as np
import pytest
from token_help import COUNT, batches, same, sliced

import evenkeel


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


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"steps": 1e3}, "steps must be a whole number; got 1000.0"),
        ({"seed": None}, "seed must be a whole number; got None"),
        ({"batch_size": "4"}, "batch_size must be a whole number; got '4'"),
        ({"order": None}, "order must be a string; got None"),
        ({"exhausted": None}, "exhausted must be a string; got None"),
        ({"order": "megatron", "surplus": "x"}, "surplus must be a number; got 'x'"),
        ({"documents": "mask", "eos": 0.5}, "eos must be a whole number; got 0.5"),
        ({"documents": "packed", "eos": 0, "pad": None}, "pad must be a whole number; got None"),
    ],
    ids=str,
)
def test_arguments_of_a_wrong_type_are_named(train, more, words):
    with pytest.raises(TypeError, match=words):
        evenkeel.TokenLoader(train, **{"batch_size": 4, "block_size": 64, **more})


def test_numpy_integers_of_any_width_are_numbers(train):
    with evenkeel.TokenLoader(train, 4, 64, order="shuffled", seed=1) as loader:
        expected = next(loader)[0]
    with evenkeel.TokenLoader(
        train, np.uint8(4), np.uint8(64), order="shuffled", seed=np.int64(1)
    ) as loader:
        assert (next(loader)[0] == expected).all()
        assert "4 x 64" in repr(loader)


def test_weights_that_are_no_numbers_are_named(train):
    with pytest.raises(TypeError, match="the weight of a set must be a number; got None"):
        evenkeel.TokenLoader([(train, None)], 4, 64)


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
    with pytest.raises(ValueError, match="not a state"):
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
