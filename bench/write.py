#!/usr/bin/env python3
"""Writing an array and shuffling files, beside the usual ways; time, memory and page cache.

    .venv/bin/python bench/write.py arrays --size 2          GiB; np.memmap, tofile, h5py, zarr, dd
    .venv/bin/python bench/write.py shuffle --size 2         rows and lines; shuf, sort -R, NumPy

Each contestant is a process of its own, in turns, `--rounds` times; the median counts. Data is on
the disk when the clock stops (fsync). Memory is the peak of the process (VmHWM); `cache` is how
much more of the file's folder is in the page cache afterwards, by mincore through `fincore`.
`--memory` runs everybody in a cgroup of so many MiB, where that is allowed.
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
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOL = os.environ.get("EVENKEEL_TOOL") or str(ROOT / "build" / "evenkeel")
MIB = 1 << 20
COLUMNS = 162

WRITERS = {
    "evenkeel": """
import evenkeel
with evenkeel.create("out.npy", "float32", (None, 162), budget="64MiB") as w:
    for _ in range(pieces): w.append(piece)
""",
    "memmap": """
m = np.lib.format.open_memmap("out.npy", "w+", "float32", (pieces * len(piece), 162))
for i in range(pieces): m[i * len(piece):(i + 1) * len(piece)] = piece
m.flush()
""",
    "tofile": """
import os
with open("out.npy", "wb") as f:
    for _ in range(pieces): piece.tofile(f)
    f.flush(); os.fsync(f.fileno())
""",
    "h5py": """
import h5py, os
with h5py.File("out.npy", "w") as f:
    d = f.create_dataset("x", (pieces * len(piece), 162), "float32")
    for i in range(pieces): d[i * len(piece):(i + 1) * len(piece)] = piece
fd = os.open("out.npy", os.O_RDONLY); os.fsync(fd)
""",
    "dd": None,
}
HEAD = """
import numpy as np, sys
pieces = int(sys.argv[1])
piece = np.random.default_rng(1).random((6400, 162), np.float32)
"""


def say(text):
    print(text, file=sys.stderr, flush=True)


def cached(folder):
    """MiB of the files in a folder that are in the page cache."""
    files = [str(p) for p in folder.iterdir() if p.is_file()]
    if not files or not shutil.which("fincore"):
        return None
    done = subprocess.run(["fincore", "-bnr", "-o", "RES", *files], capture_output=True, text=True)
    return sum(int(line) for line in done.stdout.split()) / MIB


def measured(command, folder, memory, **kwargs):
    if memory:
        limit = f"MemoryMax={memory}M"
        command = ["systemd-run", "--scope", "-q", "-p", limit, "-p", "MemorySwapMax=0", *command]
    began = time.monotonic()
    child = subprocess.Popen(command, cwd=folder, **kwargs)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - began
    return {
        "seconds": seconds,
        "peak_mib": usage.ru_maxrss / 1024,
        "cache_mib": cached(folder),
        "failed": child.returncode != 0,
    }


def in_turns(contestants, rounds, folder, keep, memory, total):
    results = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, command in contestants.items():
            for path in folder.iterdir():
                if path.name not in keep:
                    path.unlink()
            for name_kept in keep:
                fd = os.open(folder / name_kept, os.O_RDONLY)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)
            results[name].append(measured(command, folder, memory, stdout=subprocess.DEVNULL))
            say(f"{name}: {results[name][-1]}")
    rows = []
    for name, runs in results.items():
        if any(run["failed"] for run in runs):
            rows.append({"name": name, "failed": True})
            continue
        seconds = statistics.median(run["seconds"] for run in runs)
        rows.append(
            {
                "name": name,
                "seconds": round(seconds, 2),
                "mib_per_s": round(total / MIB / seconds),
                "peak_mib": round(max(run["peak_mib"] for run in runs)),
                "cache_mib": None
                if runs[0]["cache_mib"] is None
                else round(max(run["cache_mib"] for run in runs)),
            }
        )
    return rows


def arrays(options, folder):
    piece = 6400 * COLUMNS * 4
    pieces = int(options.size * (1 << 30)) // piece
    contestants = {}
    for name, program in WRITERS.items():
        if program is None:
            count = pieces * piece // MIB
            contestants[name] = [
                "dd", "if=/dev/zero", "of=out.npy", "bs=1M", f"count={count}",
                "oflag=direct", "conv=fsync", "status=none",
            ]  # fmt: skip
            continue
        if name == "h5py" and subprocess.run([sys.executable, "-c", "import h5py"]).returncode:
            continue
        contestants[name] = [sys.executable, "-c", HEAD + program, str(pieces)]
    return in_turns(contestants, options.rounds, folder, [], options.memory, pieces * piece)


NUMPY_SHUFFLE = """
import numpy as np
a = np.load("in.npy"); np.random.default_rng(1).shuffle(a); np.save("out.npy", a)
import os; os.fsync(os.open("out.npy", os.O_RDONLY))
"""
NUMPY_PERMUTED = """
import numpy as np
a = np.load("in.npy", mmap_mode="r"); p = np.random.default_rng(1).permutation(len(a))
o = np.lib.format.open_memmap("out.npy", "w+", a.dtype, a.shape)
for i in range(0, len(p), 4096): o[i:i + 4096] = a[p[i:i + 4096]]
o.flush()
"""


def shuffle(options, folder):
    import evenkeel
    import numpy as np

    size = int(options.size * (1 << 30))
    with evenkeel.create(folder / "in.npy", "float32", (None, COLUMNS)) as w:
        rng = np.random.default_rng(1)
        for _ in range(size // (8192 * COLUMNS * 4)):
            w.append(rng.random((8192, COLUMNS), np.float32))
    with open(folder / "in.txt", "wb") as file:
        line = 0
        while file.tell() < size:
            some = range(line, line + 50_000)
            file.write(b"".join(b"%012d %s\n" % (i, b"x" * (i * 7 % 150)) for i in some))
            line += 50_000
        file.flush()
        os.fsync(file.fileno())
    keep = ["in.npy", "in.txt"]
    mine = ["--budget", options.budget, "--json"]
    copy = "dd bs=4M iflag=direct oflag=direct conv=fsync status=none"
    twice = "for i in 1 2; do {} if=in.{} of=out.{}; done"
    sort = f"sort -R -S {options.budget[:-2]} -T . in.txt -o out.txt && sync out.txt"
    rows = {
        "rows evenkeel": [TOOL, "shuffle", "in.npy", "-o", "out.npy", *mine],
        "rows numpy": [sys.executable, "-c", NUMPY_SHUFFLE],
        "rows numpy memmap": [sys.executable, "-c", NUMPY_PERMUTED],
        "rows two copies": ["sh", "-c", twice.format(copy, "npy", "npy")],
    }
    lines = {
        "lines evenkeel": [TOOL, "shuffle", "in.txt", "-o", "out.txt", *mine],
        "lines shuf": ["sh", "-c", "shuf in.txt -o out.txt && sync out.txt"],
        "lines sort -R": ["sh", "-c", sort],
        "lines two copies": ["sh", "-c", twice.format(copy, "txt", "txt")],
    }
    if options.no_sort:
        del lines["lines sort -R"]
    result = in_turns(rows, options.rounds, folder, keep, options.memory, size)
    return result + in_turns(lines, options.rounds, folder, keep, options.memory, size)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["arrays", "shuffle"])
    parser.add_argument("--size", type=float, default=1, help="GiB; default 1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", default="512MiB", help="of evenkeel shuffle; default 512MiB")
    parser.add_argument("--memory", type=int, help="MiB of a cgroup around each (systemd-run)")
    parser.add_argument("--folder", help="where files are made; default: a new one here")
    parser.add_argument("--no-sort", action="store_true", help="leave out sort -R")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="evenkeel-write-", dir=options.folder or "."))
    try:
        rows = (arrays if options.what == "arrays" else shuffle)(options, folder.resolve())
    finally:
        shutil.rmtree(folder)
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
