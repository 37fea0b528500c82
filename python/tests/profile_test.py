"""Memory of this process over time."""

import csv
import json
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest

import evenkeel

MIB = 1 << 20


@pytest.mark.not_emulated("its /proc/self/stat has no page faults")
def test_peaks_are_those_of_the_block(folder):
    before = np.ones(8 * MIB, "u1")
    with evenkeel.profile() as small:
        pass
    for seconds in (0.05, 0.5, 5):  # on a busy machine, the recording thread may come late
        with evenkeel.profile() as large:
            block = np.ones(64 * MIB, "u1")
            time.sleep(seconds)
            del block
        grown = large.peaks["anon"] - small.peaks["anon"]
        if grown > 60 * MIB:
            break
    assert 60 * MIB < grown < 90 * MIB
    for name in ("memory", "rss", "anon", "file", "shmem", "page_tables", "swap", "cache", "pss"):
        assert name in large.peaks
    assert large.peaks["memory"] >= large.peaks["anon"]
    assert large.seconds > 0 and large.slope is None  # too short for one
    assert set(large.slopes) == {"memory", "rss", "anon"}
    assert large.counters["minor_faults"] > 0
    del before


def test_rising_memory_has_a_slope(folder):
    held = []
    with evenkeel.profile(interval=0.005) as p:
        for _ in range(110):
            held.append(np.ones(MIB, "u1"))
            time.sleep(0.01)
    assert p.slope > 100 * MIB  # 100 a second, or fewer where the machine is busy
    assert p.slopes["anon"] > 100 * MIB


def test_a_block_that_does_not_let_go_of_the_interpreter_is_seen(folder):
    """The recording thread does not need it."""
    with evenkeel.profile(interval=0.001) as p:
        sorted(range(3_000_000), key=lambda x: -x)
    p.report("p.json")
    run = json.loads(Path("p.json").read_text())["runs"][0]
    assert len(run["samples"]["seconds"]) > 20


def test_the_verdict_names_the_budget(folder):
    with evenkeel.profile(budget="1MiB") as over:
        time.sleep(0.02)
    with evenkeel.profile(budget=evenkeel.Budget("1TiB")) as within:
        pass
    assert "exceeded the budget of 1 MiB" in repr(over)
    assert over.counters["seconds_over_budget"] > 0
    assert "stayed within the budget of 1 TiB" in repr(within)


def test_reports_by_their_suffix(folder):
    with evenkeel.profile() as p:
        evenkeel.mark("<here> & there")
    for name in ("a.html", "a.svg", "a.json", "a.csv", "A.HTML"):
        p.report(name)
    p.report(folder / "b.json")
    assert (
        Path("a.html").read_text().startswith("<!doctype html>")
        or "<html" in Path("a.html").read_text()
    )
    assert Path("a.svg").read_text().lstrip().startswith("<svg")
    report = json.loads(Path("a.json").read_text())
    assert report["evenkeel"] == evenkeel.__version__
    assert report["runs"][0]["marks"][0]["text"] == "<here> & there"
    rows = list(csv.DictReader(Path("a.csv").open()))
    assert len(rows) == len(report["runs"][0]["samples"]["anon"]) > 0
    with pytest.raises(ValueError, match="is not one of .html, .svg, .json, .csv"):
        p.report("a.pdf")
    with pytest.raises(FileNotFoundError):
        p.report("no/such/folder/a.html")


def test_shown_in_a_notebook_without_scripts(folder):
    with evenkeel.profile() as p:
        pass
    shown = p._repr_html_()
    assert "<script" not in shown and "<style" not in shown
    assert re.search(r'<img [^>]*src="data:image/svg\+xml;base64,[A-Za-z0-9+/=]+"', shown)
    for kind in p.peaks:
        assert f"<td>{kind}</td>" in shown


def test_marks_go_to_all_that_are_under_way(folder):
    evenkeel.mark("to nobody")
    with evenkeel.profile() as outer:
        evenkeel.mark("one")
        with evenkeel.profile() as inner:
            evenkeel.mark("two")
        evenkeel.mark("three\nlines")
    assert [text for _, text in outer.marks] == ["one", "two", "three lines"]
    assert [text for _, text in inner.marks] == ["two"]
    assert all(0 <= at <= outer.seconds for at, _ in outer.marks)


def test_marks_beyond_a_thousand_are_counted(folder):
    with evenkeel.profile() as p:
        for n in range(1003):
            evenkeel.mark(str(n))
    assert len(p.marks) == 1000
    assert any("3 marks were left out" in note for note in p.notes)


def test_marks_reach_a_profiler_outside(folder, python):
    Path("marks").touch()
    python("import evenkeel; evenkeel.mark('epoch 2')", EVENKEEL_MARKS=str(folder / "marks"))
    nanoseconds, pid, text = Path("marks").read_text().split(" ", 2)
    assert int(nanoseconds) > 0 and int(pid) > 0 and text == "epoch 2\n"


def test_as_a_decorator(folder):
    @evenkeel.profile(budget="1TiB", interval=0.002)
    def work(x, *, y):
        """Adds."""
        evenkeel.mark(f"x is {x}")
        return x + y

    assert work.__name__ == "work" and work.__doc__ == "Adds."
    assert work(1, y=2) == 3 and work(3, y=4) == 7
    assert [text for _, text in work.profile.marks] == ["x is 3"]

    @evenkeel.profile()
    def fails():
        raise KeyError("x")

    with pytest.raises(KeyError):
        fails()
    fails.profile.report("p.json")
    run = json.loads(Path("p.json").read_text())["runs"][0]
    assert run["ended"] == "raised KeyError" and run["name"].endswith("fails")


def test_files_that_are_named_are_watched(folder):
    np.zeros(4 * MIB, "u1").tofile("data.bin")
    with open("data.bin", "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with evenkeel.profile(files="*.bin") as p:
        Path("data.bin").read_bytes()
    p.report("p.json")
    run = json.loads(Path("p.json").read_text())["runs"][0]
    assert [Path(file["path"]).name for file in run["files"]] == ["data.bin"]
    assert run["files"][0]["size_bytes"] == 4 * MIB


def test_when_nothing_was_recorded(folder):
    p = evenkeel.profile()
    with pytest.raises(ValueError, match="has not recorded yet"):
        p.peaks  # noqa: B018
    with p:
        with pytest.raises(ValueError, match="still recording"):
            p.report("x.html")
        with pytest.raises(ValueError, match="recording already"):
            p.__enter__()
        assert repr(p) == "<evenkeel.profile, recording>"
    first = p.seconds
    with p:  # a second recording
        time.sleep(0.01)
    assert p.seconds != first
    for interval in (0, -1, 1e9, float("nan")):
        with pytest.raises(ValueError, match="interval"):
            with evenkeel.profile(interval=interval):
                pass


def test_a_child_of_fork_has_none(folder, python):
    said = python("""
        import os, evenkeel
        p = evenkeel.profile()
        with p:
            if os.fork() == 0:
                evenkeel.mark("lost")
                p.__exit__(None, None, None)
                try:
                    p.peaks
                except ValueError as error:
                    print("began it" in str(error), flush=True)
                os._exit(0)
            os.wait()
            evenkeel.mark("kept")
        print([text for _, text in p.marks])
        """)
    assert said == "True\n['kept']\n"


def test_a_child_of_fork_leaves_the_block_with_its_own_exit_code(folder, python):
    said = python("""
        import os, sys, evenkeel
        with evenkeel.profile():
            child = os.fork()
            if child == 0:
                sys.exit(7)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """)
    assert said == "7\n"


def test_arguments_of_a_wrong_type_are_named():
    with pytest.raises(TypeError, match="hint: write @evenkeel.profile"):

        @evenkeel.profile
        def work():
            pass

    with pytest.raises(TypeError, match="interval, in seconds, must be a number; got 'a'"):
        evenkeel.profile(interval="a")
    with pytest.raises(TypeError, match="pass a string.*; got 3"):
        evenkeel.mark(3)
