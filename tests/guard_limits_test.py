"""evenkeel guard with many files, mappings and processes: all are guarded, or a message names the
rest, at once and not only at the end."""

import resource
import shutil
import sys

import pytest
from guard_help import MIB, drop_from_cache, guard, limit_of, require_cachestat, write_numbers

SHARD = 64 << 10
BUDGET = 16 * MIB


@pytest.fixture(scope="module")
def program(guard_program):
    return guard_program()


@pytest.fixture(scope="module")
def numbers(anyone):
    return anyone.own(write_numbers(anyone.folder / "numbers.bin", 64))


@pytest.fixture
def shards(anyone, numbers):
    """A function that creates a number of files of 64 KiB of numbers."""
    folder = anyone.folder / "shards"
    folder.mkdir()
    content = numbers.read_bytes()[:SHARD]
    drop_from_cache(numbers)

    def make(count):
        for i in range(count):
            (folder / str(i)).write_bytes(content)
            drop_from_cache(folder / str(i))
        return folder

    yield make
    shutil.rmtree(folder)


def limit_open_files(soft, hard):
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def early_lines(done):
    """The output of the tool before its summary."""
    said = done.stderr.partition("\nguard: ")[0]
    return [line for line in said.splitlines() if line.startswith("evenkeel guard: ")]


def test_thousands_of_shards_stay_within_the_budget(anyone, program, shards):
    """More files than a process may open by default, all mapped by one process."""
    folder = shards(1500)
    require_cachestat(folder / "0")
    done = guard(
        *[anyone, BUDGET, "--min", "64KiB", "--", program, "shards", folder, 1500],
        preexec_fn=limit_open_files(1024, 8192),
    )
    assert (done.stdout, done.guarded) == ("wrong 0\n", 1500)
    assert early_lines(done) == []
    assert done.peak <= limit_of(BUDGET)
    assert done.released >= 2 * 1500 * SHARD - limit_of(BUDGET)


def test_files_that_are_gone_leave_room_for_others(anyone, program, numbers):
    drop_from_cache(numbers)
    done = guard(
        *[anyone, BUDGET, "--min", "64KiB", "--", program, "passing", anyone.folder, 20000, numbers]
    )
    assert done.stdout == "wrong 0\n"
    assert early_lines(done) == []
    assert done.guarded >= 1
    assert done.released >= 64 * MIB - limit_of(BUDGET)


def test_hundreds_of_processes_are_guarded(anyone, program, numbers):
    drop_from_cache(numbers)
    done = guard(anyone, BUDGET, "--", program, "crowd", numbers, 300)
    assert done.stdout == "wrong 0\n"
    assert early_lines(done) == []
    assert "note:" not in done.stderr


def test_files_beyond_the_hard_limit_are_named_at_once(anyone, program, shards):
    folder = shards(300)
    done = guard(
        *[anyone, BUDGET, "--min", "64KiB", "--", program, "shards", folder, 300],
        preexec_fn=limit_open_files(100, 100),
    )
    assert done.stdout == "wrong 0\n"
    (line,) = early_lines(done)
    assert "cannot be opened by the guard" in line
    assert "Too many open files; 100 are allowed, see ulimit -Hn" in line
    assert 1 <= done.guarded < 100


def test_the_command_keeps_its_own_limit(anyone):
    done = guard(
        *[anyone, BUDGET, "--", "sh", "-c", "ulimit -Sn; ulimit -Hn"],
        preexec_fn=limit_open_files(100, 200),
    )
    assert done.stdout == "100\n200\n"


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
