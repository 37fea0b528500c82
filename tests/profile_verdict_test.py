"""evenkeel profile of Python programs: shared pages count once, and what the verdict says."""

import sys

import pytest
from profile_help import FILE_MIB, MIB, drop_from_cache, profile, write_data

# Ends when the profiler has taken more samples of all nine processes, however busy the machine is.
FORKING = """
import mmap, os, time
def samples():
    tasks = f"/proc/{os.getppid()}/task"
    fields = " ".join(open(f"{tasks}/{task}/status").read() for task in os.listdir(tasks)).split()
    return sum(int(n) for name, n in zip(fields, fields[1:]) if name == "voluntary_ctxt_switches:")
pages = mmap.mmap(-1, 96 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(pages), 4096):
    pages[at] = 1
go, wait = os.pipe()[::-1]
for _ in range(8):
    if os.fork() == 0:
        os.close(go)
        os.read(wait, 1)
        os._exit(0)
enough = samples() + 40
while samples() < enough:
    time.sleep(0.05)
"""


def test_pages_that_forked_children_share_count_once(anyone, monkeypatch):
    """Nine processes with 96 MiB that they share: RSS is their sum, memory is not."""
    monkeypatch.setenv("TMPDIR", str(anyone.folder))
    words = ["--budget", "400MiB", "--fail-over-budget", "--", sys.executable, "-c", FORKING]
    run, _ = profile(anyone, *words)
    assert run["summary"]["most_processes"] == 9
    peak = run["summary"]["peak_bytes"]
    assert peak["rss"] > 8 * 96 * MIB
    assert 96 * MIB <= peak["memory"] < 300 * MIB
    assert peak["anon"] < 200 * MIB


@pytest.mark.alone
def test_a_climb_is_told_and_the_page_cache_contains_the_mapped_pages(anyone, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(anyone.folder))
    data = write_data(anyone)
    drop_from_cache(data)
    climb = """
import mmap, sys, time
with open(sys.argv[1], "rb") as file:
    pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
for at in range(0, len(pages), 4096):
    pages[at]
    if at % (1 << 20) == 0:
        time.sleep(0.005)
time.sleep(1)
"""
    run, done = profile(anyone, "--", sys.executable, "-c", climb, data)
    trend = run["summary"]["trend"]
    assert trend.startswith("climbed ") and trend.endswith(", then flat")
    assert trend in " ".join(done.stderr.split())
    assert "file pages, which the kernel can take back" in " ".join(done.stderr.split())
    assert "next: evenkeel guard --budget 64MiB -- " in done.stderr
    samples = run["samples"]
    assert max(samples["file"]) >= FILE_MIB * MIB
    lower = [
        seconds
        for seconds, file, cache in zip(
            samples["seconds"], samples["file"], samples["cache"], strict=True
        )
        if cache + 32 * MIB < file  # programs and libraries are mapped, and not watched
    ]
    assert not lower
    assert [limit["name"] for limit in run["summary"]["limits"]] == [
        "RSS limit",
        "cgroup limit",
        "node eviction",
    ]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
