"""evenkeel profile as a user meets it: it says what a program held, and is not in its way.

The program is profile_program.cc, which does what its words say.
"""

import fcntl
import json
import os
import pty
import select
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

MIB = 1 << 20
FILE_MIB = 64
NOBODY = 65534


@pytest.fixture(scope="module")
def program(user):
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if not compiler:
        pytest.skip("no C++ compiler: the program cannot be made")
    path = user.folder / "program"
    source = Path(__file__).with_name("profile_program.cc")
    subprocess.run([compiler, "-std=c++20", "-O1", source, "-o", path], check=True)
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def data(user):
    path = user.write("data.bin", os.urandom(MIB) * FILE_MIB)
    with open(path) as file:
        os.fsync(file.fileno())
    return path


@pytest.fixture(autouse=True)
def no_file_of_marks_stays(user, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(user.folder))
    yield
    assert not list(user.folder.glob("evenkeel-marks-*"))


def run_of(path):
    (run,) = json.loads(path.read_text())["runs"]
    lengths = {len(column) for column in run["samples"].values()}
    assert len(lengths) == 1
    return run


def profile(user, *args, code=0, **kwargs):
    """Runs it with --json, and returns the run and what was said."""
    report = user.folder / "profile.json"
    report.unlink(missing_ok=True)
    done = user.run("profile", "--json", report, *args, code=code, **kwargs)
    return run_of(report), done


def start(user, *args, **kwargs):
    return subprocess.Popen(user.command(*args), cwd=user.folder, **kwargs)


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError("waited in vain")


# ---- what it measures


def plateau(run, name, column):
    """The middle value between the marks of a `hold`, without the moments around them."""
    at = {mark["text"]: mark["seconds"] for mark in run["marks"]}
    begin, end = at[f"{name} begin"], at[f"{name} end"]
    wanted = [
        value
        for seconds, value in zip(run["samples"]["seconds"], run["samples"][column], strict=True)
        if begin <= seconds < end - 0.01
    ]
    assert wanted, f"no sample during {name}"
    return statistics.median(wanted)


def drop_from_cache(path):
    with open(path) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


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
        # A child of fork has its parent's private pages as well: each counts for both.
        "child": (["child", 32], 64 + (64 + 32), FILE_MIB, 48, 2),
        "second": (["child", 32], 64 + 2 * (64 + 32), FILE_MIB, 48, 3),
        "one left": (["end"], 64 + (64 + 32), FILE_MIB, 48, 2),
        "alone": (["end"], 64, FILE_MIB, 48, 1),
    }
    data.read_bytes()  # how far the kernel maps around a fault is known for cached pages alone
    words = []
    for name, (work, *_) in steps.items():
        words += [*work, "hold", name, 150]
    run, _ = profile(user, "--files", data, "--", program, *words)
    base = {kind: plateau(run, "start", kind) for kind in ("anon", "file", "shmem")}
    assert sum(base.values()) < 8 * MIB
    for name, (_, anon, file, shmem, processes) in steps.items():
        for kind, mib in (("anon", anon), ("file", file), ("shmem", shmem)):
            # 1 MiB: a process has stacks, libraries and a heap of its own.
            own = (processes - 1) * MIB
            seen = plateau(run, name, kind) - base[kind]
            assert seen == pytest.approx(mib * MIB, rel=0.02, abs=own + 65536), (name, kind)
        assert plateau(run, name, "processes") == processes, name
    assert run["summary"]["most_processes"] == 3
    assert run["ended"] == "exit code 0"


@pytest.mark.alone
def test_the_page_cache_of_a_file_is_the_truth_at_each_step(user, program, data):
    drop_from_cache(data)
    run, _ = profile(
        *[user, "--files", data, "--", program, "hold", "start", 150],
        *["read", data, FILE_MIB // 2, "hold", "half", 800, "read", data, FILE_MIB],
        *["hold", "whole", 800],
    )
    (file,) = run["files"]
    assert (file["path"], file["size_bytes"]) == (str(data), FILE_MIB * MIB)
    if file["cached_before_bytes"] != 0:
        pytest.skip("this filesystem keeps what is to be dropped")
    assert plateau(run, "start", "cache") == 0
    # The kernel reads ahead of who reads, at most this far.
    ahead = json.loads((user.folder / "profile.json").read_text())["machine"]["readahead_bytes"]
    half = plateau(run, "half", "cache")
    assert 0.98 * FILE_MIB / 2 * MIB <= half <= 1.02 * FILE_MIB / 2 * MIB + (ahead or 16 * MIB)
    assert plateau(run, "whole", "cache") == pytest.approx(FILE_MIB * MIB, rel=0.02)
    assert plateau(run, "whole", "file") < 8 * MIB  # read, not mapped
    assert run["summary"]["disk_read_bytes"] >= 0.98 * FILE_MIB * MIB


def test_what_was_cached_before_does_not_count(user, program, data):
    data.read_bytes()
    run, _ = profile(user, "--files", data, "--", program, "read", data, FILE_MIB)
    # The kernel may have taken a page back.
    assert run["files"][0]["cached_before_bytes"] == pytest.approx(FILE_MIB * MIB, rel=0.02)
    assert run["summary"]["peak_bytes"]["cache"] < 0.02 * FILE_MIB * MIB


@pytest.mark.alone
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


# ---- files


def watched(run):
    return {file["path"] for file in run["files"]}


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


def page_data(path):
    """The JSON inside a page, as a browser finds it: up to the first end of a script."""
    text = path.read_text()
    begin = text.index(">", text.index('<script type="application/json" id="data"')) + 1
    return json.loads(text[begin : text.index("</script", begin)])


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


# ---- the command is its own


@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_exit_code_is_the_commands(user, program, code):
    run, _ = profile(user, "--", program, "exit", code, code=code)
    assert run["ended"] == f"exit code {code}"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_command_that_was_killed_is_128_and_the_signal(user, program, number):
    run, _ = profile(user, "--", program, "sleep", 50, "die", int(number), code=128 + number)
    assert run["ended"] == f"killed by signal {int(number)} ({number.name})"
    assert any("out-of-memory" in note for note in run["notes"]) == (number == signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal_to_the_tool_reaches_the_command_once(user, program, number):
    words = ["await", str(int(number)), "exit", "7"]
    tool = start(
        *[user, "profile", "--json", "profile.json", "--", program, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert tool.stdout.readline() == b"waiting\n"
    tool.send_signal(number)
    assert tool.stdout.read() == f"signal {int(number)} came 1\n".encode()
    assert tool.wait(timeout=20) == 7
    assert run_of(user.folder / "profile.json")["ended"] == "exit code 7"


def test_a_command_that_does_not_handle_a_signal_dies_of_it(user, program):
    tool = start(
        *[user, "profile", "--json", "profile.json", "--", program, "say", "on", "sleep", "60000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert tool.stdout.readline() == b"on\n"
    tool.terminate()
    assert tool.wait(timeout=20) == 128 + signal.SIGTERM
    assert run_of(user.folder / "profile.json")["ended"] == "killed by signal 15 (SIGTERM)"


def test_a_tool_that_was_told_to_ignore_its_children_still_sees_them_end(user, program):
    def ignore_children():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    profile(user, "--", program, "exit", 7, code=7, preexec_fn=ignore_children)
    words = ["grep", "SigIgn", "/proc/self/status"]
    _, done = profile(user, "--", *words, preexec_fn=ignore_children)
    ignored = int(done.stdout.split()[1], 16)
    assert ignored & 1 << (signal.SIGCHLD - 1)  # the command begins as without us


def test_input_and_output_pass_through_unchanged(user):
    sent = os.urandom(3 * MIB)
    tool = start(
        *[user, "profile", "--json", "profile.json", "--", "sh", "-c", "cat; echo oops >&2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = tool.communicate(sent, timeout=60)
    assert tool.returncode == 0
    assert out == sent
    assert err.startswith(b"oops\n") and b"\033" not in err and b"\r" not in err


def test_the_words_of_the_command_pass_unchanged(user):
    words = ["[1,2]", "[]", "{}", "", "'q'", '"', "%%", "-", "--", "-o", "--json", "a b", "n\nl"]
    words += ["info", "++", "-h", "$HOME", "*"]
    run, done = profile(user, "--", "printf", "%s\\0", *words)
    assert done.stdout.split("\0")[:-1] == words
    assert run["command"] == ["printf", "%s\\0", *words]


def test_a_command_that_dies_at_once_is_reported(user):
    run, _ = profile(user, "--", "true")
    assert run["ended"] == "exit code 0"
    assert run["samples"]["seconds"]
    run, _ = profile(user, "--", "false", code=1)
    assert run["ended"] == "exit code 1"


def test_a_command_that_is_not_there_is_127_and_one_that_may_not_run_126(user, monkeypatch):
    locked = user.folder / "locked"
    locked.mkdir(mode=0, exist_ok=True)
    monkeypatch.setenv("PATH", f"{locked}:{os.environ['PATH']}")
    plain = user.write("plain.txt", b"no program\n")
    for command, code in [("no-such-command", 127), ("/no/such", 127), (plain, 126), ("/", 126)]:
        done = user.run("profile", "--json", "never.json", "--", command, code=code)
        assert f'cannot run "{command}"' in done.stderr
        assert done.stdout == ""
    assert not (user.folder / "never.json").exists()


def test_processes_that_outlive_the_command_are_told(user, program):
    script = f"{program} sleep 700 & sleep 0.2"
    run, _ = profile(user, "--", "sh", "-c", script, stdin=subprocess.DEVNULL)
    assert "1 of its processes outlived the command." in run["notes"]


# ---- where reports go


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
    tool.wait(timeout=20)
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


# ---- a process that runs already


@pytest.fixture
def running(user, program):
    """Starts the program as the user; ends it with the test."""
    started = []

    def run(*words, prefix=user.prefix):
        command = [*prefix, program, *map(str, words), "say", "on", "sleep", "60000"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout.readline() == b"on\n"
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_watching_ends_by_a_signal_and_spares_the_process(user, running, number):
    process = running()
    report = user.folder / "watched.json"
    report.unlink(missing_ok=True)
    words = ["profile", "--pid", process.pid, "--json", report]
    tool = start(user, *words, stderr=subprocess.DEVNULL)
    # Its descriptor says that it takes signals in.
    fds = Path(f"/proc/{tool.pid}/fd")
    wait_for(lambda: any("signalfd" in os.readlink(fd) for fd in fds.iterdir()))
    time.sleep(0.05)
    tool.send_signal(number)
    assert tool.wait(timeout=20) == 0
    assert run_of(report)["ended"] == "still running"
    assert process.poll() is None


def test_watching_ends_with_the_process(user, running):
    process = running("anon", 32)
    report = user.folder / "watched.json"
    report.unlink(missing_ok=True)
    words = ["profile", "--pid", process.pid, "--json", report]
    tool = start(user, *words, stderr=subprocess.DEVNULL)
    time.sleep(0.3)
    process.kill()
    assert tool.wait(timeout=20) == 0
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
    process = running("anon", 32, prefix=[])  # root's
    run, done = profile(user, "--pid", process.pid, "--seconds", 0.1)
    assert run["summary"]["peak_bytes"]["anon"] >= 32 * MIB
    assert run["summary"]["peak_bytes"]["pss"] is None
    assert run["summary"]["peak_bytes"]["cache"] is None
    notes = " ".join(run["notes"])
    assert "Bytes read from disk are not known" in notes
    assert "Which files it has open or mapped is not known" in notes
    assert "page cache added unknown" in " ".join(done.stderr.split())


# ---- yes or no


def test_over_the_budget_is_3_and_within_it_0(user, program):
    words = ["--fail-over-budget", "--", program, "anon", 64, "sleep", 100]
    _, done = profile(user, "--budget", "32MiB", *words, code=3)
    assert "over budget: " in done.stderr and "33,554,432 allowed" in done.stderr
    run, done = profile(user, "--budget", "256MiB", *words)
    assert "stayed within the budget of 256 MiB" in done.stderr
    assert run["summary"]["seconds_over_budget"] == 0
    run, done = profile(user, "--budget", "32MiB", "--", program, "anon", 64, "sleep", 100)
    assert "went over the budget of 32 MiB" in done.stderr  # said, though nobody asked to fail
    assert run["summary"]["seconds_over_budget"] > 0.05


@pytest.mark.alone
def test_a_rising_program_is_3_and_a_flat_one_0(user, program):
    rising = ["--", program, "grow", 1, 130]
    _, done = profile(user, "--fail-slope", "64MiB/min", *rising, code=3)
    assert "rising: " in done.stderr and "64 MiB allowed" in done.stderr
    profile(user, "--fail-slope", "1TiB/s", *rising)
    profile(user, "--fail-slope", "1MiB/min", "--", program, "anon", 64, "sleep", 1300)


def test_a_run_too_short_to_tell_its_slope_is_3(user):
    _, done = profile(user, "--fail-slope", "1MiB/min", "--", "true", code=3)
    assert "cannot be told" in done.stderr and "hint: " in done.stderr


def test_the_commands_own_failure_comes_before_the_check(user, program):
    words = ["--", program, "anon", 64, "sleep", 50, "exit", 9]
    _, done = profile(user, "--budget", "1MiB", "--fail-over-budget", *words, code=9)
    assert "over budget: " in done.stderr


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--"],
        ["--budget", "1GiB"],
        ["--budget", "much", "--", "true"],
        ["--fail-over-budget", "--", "true"],
        ["--fail-slope", "1MiB", "--", "true"],
        ["--fail-slope", "-1MiB/min", "--", "true"],
        ["--fail-slope", "/min", "--", "true"],
        ["--interval", "0", "--", "true"],
        ["--interval", "10", "--", "true"],
        ["--interval", "-5ms", "--", "true"],
        ["--interval", "nanms", "--", "true"],
        ["--interval", "1us", "--", "true"],
        ["--interval", "2h", "--", "true"],
        ["--pid", "1", "--", "true"],
        ["--pid", "0"],
        ["--pid", "-1"],
        ["--pid", "4294967297"],  # 1, in 32 bits
        ["--pid", "self"],
        ["--seconds", "1", "--", "true"],
        ["--pid", "1", "--seconds", "nan"],
        ["--pid", "1", "--seconds", "0"],
        ["--nonsense", "--", "true"],
        ["true", "--nonsense"],
    ],
)
def test_wrong_calls_exit_2_and_run_nothing(user, args):
    args = ["touch" if word == "true" else word for word in args]
    done = user.run("profile", *args, *(["ran"] if "touch" in args else []), code=2)
    assert done.stdout == "" and done.stderr.startswith("evenkeel: ")
    assert not (user.folder / "ran").exists()


# ---- on a terminal


class Terminal:
    """The tool with a terminal of its own."""

    def __init__(self, user, *args):
        self.end, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))

        def take_terminal():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.tool = start(
            *[user, "profile", "--json", "profile.json", *args],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        os.close(inner)
        self.seen = b""

    def read_until(self, wanted, seconds=20):
        until = time.monotonic() + seconds
        while wanted not in self.seen and time.monotonic() < until:
            self._read(0.1)
        assert wanted in self.seen, self.seen

    def _read(self, seconds):
        if not select.select([self.end], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self.end, 65536)
        except OSError:  # nobody has the other end any more
            return False
        self.seen += piece
        return bool(piece)

    def type(self, keys):
        os.write(self.end, keys)

    def finish(self):
        until = time.monotonic() + 30
        while self._read(0.1) and time.monotonic() < until:
            pass
        os.close(self.end)
        return self.tool.wait(timeout=20)


SCROLL_ABOVE, SCROLL_ALL = b"\033[1;23r", b"\033[r"


def given_back(terminal):
    """The whole screen scrolls again, and the last row is empty, before anything else is said."""
    end = terminal.seen.index(SCROLL_ALL)
    assert terminal.seen.startswith(SCROLL_ALL + b"\033[24;1H\033[2K\0338", end)
    return SCROLL_ABOVE not in terminal.seen[end:] and b"Memory " in terminal.seen[end:]


def test_the_last_row_is_taken_and_given_back(user, program):
    terminal = Terminal(user, "--", program, "sleep", 400, "say", "hello", "exit", "4")
    assert terminal.finish() == 4
    assert SCROLL_ABOVE in terminal.seen
    assert b"\033[24;1H\033[2K\033[7m 0:00  RSS " in terminal.seen
    assert b"hello\r\n" in terminal.seen
    assert given_back(terminal)


@pytest.mark.parametrize("who", ["command", "tool"])
def test_the_row_is_given_back_after_a_signal(user, program, who):
    last = ["die", int(signal.SIGKILL)] if who == "command" else ["sleep", 60000]
    terminal = Terminal(user, "--", program, "sleep", 300, *last)
    terminal.read_until(SCROLL_ABOVE)
    if who == "tool":
        terminal.tool.terminate()
    expected = signal.SIGKILL if who == "command" else signal.SIGTERM
    assert terminal.finish() == 128 + expected
    assert given_back(terminal)


def test_watching_a_process_has_the_row_too(user, running):
    terminal = Terminal(user, "--pid", running().pid)
    terminal.read_until(SCROLL_ABOVE)
    terminal.type(b"\x03")
    assert terminal.finish() == 0
    assert given_back(terminal)


def test_no_row_where_it_is_not_wanted(user, program):
    terminal = Terminal(user, "--no-live", "--", program, "sleep", 300)
    assert terminal.finish() == 0
    assert b"\033[" not in terminal.seen


def test_no_row_where_stderr_is_no_terminal(user, program):
    _, done = profile(user, "--", program, "sleep", 300)
    assert "\033" not in done.stderr and "0:00" not in done.stderr


@pytest.mark.parametrize(("key", "number"), [(b"\x03", signal.SIGINT), (b"\x1c", signal.SIGQUIT)])
def test_a_key_reaches_the_command_once(user, program, key, number):
    terminal = Terminal(user, "--", program, "await", int(number), "exit", 6)
    terminal.read_until(b"waiting")
    terminal.type(key)
    assert terminal.finish() == 6
    assert f"signal {int(number)} came 1\r\n".encode() in terminal.seen


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
