"""Commands in the documentation: those of `sh` blocks run, and options of all of them exist."""

import functools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOOL = Path(os.environ.get("EVENKEEL_TOOL") or ROOT / "build" / "evenkeel")
PAGES = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "examples" / "README.md"])
BLOCK = re.compile(r"^```(?:sh|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Stands for the user's program on the pages: it maps a file, and soon ends.
PROGRAM = """
import mmap
with open("train.bin") as file:
    data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print(sum(data[:1000]))
"""


def commands_to_run():
    """Commands of `evenkeel` on files. Those that need a bucket or run for long are left out."""
    found = {
        line.split(" #")[0].strip(): page.relative_to(ROOT)
        for page in PAGES
        for block in BLOCK.findall(page.read_text())
        for line in block.splitlines()
        if line.startswith("evenkeel ") and not re.search("://|--fail-slope", line)
    }
    return [pytest.param(line, id=f"{page}: {line}") for line, page in found.items()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("docs")
    (made / "train.bin").write_bytes(bytes(range(256)) * (4 << 10))
    for name in ("train.py", "script.py"):
        (made / name).write_text(PROGRAM)
    programs = made / "bin"
    programs.mkdir()
    for name, program in {"evenkeel": TOOL, "python": sys.executable}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(str(program))} "$@"\n')
        (programs / name).chmod(0o755)
    return made


@pytest.mark.parametrize("line", commands_to_run())
def test_it_runs(line, folder):
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    if line.startswith("evenkeel compare"):
        line += " --seconds 0"  # as short as possible
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", line],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr


@functools.cache
def help_of(command):
    said = subprocess.run([TOOL, command, "--help"], capture_output=True, text=True)
    return said.stdout if said.returncode == 0 else None


def mentioned():
    """(page, command, option) of everything that looks like a command line of the tool."""
    for page in PAGES:
        for line in re.findall(
            r"(?:^ *|`|\$ |srun )(evenkeel [a-z][^`\n]*)", page.read_text(), re.M
        ):
            own, *_ = re.split(r" -- | [|#>] ", line)  # a program's own options come after --
            words = own.split()
            for word in words[2:]:
                option = re.match(r"--[a-z][a-z-]*", word)
                yield page.relative_to(ROOT), words[1], option[0] if option else None


def test_commands_and_options_exist():
    found = set(mentioned())
    wrong = {
        f"{page}: evenkeel {command} {option or ''}"
        for page, command, option in found
        if not help_of(command) or (option and not re.search(rf"{option}\b(?!-)", help_of(command)))
    }
    assert wrong == set()
    assert len({option for _, _, option in found}) > 15  # the search works


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
