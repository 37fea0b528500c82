"""evenkeel profile on a terminal: the last row, keys, colours."""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

import pytest
from profile_help import (
    profile,
    start,
)

pytestmark = pytest.mark.usefixtures("marks_checked")


class Terminal:
    """Runs the tool on a pseudo-terminal."""

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

    def read_until(self, wanted, seconds=120):
        until = time.monotonic() + seconds
        while wanted not in self.seen and time.monotonic() < until:
            self._read(0.1)
        assert wanted in self.seen, self.seen

    def _read(self, seconds):
        if not select.select([self.end], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self.end, 65536)
        except OSError:  # the other end is closed
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
        return self.tool.wait(timeout=120)


SCROLL_ABOVE, SCROLL_ALL = b"\033[1;23r", b"\033[r"


def given_back(terminal):
    """Checks that the whole screen scrolls again and the last row is empty before other output."""
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
    assert SCROLL_ABOVE not in terminal.seen


def test_colours_on_a_terminal_unless_they_are_not_wanted(user, program, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    words = ["--no-live", "--budget", "1MiB", "--", program, "anon", 8, "sleep", 50]
    terminal = Terminal(user, *words)
    assert terminal.finish() == 0
    assert b"\033[31;1mMemory exceeded\033[0m the budget" in terminal.seen
    assert b"\033[32;1mnext:\033[0m evenkeel" in terminal.seen
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal(user, *words)
    assert terminal.finish() == 0
    assert b"\033" not in terminal.seen


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
