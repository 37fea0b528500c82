"""evenkeel profile measures correctly what a program holds, reads and marks at each step."""

import json
import shutil
import statistics
import subprocess
import sys
import time

import pytest
from profile_help import (
    FILE_MIB,
    MIB,
    drop_from_cache,
    page_data,
    profile,
    watched,
)

pytestmark = pytest.mark.usefixtures("marks_checked")


def plateau(run, name, column):
    """The median of the second half of a `hold`. In the first half, a child may still work."""
    at = {mark["text"]: mark["seconds"] for mark in run["marks"]}
    begin, end = at[f"{name} begin"], at[f"{name} end"]
    begin = (begin + end) / 2
    wanted = [
        value
        for seconds, value in zip(run["samples"]["seconds"], run["samples"][column], strict=True)
        if begin <= seconds < end - 0.01
    ]
    assert wanted, f"no sample during {name}"
    return statistics.median(wanted)


def check_steps(run, steps):
    base = {kind: plateau(run, "start", kind) for kind in ("anon", "file", "shmem")}
    assert sum(base.values()) < 8 * MIB
    for name, (_, anon, file, shmem, processes) in steps.items():
        for kind, mib in (("anon", anon), ("file", file), ("shmem", shmem)):
            # 1 MiB: a process has stacks, libraries and a heap of its own.
            own = (processes - 1) * MIB
            seen = plateau(run, name, kind) - base[kind]
            assert seen == pytest.approx(mib * MIB, rel=0.02, abs=own + 65536), (name, kind)
        assert plateau(run, name, "processes") == processes, name


@pytest.mark.alone
def test_the_curve_is_the_truth_at_each_step(user, program, data):
    steps = {  # name: what is done, then anon, file, shmem (MiB above the start) and processes
        "start": ([], 0, 0, 0, 1),
        "anon": (["anon", 64], 64, 0, 0, 1),
        "more": (["anon", 32], 96, 0, 0, 1),
        "less": (["free"], 64, 0, 0, 1),
        "half": (["map", data, "touch", FILE_MIB // 2], 64, FILE_MIB // 2, 0, 1),
        "whole": (["touch", FILE_MIB], 64, FILE_MIB, 0, 1),
        "shared": (["shared", 48], 64, FILE_MIB, 48, 1),
        # A child of fork also has its parent's private pages, which count for both.
        "child": (["child", 32], 64 + 32, FILE_MIB, 48, 2),  # shared memory counts once
        "second": (["child", 32], 64 + 2 * 32, FILE_MIB, 48, 3),
        "one left": (["end"], 64 + 32, FILE_MIB, 48, 2),
        "alone": (["end"], 64, FILE_MIB, 48, 1),
    }
    data.read_bytes()  # cached, so that it is known how many pages the kernel maps for a fault
    words = []
    for name, (work, *_) in steps.items():
        words += [*work, "hold", name, 300]
    # A process that starts or ends during a sample may be missing from it. At least one of these
    # runs must be completely right.
    for attempt in range(3):
        run, _ = profile(user, "--files", data, "--", program, *words)
        try:
            check_steps(run, steps)
            break
        except AssertionError:
            if attempt == 2:
                raise
    assert run["summary"]["most_processes"] == 3
    assert run["ended"] == "exit code 0"


def counted(run, data):
    """What the program itself counted as cached, each time."""
    texts = [mark["text"] for mark in run["marks"]]
    found = [text.rpartition(" ")[2] for text in texts if text.startswith(f"{data} cached ")]
    return [int(count) for count in found]


@pytest.mark.alone
def test_the_page_cache_of_a_file_is_the_truth_at_each_step(user, program, data):
    drop_from_cache(data)
    count = ["cached", data]
    run, _ = profile(
        *[user, "--files", data, "--", program, "hold", "start", 150],
        *["read", data, FILE_MIB // 2, *count, "hold", "half", 800, *count],
        *["read", data, FILE_MIB, *count, "hold", "whole", 800, *count],
    )
    (file,) = run["files"]
    assert (file["path"], file["size_bytes"]) == (str(data), FILE_MIB * MIB)
    if file["cached_before_bytes"] != 0:
        pytest.skip("this filesystem keeps what is to be dropped")
    assert plateau(run, "start", "cache") == 0
    # Pages that are read ahead arrive later, and the kernel may evict some at any time. So the
    # program counts them, too: before and after.
    half_begin, half_end, whole_begin, whole_end = counted(run, data)
    least_half, most_half = sorted([half_begin, half_end])
    least, most = sorted([whole_begin, whole_end])
    assert 0.98 * least_half <= plateau(run, "half", "cache") <= 1.02 * most_half
    assert 0.98 * least <= plateau(run, "whole", "cache") <= 1.02 * most
    # The kernel reads ahead at most this far.
    ahead = json.loads((user.folder / "profile.json").read_text())["machine"]["readahead_bytes"]
    assert most_half <= 1.02 * FILE_MIB / 2 * MIB + (ahead or 16 * MIB)
    assert FILE_MIB / 4 * MIB < most_half < most
    assert plateau(run, "whole", "file") < 8 * MIB  # read, not mapped
    assert run["summary"]["disk_read_bytes"] >= 0.98 * FILE_MIB * MIB


def test_what_was_cached_before_does_not_count(user, program, data):
    data.read_bytes()
    run, _ = profile(user, "--files", data, "--", program, "read", data, FILE_MIB)
    # The kernel may have reclaimed a page.
    assert run["files"][0]["cached_before_bytes"] == pytest.approx(FILE_MIB * MIB, rel=0.02)
    assert run["summary"]["peak_bytes"]["cache"] < 0.02 * FILE_MIB * MIB


def test_figures_agree_with_memory_profiler(user, program, data):
    memory_profiler = pytest.importorskip("memory_profiler")
    words = ["anon", 96, "map", data, "touch", FILE_MIB, "shared", 32, "sleep", 400]
    run, _ = profile(user, "--", program, *words)
    other = subprocess.Popen([*user.prefix, program, *map(str, words)])
    theirs = memory_profiler.memory_usage(other, interval=0.01, max_usage=True) * MIB
    assert other.wait() == 0
    assert run["summary"]["peak_bytes"]["rss"] == pytest.approx(theirs, rel=0.02)


def test_a_process_between_two_samples_is_in_the_counters(user, program):
    words = ["child", 64, "end", "sleep", 100]
    run, _ = profile(user, "--interval", "20s", "--", program, *words)
    assert len(run["samples"]["seconds"]) < 5
    assert run["summary"]["minor_faults"] >= 64 * MIB / 4096


def test_marks_have_the_times_at_which_they_were_made(user, program):
    words = ["mark", "first", "sleep", 250, "mark", "<b>&</b> second", "sleep", 50]
    before = time.monotonic()
    run, _ = profile(user, "--", program, *words)
    took = time.monotonic() - before
    first, second = run["marks"]
    assert (first["text"], second["text"]) == ("first", "<b>&</b> second")
    assert 0.25 <= second["seconds"] - first["seconds"] <= run["seconds"]
    assert 0 <= first["seconds"] and second["seconds"] + 0.05 <= run["seconds"] <= took


def test_marks_beyond_a_thousand_are_left_out_and_it_is_said(user, program):
    run, done = profile(user, "--", program, "marks", 1200)
    assert [mark["text"] for mark in run["marks"]] == [str(i) for i in range(1, 1001)]
    (note,) = (note for note in run["notes"] if "marks" in note)
    assert "200 marks were left out" in note and "1,000" in note
    assert "200 marks were left out" in done.stderr


def test_files_that_are_mapped_or_open_are_found(user, program, data):
    opened = user.write("opened.bin", bytes(2 * MIB))
    small = user.write("small.bin", bytes(1000))
    words = ["map", data, "open", opened, "open", small, "sleep", 300]
    run, _ = profile(user, "--", program, *words)
    assert watched(run) == {str(data), str(opened)}  # and no libraries


def test_files_named_by_patterns_are_all_that_is_watched(user, program, data):
    for name in ["a.part", "b.part"]:
        user.write(name, bytes(MIB))
    run, _ = profile(
        *[user, "--files", "[ab].part", "--files", "[x]"],
        *["--", program, "map", data, "sleep", 200],
    )
    assert watched(run) == {"a.part", "b.part"}
    run, done = profile(user, "--files", "nothing-*", "--", program, "map", data, "sleep", 100)
    assert watched(run) == set()
    assert any("matched" in note for note in run["notes"])
    assert "No file matched" in done.stderr


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a\nb", " blank  s ", "\\012", 'q"'])
def test_odd_names_stay_what_they_are(user, program, name):
    folder = user.folder / "odd" / name
    folder.mkdir(parents=True)
    path = folder / f"{name.replace('/', '_')}.bin"
    path.write_bytes(bytes(2 * MIB))
    page, picture = user.folder / "odd.html", user.folder / "odd.svg"
    try:
        args = ["-o", page, "--svg", picture, "--", program, "mark", name.split("\n")[0]]
        run, _ = profile(user, *args, "map", path, "sleep", 200)
    finally:
        shutil.rmtree(user.folder / "odd")
    assert watched(run) == {str(path)}
    assert run["command"][-3] == str(path)
    assert page_data(page)["runs"][0] == run
    assert "<script>alert" not in page.read_text() and "<script>alert" not in picture.read_text()


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
