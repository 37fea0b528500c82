"""evenkeel.memmap is np.memmap in everything but how much memory it takes."""

import inspect
import os
import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import evenkeel

MIB = 1 << 20


@pytest.fixture
def stored(tmp_path):
    path = tmp_path / "numbers.bin"
    np.arange(3000, dtype=np.int32).tofile(path)
    return path


def large(path, mib=64):
    """A file of numbers that say where they stand, through to the disk."""
    with open(path, "wb") as file:
        for at in range(mib):
            file.write(np.arange(at * MIB // 8, (at + 1) * MIB // 8, dtype=np.int64).tobytes())
        os.fsync(file.fileno())
    return path


def test_takes_what_np_memmap_takes_and_a_budget():
    ours = list(inspect.signature(evenkeel.memmap.__new__).parameters.values())[1:]
    theirs = list(inspect.signature(np.memmap.__new__).parameters.values())[1:]
    assert [p.name for p in ours] == [*(p.name for p in theirs), "budget"]
    assert [p.default for p in ours[:-1]] == [p.default for p in theirs]
    assert ours[-1].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("mode", ["r", "r+", "c", "readonly", "copyonwrite"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"offset": 400},
        {"shape": (10, 20)},
        {"shape": 7, "offset": 8196},
        {"shape": (20, 30), "order": "F"},
    ],
    ids=str,
)
def test_is_the_same_array(stored, mode, more):
    ours = evenkeel.memmap(stored, np.int32, mode, budget="16MiB", **more)
    theirs = np.memmap(stored, np.int32, mode, **more)
    assert isinstance(ours, np.memmap)
    np.testing.assert_array_equal(ours, theirs)
    assert ours.dtype == theirs.dtype and ours.flags.writeable == theirs.flags.writeable
    assert ours.flags.f_contiguous == theirs.flags.f_contiguous
    assert (ours.mode, ours.offset, str(ours.filename)) == (
        theirs.mode,
        theirs.offset,
        str(theirs.filename),
    )


def test_views_and_sums_are_as_ever(stored):
    m = evenkeel.memmap(stored, np.int32, "r", shape=(30, 100), budget="16MiB")
    view = m[3:20:2, ::-1].T
    assert isinstance(view, np.memmap)
    there = np.memmap(stored, np.int32, "r", shape=(30, 100))
    for work in (
        np.sum,
        np.ravel,
        lambda a: a + 1,
        lambda a: a.sum(0),
        lambda a: a[[1, 2]],
        lambda a: a[0],
        lambda a: a[3, 4],
        np.asarray,
        lambda a: a.max(),
        lambda a: a.astype("f4"),
    ):
        ours, theirs = work(m), work(there)
        assert type(ours).__name__ == type(theirs).__name__
        assert np.array_equal(ours, theirs)
    del m
    assert view[0, 0] == 399
    assert view.guard.report()["mappings"] == 1


def test_makes_and_extends_files(tmp_path):
    path = tmp_path / "new.bin"
    m = evenkeel.memmap(path, np.float64, "w+", shape=(100, 3), budget="16MiB")
    assert m.sum() == 0
    m[5] = 7
    m.flush()
    assert np.fromfile(path).reshape(100, 3)[5].tolist() == [7, 7, 7]
    evenkeel.memmap(path, np.float64, "r+", shape=(200, 3), budget="16MiB")
    assert path.stat().st_size == 4800


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"mode": "rw"}, ValueError),
        ({"mode": "w+"}, ValueError),
        ({"dtype": "V7"}, ValueError),
        ({"budget": "7 lightyears"}, ValueError),
        ({"budget": 100}, ValueError),
        ({"filename": "none.bin"}, FileNotFoundError),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(stored, more, error):
    options = {"filename": stored, "dtype": np.int32, "mode": "r", "budget": "16MiB", **more}
    with pytest.raises(error):
        evenkeel.memmap(**options)


def test_a_memmap_that_outlives_the_module_ends_quietly(stored, python):
    """At the end of the interpreter, names of modules become None before some objects are gone."""
    program = """
        import sys
        import evenkeel
        import evenkeel._memmap as module
        m = evenkeel.memmap(sys.argv[1], "int32", "r", budget="16MiB")
        for name in list(vars(module)):
            vars(module)[name] = None
        del m
    """
    assert python(program, stored) == ""


def test_options_of_a_guard_are_checked_and_converted():
    assert evenkeel.Guard("16MiB", keep_cache=np.True_).report()["mappings"] == 0
    with pytest.raises(TypeError, match="access must be a string; got 3"):
        evenkeel.Guard("16MiB", access=3)


def test_open_files_will_do(stored):
    with open(stored, "rb") as file:
        m = evenkeel.memmap(file, np.int32, "r", budget="16MiB")
    assert m[77] == 77


def test_pickling_sends_the_recipe_where_it_can(stored):
    m = evenkeel.memmap(stored, np.int32, "r", budget="16MiB")
    text = pickle.dumps(m)
    assert len(text) < 1000
    again = pickle.loads(text)
    np.testing.assert_array_equal(again, m)
    assert again.guard.report()["budget"] == 16 * MIB
    private = evenkeel.memmap(stored, np.int32, "c", budget="16MiB")
    private[3] = -1
    assert pickle.loads(pickle.dumps(private))[3] == -1
    assert pickle.loads(pickle.dumps(m[5:9])).tolist() == [5, 6, 7, 8]


def test_closing_removes_the_mapping_once_and_before_it_is_unmapped(stored):
    """Afterwards the address may belong to another memmap, which must stay guarded."""
    guard = evenkeel.Guard("16MiB")
    evictor, removed = guard._evictor, []

    class Recorder:
        def __getattr__(self, name):
            return getattr(evictor, name)

        def remove(self, address):
            removed.append((address, address in mapped_addresses()))
            return evictor.remove(address)

    guard._evictor = Recorder()
    m = evenkeel.memmap(stored, mode="r", budget=guard)
    address, mapping = m.ctypes.data, m._mmap
    del m
    mapping.close()
    assert removed == [(address, True)]


def mapped_addresses():
    with open("/proc/self/maps") as maps:
        return {int(line.split("-")[0], 16) for line in maps}


def test_a_closed_mapping_is_guarded_no_more(stored):
    m = evenkeel.memmap(stored, np.int32, "r", budget="16MiB")
    guard, mapping = m.guard, m._mmap
    del m
    with memoryview(mapping), pytest.raises(BufferError):
        mapping.close()
    assert guard.report()["mappings"] == 1
    mapping.close()
    assert guard.report()["mappings"] == 0


def test_goes_with_the_last_view(stored):
    guard = evenkeel.Guard("16MiB")
    one = evenkeel.memmap(stored, np.int32, "r", budget=guard)
    two = evenkeel.memmap(stored, np.int32, "r", budget=guard)[4:]
    assert guard.report()["mappings"] == 2
    del one
    assert guard.report()["mappings"] == 1
    del two
    assert guard.report()["mappings"] == 0
    assert "16 MiB" in repr(guard)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_written_byte_is_lost(tmp_path_factory, data):
    """A budget of an eighth of the file: most pages are released between writing and reading."""
    path = large(tmp_path_factory.mktemp("lost") / "x.bin", 16)
    wanted = np.fromfile(path, np.int64)
    mode = data.draw(st.sampled_from(["r+", "c"]))
    m = evenkeel.memmap(path, np.int64, mode, budget="4MiB")
    for seed in data.draw(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=6)):
        rows = np.random.default_rng(seed).integers(0, len(m), 5000)
        m[rows] = wanted[rows] = seed
        m[: len(m) // 2].sum()
    np.testing.assert_array_equal(m, wanted)
    if mode == "r+":
        m.flush()
        del m
        np.testing.assert_array_equal(np.fromfile(path, np.int64), wanted)
    else:
        assert np.array_equal(np.fromfile(path, np.int64), np.arange(len(wanted)))


TOUCHING = """
    import sys, time, numpy, evenkeel, evenkeel._core
    path, how = sys.argv[1:]
    {make}
    m[:1].sum()

    def wait_for_guard():  # its thread may have to wait for a processor
        while (evenkeel._core.cached_bytes(path.encode()) or 0) > 48 << 20:
            time.sleep(0.001)

    with evenkeel.profile(files=[path]) as profile:
        if how == "random":
            rows = numpy.random.default_rng(1).integers(0, len(m) - 512, 5_000)
            for n, i in enumerate(rows):
                m[i : i + 512].sum()
                if n < 500 or n % 32 == 0:  # at first each brings in what the kernel reads ahead
                    wait_for_guard()
        else:
            for i in range(0, 2 * len(m), 65536):
                m[i % len(m) :][:65536].sum()
                wait_for_guard()
    print(profile.peaks["cache"], profile.peaks["file"])
"""
MAKE = {
    "memmap": 'm = evenkeel.memmap(path, "int64", "r", budget="32MiB")',
    "govern": 'm = numpy.memmap(path, "int64", "r"); guard = evenkeel.govern(m, budget="32MiB")',
}


@pytest.mark.not_emulated("there is no cachestat, so the guard counts bytes read instead")
@pytest.mark.parametrize("make", MAKE)
@pytest.mark.parametrize("how", ["random", "scan"])
def test_stays_within_the_budget(tmp_path, python, make, how):
    """The kernel's figures: 256 MiB of file, a budget of 32 MiB and its slack of 32 MiB."""
    path = large(tmp_path / "x.bin", 256)
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    cache, resident = map(int, python(TOUCHING.format(make=MAKE[make]), path, how).split())
    assert cache <= 64 * MIB
    assert resident <= 64 * MIB + 80 * MIB  # with the libraries of Python and NumPy


def test_what_fits_is_left_alone(tmp_path):
    path = large(tmp_path / "x.bin", 16)
    m = evenkeel.memmap(path, np.int64, "r", budget="64MiB")
    for _ in range(20):
        m.sum()
    assert m.guard.report()["bytes_released"] == 0


@pytest.mark.not_emulated("there is no cachestat")
def test_a_guard_that_keeps_the_cache_releases_resident_pages_alone(tmp_path, python):
    path = large(tmp_path / "x.bin", 64)
    said = python(
        """
        import sys, time, evenkeel, evenkeel._core
        def resident():
            with open("/proc/self/status") as status:
                return int(status.read().split("RssFile:")[1].split()[0]) << 10
        guard = evenkeel.Guard(sys.argv[2], keep_cache=True)
        m = evenkeel.memmap(sys.argv[1], "int64", "r", budget=guard)
        before = resident()
        assert int(m.sum()) == (len(m) - 1) * len(m) // 2
        until = time.monotonic() + 60
        while resident() > before + (16 << 20) and time.monotonic() < until:
            time.sleep(0.01)
        print(resident() - before, evenkeel._core.cached_bytes(sys.argv[1].encode()))
        """,
        path,
        "8MiB",
    )
    resident, cached = map(int, said.split())
    assert resident <= 16 * MIB  # the budget, and code that ran for the first time
    assert cached > 60 * MIB  # the kernel may have evicted some


def test_children_of_fork_are_guarded_too(tmp_path, python):
    path = large(tmp_path / "x.bin", 64)
    python(
        """
        import os, sys, evenkeel
        m = evenkeel.memmap(sys.argv[1], "int64", "r", budget="8MiB")
        child = os.fork()
        if child == 0:
            assert m.guard.report()["mappings"] == 1
            for _ in range(3):
                assert int(m.sum()) == (len(m) - 1) * len(m) // 2
            assert m.guard.report()["bytes_released"] > 0
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert int(m.sum()) == (len(m) - 1) * len(m) // 2
        """,
        path,
    )


def test_the_interpreter_ends_cleanly_with_memmaps_alive(stored, python):
    python(
        """
        import sys, evenkeel
        m = evenkeel.memmap(sys.argv[1], "int32", "r", budget="8MiB")
        keep = [m]; keep.append(keep)
        """,
        stored,
    )


def test_govern_takes_memmaps_alone(stored):
    with pytest.raises(TypeError, match="np.memmap"):
        evenkeel.govern(np.zeros(4))
    with pytest.raises(ValueError, match="already"):
        evenkeel.govern(evenkeel.memmap(stored, mode="r", budget="16MiB"))
    there = np.memmap(stored, mode="r")
    guard = evenkeel.govern(there, budget="16MiB")
    assert guard.report()["mappings"] == 1
    del there
    assert guard.report()["mappings"] == 0


@pytest.mark.parametrize("shape", [3.7, "5", (2, 2.5), ("5",), None])
def test_a_shape_is_whole_numbers(stored, shape):
    if shape is None:
        shape = np.float64(4)
    with pytest.raises(TypeError):
        evenkeel.memmap(stored, np.int32, "r", shape=shape, budget="16MiB")
    with pytest.raises(TypeError):
        np.memmap(stored, np.int32, "r", shape=shape)


@pytest.mark.parametrize("shape", [np.int64(7), [2, 3], np.array([2, 3]), range(2, 4), np.array(5)])
def test_a_shape_is_any_sequence_of_integers(stored, shape):
    ours = evenkeel.memmap(stored, np.int32, "r", shape=shape, budget="16MiB")
    assert ours.shape == np.memmap(stored, np.int32, "r", shape=shape).shape


@pytest.mark.parametrize("mode", ["r", "r+", "w+", "c"])
def test_what_is_not_a_regular_file_is_refused_at_once(tmp_path, python, mode):
    """In a process of its own, since opening a pipe may wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    python(
        """
        import signal, sys, evenkeel
        signal.alarm(60)
        try:
            evenkeel.memmap("pipe", "u1", sys.argv[1], shape=3, budget="16MiB")
        except ValueError as error:
            assert "not a regular file" in str(error), error
        else:
            raise AssertionError("accepted")
        """,
        mode,
    )


def test_a_mapping_knows_its_file_and_keeps_its_size(stored):
    m = evenkeel.memmap(stored, np.int32, "r+", shape=10, budget="16MiB")
    mapping = m._mmap
    assert mapping.size() == stored.stat().st_size
    del m
    with pytest.raises(TypeError, match="create a new one"):
        mapping.resize(8192)


def test_more_than_the_file_has_is_refused(stored):
    with pytest.raises(ValueError, match="greater than file size"):
        evenkeel.memmap(stored, np.int32, "r", shape=3001, budget="16MiB")
    with open(stored, "rb") as file, pytest.raises(PermissionError):
        evenkeel.memmap(file, np.int32, "r+", budget="16MiB")


MANY = """
    import os, resource, sys, evenkeel
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    def count():
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
    shared = evenkeel.Guard("16MiB") if sys.argv[1] == "shared" else None
    for i in range(1000):
        with open(f"{i}.bin", "wb") as file:
            file.write(bytes([i % 256]) * 8192)
    before = count()
    maps = [
        evenkeel.memmap(f"{i}.bin", "u1", "r", budget=shared or "4MiB") for i in range(1000)
    ]
    assert all(int(m[8191]) == i % 256 for i, m in enumerate(maps))
    print(*(now - then for now, then in zip(count(), before)), flush=True)
    child = os.fork()
    if child == 0:  # guarded again by the same descriptors
        guarded = sum(m.guard.report()["mappings"] == (1000 if shared else 1) for m in maps[::50])
        os._exit(0 if guarded == 20 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    del maps
    print(*(now - then for now, then in zip(count(), before)))
"""


@pytest.mark.parametrize("guard", ["shared", "own"])
def test_a_thousand_memmaps_under_the_usual_limit_of_descriptors(python, guard):
    """One descriptor each, three for the process, and one thread."""
    said = python(MANY, guard, OPENBLAS_NUM_THREADS="1")  # NumPy's threads are not counted
    descriptors, threads, left, threads_left = map(int, said.split())
    assert descriptors <= 1003 and threads == 1
    assert left <= 3 and threads_left == 0


def test_works_where_address_space_is_short(tmp_path, python):
    """Mapping the file takes its size twice for a moment; where that is too much, once."""
    (tmp_path / "x.bin").touch()
    os.truncate(tmp_path / "x.bin", 512 * MIB)
    python(
        """
        import resource, evenkeel, numpy
        pages = int(open("/proc/self/statm").read().split()[0])
        limit = pages * resource.getpagesize() + (900 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        m = evenkeel.memmap("x.bin", "u1", "r+", budget="16MiB")
        m[5] = 7
        m.flush()
        assert numpy.fromfile("x.bin", "u1", 6)[5] == 7
        assert m.guard.report()["mappings"] == 1
        """
    )


@pytest.mark.not_emulated("there is no cachestat, which the guard reports")
def test_fork_while_threads_create_and_drop_memmaps(stored, python):
    """All that are alive in the parent are guarded in the child, and nothing is printed."""
    python(
        """
        import os, sys, threading, numpy as np, evenkeel
        kept_guard = evenkeel.Guard("16MiB")
        kept = [evenkeel.memmap(sys.argv[1], "i4", "r", budget=kept_guard) for _ in range(5)]
        stop = threading.Event()
        def churn():
            while not stop.is_set():
                m = evenkeel.memmap(sys.argv[1], "i4", "r", budget="4MiB")
                mapping = m._mmap
                del m
                mapping.close()
        threads = [threading.Thread(target=churn) for _ in range(3)]
        for thread in threads:
            thread.start()
        wrong = 0
        for _ in range(100):
            child = os.fork()
            if child == 0:
                report = kept_guard.report()
                os._exit(0 if report["mappings"] == 5 and not report["failures"] else 1)
            wrong += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
        stop.set()
        for thread in threads:
            thread.join()
        assert wrong == 0, wrong
        """,
        stored,
    )


def test_one_bad_mapping_does_not_keep_others_from_being_guarded_after_fork(stored, python):
    python(
        """
        import os, sys, evenkeel
        guard = evenkeel.Guard("16MiB")
        maps = [evenkeel.memmap(sys.argv[1], "i4", "r", budget=guard) for _ in range(5)]
        maps[1]._mmap._offset = 12345  # no such mapping
        child = os.fork()
        if child == 0:
            report = guard.report()
            told = [one for one in report["failures"] if "not guarded after fork" in one]
            os._exit(0 if report["mappings"] == 4 and len(told) == 1 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """,
        stored,
    )
