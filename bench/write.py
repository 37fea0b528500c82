#!/usr/bin/env python3
"""Writing an array, compared with the usual ways: time, memory, dirty pages and page cache.

    .venv/bin/python bench/write.py --size 4 --peers .venv-peers/bin/python

Each contestant writes `--size` GiB of float32 rows of 162 numbers, in pieces of 4 MiB of random
bytes, always the same piece. fio writes the same amount by direct writes of 1 MiB, 16 in flight, to
a new file: the disk's own limit. Each contestant has its own process and its own memory cgroup,
alternating, `--rounds` times; the median counts. The clock runs while they write, not while Python
starts, and data is on the disk when it stops (fsync). `cache_mib` and `dirty_mib` are the cgroup's
largest page cache and dirty pages, sampled every 20 ms (`--memory` gives the cgroup a limit, in
MiB); `rss_mib` is the largest resident set. h5py and zarr come from the Python of --peers.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading

from prepare import MIB, Cgroup, say

ROWS = 6400
PIECE = ROWS * 162 * 4

HEAD = """
import numpy as np, os, sys, time
pieces = int(sys.argv[1])
piece = np.random.default_rng(1).random((6400, 162), np.float32)
"""
SYNC_FILE = """
fd = os.open("out", os.O_RDONLY); os.fsync(fd)
"""
TAIL = """
print(time.monotonic() - began)
"""
WRITERS = {
    "evenkeel": """
import evenkeel
began = time.monotonic()
with evenkeel.create("out", "float32", (None, 162), format="npy", budget="64MiB") as w:
    for _ in range(pieces): w.append(piece)
""",
    "np.memmap, flush": """
began = time.monotonic()
m = np.lib.format.open_memmap("out", "w+", "float32", (pieces * len(piece), 162))
for i in range(pieces): m[i * len(piece):(i + 1) * len(piece)] = piece
m.flush()
"""
    + SYNC_FILE,
    "tofile": """
began = time.monotonic()
with open("out", "wb") as f:
    for _ in range(pieces): piece.tofile(f)
"""
    + SYNC_FILE,
}
PEERS = {
    "h5py": """
import h5py
began = time.monotonic()
with h5py.File("out", "w") as f:
    d = f.create_dataset("x", (pieces * len(piece), 162), "float32")
    for i in range(pieces): d[i * len(piece):(i + 1) * len(piece)] = piece
"""
    + SYNC_FILE,
    "zarr": """
import zarr
began = time.monotonic()
z = zarr.create_array("out", shape=(pieces * len(piece), 162), chunks=(len(piece), 162),
                      dtype="float32", compressors=None)
for i in range(pieces): z[i * len(piece):(i + 1) * len(piece)] = piece
for folder, _, names in os.walk("out"):
    for name in names: os.fsync(os.open(os.path.join(folder, name), os.O_RDONLY))
""",
}


class Watch:
    """The largest page cache and dirty pages of a cgroup, until `end`."""

    def __init__(self, cgroup):
        self.cache = self.dirty = 0
        self.stat = cgroup.path / "memory.stat"
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()

    def look(self):
        while not self.ended.wait(0.02):
            fields = dict(line.split() for line in self.stat.read_text().splitlines())
            cache = int(fields.get("cache", fields.get("file", 0)))
            dirty = int(fields.get("dirty", fields.get("file_dirty", 0)))
            self.cache, self.dirty = max(self.cache, cache), max(self.dirty, dirty)

    def end(self):
        self.ended.set()
        self.thread.join()


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def measured(command, folder, memory):
    remove(folder / "out")
    cgroup = Cgroup(memory or 1 << 20)
    watch = Watch(cgroup)
    with open(folder / "said", "w+b") as said:
        child = subprocess.Popen(command, cwd=folder, preexec_fn=cgroup.enter, stdout=said)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read().decode()
    if text.startswith("{"):
        seconds = json.loads(text)["jobs"][0]["job_runtime"] / 1000
    else:
        seconds = float(text or "nan")
    watch.end()
    cgroup.remove()
    return {
        "seconds": seconds,
        "rss_mib": usage.ru_maxrss / 1024,
        "cache_mib": watch.cache / MIB,
        "dirty_mib": watch.dirty / MIB,
        "failed": child.returncode != 0,
    }


def commands(options, pieces):
    size = f"--size={pieces * PIECE // MIB}m"
    fio = ["fio", "--name=limit", "--filename=out", "--rw=write", "--bs=1m", "--direct=1"]
    fio += ["--ioengine=libaio", "--iodepth=16", "--end_fsync=1", "--output-format=json", size]
    found = {"fio, direct": fio} if shutil.which("fio") else {}
    for name, program in WRITERS.items():
        found[name] = [sys.executable, "-c", HEAD + program + TAIL, str(pieces)]
    for name, program in PEERS.items() if options.peers else ():
        found[name] = [options.peers, "-c", HEAD + program + TAIL, str(pieces)]
    only = options.only.split(",")
    return {name: found[name] for name in found if any(word in name for word in only)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=float, default=1, help="GiB; default 1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", type=int, help="MiB of a cgroup around each")
    parser.add_argument("--only", default="", help="those whose names contain one of: A,B,...")
    parser.add_argument("--peers", help="a Python that has h5py and zarr")
    parser.add_argument("--folder", help="folder for files; default: a new one here")
    options = parser.parse_args()
    pieces = int(options.size * (1 << 30)) // PIECE
    folder = pathlib.Path(tempfile.mkdtemp(prefix="evenkeel-write-", dir=options.folder or "."))
    folder = folder.resolve()
    results = {}
    try:
        for _ in range(options.rounds):
            for name, command in commands(options, pieces).items():
                results.setdefault(name, []).append(measured(command, folder, options.memory))
                say(f"{name}: {results[name][-1]}")
    finally:
        shutil.rmtree(folder)
    rows = []
    for name, runs in results.items():
        if any(run["failed"] for run in runs):
            rows.append({"name": name, "failed": True})
            continue
        seconds = statistics.median(run["seconds"] for run in runs)
        most = {key: round(max(run[key] for run in runs)) for key in runs[0] if "mib" in key}
        speed = round(pieces * PIECE / MIB / seconds)
        rows.append({"name": name, "seconds": round(seconds, 2), "mib_per_s": speed, **most})
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
