"""The line that memory stays under."""

import os
import pickle
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import evenkeel

MIB = 1 << 20


@pytest.fixture
def features(folder):
    data = np.arange(2_000_000, dtype="f4").reshape(-1, 100)  # 8 MB
    np.save("features.npy", data)
    return data


@pytest.mark.parametrize(
    "size, limit", [(5 * MIB, 5 * MIB), ("64MiB", 64 * MIB), ("1MB", 10**6), (np.int64(7), 7)]
)
def test_sizes(size, limit):
    assert evenkeel.Budget(size).limit == limit


def test_resize_takes_back_what_a_loader_reads_ahead(tmp_path):
    rows = np.arange(40_000 * 16, dtype=np.int32).reshape(-1, 16)
    np.save(tmp_path / "x.npy", rows)
    budget = evenkeel.Budget("16MiB")
    x = evenkeel.open(tmp_path / "x.npy", budget=budget, engine="direct")
    options = {"batch_size": 1000, "seed": 2, "prefetch": 12}
    with evenkeel.Loader(x, **options) as loader:
        expected = [batch.copy() for batch in loader]
    with evenkeel.Loader(x, **options) as loader:
        batches = iter(loader)
        got = [next(batches) for _ in range(3)]  # held on to
        before = budget.in_use - budget.cached
        budget.resize(before - (200 << 10))
        assert budget.in_use <= before - (200 << 10)
        got.extend(batches)
    assert len(got) == 40
    for one, other in zip(got, expected):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("size", ["", "64", "64 parsecs", -1, "-1MiB"])
def test_nonsense(size):
    if size == "64":
        assert evenkeel.Budget(size).limit == 64
        return
    with pytest.raises(ValueError):
        evenkeel.Budget(size)


@pytest.mark.parametrize("size", [1.5, True, [1], object()])
def test_other_types(size):
    with pytest.raises(TypeError, match="64MiB") as wrong:
        evenkeel.Budget(size)
    assert str(wrong.value).endswith(f"; got {size!r}")


def test_a_number_beyond_any_memory_is_a_value_error():
    for size in (2**63, 10**30, -(10**30)):
        with pytest.raises(ValueError, match=f"{size} bytes: must be from 0"):
            evenkeel.Budget(size)


@pytest.mark.parametrize("size", [None, 1.5, b"1GiB"])
def test_resize_says_what_it_takes(size):
    with pytest.raises(TypeError, match="64MiB.*; got"):
        evenkeel.Budget("64MiB").resize(size)


@pytest.mark.parametrize(
    "name, value, sharers",
    [
        ("LOCAL_WORLD_SIZE", "4", 4),
        ("SLURM_NTASKS_PER_NODE", "2", 2),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "8", 8),
    ],
)
def test_processes_of_a_node_share(monkeypatch, name, value, sharers):
    for other in ("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", "OMPI_COMM_WORLD_LOCAL_SIZE"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, value)
    assert evenkeel.Budget("1GiB/node").limit == (1 << 30) // sharers


def test_arrays_share_one(features):
    budget = evenkeel.Budget("4MiB")
    a = evenkeel.open("features.npy", budget=budget)
    one = budget.in_use
    b = evenkeel.open("features.npy", budget=budget)
    both = budget.in_use
    assert one < both <= 2 * one  # the second takes smaller buffers
    assert a.budget.in_use == b.budget.in_use == both
    a.close()
    assert budget.in_use == both - one
    assert budget.left == budget.limit - budget.in_use and budget.peak >= both


def test_pickled_it_is_another_of_the_same_size():
    budget = evenkeel.Budget("4MiB")
    share = budget.reserve(1000, "a test")
    copy = pickle.loads(pickle.dumps(budget))
    assert (copy.limit, copy.in_use, budget.in_use) == (4 * MIB, 0, 1000)
    share.release()
    assert budget.in_use == 0
    with pytest.raises(MemoryError, match="a test need 5,000,000 bytes"):
        budget.reserve(5_000_000, "a test")


def test_results_beyond_it_are_refused(features):
    a = evenkeel.open("features.npy", budget="4MiB")
    before = a.budget.in_use
    for use in (
        lambda: a[:],
        lambda: a[:, ::2],
        lambda: a[:, [3]],
        lambda: np.asarray(a),
        lambda: a.take(np.zeros(20_000, int)),
    ):
        with pytest.raises(MemoryError, match=r"bytes are left of a budget of 4 MiB.*\n.*batches"):
            use()
        assert a.budget.in_use == before
    out = np.empty_like(features)
    a.take(np.arange(20_000), out=out)  # the caller's own memory
    assert (out == features).all()


@pytest.mark.parametrize("engine", ["auto", "direct"])
def test_columns_of_more_rows_than_fit(features, engine):
    a = evenkeel.open("features.npy", budget="4MiB", engine=engine)
    for index in (np.s_[:, 3], np.s_[::-1, 5:7], np.s_[::3, -1], np.s_[..., 9], np.s_[5:, 1:2]):
        wanted, got = features[index], a[index]
        assert got.dtype == wanted.dtype and got.shape == wanted.shape and (got == wanted).all()
    assert a.budget.peak <= a.budget.limit


def test_data_that_was_mapped_gives_way_to_results(features):
    a = evenkeel.open("features.npy", budget="12MiB")
    assert a.engine.startswith("map")
    assert (a[:] == features).all()
    assert not a.engine.startswith("map")
    assert a.budget.peak <= a.budget.limit
    b = evenkeel.open("features.npy", budget="12MiB")
    assert sum(len(rows) for rows in b.batches(6000)) == 20_000
    assert b.budget.peak <= b.budget.limit


@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_beyond_it_are_refused_with_the_size_that_fits(features, shuffle):
    a = evenkeel.open("features.npy", budget="4MiB")
    before = a.budget.in_use
    with pytest.raises(MemoryError, match="the loop holds one") as raised:
        a.batches(10_000, shuffle=shuffle)
    assert a.budget.in_use == before
    fits = int(re.search(r"at most ([\d,]+) rows", str(raised.value))[1].replace(",", ""))
    assert fits > 1000
    assert sum(len(rows) for rows in a.batches(fits, shuffle=shuffle)) == 20_000


@pytest.mark.not_emulated("the memory of the process includes the emulator's")
def test_memory_stays_under_it_by_the_kernels_numbers(features, python):
    """RssAnon and the page cache of the file together: in batches, in rows, in shuffled order."""
    said = python("""
        import numpy as np, evenkeel, evenkeel._core, os

        def anon():
            with open("/proc/self/status") as status:
                return int(status.read().split("RssAnon:")[1].split()[0]) * 1024

        def drop():
            with open("big", "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

        np.arange(96 << 17, dtype="f8").tofile("big")
        drop()
        cached = evenkeel._core.cached_bytes
        a = evenkeel.open("big", dtype="f8", shape=(-1, 64), budget="16MiB")
        a[[0, -1]], sum(map(len, a.batches(100)))  # what the first call of anything takes
        before, cached_before, most, total = anon(), cached(b"big") or 0, 0, 0.0
        for shuffle in (False, True):
            for rows in a.batches(6000, shuffle):
                total += rows.sum()
                most = max(most, anon() - before + (cached(b"big") or 0) - cached_before)
        rows = None
        for _ in range(200):
            a[np.random.randint(0, len(a), 64)]
        most = max(most, anon() - before)
        n = 96 << 17
        assert total == n * (n - 1), total
        print(most)
        """)
    assert int(said) <= 16 * MIB


def _sparse(name, nbytes):
    with open(name, "wb") as file:
        file.truncate(nbytes)


def test_many_arrays_share_one(folder):
    _sparse("large.bin", 512 << 20)
    budget = evenkeel.Budget("64MiB")
    arrays = [
        evenkeel.open("large.bin", dtype="u1", shape=(-1, 1024), budget=budget) for _ in range(50)
    ]
    assert all((array[7] == 0).all() for array in arrays)


@pytest.mark.parametrize("limit", [1, 3, 16, 40])
def test_a_hint_to_raise_it_works_the_first_time(folder, limit):
    _sparse("large.bin", 512 << 20)

    def open_until_refused(mib, most):
        budget, arrays = evenkeel.Budget(f"{mib}MiB"), []
        try:
            while len(arrays) < most:
                arrays.append(evenkeel.open("large.bin", dtype="u1", budget=budget))
        except MemoryError as error:
            return len(arrays), str(error)
        return len(arrays), ""

    opened, message = open_until_refused(limit, 1000)
    advised = int(re.search(r"raise the budget to ([\d,]+) MiB", message)[1].replace(",", ""))
    assert open_until_refused(advised, opened + 1) == (opened + 1, "")


@pytest.mark.parametrize("file_mib", [3, 512])
@pytest.mark.parametrize("shuffle", [False, True])
def test_hints_for_chunks_work_the_first_time(folder, file_mib, shuffle):
    _sparse("data.bin", file_mib << 20)
    refused = 0
    for row in (1, 8, 100, 4096, 65536):
        for limit in (1 << 20, 4 << 20, 7_000_000, 64 << 20):
            for part in (0.2, 0.35, 0.45, 0.7, 1.5):
                n = int(limit * part) // row
                if n == 0:
                    continue
                rows = (file_mib << 20) // row
                with evenkeel.open("data.bin", dtype="u1", shape=(rows, row), budget=limit) as a:
                    try:
                        a.batches(n, shuffle=shuffle)
                        continue
                    except MemoryError as error:
                        message = str(error)
                    refused += 1
                    advised = re.search(r"at most ([\d,]+) rows", message)
                    if not advised:
                        continue
                    fitting = int(advised[1].replace(",", ""))
                    assert fitting < n, message
                    for _ in a.batches(fitting, shuffle=shuffle):
                        break
    assert refused > 5


@pytest.mark.parametrize("engine", ["auto", "advise"])
def test_rows_and_reductions_take_what_is_left(folder, engine):
    data = np.arange(1 << 20, dtype="i4").reshape(-1, 16)  # 4 MiB
    np.save("data.npy", data)
    small = evenkeel.open("data.npy", budget="1MiB", engine=engine)
    assert all(np.array_equal(row, wanted) for row, wanted in zip(small, data))
    shared = evenkeel.Budget("3MiB")
    a = evenkeel.open("data.npy", budget=shared, engine=engine)
    with a.batches(16_384):
        assert shared.left < 300_000  # a loop that holds 256 KiB needs twice as much
        assert all(np.array_equal(row, wanted) for row, wanted in zip(a, data))
        assert np.array_equal(a.sum(axis=0), data.sum(axis=0))


def test_reads_that_do_not_fit_together_wait(folder):
    data = np.arange(40_000 * 256, dtype="i4").reshape(-1, 256)  # 40 MB
    np.save("data.npy", data)
    a = evenkeel.open("data.npy", budget="16MiB")
    blocks = [slice(n, n + 8000) for n in range(0, 32_000, 1000)]  # of 8 MB each
    with ThreadPoolExecutor(4) as pool:
        for block, got in zip(blocks, pool.map(lambda block: a[block], blocks)):
            assert (got == data[block]).all()
    with pytest.raises(MemoryError):
        a[:20_000]


def _reads_in_a_child(a, data):
    return bool((a[:2500] == data[:2500]).all()) and a.budget.in_use < 4 << 20


def test_a_child_has_the_whole_budget(folder):
    data = np.arange(20_000 * 256, dtype="i4").reshape(-1, 256)
    np.save("data.npy", data)
    a = evenkeel.open("data.npy", budget="8MiB")
    loop = iter(a.batches(2400))  # what the loop holds, and what is read ahead: most of the budget
    next(loop)
    assert a.budget.left < 2500 * 1024
    child = os.fork()
    if child == 0:
        os._exit(0 if _reads_in_a_child(a, data) else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (next(loop) == data[2400:4800]).all()


def test_resize_changes_the_budget_of_an_open_array(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((200_000, 32), np.float32))
    a = evenkeel.open(tmp_path / "x.npy", budget="4MiB", engine="direct")
    with pytest.raises(MemoryError):
        a[:]
    a.budget.resize("64MiB")
    assert a.budget.limit == 64 << 20
    assert a[:].shape == (200_000, 32)
    a.budget.resize(8 << 20)
    with pytest.raises(MemoryError):
        a[:]


def test_resize_below_what_is_held_is_refused_with_the_arithmetic():
    budget = evenkeel.Budget("8MiB")
    held = budget.reserve(5_000_000, "buffers")
    with pytest.raises(MemoryError, match=r"1,048,576 .* 5,000,000 bytes in use \(buffers 5,000"):
        budget.resize("1MiB")
    assert budget.limit == 8 << 20
    held.release()
    budget.resize("1MiB")
    assert budget.limit == 1 << 20


@pytest.mark.parametrize("size", ["2 apples", "", "-1", -1])
def test_resize_to_what_is_no_size(size):
    with pytest.raises(ValueError):
        evenkeel.Budget("8MiB").resize(size)


@pytest.mark.parametrize("size", [None, 1.5, True, evenkeel.Budget("1MiB")])
def test_resize_to_what_is_no_number(size):
    with pytest.raises(TypeError):
        evenkeel.Budget("8MiB").resize(size)


def test_automatic_budgets():
    budget = evenkeel.Budget("auto")
    assert budget.automatic and not evenkeel.Budget("1MiB").automatic
    assert budget.limit >= 16 << 20
    assert "follows memory pressure" in budget.describe()
    assert pickle.loads(pickle.dumps(budget)).automatic
    with pytest.raises(ValueError, match="fixed size"):
        budget.resize("1GiB")


@pytest.mark.parametrize("text", ["auto:2GiB", "auto 2GiB", "auto/node"])
def test_auto_takes_no_number(text):
    with pytest.raises(ValueError, match='"auto" takes no number'):
        evenkeel.Budget(text)


def test_an_array_with_an_automatic_budget(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(1000))
    with evenkeel.open(tmp_path / "x.npy", budget="auto") as a:
        assert a.budget.automatic
        assert a[:].sum() == 499_500
