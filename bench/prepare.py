#!/usr/bin/env python3
"""`evenkeel shuffle` compared with the usual ways to shuffle files that are larger than memory.

    .venv/bin/python bench/prepare.py --size 2 --memory 1024 --peers .venv-prepare/bin/python

Rows of 648 bytes and lines of text, `--size` GiB each. Each contestant runs in a memory cgroup of
`--memory` MiB (root, cgroup v1 or v2) with the option to use `--budget`; data is on the disk when
the clock stops. Contestants alternate, `--rounds` times, from a cold cache; the median counts. Each
output is checked: the same rows or lines as the input, in another order, by the sum and the xor of
their hashes.

terashuf is its method (github.com/alexandres/terashuf) written plainly in C++, in
bench/terashuf.cc: read as much as fits the budget, shuffle it in memory, write it to a temporary
file; then take lines from the temporary files, each chosen with a probability proportional to what
is left of it. `two copies` is the time to copy the input twice with direct reads and writes (dd, 4
MiB): the reads and writes of any shuffle in two passes. DuckDB and Polars are those of
bench/requirements-prepare.txt; a contestant that is killed or fails is shown as such.
"""

import argparse
import ctypes
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOL = os.environ.get("EVENKEEL_TOOL") or str(ROOT / "build" / "evenkeel")
MIB = 1 << 20
COLUMNS = 162

DUCKDB = """
import duckdb, os
c = duckdb.connect()
c.execute("SET memory_limit='{budget}'"); c.execute("SET temp_directory='tmp'")
c.execute("SET preserve_insertion_order=false")
c.execute('''COPY (SELECT line FROM read_csv('in.txt', columns={{'line': 'VARCHAR'}}, header=false,
  delim='', quote='', escape='', auto_detect=false) ORDER BY random())
  TO 'out.txt' (HEADER false, DELIMITER E'\\t', QUOTE '', ESCAPE '')''')
os.fsync(os.open("out.txt", os.O_RDONLY))
"""
POLARS = """
import os, polars as pl
lines = pl.scan_csv("in.txt", has_header=False, separator="\\x01", quote_char=None,
                    new_columns=["line"], schema_overrides=[pl.String])
keyed = lines.with_columns(pl.int_range(pl.len()).hash(1).alias("key")).sort("key")
keyed.select("line").sink_csv("out.txt", include_header=False, separator="\\x01",
                              quote_style="never", engine="streaming")
os.fsync(os.open("out.txt", os.O_RDONLY))
"""
NUMPY = """
import numpy as np, os
a = np.memmap("in.raw", np.uint32, "r").reshape(-1, 162)
p = np.random.default_rng(1).permutation(len(a))
with open("out.raw", "wb") as f:
    for i in range(0, len(p), 8192): a[p[i:i + 8192]].tofile(f)
    f.flush(); os.fsync(f.fileno())
"""


def say(text):
    print(text, file=sys.stderr, flush=True)


class Cgroup:
    """A new memory cgroup; none without a limit."""

    def __init__(self, mib):
        self.path = None
        if not mib:
            return
        v1 = pathlib.Path("/sys/fs/cgroup/memory")
        self.path = (v1 if v1.exists() else pathlib.Path("/sys/fs/cgroup")) / f"ek-{os.getpid()}"
        self.path.mkdir()
        name = "memory.limit_in_bytes" if v1.exists() else "memory.max"
        (self.path / name).write_text(str(mib * MIB))

    def enter(self):
        if self.path:
            (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        for _ in range(100 if self.path else 0):
            try:
                return self.path.rmdir()
            except OSError:  # the kernel has not released the last process yet
                time.sleep(0.05)


def words(letters, i):
    """Lines of 0 to 179 letters."""
    at = (i * 37) & 0xFFFF
    return letters[at : at + (i * 7919) % 180]


def make_inputs(folder, size):
    rng = np.random.default_rng(1)
    with open(folder / "in.raw", "wb") as file:
        rows = size // (COLUMNS * 4)
        for first in range(0, rows, 32768):
            count = min(32768, rows - first)
            block = rng.integers(0, 1 << 32, (count, COLUMNS), np.uint32)
            block[:, 0] = np.arange(first, first + count)
            block.tofile(file)
        os.fsync(file.fileno())
    letters = rng.integers(97, 123, 1 << 17, np.uint8).tobytes()
    with open(folder / "in.txt", "wb") as file:
        line = 0
        while file.tell() < size:
            some = range(line, line + 20_000)
            file.write(b"".join(b"%010d %s\n" % (i, words(letters, i)) for i in some))
            line += 20_000
        file.flush()
        os.fsync(file.fileno())


CHECK = r"""
#include <cstdio>
#include <cstdint>
#include <cstring>
#include <string>
static uint64_t hash(const char* p, size_t n) {
  uint64_t h = 1469598103934665603ull ^ n;
  for (; n >= 8; p += 8, n -= 8) { uint64_t w; memcpy(&w, p, 8); h = (h ^ w) *
  0x9e3779b97f4a7c15ull; h ^= h >> 29; } for (; n; ++p, --n) h = (h ^ (unsigned char)*p) *
  1099511628211ull; h ^= h >> 32; h *= 0xd6e8feb86659fd93ull; return h ^ h >> 32;
}
int main(int, char** v) {
  FILE* f = fopen(v[1], "rb"); size_t row = strtoul(v[2], 0, 10); uint64_t sum = 0, mix = 0, n = 0,
  order = 0; if (!f) return 1; char* line = nullptr; size_t room = 0; std::string buffer(row, 0);
  for (;;) {
    uint64_t h;
    if (row) { if (fread(buffer.data(), 1, row, f) != row) break; h = hash(buffer.data(), row); }
    else { ssize_t k = getline(&line, &room, f); if (k < 0) break; if (k && line[k-1] == '\n') --k;
    h = hash(line, k); } sum += h; mix ^= h * h; ++n; order = order * 31 + h;
  }
  printf("%llu %llu %llu %llu\n", (unsigned long long)n, (unsigned long long)sum, (unsigned long
  long)mix, (unsigned long long)order);
}
"""  # noqa: E501


def compiled(folder, name, source):
    path = folder / name
    if not path.exists():
        flags = ["-O2", "-march=native", "-std=c++20", "-x", "c++", "-", "-o", str(path)]
        subprocess.run(["g++", *flags], input=source, text=True, check=True)
    return str(path)


def fingerprint(checker, path, row):
    """The number of items, two sums that do not depend on their order, and one that does."""
    done = subprocess.run([checker, str(path), str(row)], capture_output=True, text=True)
    numbers = done.stdout.split()
    return (numbers[:3], numbers[3]) if len(numbers) == 4 else (None, None)


def end_with_parent():
    """If the bench is killed, the processes that it started end, too: PR_SET_PDEATHSIG."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() == 1:  # the parent has already ended
        os._exit(1)


def end_session(child):
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()


def timed(command, folder, cgroup, limit):
    began = time.monotonic()

    def prepare():
        end_with_parent()
        cgroup.enter()

    child = subprocess.Popen(
        command,
        cwd=folder,
        preexec_fn=prepare,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _, error = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        end_session(child)
        return limit, 1, f"not done after {limit:g} s"
    except BaseException:  # Ctrl-C, SIGTERM
        end_session(child)
        raise
    seconds = time.monotonic() - began
    return seconds, child.returncode, error.decode(errors="replace").strip()[-200:]


def contestants(options, kind):
    budget = options.budget
    copy = "dd bs=4M iflag=direct oflag=direct conv=fsync status=none"
    name = {"rows": "raw", "lines": "txt"}[kind]
    twice = f"for i in 1 2; do {copy} if=in.{name} of=out.{name}; done"
    shape = ["--dtype", "uint32", "--shape", f"-1,{COLUMNS}"] if kind == "rows" else []
    mine = [TOOL, "shuffle", f"in.{name}", *shape, "-o", f"out.{name}", "--budget", budget]
    found = {"evenkeel": mine, "two copies": ["sh", "-c", twice]}
    mib = budget.removesuffix("MiB")
    row = COLUMNS * 4 if kind == "rows" else 0
    found["terashuf"] = ["./terashuf", f"in.{name}", f"out.{name}", str(row), mib]
    if kind == "rows":
        found["numpy memmap"] = [sys.executable, "-c", NUMPY]
        return found
    found["shuf"] = ["sh", "-c", "shuf in.txt -o out.txt && sync out.txt"]
    if not options.no_sort:
        sort = f"LC_ALL=C sort -R -S {mib}M -T . in.txt -o out.txt && sync out.txt"
        found["sort -R"] = ["sh", "-c", sort]
    if options.peers:
        found["duckdb"] = [options.peers, "-c", DUCKDB.format(budget=budget)]
        found["polars"] = [options.peers, "-c", POLARS]
    return found


def run_kind(options, folder, kind, cgroup):
    checker = compiled(folder, "check", CHECK)
    compiled(folder, "terashuf", (ROOT / "bench" / "terashuf.cc").read_text())
    name = {"rows": "raw", "lines": "txt"}[kind]
    row = COLUMNS * 4 if kind == "rows" else 0
    wanted, order = fingerprint(checker, folder / f"in.{name}", row)
    size = (folder / f"in.{name}").stat().st_size
    results, why = {}, {}
    for turn in range(options.rounds):
        for who, command in contestants(options, kind).items():
            if who in why:
                continue
            (folder / f"out.{name}").unlink(missing_ok=True)
            for file in ("in.raw", "in.txt"):
                fd = os.open(folder / file, os.O_RDONLY)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)
            seconds, code, error = timed(command, folder, cgroup, options.limit)
            shutil.rmtree(folder / "tmp", ignore_errors=True)
            if code != 0:
                why[who] = f"exit {code}: {error}"
                say(f"{kind} {who}: {why[who]}")
                continue
            say(f"{kind} {who}: {seconds:.2f} s")
            results.setdefault(who, []).append(seconds)
            if who == "two copies" or turn > 0:
                continue
            same, found_order = fingerprint(checker, folder / f"out.{name}", row)
            if same != wanted or found_order == order:
                why[who] = "the output is not a permutation of the input"
                say(f"{kind} {who}: {why[who]}")
    rows = []
    for who in contestants(options, kind):
        if who in why:
            rows.append({"kind": kind, "name": who, "failed": why[who]})
        else:
            median = statistics.median(results[who])
            speed = round(size / MIB / median)
            rows.append(
                {"kind": kind, "name": who, "seconds": round(median, 2), "mib_per_s": speed}
            )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=float, default=1, help="GiB of each input; default 1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", default="512MiB", help="of each contestant; default 512MiB")
    parser.add_argument("--memory", type=int, help="MiB of a cgroup around each")
    parser.add_argument("--folder", help="folder for files; default: a new one here")
    parser.add_argument("--peers", help="a Python with bench/requirements-prepare.txt")
    parser.add_argument("--no-sort", action="store_true", help="leave out sort -R")
    parser.add_argument("--limit", type=float, default=600, help="seconds for each; default 600")
    parser.add_argument("--kinds", default="rows,lines")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="evenkeel-prepare-", dir=options.folder or "."))
    folder = folder.resolve()
    cgroup = Cgroup(options.memory)
    try:
        make_inputs(folder, int(options.size * (1 << 30)))
        kinds = options.kinds.split(",")
        rows = [row for kind in kinds for row in run_kind(options, folder, kind, cgroup)]
    finally:
        shutil.rmtree(folder)
        cgroup.remove()
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
