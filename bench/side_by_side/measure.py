"""Runs one contestant and measures it from outside with the kernel's figures."""

import contextlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time

from . import data

BENCH = pathlib.Path(__file__).resolve().parent.parent
TICK = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """There is no figure; the message is the reason shown in the table."""


class Child:
    """A contestant's process and its children."""

    def __init__(self, python, mode, name, work, inside=()):
        environment = {
            **os.environ,
            "PYTHONPATH": str(BENCH),
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
            "PYTHONWARNINGS": "ignore",
        }
        self.process = subprocess.Popen(
            [*inside, str(python), "-m", "side_by_side.child", mode, name, work.text()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        os.set_blocking(self.process.stdout.fileno(), False)
        os.set_blocking(self.process.stderr.fileno(), False)
        self._out, self.errors = b"", b""

    def word(self, timeout):
        """The next message of the process, or None if none came within `timeout`."""
        if b"\n" not in self._out:
            streams = [self.process.stdout, self.process.stderr]
            ready, _, _ = select.select(streams, [], [], timeout)
            if self.process.stderr in ready:
                self.errors += self.process.stderr.read() or b""
            if self.process.stdout in ready:
                more = self.process.stdout.read()
                if more == b"":
                    self.process.wait()
                    self.errors += self.process.stderr.read() or b""
                    raise Failed(self._ending())
                self._out += more or b""
        if b"\n" not in self._out:
            return None
        line, _, self._out = self._out.partition(b"\n")
        return json.loads(line)

    def wait_for(self, word, timeout):
        until = time.monotonic() + timeout
        while (left := until - time.monotonic()) > 0:
            heard = self.word(left)
            if heard is not None:
                assert heard["word"] == word, heard
                return heard
        raise Failed(f"no answer within {timeout:.0f} s")

    def answer(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                stream.close()

    def _ending(self):
        if self.process.returncode == -signal.SIGKILL:
            return "killed"
        lines = [line for line in self.errors.decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip()[:300] if lines else f"exit status {self.process.returncode}"


def tree(pid):
    """A process and all its descendants."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{one}/task"):
                children = pathlib.Path(f"/proc/{one}/task/{task}/children").read_text().split()
                found.extend(map(int, children))
    return found


def numbers(path, names):
    """The values of lines such as `name: N kB`, in bytes."""
    got = dict.fromkeys(names, 0)
    with contextlib.suppress(OSError), open(path) as lines:
        for line in lines:
            name, _, rest = line.partition(":")
            if name in got:
                got[name] = int(rest.split()[0]) * (1024 if rest.endswith("kB\n") else 1)
    return got


def memory_of(pid, pss):
    """Anonymous, mapped-file and shared memory of the tree. With pss, pages that several processes
    map are divided among them. That is exact, but takes longer to read."""
    total = [0, 0, 0]
    for one in tree(pid):
        if pss:
            names = ("Pss_Anon", "Pss_File", "Pss_Shmem")
            found = numbers(f"/proc/{one}/smaps_rollup", names)
        else:
            names = ("RssAnon", "RssFile", "RssShmem")
            found = numbers(f"/proc/{one}/status", names)
        total = [sum(pair) for pair in zip(total, (found[n] for n in names), strict=True)]
    return dict(zip(("anon", "file", "shmem"), total, strict=True))


def spent(pid):
    """CPU seconds and bytes read from the disk by the tree so far."""
    cpu = read = 0
    for one in tree(pid):
        with contextlib.suppress(OSError):
            fields = pathlib.Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            # its own time, and that of children that have ended
            cpu += sum(int(field) for field in fields[11:15]) / TICK
            read += numbers(f"/proc/{one}/io", ["read_bytes"])["read_bytes"]
    return cpu, read


class Watch:
    """Peaks of memory growth since this object was created."""

    def __init__(self, pid, path, pss):
        self._pid, self._path, self._pss = pid, path, pss
        self._base = self._sample()
        self.peaks = dict.fromkeys((*self._base, "rss", "memory"), 0)

    def _sample(self):
        now = memory_of(self._pid, self._pss)
        now["cache"] = data.cached_bytes(self._path) or 0
        return now

    def look(self):
        """Takes a sample; returns how many seconds that took."""
        began = time.perf_counter()
        now = self._sample()
        grown = {kind: now[kind] - self._base[kind] for kind in now}
        grown["rss"] = grown["anon"] + grown["file"] + grown["shmem"]
        grown["memory"] = grown["anon"] + grown["shmem"] + grown["cache"]
        self.peaks = {kind: max(peak, grown[kind]) for kind, peak in self.peaks.items()}
        return time.perf_counter() - began


def measure(python, name, work, *, cold, pss=False, group=None, grace=60):
    """Runs a contestant once. Raises Failed with the reason if it gives no result."""
    path = work.converted or work.path
    child = Child(python, "run", name, work, group.inside if group else ())
    try:
        child.wait_for("ready", grace)
        if cold:
            stayed = data.make_cold(path)
            if stayed and stayed > 0.001 * sum(f.stat().st_size for f in data.files_in(path)):
                raise Failed(f"{stayed // data.KIB} KiB could not be dropped from the cache")
        else:
            data.make_warm(path)
        watch = Watch(child.process.pid, path, pss)
        cpu, read = spent(child.process.pid)
        child.answer()
        until, done, took = time.monotonic() + work.seconds + grace, None, 0.0
        while done is None:
            done = child.word(max(0.005, 20 * took))  # so that watching uses little of a core
            took = watch.look()
            if time.monotonic() > until:
                raise Failed(f"not finished within {work.seconds + grace:.0f} s")
        cpu_after, read_after = spent(child.process.pid)
        child.answer()
        checked = child.wait_for("checked", grace)
    except Failed as failure:
        if group and group.kills:
            raise Failed("killed: it did not fit the memory limit") from failure
        raise
    finally:
        child.end()
    wanted = done["items"] * work.wanted_bytes()
    return {
        **{key: done[key] for key in ("items", "seconds", "per_s", "first_batch_s")},
        "digest": checked["digest"],
        "problem": checked["problem"],
        "cpu_s_per_item": max(0, cpu_after - cpu - done.get("checking_cpu_s", 0)) / done["items"],
        "read_per_wanted": (read_after - read) / wanted,
        "growth": watch.peaks,
        "cgroup_peak": group.peak if group else None,
    }


def convert(python, name, work):
    child = Child(python, "convert", name, work)
    try:
        child.wait_for("done", 1200)
    finally:
        child.end()


def versions(python, names):
    """Versions of installed distributions; None for those that are not installed."""
    program = (
        "import importlib.metadata as m, json, sys\n"
        "def v(n):\n"
        "    try: return m.version(n)\n"
        "    except m.PackageNotFoundError: return None\n"
        "print(json.dumps({n: v(n) for n in sys.argv[1:]}))"
    )
    done = subprocess.run(
        [str(python), "-c", program, *names], stdout=subprocess.PIPE, check=True, text=True
    )
    return json.loads(done.stdout)


def interpreter(root):
    """The interpreter that has the peers, otherwise that of .venv, otherwise this one."""
    for venv in (".venv-peers", ".venv"):
        python = root / venv / "bin/python"
        if os.access(python, os.X_OK):
            return python
    return pathlib.Path(sys.executable)
