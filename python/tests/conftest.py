"""Everything is written below a folder of the test's own, which is also where it runs."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from token_help import COUNT

import evenkeel

# Processes in the background ignore SIGINT, and so do their children. The tests send it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item):
    """scripts/test_wheels sets EVENKEEL_EMULATED where an emulator runs the tests."""
    mark = item.get_closest_marker("not_emulated")
    if mark is not None and os.environ.get("EVENKEEL_EMULATED"):
        pytest.skip(f"under an emulator: {mark.args[0]}")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    """Servers of tests are on this machine; a proxy cannot reach them."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def python(tmp_path):
    """Runs a program in a new interpreter; it must end well and say nothing to stderr."""

    def run(program, *args, code=0, stderr="", **environment):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), *map(str, args)],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert (done.returncode, done.stderr) == (code, stderr), done
        return done.stdout

    return run


@pytest.fixture
def stored(tmp_path):
    """A file of tokens; see token_help."""
    path = tmp_path / "train.bin"
    (np.arange(COUNT) % 65536).astype(np.uint16).tofile(path)
    return path


@pytest.fixture
def train(stored):
    return evenkeel.tokens(stored, budget="16MiB", engine="direct")
