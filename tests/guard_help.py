"""For the tests of evenkeel guard: files of numbers, guarded runs, figures of the page cache."""

import ctypes
import errno
import json
import os
import re
import subprocess
import threading
from dataclasses import dataclass

import numpy as np
import pytest

MIB = 1 << 20
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SYS_CACHESTAT = 451  # the same number on every machine


def limit_of(budget):
    """What memory may reach for a short time."""
    return budget + max(32 * MIB, budget // 10)


def write_numbers(path, mib):
    """Writes 64-bit words: word i is i. They are on the disk and not in the page cache."""
    with open(path, "wb") as file:
        for piece in range(0, mib, 32):
            words = min(32, mib - piece) * MIB // 8
            np.arange(piece * MIB // 8, piece * MIB // 8 + words, dtype=np.uint64).tofile(file)
        file.flush()
        os.fsync(file.fileno())
    drop_from_cache(path)
    return path


def drop_from_cache(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


# ---- guarded runs


@dataclass
class Guarded:
    stdout: str
    stderr: str
    run: dict  # of --json

    def _size(self, name):
        number, unit = self.run["facts"][name].replace(",", "").split()
        return float(number) * _UNITS[unit]

    @property
    def released(self):
        return self._size("guard: released")

    @property
    def peak(self):
        return self._size("guard: most of mapped files in memory")

    @property
    def guarded(self):
        """The number of guarded files."""
        found = re.search(r"mapped files +(\d+) guarded", self.stderr)
        return int(found.group(1)) if found else 0


def guard(user, budget, *args, code=0, **kwargs):
    """`args` are options, "--" and the command."""
    report = user.folder / "guard.json"
    report.unlink(missing_ok=True)
    done = user.run("guard", "--budget", budget, "--json", report, *args, code=code, **kwargs)
    (run,) = json.loads(report.read_text())["runs"]
    return Guarded(done.stdout, done.stderr, run)


def plain(user, *command, **kwargs):
    """Runs the command without the tool."""
    done = subprocess.run(
        [*user.prefix, *map(str, command)],
        cwd=user.folder,
        capture_output=True,
        text=True,
        timeout=240,
        **kwargs,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


# ---- the page cache


class _Range(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class _CacheStat(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    ]


_libc = ctypes.CDLL(None, use_errno=True)


def cached_bytes(fd):
    whole, stat = _Range(0, 0), _CacheStat()
    failed = _libc.syscall(_SYS_CACHESTAT, fd, ctypes.byref(whole), ctypes.byref(stat), 0)
    if failed:
        raise OSError(ctypes.get_errno(), "cachestat")
    return stat.cached * os.sysconf("SC_PAGE_SIZE")


def require_cachestat(path):
    with open(path, "rb") as file:
        try:
            cached_bytes(file.fileno())
        except OSError as error:
            pytest.skip(f"cachestat: {errno.errorcode[error.errno]}: the page cache cannot be seen")


class CachePeak:
    """The most bytes of some files in the page cache, sampled every 2 ms."""

    def __init__(self, *paths):
        self.paths = paths
        self.bytes = 0
        self.samples = []
        self._done = threading.Event()

    def __enter__(self):
        self._files = [open(path, "rb") for path in self.paths]
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self):
        while not self._done.wait(0.002):
            self.samples.append(sum(cached_bytes(file.fileno()) for file in self._files))
            self.bytes = max(self.bytes, self.samples[-1])

    @property
    def looks(self):
        return len(self.samples)

    def share_above(self, limit):
        """The share of samples above a limit."""
        return sum(one > limit for one in self.samples) / max(len(self.samples), 1)

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()
        for file in self._files:
            file.close()
