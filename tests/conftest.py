"""Fixtures: the tool, whose path is in EVENKEEL_TOOL, and the users that run it."""

import atexit
import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from profile_help import no_marks_left, program_for, write_data
from report_page_help import Viewer

TOOL = os.environ.get("EVENKEEL_TOOL") or str(Path(__file__).parent.parent / "build" / "evenkeel")
NOBODY = 65534

# Processes in the background ignore SIGINT, and so do their children. The tests send it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@functools.cache
def tool_for_all():
    """A copy of the tool and its library that all users may read: the checkout may be private."""
    folder = Path(tempfile.mkdtemp(prefix="evenkeel-tool-", dir="/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    for path in (Path(TOOL), Path(TOOL).with_name("libevenkeel_guard.so")):
        if path.exists():
            shutil.copy2(path, folder)
    return str(folder / Path(TOOL).name)


class User:
    """Runs the tool in a folder of its own: as the current user, or as another one."""

    def __init__(self, name, folder):
        self.folder = folder
        self.prefix = []
        self.tool = TOOL
        self.uid = os.geteuid()
        if name == "nobody":
            self.tool = tool_for_all()
            self.prefix = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
            self.uid = NOBODY
        if name == "powerless":  # root without a single capability
            self.prefix = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]

    def command(self, *args):
        return [*self.prefix, self.tool, *map(str, args)]

    def run(self, *args, code=0, **kwargs):
        done = subprocess.run(
            self.command(*args),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=240,
            **kwargs,
        )
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *args):
        done = self.run(*args, "--json")
        assert done.stderr == ""
        return json.loads(done.stdout)

    def own(self, path):
        if self.uid != os.geteuid():
            os.chown(path, self.uid, self.uid)
        return path

    def save(self, name, array):
        np.save(self.folder / name, array)
        return self.own(self.folder / name)

    def write(self, name, data):
        (self.folder / name).write_bytes(data)
        return self.own(self.folder / name)


@contextlib.contextmanager
def user_with_folder(name):
    if name == "nobody":
        if os.geteuid() != 0:
            pytest.skip("not root: cannot become another user")
        if not shutil.which("setpriv"):
            pytest.skip("no setpriv: cannot become another user")
    base = os.environ.get("TMPDIR") or "/var/tmp"  # a disk, if there is one
    folder = Path(tempfile.mkdtemp(prefix="evenkeel-cli-test-", dir=base))
    user = User(name, folder)
    user.own(folder)
    os.chmod(folder, 0o755)
    yield user
    shutil.rmtree(folder)


@pytest.fixture(scope="module", params=["self", "nobody"])
def user(request):
    with user_with_folder(request.param) as user:
        yield user


def can_run_python(name):
    """Checks through a shell, because setpriv itself starts a program with the rights of root."""
    command = ["sh", "-c", '"$0" -c 0', sys.executable]
    return subprocess.run([*User(name, None).prefix, *command], capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def anyone():
    """For long tests, which run as one user only: without privileges if possible. It is not if only
    root may read the interpreter."""
    name = "self"
    if os.geteuid() == 0 and shutil.which("setpriv"):
        name = "nobody" if can_run_python("nobody") else "powerless"
    with user_with_folder(name) as user:
        yield user


@pytest.fixture(scope="module")
def program(user):
    return program_for(user, Path(TOOL).parent / "tests" / "profile_program")


@pytest.fixture
def running(user, program):
    """Starts the program as the user. Kills it at the end of the test."""
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


@pytest.fixture
def marks_checked(user, monkeypatch):
    with no_marks_left(user, monkeypatch):
        yield


@pytest.fixture(scope="module")
def data(user):
    return write_data(user)


@pytest.fixture(scope="module")
def features(user):
    """64 MiB of random rows, flushed to the disk."""
    rows = np.random.default_rng(7).random(((1 << 18), 64), dtype=np.float32)
    path = user.save("features.npy", rows)
    with open(path) as file:
        os.fsync(file.fileno())
    return path


@pytest.fixture(scope="session")
def guard_program():
    """A function that compiles guard_program.c, with options of the compiler such as -static."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler: the program cannot be made")
    folder = Path(tempfile.mkdtemp(prefix="evenkeel-guard-program-", dir="/tmp"))
    folder.chmod(0o755)
    source = Path(__file__).with_name("guard_program.c")

    def make(*options, name="program"):
        path = folder / name
        if not path.exists():
            subprocess.run(
                [compiler, "-std=gnu11", "-O1", "-pthread", source, "-o", path, *options],
                check=True,
            )
            path.chmod(0o755)
        return path

    yield make
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def browser():
    """Opens report pages."""
    driving = pytest.importorskip(
        "playwright.sync_api", reason="no playwright: no browser to drive"
    )
    names = ["chromium", "chromium-browser", "google-chrome"]
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip("no chromium: no browser to draw the page")
    with driving.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program)
        yield browser
        browser.close()


@pytest.fixture
def viewer(browser):
    """Opens pages, which by the end of a test must have reported no error and loaded nothing."""
    with tempfile.TemporaryDirectory(prefix="evenkeel-page-test-") as folder:
        viewer = Viewer(browser, Path(folder))
        yield viewer
        for page in viewer.pages:
            page.close()
        assert viewer.complaints == []
        assert viewer.asked_elsewhere() == []
