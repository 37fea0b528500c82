"""For the tests of evenkeel profile: the program that is measured, and its recording.

The program is profile_program.cc, which carries out the commands in its arguments.
"""

import contextlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

MIB = 1 << 20
FILE_MIB = 64
NOBODY = 65534


def program_for(user, built):
    """The compiled profile_program.cc, at a place where this user may run it."""
    path = user.folder / "program"
    if built.exists():
        shutil.copy(built, path)
    else:
        compiler = os.environ.get("CXX") or shutil.which("c++")
        if not compiler:
            pytest.skip("no C++ compiler: the program cannot be made")
        source = Path(__file__).with_name("profile_program.cc")
        subprocess.run([compiler, "-std=c++20", "-O1", source, "-o", path], check=True)
    path.chmod(0o755)
    return path


def write_data(user):
    path = user.write("data.bin", os.urandom(MIB) * FILE_MIB)
    with open(path) as file:
        os.fsync(file.fileno())
    return path


@contextlib.contextmanager
def no_marks_left(user, monkeypatch):
    """Checks that the file with the marks of the program is removed at the end."""
    monkeypatch.setenv("TMPDIR", str(user.folder))
    yield
    assert not list(user.folder.glob("evenkeel-marks-*"))


def run_of(path):
    (run,) = json.loads(path.read_text())["runs"]
    lengths = {len(column) for column in run["samples"].values()}
    assert len(lengths) == 1
    return run


def profile(user, *args, code=0, **kwargs):
    """Runs the tool with --json. Returns the recorded run, and the ended process."""
    report = user.folder / "profile.json"
    report.unlink(missing_ok=True)
    done = user.run("profile", "--json", report, *args, code=code, **kwargs)
    return run_of(report), done


def start(user, *args, **kwargs):
    return subprocess.Popen(user.command(*args), cwd=user.folder, **kwargs)


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError("waited in vain")


def drop_from_cache(path):
    with open(path) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def page_data(path):
    """The JSON inside a page, as a browser reads it: up to the first </script>."""
    text = path.read_text()
    begin = text.index(">", text.index('<script type="application/json" id="data"')) + 1
    return json.loads(text[begin : text.index("</script", begin)])


def watched(run):
    return {file["path"] for file in run["files"]}
