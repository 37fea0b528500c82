"""Shell completions and man pages, which the tool generates from its own commands."""

import os
import re
import shutil
import subprocess

import pytest

TOOL = os.environ["EVENKEEL_TOOL"]


def said(*words):
    done = subprocess.run([TOOL, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands():
    """The commands that --help lists."""
    listed = said("--help").split("Subcommands:\n")[1].split("\n\n")[0]
    return [line.split()[0] for line in listed.splitlines()]


def options(command):
    """The options that have a line in --help."""
    found = re.findall(r"^  (?:-\w,)?(--[a-z][a-z-]*)", said(command, "--help"), re.MULTILINE)
    assert "--help" in found
    return set(found)


def complete(line, folder):
    """What bash offers after these words."""
    script = folder / "evenkeel.bash"
    script.write_text(said("completions", "bash"))
    words = line.split(" ")
    program = (
        f"source {script}; COMP_WORDS=({' '.join(repr(word) for word in words)});"
        f" COMP_CWORD={len(words) - 1}; _evenkeel; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(["bash", "--norc", "-c", program], capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_offers_commands(tmp_path):
    assert set(complete("evenkeel ", tmp_path)) >= {*commands(), "--help", "--version"}
    assert sorted(complete("evenkeel co", tmp_path)) == ["compare", "completions", "convert"]
    assert "compare-worker" not in complete("evenkeel ", tmp_path)


def test_bash_offers_the_options_of_a_command(tmp_path):
    assert complete("evenkeel compare --m", tmp_path) == ["--merge-gap"]
    assert "--dtype" in complete("evenkeel info --", tmp_path)  # of a group
    assert complete("evenkeel compare --budget ", tmp_path) == []  # a value is expected


def test_shells_are_offered(tmp_path):
    assert complete("evenkeel completions ", tmp_path) == ["bash", "zsh", "fish"]
    assert complete("evenkeel completions z", tmp_path) == ["zsh"]
    assert complete("evenkeel completions zsh ", tmp_path) == []
    assert "'1:shell:(bash zsh fish)'" in said("completions", "zsh")
    assert "-f -a 'bash zsh fish'" in said("completions", "fish")


def test_bash_offers_programs_where_a_command_begins(tmp_path):
    assert "bash" in complete("evenkeel guard --budget 1GiB bas", tmp_path)
    assert complete("evenkeel guard -- bash --no", tmp_path) == []  # not options of the tool


# The part of a script for one command, and the form of an option in it.
OFFERED = {
    "bash": (r"^    {}\) options='([^']*)'", r"{}\s"),
    "zsh": (r"^      {}\)\n(.*?);;$", r"{}\["),
    "fish": (r"^(.*__fish_seen_subcommand_from {}' .*?)$", r"-l {}\s"),
}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_option_is_in(shell):
    text = said("completions", shell)
    pattern, looks = OFFERED[shell]
    seen = 0
    for command in commands():
        flags = re.MULTILINE | (re.DOTALL if shell == "zsh" else 0)
        found = re.findall(pattern.format(command), text, flags)
        assert found, command
        offered = " ".join(found) + " "
        for option in options(command):
            shown = looks.format(option.removeprefix("--") if shell == "fish" else option)
            assert re.search(shown, offered), (command, option)
            seen += 1
    assert seen > 200


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_shell_takes_it(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "completion"
    script.write_text(said("completions", shell))
    done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_unknown_shell_is_refused():
    done = subprocess.run([TOOL, "completions", "tcsh"], capture_output=True, text=True)
    assert done.returncode == 2 and '"tcsh" is not bash, zsh or fish' in done.stderr


def test_every_command_has_a_page():
    first = said("manual")
    for command in commands():
        assert f".B {command}\n" in first
        page = said("manual", command)
        assert page.startswith(".TH EVENKEEL\\-") and ".SH OPTIONS\n" in page
        for option in options(command):
            assert option.replace("-", "\\-") in page, (command, option)
    done = subprocess.run([TOOL, "manual", "nonsense"], capture_output=True, text=True)
    assert done.returncode == 2 and "nonsense" in done.stderr


def test_pages_are_what_man_reads():
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    for name in ["evenkeel", *commands()]:
        groff = ["groff", "-man", "-Tutf8", "-ww"]
        done = subprocess.run(groff, input=said("manual", name), capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr == "", done.stderr
        assert "EVENKEEL" in done.stdout
