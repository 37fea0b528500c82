"""evenkeel profile of a running process, and where reports are written."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from profile_help import (
    MIB,
    page_data,
    profile,
    run_of,
    start,
    wait_for,
    watched,
)

pytestmark = pytest.mark.usefixtures("marks_checked")


def test_a_report_that_cannot_be_written_is_refused_before_the_command_runs(user):
    paths = ["missing/x.html", user.folder, "program.d/../x"]
    if user.prefix:
        paths.append("/usr/x.html")
    for path in paths:
        for option in ["-o", "--json", "--svg"]:
            done = user.run("profile", option, path, "--", "touch", "ran", code=1)
            assert str(path) in done.stderr and "hint: " in done.stderr
            assert done.stdout == ""
    assert not (user.folder / "ran").exists()


def test_a_full_disk_is_an_error_and_leaves_the_other_reports(user):
    if os.geteuid() == 0 and not user.prefix:
        pytest.skip("not with root's rights on a device")
    args = ["-o", "full.html", "--json", "/dev/full", "--svg", "full.svg"]
    done = user.run("profile", *args, "--", "true", code=1)
    assert "No space left" in done.stderr and "report: full.html" in done.stderr
    assert "JSON: " not in done.stderr
    assert page_data(user.folder / "full.html")["runs"][0]["ended"] == "exit code 0"
    assert (user.folder / "full.svg").read_text().rstrip().endswith("</svg>")
    user.run("profile", *args, "--", "sh", "-c", "exit 5", code=5)


def test_reports_are_written_though_nobody_reads_what_is_said(user):
    read_end, write_end = os.pipe()
    os.close(read_end)
    (user.folder / "unread.json").unlink(missing_ok=True)
    tool = start(user, "profile", "--json", "unread.json", "--", "true", stderr=write_end)
    os.close(write_end)
    tool.wait(timeout=120)
    assert run_of(user.folder / "unread.json")["ended"] == "exit code 0"


def test_the_page_is_made_where_nothing_else_is_named(user):
    page = user.folder / "evenkeel-profile.html"
    user.run("profile", "--json", "only.json", "--", "true")
    assert not page.exists()
    done = user.run("profile", "--", "true")
    assert "report: evenkeel-profile.html" in done.stderr and "next: evenkeel" in done.stderr
    assert page_data(page)["runs"][0]["command"] == ["true"]


def test_the_next_command_can_be_pasted(user):
    done = user.run("profile", "--json", "x.json", "--", "sh", "-c", "echo a; echo b")
    assert "-- sh -c 'echo a; echo b'\n" in done.stderr


def test_a_running_process_is_watched_for_so_many_seconds(user, data, running):
    process = running("anon", 64, "map", data)
    run, done = profile(user, "--pid", process.pid, "--seconds", 0.3)
    assert 0.3 <= run["seconds"] < 10
    assert run["ended"] == "still running" and run["command"] == []
    assert run["name"] == f"process {process.pid}"
    assert 64 * MIB <= run["summary"]["peak_bytes"]["anon"] < 72 * MIB
    assert run["summary"]["peak_bytes"]["pss"] > 0.9 * 64 * MIB
    assert watched(run) == {str(data)}
    assert process.poll() is None
    run, done = profile(user, "--pid", process.pid, "--seconds", 0.2, "--interval", "1000s")
    assert 0.2 <= run["seconds"] < 10  # not as long as the interval


def takes_signals(tool):
    """Whether the tool has its descriptor for signals. Others may close while they are listed."""
    for descriptor in Path(f"/proc/{tool.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if "signalfd" in os.readlink(descriptor):
                return True
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_watching_ends_by_a_signal_and_spares_the_process(user, running, number):
    process = running()
    report = user.folder / "watched.json"
    report.unlink(missing_ok=True)
    words = ["profile", "--pid", process.pid, "--json", report]
    tool = start(user, *words, stderr=subprocess.DEVNULL)
    wait_for(lambda: takes_signals(tool))
    time.sleep(0.05)
    tool.send_signal(number)
    assert tool.wait(timeout=120) == 0
    assert run_of(report)["ended"] == "still running"
    assert process.poll() is None


def test_watching_ends_with_the_process(user, running):
    process = running("anon", 32)
    report = user.folder / "watched.json"
    report.unlink(missing_ok=True)
    words = ["profile", "--pid", process.pid, "--json", report]
    tool = start(user, *words, stderr=subprocess.DEVNULL)
    wait_for(lambda: takes_signals(tool))
    time.sleep(0.3)
    process.kill()
    assert tool.wait(timeout=120) == 0
    run = run_of(report)
    assert run["ended"] == "ended"
    assert run["summary"]["peak_bytes"]["anon"] >= 32 * MIB


def test_a_process_that_is_not_there_is_an_error(user, running):
    process = running()
    process.kill()
    process.wait()
    done = user.run("profile", "--pid", process.pid, "--json", "x.json", code=1)
    assert f"process {process.pid}" in done.stderr and "No such process" in done.stderr


def test_of_a_strangers_process_the_unknown_is_said(user, running):
    if not user.prefix:
        pytest.skip("needs a user who is not root")
    process = running("anon", 32, prefix=[])  # owned by root
    run, done = profile(user, "--pid", process.pid, "--seconds", 0.1)
    assert run["summary"]["peak_bytes"]["anon"] >= 32 * MIB
    assert run["summary"]["peak_bytes"]["pss"] is None
    assert run["summary"]["peak_bytes"]["cache"] is None
    notes = " ".join(run["notes"])
    assert "Bytes read from disk are not known" in notes
    assert "Which files it has open or mapped is not known" in notes
    assert "page cache added unknown" in " ".join(done.stderr.split())


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
