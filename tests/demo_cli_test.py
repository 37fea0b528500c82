"""evenkeel demo: its output, its files, and that it removes them."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from compare_help import ENGINES, MIB, check_picture, check_report, children_of
from profile_help import page_data, wait_for


def demo_files(user):
    return list(user.folder.glob("evenkeel-demo-*.f32"))


def test_demo_tells_the_story_and_cleans_up(user):
    report = user.json(
        "demo", "--size", "24MiB", "--budget", "4MiB", "--seconds", "0.1", "--dir", user.folder
    )
    assert report["size_bytes"] <= 24 * MIB
    assert [run["pattern"] for run in report["runs"]] == ["rows", "crops"]
    for run in report["runs"]:
        check_report(run, run["pattern"], ENGINES)
    assert not demo_files(user)


def test_demo_keeps_its_file_when_asked(user):
    done = user.run(
        *["demo", "--size", "4MiB", "--budget", "2MiB", "--seconds", "0"],
        *["--dir", user.folder, "--keep"],
    )
    (kept,) = demo_files(user)
    assert kept.stat().st_size % (162 * 4) == 0
    assert "The fastest engine within the budget" in done.stdout
    assert str(kept) in done.stderr
    kept.unlink()


def test_demo_into_a_pipe_that_closes_removes_its_file(user):
    tool = subprocess.Popen(
        user.command("demo", *TINY_DEMO, "--dir", user.folder),
        cwd=user.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert tool.stdout.readline()
    tool.stdout.close()  # like `| head -1`
    assert tool.wait(timeout=120) == 128 + signal.SIGPIPE
    assert not demo_files(user)


def test_demo_runs_within_the_smallest_budget(user):
    small = ["--size", "4MiB", "--budget", "1MiB", "--seconds", "0", "--limit", "0"]
    assert "failed" not in user.run("demo", *small, "--dir", user.folder).stdout


def test_demo_of_no_bytes_is_refused(user):
    assert "a file of 0 B" in user.run("demo", "--size", "0", code=1).stderr


def memory_cgroups(pid):
    folders = [Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")]
    return [path for folder in folders if (path := folder / f"evenkeel-{pid}").exists()]


def test_a_demo_that_is_killed_leaves_no_cgroup(user):
    if user.prefix or os.geteuid() != 0:
        pytest.skip("needs a user who may make memory cgroups")
    args = ["demo", "--size", "24MiB", "--budget", "4MiB", "--limit", "64MiB", "--seconds", "30"]
    demo = subprocess.Popen(
        user.command(*args, "--dir", user.folder, "-o", "killed.html"),
        cwd=user.folder,
        stderr=subprocess.PIPE,
    )
    try:
        wait_for(lambda: memory_cgroups(demo.pid) or demo.poll() is not None)
        if demo.poll() is not None:
            pytest.skip(f"no memory cgroups here: {demo.stderr.read()}")
    finally:
        demo.kill()
        demo.wait()
        demo.stderr.close()
    wait_for(lambda: not memory_cgroups(demo.pid))
    for left in demo_files(user):
        left.unlink()


def test_demo_refuses_what_the_disk_cannot_hold(user):
    message = user.run("demo", "--size", "8TiB", "--dir", user.folder, code=1).stderr
    assert "free" in message and "8 TiB" in message
    assert not demo_files(user)


TINY_DEMO = ["--size", "24MiB", "--budget", "4MiB", "--seconds", "0.1"]


def test_demo_draws_what_it_prints(user):
    page = user.folder / "demo.html"
    args = [*TINY_DEMO, "--dir", user.folder, "--json", "-o", page, "--svg", "demo.svg"]
    figures = json.loads(user.run("demo", *args).stdout)
    shown = next(run for run in figures["runs"] if run["pattern"] == "crops")
    check_picture(page_data(page), shown)
    assert (user.folder / "demo.svg").read_text().startswith("<svg")
    if user.prefix:  # no limit, because none was requested
        assert shown["memory_limit_bytes"] is None
    else:
        assert shown["memory_limit_bytes"] in (None, 16 * MIB)
    none = json.loads(user.run("demo", *args, "--limit", "0").stdout)
    assert all(run["memory_limit_bytes"] is None for run in none["runs"])


def test_demo_refuses_a_limit_that_cannot_be_had(user):
    if not user.prefix:
        pytest.skip("root may limit memory")
    done = user.run("demo", *TINY_DEMO, "--limit", "64MiB", "--dir", user.folder, code=1)
    assert done.stdout == "" and "limit memory by a cgroup" in done.stderr
    assert "hint: " in done.stderr and not demo_files(user)


def test_demo_refuses_a_page_that_cannot_be_written_before_it_works(user):
    done = user.run("demo", "--dir", user.folder, "-o", "missing/x.html", code=1)
    assert done.stdout == "" and "missing/x.html" in done.stderr
    assert not demo_files(user)


def test_demo_puts_its_page_where_it_can_and_says_where(user, monkeypatch):
    def page_of(folder):
        args = [*user.command("demo", *TINY_DEMO[:-1], "0", "--dir", user.folder)]
        done = subprocess.run(args, cwd=folder, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        (line,) = (line for line in done.stderr.splitlines() if line.startswith("picture: "))
        return Path(folder) / line.removeprefix("picture: ")

    here = page_of(user.folder)
    assert here == user.folder / "evenkeel-demo.html"
    assert len(page_data(here)["runs"]) == len(ENGINES)
    if not user.prefix and os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    monkeypatch.setenv("TMPDIR", str(user.folder))
    elsewhere = page_of("/usr")
    assert elsewhere.parent == user.folder and elsewhere.name.startswith("evenkeel-demo-")
    assert len(page_data(elsewhere)["runs"]) == len(ENGINES)
    elsewhere.unlink()


@pytest.mark.parametrize("when", ["writing", "comparing"])
def test_interrupted_demo_leaves_no_file(user, when):
    tool = subprocess.Popen(
        user.command("demo", "--size", "256MiB", "--seconds", "30", "--dir", user.folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: demo_files(user))
    if when == "comparing":
        wait_for(lambda: children_of(tool.pid))
    tool.send_signal(signal.SIGINT)
    assert tool.wait(timeout=120) == 128 + signal.SIGINT
    assert not demo_files(user)
