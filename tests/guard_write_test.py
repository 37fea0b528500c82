"""evenkeel guard on programs that write to mapped files: no byte is lost, even if it evicts often.

The budgets are the smallest that are allowed. The files that a program leaves are compared with
those that it leaves unguarded.
"""

import hashlib
import sys

import pytest
from guard_help import MIB, guard, plain, write_numbers

FILE_MIB = 32
BUDGET = "4MiB"


@pytest.fixture(scope="module")
def program(guard_program):
    return guard_program()


def fresh(anyone, name="written.bin", mib=FILE_MIB):
    path = anyone.folder / name
    path.unlink(missing_ok=True)
    return anyone.own(write_numbers(path, mib))


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def both_ways(anyone, command, mib=FILE_MIB, budget=BUDGET, options=()):
    """Runs `command(path)` on a fresh file unguarded and guarded. What was said, and the digest."""
    path = fresh(anyone, mib=mib)
    expected = plain(anyone, *command(path)), digest(path)
    # Every run must be right. On a busy machine, hardly anything may be released in a run. Such a
    # run proves little, so it is repeated.
    for _ in range(3):
        path = fresh(anyone, mib=mib)
        done = guard(anyone, budget, *options, "--", *command(path))
        assert (done.stdout, digest(path)) == expected
        assert "unmapped or replaced" not in done.stderr  # unmapping is not a failure of the guard
        path.unlink()
        if done.released > 2 * MIB:
            break
    assert done.guarded >= 1 and done.released > 2 * MIB, done.stderr
    return done.stdout, expected[1]


# ---- a program in C


@pytest.mark.parametrize("access", ["auto", "random"])
def test_private_and_shared_mixed_by_threads(anyone, program, access):
    said, _ = both_ways(
        anyone, lambda path: [program, "mix", path, 6000, 4], options=["--access", access]
    )
    assert said.endswith("wrong 0\n")


def test_a_program_that_maps_and_unmaps_while_the_governor_works(anyone, program):
    said, _ = both_ways(anyone, lambda path: [program, "remap", path, 150, 4], mib=48)
    assert said == "wrong 0\n"


def test_a_child_for_each_round(anyone, program):
    said, _ = both_ways(anyone, lambda path: [program, "forks", path, 200])
    assert said == "wrong 0\n"


def test_a_file_that_is_cut_under_it(anyone, program):
    """The program receives SIGBUS, as without the guard. The tool survives and reports it."""
    path = fresh(anyone)
    done = guard(anyone, BUDGET, "--", program, "shorten", path, code=128 + 7)
    assert done.stdout == "before the end: wrong 0\n"
    assert "killed by signal 7 (SIGBUS)" in done.stderr
    assert done.guarded == 1 and done.released > 0
    assert path.stat().st_size == FILE_MIB * MIB // 2
    path.unlink()


# ---- NumPy

WRITES = """
import sys, hashlib
import numpy as np

path, mode, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
words = {words}
data = np.memmap(path, dtype=np.uint64, mode=mode, shape=(words,))
# The expected contents.
truth = np.zeros(words, np.uint64) if mode == "w+" else np.arange(words, dtype=np.uint64)
random = np.random.default_rng(1)
for round in range(rounds):
    at, length = int(random.integers(words - 600)), int(random.integers(1, 600))
    value = np.uint64(random.integers(1 << 60))
    data[at : at + length] += value
    truth[at : at + length] += value
    look = int(random.integers(words - 600))
    assert (data[look : look + 600] == truth[look : look + 600]).all(), round
    if mode != "c" and round % 500 == 499:
        data.flush()
assert (data == truth).all()
print(hashlib.sha256(data).hexdigest())
"""


@pytest.mark.parametrize("mode", ["r+", "w+", "c"])
def test_a_written_memmap(anyone, mode):
    source = WRITES.replace("{words}", str(FILE_MIB * MIB // 8))
    untouched = digest(fresh(anyone))
    said, left = both_ways(anyone, lambda path: [sys.executable, "-c", source, path, mode, 2000])
    # Mode c does not change the file. The others leave what they wrote.
    assert left == (untouched if mode == "c" else said.strip())


RENAMED = """
import os, sys
import numpy as np

path, words = sys.argv[1], {words}
made = np.memmap(path + ".tmp", np.uint64, "w+", shape=words)
made[:] = np.arange(words)
del made
os.rename(path + ".tmp", path)
data = np.memmap(path, np.uint64, "r+")
for _ in range(20):
    data += np.uint64(1)
    print(data.sum())
"""


def test_a_file_that_is_renamed_after_it_was_written(anyone):
    """NumPy closes its descriptor, so the tool opens the file by its name."""
    source = RENAMED.replace("{words}", str(FILE_MIB * MIB // 8))
    path = anyone.folder / "renamed.bin"
    expected = plain(anyone, sys.executable, "-c", source, path), digest(path)
    path.unlink()
    done = guard(anyone, BUDGET, "--", sys.executable, "-c", source, path)
    assert (done.stdout, digest(path)) == expected
    path.unlink()
    assert done.guarded >= 1
    assert "cannot be opened" not in " ".join(done.stderr.split())  # the summary wraps its lines


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
