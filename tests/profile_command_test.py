"""evenkeel profile passes on exit codes, signals, input and output of its command."""

import json
import os
import signal
import subprocess
import sys

import pytest
from profile_help import (
    MIB,
    profile,
    run_of,
    start,
)

pytestmark = pytest.mark.usefixtures("marks_checked")


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
    assert tool.wait(timeout=120) == 7
    assert run_of(user.folder / "profile.json")["ended"] == "exit code 7"


def test_a_command_that_does_not_handle_a_signal_dies_of_it(user, program):
    tool = start(
        *[user, "profile", "--json", "profile.json", "--", program, "say", "on", "sleep", "60000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert tool.stdout.readline() == b"on\n"
    tool.terminate()
    assert tool.wait(timeout=120) == 128 + signal.SIGTERM
    assert run_of(user.folder / "profile.json")["ended"] == "killed by signal 15 (SIGTERM)"


def test_a_tool_that_was_told_to_ignore_its_children_still_sees_them_end(user, program):
    def ignore_children():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    profile(user, "--", program, "exit", 7, code=7, preexec_fn=ignore_children)
    words = ["grep", "SigIgn", "/proc/self/status"]
    _, done = profile(user, "--", *words, preexec_fn=ignore_children)
    ignored = int(done.stdout.split()[1], 16)
    assert ignored & 1 << (signal.SIGCHLD - 1)  # as it would be without the tool


def test_input_and_output_pass_through_unchanged(user):
    sent = os.urandom(3 * MIB)
    tool = start(
        *[user, "profile", "--json", "profile.json", "--", "sh", "-c", "cat; echo oops >&2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = tool.communicate(sent, timeout=240)
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


def test_over_the_budget_is_3_and_within_it_0(user, program):
    words = ["--fail-over-budget", "--", program, "anon", 64, "sleep", 100]
    _, done = profile(user, "--budget", "32MiB", *words, code=3)
    assert "over budget: " in done.stderr and "33,554,432 allowed" in done.stderr
    run, done = profile(user, "--budget", "256MiB", *words)
    assert "stayed within the budget of 256 MiB" in done.stderr
    assert run["summary"]["seconds_over_budget"] == 0
    run, done = profile(user, "--budget", "32MiB", "--", program, "anon", 64, "sleep", 100)
    assert "exceeded the budget of 32 MiB" in done.stderr  # reported in any case
    assert run["summary"]["seconds_over_budget"] > 0.05


def test_a_rising_program_is_3_and_a_flat_one_0(user, program):
    rising = ["--", program, "grow", 1, 130]
    _, done = profile(user, "--fail-slope", "64MiB/min", *rising, code=3)
    assert "rising: " in done.stderr and "64 MiB allowed" in done.stderr
    profile(user, "--fail-slope", "1TiB/s", *rising)
    profile(user, "--fail-slope", "1MiB/min", "--", program, "anon", 64, "sleep", 1300)


def test_a_run_too_short_to_tell_its_slope_is_3(user):
    _, done = profile(user, "--fail-slope", "1MiB/min", "--", "true", code=3)
    assert "cannot be computed" in done.stderr and "hint: " in done.stderr


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
    ],
)
def test_wrong_calls_exit_2_and_run_nothing(user, args):
    args = ["touch" if word == "true" else word for word in args]
    done = user.run("profile", *args, *(["ran"] if "touch" in args else []), code=2)
    assert done.stdout == "" and done.stderr.startswith("evenkeel: ")
    assert not (user.folder / "ran").exists()


@pytest.mark.parametrize("command", ["profile", "guard"])
def test_options_end_at_the_first_word_of_the_command(user, command):
    options = ["--budget", "64MiB", "--no-live", "--json", "ends.json"]
    words = ["sh", "-c", "echo $*", "sh", "--json", "-o", "x", "--"]
    done = user.run(command, *options, *words)
    assert done.stdout == "--json -o x --\n"
    assert run_of(user.folder / "ends.json")["command"] == words
    user.run(command, "--budget=64MiB", "sh", "-c", "exit 5", code=5)


def test_a_dash_is_standard_output(user):
    done = user.run("profile", "--json", "-", "--", "true")
    assert json.loads(done.stdout)["runs"][0]["command"] == ["true"]
    done = user.run("profile", "--svg", "-", "true")
    assert done.stdout.startswith("<svg") and done.stdout.endswith("</svg>\n")
    done = user.run("profile", "-o", "-", "true")
    assert done.stdout.startswith("<!doctype html>")
    done = user.run("guard", "--budget", "64MiB", "--json", "-", "true")
    assert json.loads(done.stdout)["runs"][0]["command"] == ["true"]
    assert not (user.folder / "-").exists()
    for same in ("-", "same"):
        said = user.run("profile", "--json", same, "--svg", same, "true", code=1).stderr
        assert "two outputs go to the same file" in said
    assert not (user.folder / "same").exists()


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
