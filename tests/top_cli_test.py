"""evenkeel top: processes that use Evenkeel now."""

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def runtime(user, monkeypatch):
    """A folder for pages that nothing else on this machine uses."""
    folder = Path(tempfile.mkdtemp(prefix="runtime-", dir=user.folder))
    user.own(folder)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.delenv("EVENKEEL_TOP", raising=False)
    return folder


@pytest.fixture(scope="module")
def tokens(user):
    return user.write("tokens.bin", np.arange(1 << 20, dtype=np.uint16).tobytes())


BATCHES = ["--batch-size", "4", "--block-size", "256"]


@contextlib.contextmanager
def reader(user, tokens, *args):
    """A process that reads until it is killed."""
    process = subprocess.Popen(
        user.command("batches", tokens, *BATCHES, "--steps", "1000000", "--pause", "1000", *args),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def seen(user, *args):
    """{pid: its entry}, and the totals. Other processes of this user may be listed, too."""
    said = user.json("top", "--interval", "100ms", *args)
    return {process["pid"]: process for process in said["processes"]}, said


def seen_reading(user, pid):
    until = time.monotonic() + 120
    while time.monotonic() < until:
        processes, said = seen(user)
        if pid in processes and processes[pid]["bytes_per_second"]:
            return processes[pid], said
    raise AssertionError(f"{pid} was not seen: {said}")


def test_a_reading_process_is_there_with_its_numbers(user, runtime, tokens):
    with reader(user, tokens, "--budget", "8MiB") as process:
        row, said = seen_reading(user, process.pid)
        assert row["own_pid"] == process.pid
        assert row["budget_bytes"] == 8 << 20 and row["in_use_bytes"] > 0
        assert row["in_use_bytes"] <= row["peak_bytes"] <= row["budget_bytes"]
        assert (row["arrays"], row["loaders"], row["waits_for"]) == (1, 1, "batches")
        assert row["since_start"]["bytes_from_mapping"] > 0 and row["since_start"]["batches"] > 0
        assert row["wait_share"] >= 0 and row["hit_share"] is None
        assert " batches " in row["command"] and "tokens.bin" in row["command"]
        assert said["totals"]["processes"] == len(said["processes"])
        assert said["totals"]["budget_bytes"] >= 8 << 20
        modes = [oct(page.stat().st_mode & 0o777) for page in (runtime / "evenkeel-top").iterdir()]
        assert modes == ["0o600"]


def test_it_is_gone_when_the_process_is(user, runtime, tokens):
    with reader(user, tokens) as process:
        seen_reading(user, process.pid)
        process.kill()  # it cannot clean up
        process.wait()
        assert process.pid not in seen(user)[0]
        assert list((runtime / "evenkeel-top").iterdir()) == []


def test_a_process_that_ends_removes_its_page(user, runtime, tokens):
    user.run("batches", tokens, *BATCHES, "--steps", "2")
    assert list((runtime / "evenkeel-top").iterdir()) == []


def test_it_can_be_turned_off(user, runtime, tokens, monkeypatch):
    monkeypatch.setenv("EVENKEEL_TOP", "off")
    user.run("batches", tokens, *BATCHES, "--steps", "2")
    assert not (runtime / "evenkeel-top").exists()


def test_in_a_pipe_it_prints_once(user, runtime, tokens):
    with reader(user, tokens, "--budget", "8MiB") as process:
        seen_reading(user, process.pid)
        text = user.run("top", "--interval", "100ms").stdout
        again = user.run("top", "--once", "--interval", "100ms").stdout
    for said in (text, again):
        lines = said.splitlines()
        assert "in use, " in lines[0] and lines[0].endswith(" MB/s")
        assert lines[2].split() == "PID USER BUDGET IN USE HITS MB/S WAIT COMMAND".split()
        (mine,) = [line for line in lines if line.split()[:1] == [str(process.pid)]]
        assert " 8 MiB " in mine and "\033" not in said


def test_hostile_pages_are_passed_over(user, runtime, tokens):
    with reader(user, tokens) as process:
        seen_reading(user, process.pid)
        folder = runtime / "evenkeel-top"
        (page,) = folder.iterdir()
        random = np.random.default_rng(3)
        for size in (0, 1, page.stat().st_size, 1 << 20):
            bad = folder / f"1-{size}.0"
            bad.write_bytes(random.bytes(size))
            user.own(bad)
        (folder / "link").symlink_to("/etc/passwd")
        os.mkfifo(folder / "fifo")
        (folder / "folder").mkdir()
        held = folder / "2-2.2"
        holder = held.open("wb+")
        holder.write(random.bytes(page.stat().st_size))
        holder.flush()
        user.own(held)
        fcntl.lockf(holder, fcntl.LOCK_EX)  # a living process whose page is not valid
        assert process.pid in seen(user)[0]
        assert os.getpid() not in seen(user)[0]
        holder.close()


def test_files_that_are_no_pages_are_left_alone(user, runtime, tokens):
    """Among them the guard's library, which is unpacked to $XDG_RUNTIME_DIR/evenkeel."""
    library = runtime / "evenkeel" / "libevenkeel_guard-0123456789abcdef.so"
    other = runtime / "evenkeel-top" / "notes"
    for file in (library, other):
        file.parent.mkdir(mode=0o700)
        file.write_text("kept")
        user.own(file.parent)
        user.own(file)
    user.run("batches", tokens, *BATCHES, "--steps", "2")
    user.run("top", "--interval", "100ms")
    assert (library.read_text(), other.read_text()) == ("kept", "kept")
    assert list(library.parent.iterdir()) == [library]
    assert list(other.parent.iterdir()) == [other]


@pytest.mark.parametrize("interval", ["1ms", "2h", "soon"])
def test_an_interval_that_makes_no_sense_is_refused(user, interval):
    said = user.run("top", "--interval", interval, code=2).stderr
    assert said.startswith("evenkeel: ") and "interval" in said


class Terminal:
    """Runs `evenkeel top` on a pseudo-terminal."""

    def __init__(self, user, rows, columns):
        self.end, self.inner = pty.openpty()
        self.resize(rows, columns)
        self.modes = termios.tcgetattr(self.inner)
        self.tool = subprocess.Popen(
            user.command("top", "--interval", "100ms"),
            stdin=self.inner,
            stdout=self.inner,
            stderr=self.inner,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.seen = b""

    def resize(self, rows, columns):
        fcntl.ioctl(self.inner, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, wanted):
        until = time.monotonic() + 60
        while not wanted(self.seen) and time.monotonic() < until:
            if select.select([self.end], [], [], 0.1)[0]:
                self.seen += os.read(self.end, 65536)
        assert wanted(self.seen), self.seen

    def frames(self):
        """The lines of each complete picture, without cursor movements."""
        for frame in self.seen.split(b"\033[H")[1:]:
            if b"\033[J" in frame:
                text = frame.split(b"\033[J")[0]
                for code in (b"\033[K", b"\033[7m", b"\033[0m"):
                    text = text.replace(code, b"")
                yield text.decode().replace("\r", "").split("\n")

    def finish(self, keys, code):
        os.write(self.end, keys)
        self.read_until(lambda text: text.endswith(b"\033[?25h\033[?1049l"))
        assert self.tool.wait(timeout=120) == code
        restored = termios.tcgetattr(self.inner) == self.modes
        os.close(self.end)
        os.close(self.inner)
        assert restored


@pytest.mark.parametrize(("key", "code"), [(b"q", 0), (b"\x03", 128 + signal.SIGINT)])
def test_on_a_terminal_it_goes_on_until_a_key(user, runtime, tokens, key, code):
    with reader(user, tokens, "--budget", "8MiB") as process:
        seen_reading(user, process.pid)
        terminal = Terminal(user, 24, 80)
        terminal.read_until(lambda text: text.count(b"\033[H") > 3)
        terminal.finish(key, code)
    assert terminal.seen.startswith(b"\033[?1049h\033[?25l\033[H")
    assert b"\033[2J" not in terminal.seen  # clearing the screen would flicker
    for lines in terminal.frames():
        assert lines[2].split()[0] == "PID"
        assert any(line.split()[:1] == [str(process.pid)] for line in lines)
        assert all(len(line) <= 80 for line in lines)


def test_it_follows_the_size_of_the_terminal(user, runtime, tokens):
    with reader(user, tokens) as process:
        seen_reading(user, process.pid)
        terminal = Terminal(user, 24, 80)
        terminal.read_until(lambda text: b"COMMAND" in text)
        terminal.resize(3, 20)
        terminal.seen = b""

        def small(_):
            frames = list(terminal.frames())
            return bool(frames) and all(len(line) <= 20 for line in frames[-1])

        terminal.read_until(small)
        assert len(list(terminal.frames())[-1]) <= 3
        terminal.finish(b"q", 0)


def test_root_sees_all_users(tmp_path, monkeypatch):
    from conftest import user_with_folder

    with user_with_folder("nobody") as nobody, user_with_folder("self") as root:
        data = nobody.write("tokens.bin", np.arange(1 << 18, dtype=np.uint16).tobytes())
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        with reader(nobody, data) as process:
            row, _ = seen_reading(root, process.pid)
            assert row["user"] == "nobody"
            assert process.pid in seen(nobody)[0]
        done = json.loads(root.run("top", "--json", "--interval", "100ms").stdout)
        assert process.pid not in [one["pid"] for one in done["processes"]]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
