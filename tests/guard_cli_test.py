"""evenkeel guard as a user meets it: what it says and refuses, and that the command is its own.

The program is guard_program.c, which checks what it reads. guard_memory_test.py checks that memory
stays within the budget; guard_foreign_test.py has foreign programs.
"""

import os
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import NOBODY, TOOL
from guard_help import (
    MIB,
    cached_bytes,
    drop_from_cache,
    guard,
    limit_of,
    plain,
    require_cachestat,
    write_numbers,
)
from profile_help import wait_for

FILE_MIB = 48
# The program waits until the guard has brought the file down to this: on a busy machine, a program
# that takes 0.1 s may end before the guard has done anything.
WAITING = "within=16"


@pytest.fixture(scope="module")
def program(guard_program):
    return guard_program()


@pytest.fixture(scope="module")
def numbers(user):
    return user.own(write_numbers(user.folder / "numbers.bin", FILE_MIB))


@pytest.fixture
def running(user, program, numbers):
    """Starts `hold` as the user, unguarded. It ends when its input, a pipe, is closed."""
    started = subprocess.Popen(
        [*user.prefix, program, "hold", numbers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout.readline() == "holding\n"
    yield started
    started.kill()
    started.wait()
    started.stdin.close()
    started.stdout.close()


# ---- the command is its own


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_exit_code_is_the_commands(user, program, code):
    guard(user, "8MiB", "--", program, "exit", code, code=code)


def test_exit_code_is_the_commands_if_no_message_can_be_written(user, program):
    command = user.command("guard", "--budget", "8MiB", "--", program, "exit", 42)
    with open("/dev/full", "w") as full:
        assert subprocess.run(command, stderr=full, timeout=240).returncode == 42


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_killed_command_is_told_as_a_shell_tells_it(user, program, number):
    done = guard(user, "8MiB", "--", program, "die", int(number), code=128 + number)
    assert f"killed by signal {int(number)} ({number.name})" in done.stderr


def test_a_signal_to_the_tool_reaches_the_command(user, program):
    tool = subprocess.Popen(
        user.command("guard", "--budget", "8MiB", "--", program, "sleep", 60000),
        stderr=subprocess.PIPE,
        text=True,
    )
    child = wait_for(lambda: children_of(tool.pid, "program"))[0]
    tool.send_signal(signal.SIGTERM)
    _, said = tool.communicate(timeout=120)
    assert tool.returncode == 128 + signal.SIGTERM, said
    assert "killed by signal 15 (SIGTERM)" in said
    assert not Path(f"/proc/{child}").exists()


def children_of(pid, name):
    """The processes that have called exec."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(one) for one in found if Path(f"/proc/{one}/comm").read_text().strip() == name]
    except OSError:
        return []


def test_input_and_output_are_the_commands(user):
    done = guard(user, "8MiB", "--", "sh", "-c", "cat; echo told >&2", input="through\n")
    assert done.stdout == "through\n"
    assert done.stderr.startswith("told\n")


def test_arguments_pass_as_they_are(user):
    done = guard(user, "8MiB", "--", "printf", "%s|", "a b", "", "--budget", "*", "é")
    assert done.stdout == "a b||--budget|*|é|"


def test_a_program_that_reads_a_file_gets_its_words(user, program, numbers):
    drop_from_cache(numbers)
    done = guard(user, "8MiB", "--", program, "scan", numbers, 400, WAITING)
    assert done.stdout == "wrong 0\n"
    assert done.guarded == 1
    assert done.released >= 8 * MIB  # how much more before it ends depends on its speed
    assert "note:" not in done.stderr


def test_a_program_that_maps_nothing_is_told_so(user, program):
    done = guard(user, "8MiB", "--", program, "say", "hello")
    assert done.stdout == "hello\n"
    assert done.guarded == 0
    assert "none that are guarded (see --min, --files)" in done.stderr


# ---- help, and what is refused


def test_help_says_what_it_does(user):
    said = user.run("guard", "--help").stdout
    for word in ("--budget", "--access", "--keep-cache", "--files", "--min", "--report", "--pid"):
        assert word in said
    assert "CAP_SYS_NICE" in said and "evenkeel guard --budget 1GiB -- python train.py" in said
    assert "guard" in user.run("--help").stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--budget", "8MiB"], "give a command"),
        (["--", "touch", "ran"], "--budget is required"),
        (["--budget", "8MiB", "--pid", "1", "--", "touch", "ran"], "not both"),
        (["--budget", "1MiB", "--", "touch", "ran"], "1 MiB is too small: use at least 4 MiB"),
        (["--budget", "0", "--", "touch", "ran"], "too small"),
        (["--budget", "many", "--", "touch", "ran"], "many"),
        (["--budget", "-8MiB", "--", "touch", "ran"], "-8MiB"),
        (["--budget", "8MiB", "--access", "psychic", "--", "touch", "ran"], "is not auto, random"),
        (["--budget", "8MiB", "--keep-cache", "--pid", "1"], "cannot be used with --pid"),
        (
            ["--budget", "8MiB", "--access", "random", "--pid", "1"],
            "cannot be changed with --pid",
        ),
        (["--budget", "8MiB", "--pid", "0"], "--pid"),
        (["--budget", "8MiB", "--seconds", "1", "--", "touch", "ran"], "needs --pid"),
        (["--budget", "8MiB", "--min", "much", "--", "touch", "ran"], "much"),
        (["--budget", "8MiB", "--frobnicate", "--", "touch", "ran"], "--frobnicate"),
    ],
)
def test_nonsense_is_refused_and_runs_nothing(user, args, words):
    done = user.run("guard", *args, code=2)
    assert done.stdout == ""
    assert done.stderr.startswith("evenkeel: ") and words in done.stderr, done.stderr
    assert not (user.folder / "ran").exists()


def test_a_report_that_cannot_be_written_is_refused_before_the_command_runs(user):
    done = user.run(
        *["guard", "--budget", "8MiB", "--report", "no/such/page.html", "--", "touch", "ran"],
        code=1,
    )
    assert "no/such/page.html" in done.stderr
    assert not (user.folder / "ran").exists()


@pytest.mark.parametrize(("command", "code"), [("no-such-program", 127), ("./numbers.bin", 126)])
def test_what_cannot_be_run_is_said_as_a_shell_says_it(user, numbers, command, code):
    done = user.run("guard", "--budget", "8MiB", "--", command, code=code)
    assert f'cannot run "{command}"' in done.stderr


def test_what_lies_where_the_user_may_not_look_is_not_said_to_be_missing(user, program):
    if not user.prefix:
        pytest.skip("root: may look everywhere")
    hidden = user.folder / "hidden"
    hidden.mkdir(mode=0o700)
    done = user.run("guard", "--budget", "8MiB", "--", hidden / "program", code=126)
    hidden.rmdir()
    assert "Permission denied" in done.stderr and "hint" not in done.stderr


# ---- programs that cannot be guarded


def test_a_static_program_runs_and_a_line_says_that_it_is_unguarded(user, guard_program, numbers):
    try:
        static = guard_program("-static", name="static")
    except subprocess.CalledProcessError:
        pytest.skip("no static C library: the program cannot be made")
    done = user.run("guard", "--budget", "8MiB", "--", static, "scan", numbers, 2000)
    assert done.stdout == "wrong 0\n"
    (line,) = [one for one in done.stderr.splitlines() if "statically linked" in one]
    assert line.startswith(f"evenkeel guard: {static} is statically linked")
    assert "unguarded" in line and "--pid" in line and "CAP_SYS_NICE" in line
    user.run("guard", "--budget", "8MiB", "--", static, "exit", 7, code=7)


@pytest.mark.parametrize("mode", [0o4755, 0o4711])  # a program of mode 4711 cannot be read
def test_a_setuid_program_runs_and_a_line_says_that_it_is_left_alone(user, program, numbers, mode):
    if os.geteuid() != 0:
        pytest.skip("not root: cannot make a program of another user")
    other = 0 if user.prefix else NOBODY
    copy = user.folder / "setuid"
    shutil.copy(program, copy)
    os.chown(copy, other, other)
    copy.chmod(mode)
    try:
        done = user.run("guard", "--budget", "8MiB", "--", copy, "scan", numbers, 2000)
    finally:
        copy.unlink()
    assert done.stdout == "wrong 0\n"
    assert f"evenkeel guard: {copy} runs with the rights of another user" in done.stderr
    assert "unguarded" in done.stderr


@pytest.mark.parametrize("what", ["program", "script"])
def test_a_missing_loader_is_named(user, guard_program, what):
    loader = "/no/such/folder/ld-musl-x86_64.so.1"
    if what == "program":
        path = guard_program(f"-Wl,--dynamic-linker={loader}", name="elsewhere")
    else:
        path = user.write("script", f"#!{loader} -x\n".encode())
        path.chmod(0o755)
    done = user.run("guard", "--budget", "8MiB", "--", path, "exit", 0, code=127)
    assert f'cannot run "{path}"' in done.stderr
    assert f"the file exists, but the program that runs it does not: {loader}" in done.stderr
    assert "spelling" not in done.stderr


def test_a_program_of_another_word_size_is_said_to_be_unguarded(user):
    header = b"\x7fELF\x01\x01\x01".ljust(16, b"\0") + struct.pack("<HHI", 2, 3, 1)
    path = user.write("old", header.ljust(128, b"\0"))
    path.chmod(0o755)
    # The kernel decides whether it can be executed.
    done = subprocess.run(
        user.command("guard", "--budget", "8MiB", "--", path), capture_output=True, text=True
    )
    assert f"evenkeel guard: {path} is built for another processor architecture" in done.stderr


def test_without_the_library_the_command_runs_and_a_line_says_so(user, program, numbers):
    done = user.run(
        *["guard", "--budget", "8MiB", "--", program, "scan", numbers, 2000],
        env={**os.environ, "EVENKEEL_GUARD_LIBRARY": "/no/such/library.so"},
    )
    assert done.stdout == "wrong 0\n"
    assert "/no/such/library.so" in done.stderr
    assert "evenkeel guard: the command runs unguarded" in done.stderr


def test_a_tool_with_capabilities_guards_commands_too(user, program, numbers):
    """With the capabilities that the hint of --pid names: cap_sys_nice, cap_sys_ptrace."""
    folder = user.folder / "capable"
    folder.mkdir()
    for path in (Path(TOOL), Path(TOOL).with_name("libevenkeel_guard.so")):
        shutil.copy2(path, folder)
    tool = folder / Path(TOOL).name
    effective, nice_and_ptrace = 0x02000001, 1 << 23 | 1 << 19
    value = struct.pack("<5I", effective, nice_and_ptrace, 0, 0, 0)
    try:
        os.setxattr(tool, "security.capability", value)
    except OSError as error:
        pytest.skip(f"root may not give a file capabilities here: {error}")
    command = [*user.prefix, tool, "guard", "--budget", "8MiB", "--", program, "scan", numbers, 400]
    done = subprocess.run(
        [*map(str, command)], cwd=user.folder, capture_output=True, text=True, timeout=240
    )
    assert (done.returncode, done.stdout) == (0, "wrong 0\n"), done.stderr
    assert "1 guarded" in done.stderr
    assert "unguarded" not in done.stderr


def test_a_preloaded_library_of_the_users_own_is_kept(user, program, numbers):
    compiler = shutil.which("cc") or pytest.skip("no C compiler: no library can be made")
    library = user.folder / "own.so"
    source = "#include <stdio.h>\n__attribute__((constructor)) static void f(void)"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-xc", "-", "-o", library],
        input=source + '{ fputs("mine is here\\n", stderr); }',
        text=True,
        check=True,
    )
    library.chmod(0o755)
    # Set by the shell, so that it does not apply to the tool.
    command = f"LD_PRELOAD={library} exec {program} scan {numbers} 2000"
    done = guard(user, "8MiB", "--", "sh", "-c", command)
    assert (done.stdout, done.guarded) == ("wrong 0\n", 0)  # removed by the command itself
    drop_from_cache(numbers)
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    done = guard(user, "8MiB", "--", program, "scan", numbers, 400, WAITING, env=environment)
    assert done.stdout == "wrong 0\n"
    assert "mine is here" in done.stderr
    assert done.guarded == 1 and done.released > 0


def test_scripts_and_what_they_start_are_guarded(user, program, numbers):
    drop_from_cache(numbers)
    text = f"#!/usr/bin/env sh\n{program} scan {numbers} 2000 {WAITING}\n"
    script = user.write("run.sh", text.encode())
    script.chmod(0o755)
    done = guard(user, "8MiB", "--", script)
    assert done.stdout == "wrong 0\n"
    assert done.guarded == 1 and done.released > 0


# ---- what is guarded, and the report


def test_files_choose_what_is_guarded(user, program, numbers):
    for pattern, guarded in (("*.bin", 1), ("*.dat", 0), (numbers, 1), ("numbers.*", 1)):
        drop_from_cache(numbers)
        scan = [program, "scan", numbers, 400, *([WAITING] if guarded else [])]
        done = guard(user, "8MiB", "--files", pattern, "--", *scan)
        assert (done.stdout, done.guarded) == ("wrong 0\n", guarded), pattern
        assert (done.released > 0) == (guarded > 0), pattern


def test_small_mappings_are_left_alone(user, program, numbers):
    done = guard(user, "8MiB", "--", program, "small", numbers, 40)
    assert (done.stdout, done.guarded) == ("wrong 0\n", 0)
    done = guard(user, "8MiB", "--min", "256KiB", "--", program, "small", numbers, 40)
    assert (done.stdout, done.guarded) == ("wrong 0\n", 1)
    done = guard(user, "8MiB", "--min", "64MiB", "--", program, "scan", numbers, 400)
    assert (done.stdout, done.guarded) == ("wrong 0\n", 0)


@pytest.mark.parametrize("access", ["auto", "random", "sequential", "leave"])
def test_any_access_reads_the_same(user, program, numbers, access):
    drop_from_cache(numbers)
    done = guard(user, "8MiB", "--access", access, "--", program, "crops", numbers, 300, 2000)
    assert (done.stdout, done.guarded) == ("wrong 0\n", 1)
    if access == "leave":
        assert "left as it was" in done.stderr


def test_with_keep_cache_the_page_cache_stays(user, program, numbers):
    require_cachestat(numbers)
    numbers.read_bytes()
    with open(numbers, "rb") as file:
        before = cached_bytes(file.fileno())
        done = guard(user, "8MiB", "--keep-cache", "--", program, "scan", numbers, 500)
        assert cached_bytes(file.fileno()) >= 0.95 * before
    assert (done.stdout, done.guarded) == ("wrong 0\n", 1)
    # Resident pages were released: the rest is at most the limit, and libraries.
    assert done.run["summary"]["peak_bytes"]["file"] < limit_of(8 * MIB) + 8 * MIB


def test_the_report_has_the_facts(user, program, numbers):
    drop_from_cache(numbers)
    page = user.folder / "page.html"
    done = guard(user, "8MiB", "--report", page, "--", program, "scan", numbers, 400, WAITING)
    text = page.read_text()
    assert f"report: {page}" in done.stderr
    for fact in ("guard: released", "guard: most of mapped files in memory", "guard: access"):
        assert fact in text
        assert done.run["facts"][fact] in text
    assert page.stat().st_uid == user.uid


def test_the_report_compares_the_budget_with_what_it_covers(user, program, numbers):
    """Private memory does not count against a budget for files."""
    drop_from_cache(numbers)
    page = user.folder / "page.html"
    done = guard(user, "64MiB", "--report", page, "--", program, "heap", numbers, 100)
    assert done.run["summary"]["peak_bytes"]["memory"] > 100 * MIB
    assert done.run["summary"]["seconds_over_budget"] == 0
    assert done.run["guarded_peak_bytes"] <= 64 * MIB
    text = page.read_text()
    assert "The guarded files stayed within the budget of 64 MiB." in text
    assert "Memory exceeded" not in text


def test_a_file_that_was_cached_before_is_not_over_the_budget(user, program, numbers):
    require_cachestat(numbers)
    numbers.read_bytes()
    done = guard(user, "8MiB", "--", program, "scan", numbers, 200)
    assert (done.stdout, done.guarded) == ("wrong 0\n", 1)
    assert done.run["guarded_peak_bytes"] <= limit_of(8 * MIB) < FILE_MIB * MIB
    assert "cached before they were guarded" in done.run["facts"]["guard: at the start"]
    assert "note:" not in done.stderr


def test_the_summary_is_short_and_whole(user, program, numbers):
    drop_from_cache(numbers)
    said = guard(user, "8MiB", "--", program, "scan", numbers, 400).stderr
    lines = said.strip().splitlines()
    assert lines[0].startswith("guard: exit code 0 after ") and lines[0].endswith("budget 8 MiB")
    for word in ("mapped files", "released", "read from disk", "peak RSS", "access", "cost"):
        assert sum(line.startswith(f"  {word} ") for line in lines) == 1, said
    # On a busy machine, a program that takes 0.2 s may end before its pages are released. A note of
    # two lines then says so.
    noted = 2 * any(line.startswith("  note: the budget of 8 MiB was exceeded") for line in lines)
    assert len(lines) <= 9 + noted, said


# ---- a running process


def test_a_running_process_is_guarded_from_outside(user, numbers, running):
    if os.geteuid() != 0:
        pytest.skip("not root: no CAP_SYS_NICE")
    require_cachestat(numbers)
    # As root, because this test is about the owner of the process.
    report = user.folder / "page.html"
    report.unlink(missing_ok=True)
    done = subprocess.run(
        [TOOL, "guard", "--budget", "8MiB", "--pid", str(running.pid), "--seconds", "1.5"]
        + ["--report", report],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "guard: still running after 1." in done.stderr
    assert "1 guarded" in done.stderr and "left as it was" in done.stderr
    released = [line for line in done.stderr.splitlines() if line.startswith("  released ")]
    assert released and not released[0].endswith(" 0 B"), done.stderr
    assert "guard: released" in report.read_text()
    report.unlink()
    out, _ = running.communicate(input="")
    assert (out, running.returncode) == ("wrong 0\n", 0)


def test_the_tool_ends_with_the_process(user, running):
    if os.geteuid() != 0:
        pytest.skip("not root: no CAP_SYS_NICE")
    tool = subprocess.Popen(
        [TOOL, "guard", "--budget", "8MiB", "--pid", str(running.pid)],
        stderr=subprocess.PIPE,
        text=True,
    )
    running.communicate(input="")
    _, said = tool.communicate(timeout=120)
    assert tool.returncode == 0 and said.strip().startswith("guard: ended after ")


def test_without_the_right_to_it_the_message_names_what_is_missing(user, running):
    if not user.prefix and os.geteuid() == 0:
        pytest.skip("root: has CAP_SYS_NICE")
    done = user.run("guard", "--budget", "8MiB", "--pid", running.pid, code=1)
    assert f"process {running.pid}" in done.stderr
    assert "CAP_SYS_NICE" in done.stderr and "evenkeel guard -- COMMAND" in done.stderr
    out, _ = running.communicate(input="")
    assert (out, running.returncode) == ("wrong 0\n", 0)


def test_a_process_that_is_not_there_is_said_so(user):
    done = user.run("guard", "--budget", "8MiB", "--pid", 2**22 - 3, code=1)
    assert f"process {2**22 - 3}" in done.stderr


# ---- when the tool dies


def test_a_killed_tool_leaves_the_program_whole(user, program, numbers):
    drop_from_cache(numbers)
    tool = subprocess.Popen(
        user.command("guard", "--budget", "8MiB", "--", program, "hold", numbers),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert tool.stdout.readline() == "holding\n"
    child = wait_for(lambda: children_of(tool.pid, "program"))[0]
    with open(numbers, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    tool.kill()
    tool.wait()
    assert Path(f"/proc/{child}").exists()
    # It reads the whole file again, although no tool answers.
    wait_for(lambda: process_state(child) != "Z" and touched(child) >= FILE_MIB * MIB * 0.9)
    tool.stdin.close()
    assert tool.stdout.read() == "wrong 0\n"
    tool.stdout.close()


def process_state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def touched(pid):
    """Bytes of files in the resident set."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssFile:"):
            return int(line.split()[1]) * 1024
    return 0


def test_the_same_words_without_the_tool(user, program, numbers):
    """Verifies that the checks above can fail: a file of other bytes is reported as wrong."""
    bad = user.write("bad.bin", bytes(2 * MIB))
    assert plain(user, program, "scan", numbers, 2000) == "wrong 0\n"
    done = user.run("guard", "--budget", "8MiB", "--", program, "scan", bad, 2000, code=1)
    assert done.stdout == f"wrong {2 * MIB // 8 - 1}\n"


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
