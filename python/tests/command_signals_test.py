"""The installed command restores signals that Python ignores."""

import signal
import subprocess
import sys


def test_a_command_under_guard_is_ended_by_a_closed_pipe(folder):
    status = "grep SigIgn: /proc/self/status"
    words = [sys.executable, "-m", "evenkeel", "guard", "--budget", "64MiB", "--"]
    run = subprocess.run([*words, "sh", "-c", status], capture_output=True, text=True, check=True)
    ignored = int(run.stdout.split()[1], 16)
    assert not [one for one in (signal.SIGPIPE, signal.SIGXFSZ) if ignored >> (one - 1) & 1]
