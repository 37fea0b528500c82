"""Some epochs of the long run (scripts/test_long) under the profiler."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

PROGRAM = Path(__file__).parent.parent.parent / "tests" / "long_workers.py"


def test_workers_forked_for_each_epoch_leave_nothing_behind():
    # So short a run has the start of its workers in its slope: only a gross leak would show.
    done = subprocess.run(
        [sys.executable, "-m", "evenkeel", "profile", "--no-live", "--json", "/dev/null",
         "--fail-slope", "2GiB/min", "--", sys.executable, str(PROGRAM), "--epochs", "5"],
        capture_output=True,
        text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 epochs of 2 workers, each batch right" in done.stdout
