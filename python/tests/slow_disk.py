"""A disk that can be stopped: a FUSE mount whose server gets SIGSTOP."""

import contextlib
import os
import shutil
import signal
import subprocess
import time

import pytest


class SlowDisk:
    def __init__(self, source, mount):
        self.source, self.mount = source, mount
        options = ["-o", "direct_io"]  # nothing is kept in the page cache
        self.server = subprocess.Popen(
            ["bindfs", "-f", *options, str(source), str(mount)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def wait_until_mounted(self):
        deadline = time.monotonic() + 20
        while not os.path.ismount(self.mount):
            if self.server.poll() is not None or time.monotonic() > deadline:
                pytest.skip("FUSE cannot be used here")
            time.sleep(0.01)

    def stop(self):
        """A request that the server has taken already could not be given up, not even by SIGKILL:
        so all its threads have stopped when this returns."""
        self.server.send_signal(signal.SIGSTOP)
        tasks = f"/proc/{self.server.pid}/task"
        while any(not self._stopped(f"{tasks}/{task}/stat") for task in os.listdir(tasks)):
            time.sleep(0.001)

    @staticmethod
    def _stopped(path):
        try:
            with open(path) as file:
                return file.read().rpartition(")")[2].split()[0] in "TtZX"
        except FileNotFoundError:
            return True

    def go_on(self):
        self.server.send_signal(signal.SIGCONT)

    def close(self):
        self.go_on()
        subprocess.run(["umount", "-l", str(self.mount)], capture_output=True, check=False)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.server.wait(timeout=120)
        if self.server.poll() is None:
            self.server.kill()
            self.server.wait()


@contextlib.contextmanager
def slow_disk(tmp_path):
    if not shutil.which("bindfs") or not os.path.exists("/dev/fuse"):
        pytest.skip("bindfs is not installed, or there is no /dev/fuse")
    source, mount = tmp_path / "disk", tmp_path / "mount"
    source.mkdir()
    mount.mkdir()
    disk = SlowDisk(source, mount)
    try:
        disk.wait_until_mounted()
        yield disk
    finally:
        disk.close()
