"""evenkeel guard keeps the page cache of mapped files within the budget, measured from outside.

All programs read slower than 1 GB/s, the speed that the guard is designed for. guard_program.c also
waits for the guard, so that its tests pass on busy machines.
"""

import os
import sys

import numpy as np
import pytest
from guard_help import (
    MIB,
    CachePeak,
    drop_from_cache,
    guard,
    limit_of,
    require_cachestat,
    write_numbers,
)

FILE_MIB = 384
BUDGET = 128 * MIB


@pytest.fixture(scope="module")
def program(guard_program):
    return guard_program()


@pytest.fixture(scope="module")
def numbers(anyone):
    path = write_numbers(anyone.folder / "numbers.bin", FILE_MIB)
    require_cachestat(path)
    yield anyone.own(path)
    path.unlink()


def within(budget):
    """For guard_program.c: the bytes of a file that may be cached before the program waits."""
    return f"within={int(budget / MIB) + 8}"


def guarded_peak(anyone, paths, *command, options=()):
    for path in paths:
        drop_from_cache(path)
    if command[0] != sys.executable:
        command = (*command, within(BUDGET / len(paths)))
    with CachePeak(*paths) as peak:
        done = guard(anyone, "128MiB", *options, "--", *command)
    assert peak.looks > 50, "too short to have been seen"
    assert peak.bytes <= limit_of(BUDGET), f"{peak.bytes / MIB:.0f} MiB"
    assert done.peak <= limit_of(BUDGET)
    if done.run["summary"]["most_processes"] == 1:  # otherwise shared pages count twice
        resident = done.run["summary"]["peak_bytes"]["file"]
        assert resident <= limit_of(BUDGET) + 64 * MIB  # and libraries
    return done, peak


def test_a_scan_stays_within_the_budget(anyone, program, numbers):
    done, peak = guarded_peak(anyone, [numbers], program, "scan", numbers, 400)
    assert done.stdout == "wrong 0\n"
    assert peak.bytes > BUDGET / 2  # otherwise the test proves nothing
    assert done.released >= FILE_MIB * MIB - limit_of(BUDGET)


def test_crops_stay_within_the_budget(anyone, program, numbers):
    done, _ = guarded_peak(anyone, [numbers], program, "crops", numbers, 3000, 400)
    assert (done.stdout, done.guarded) == ("wrong 0\n", 1)


def test_crops_with_readahead_stay_within_the_budget(anyone, program, numbers):
    done, _ = guarded_peak(
        *[anyone, [numbers], program, "crops", numbers, 200, 400], options=["--access", "leave"]
    )
    assert done.stdout == "wrong 0\n"


def test_a_tree_of_processes_shares_one_budget(anyone, program):
    paths = [
        anyone.own(write_numbers(anyone.folder / name, 128)) for name in ("one.bin", "two.bin")
    ]
    require_cachestat(paths[0])
    drop_from_cache(paths[0])
    # Five processes: 500 MB/s in all.
    done, _ = guarded_peak(anyone, paths, program, "tree", *paths, 4, 100)
    assert (done.stdout, done.guarded) == ("wrong 0\n", 2)
    assert done.run["summary"]["most_processes"] == 5
    assert done.released > 0
    for path in paths:
        path.unlink()


# nanoGPT's train.py, get_batch: "recreate np.memmap every batch to avoid a memory leak".
NANOGPT = """
import sys, time
import numpy as np

def read_bytes():
    with open("/proc/self/io") as file:
        return int(file.read().split("read_bytes: ")[1].split()[0])

random = np.random.default_rng(1)
total, before = 0, read_bytes()
for _ in range(int(sys.argv[2])):
    data = np.memmap(sys.argv[1], dtype=np.uint16, mode="r")
    for i in random.integers(len(data) - 1024, size=12):
        total += int(data[i : i + 1024].astype(np.int64).sum())
    now = read_bytes()
    time.sleep((now - before) / 400e6)
    before = now
print(total)
"""


def test_a_memmap_made_anew_for_each_batch_stays_within_the_budget(anyone, numbers):
    batches = 250
    done, _ = guarded_peak(anyone, [numbers], sys.executable, "-c", NANOGPT, numbers, batches)
    assert done.guarded >= 1
    data = np.memmap(numbers, dtype=np.uint16, mode="r")
    random = np.random.default_rng(1)
    expected = 0
    for _ in range(batches):
        for i in random.integers(len(data) - 1024, size=12):
            expected += int(data[i : i + 1024].astype(np.int64).sum())
    assert int(done.stdout) == expected
    del data


# Each shard fits the budget alone, and is unmapped before the next is mapped.
SHARDS = """
import sys, time
import numpy as np

total = 0
for path in sys.argv[1:]:
    data = np.memmap(path, dtype=np.uint64, mode="r")
    for begin in range(0, len(data), 1 << 20):
        total += int(data[begin : begin + (1 << 20)].sum())
        time.sleep(0.02)
    del data
print(total)
"""


def test_shards_that_are_mapped_one_after_another_stay_within_the_budget(anyone):
    shard_mib, count = 64, 6
    paths = [
        anyone.own(write_numbers(anyone.folder / f"shard{i}.bin", shard_mib)) for i in range(count)
    ]
    require_cachestat(paths[0])
    done, peak = guarded_peak(anyone, paths, sys.executable, "-c", SHARDS, *paths)
    words = shard_mib * MIB // 8
    assert int(done.stdout) == count * (words * (words - 1) // 2)
    assert done.guarded >= count
    assert peak.bytes > BUDGET / 2  # otherwise the test proves nothing
    assert done.peak >= BUDGET / 2, "the report misses what was cached"
    assert done.released >= count * shard_mib * MIB - limit_of(BUDGET)
    for path in paths:
        path.unlink()


@pytest.mark.parametrize("descriptor", ["open", "closed"])
def test_a_deleted_file_stays_within_the_budget(anyone, program, descriptor):
    """Only the program can open the file, so it reports how much was cached."""
    path = anyone.own(write_numbers(anyone.folder / "deleted.bin", 256))
    bound = within(limit_of(64 * MIB))
    done = guard(anyone, "64MiB", "--", program, "unlinked", path, descriptor, bound)
    most, wrong = done.stdout.splitlines()
    assert wrong == "wrong 0"
    assert done.guarded == 1
    assert int(most.split()[1]) <= limit_of(64 * MIB) + 32 * MIB  # changed pages are written first
    assert not path.exists()


def test_many_processes_stay_within_the_budget(anyone, program):
    """Readahead of all mappings together would exceed the budget."""
    count, budget = 16, 64 * MIB
    paths = [anyone.own(write_numbers(anyone.folder / f"many{i}.bin", 16)) for i in range(count)]
    script = " ".join(f"{program} scan {path} 16 &" for path in paths) + " wait"
    with CachePeak(*paths) as peak:
        done = guard(anyone, budget, "--", "sh", "-c", script)
    assert done.stdout == "wrong 0\n" * count
    assert done.guarded == count
    assert peak.share_above(limit_of(budget)) < 0.25, f"{peak.bytes / MIB:.0f} MiB at the peak"
    for path in paths:
        path.unlink()


def test_unguarded_the_same_scan_exceeds_the_budget(anyone, program, numbers):
    """Verifies that these checks fail if the budget is exceeded."""
    with open("/proc/meminfo") as file:
        available = int(file.read().split("MemAvailable:")[1].split()[0]) * 1024
    if available < 4 * FILE_MIB * MIB:
        pytest.skip("too little memory: the kernel itself may keep the page cache small")
    drop_from_cache(numbers)
    with CachePeak(numbers) as peak:
        guard(anyone, "1GiB", "--", program, "scan", numbers, 900)
    assert peak.bytes > 2 * limit_of(BUDGET)
    drop_from_cache(numbers)
    assert os.path.getsize(numbers) == FILE_MIB * MIB


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
