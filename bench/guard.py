#!/usr/bin/env python3
"""Checks the performance goals of `evenkeel guard` with programs that use np.memmap.

Guarded and unguarded runs take turns. The program is the same in both and does not know about the
guard; its results must be equal. Memory is the kernel's figure, read from outside: the growth of
RSS, and the page cache of the file.

Run it with an interpreter that has NumPy: .venv/bin/python bench/guard.py
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from side_by_side import cgroup, data
from side_by_side.data import GIB, KIB, MIB

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOL = ROOT / "build/evenkeel"
BUDGET = 256 * MIB
LINE = BUDGET + max(32 * MIB, BUDGET // 10)
LIMIT = 400_000_000  # of the cgroup, in bytes

# The program. It prints its rate and a digest of everything it has read.
PROGRAM = """
import sys, time, zlib
import numpy as np
how, path, count, pace = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
draws, digest = np.random.default_rng(7), 0
print("ready", flush=True)
sys.stdin.readline()
began = time.perf_counter()
if how == "crops":
    tokens = np.memmap(path, dtype=np.uint16, mode="r")
    for i in draws.integers(0, len(tokens) - 1024, count):
        digest = zlib.crc32(tokens[i : i + 1024].astype(np.int64), digest)
elif how == "rows":
    rows = np.load(path, mmap_mode="r")
    for i in draws.permutation(len(rows))[:count]:
        digest = zlib.crc32(rows[i].tobytes(), digest)
else:
    words = np.memmap(path, dtype=np.uint64, mode="r")
    piece = 1 << 20
    for at in range(0, count * piece, piece):
        digest ^= int(words[at : at + piece].sum(dtype=np.uint64))
        if pace:  # bytes a second
            ahead = began + (at + piece) * 8 / pace - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)
print(count / (time.perf_counter() - began), digest, flush=True)
"""


def field(pid, name):
    """A field of /proc/PID/status in bytes; 0 for a process that has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * KIB
    return 0


def cpu_of(stat):
    with contextlib.suppress(OSError), open(stat) as text:
        words = text.read().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def guard_cpu(tool, program):
    """CPU seconds of the tool and of its thread in the program."""
    seconds = cpu_of(f"/proc/{tool}/stat")
    with contextlib.suppress(OSError):
        for thread in pathlib.Path(f"/proc/{program}/task").iterdir():
            if (thread / "comm").read_text().startswith("evenkeel"):
                seconds += cpu_of(thread / "stat")
    return seconds


def program_of(process):
    """The process ID of the program itself: if it is guarded, the tool's child."""
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0]) if children else process.pid


def run(path, how, count, budget=None, limit=None, pace=0.0):
    """Runs the program once; returns the figures as a dict. None if a cgroup cannot be created."""
    command = [sys.executable, "-c", PROGRAM, how, str(path), str(count), str(pace)]
    if budget:
        command = [str(TOOL), "guard", "--no-live", "--budget", str(budget), "--", *command]
    with cgroup.memory_cgroup(limit) if limit else contextlib.nullcontext() as group:
        if limit and group is None:
            return None
        inside = group.inside if group else []
        process = subprocess.Popen(
            [*inside, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        pid = program_of(process)
        before, cached = field(pid, "VmRSS"), data.cached_bytes(path) or 0
        guard_before, began = guard_cpu(process.pid, pid), time.perf_counter()
        process.stdin.write("\n")
        process.stdin.flush()
        rss = cache = guard_now = 0
        while process.poll() is None and pathlib.Path(f"/proc/{pid}").exists():
            looked = time.perf_counter()
            rss = max(rss, field(pid, "VmRSS") - before)
            cache = max(cache, data.cached_bytes(path) or 0)
            if not budget and field(pid, "VmRSS") == 0:
                break
            guard_now = max(guard_now, guard_cpu(process.pid, pid))
            seconds = time.perf_counter() - began
            # Counting a large page cache takes milliseconds. Use a tenth of a core at most.
            time.sleep(max(0.005, 9 * (time.perf_counter() - looked)))
        out, said = process.communicate()
        if process.returncode != 0:
            sys.exit(f"bench: {how} ended with {process.returncode}: {said}")
    rate, digest = out.split()
    return {
        "rate": float(rate),
        "digest": digest,
        "rss": rss,
        "cache": cache,
        "cached_before": cached,
        "guard_cpu": (guard_now - guard_before) / seconds if budget else 0.0,
        "said": said if budget else "",
    }


class Table:
    def __init__(self):
        self.rows, self.failed = [], False

    def add(self, what, measured, wanted, met):
        word = "met" if met else "**missed**"
        self.failed |= not met
        self.rows.append({"what": what, "measured": measured, "wanted": wanted, "met": met})
        print(f"| {what} | {measured} | {wanted} | {word} |", flush=True)


def both(path, repeats, *, cold, **work):
    """Unguarded and guarded runs in turn; returns pairs of figures."""
    pairs = []
    for _ in range(repeats):
        pair = []
        for budget in (None, work["budget"]):
            if cold:
                data.make_cold(path)
            else:
                data.make_warm(path)
            figures = run(path, **{**work, "budget": budget})
            if figures is None:
                return None
            pair.append(figures)
        if pair[0]["digest"] != pair[1]["digest"]:
            sys.exit(f"bench: {work['how']}: the guarded program read different data")
        pairs.append(pair)
    return pairs


def compare(table, what, pairs, wanted, unit):
    ratios = sorted(guarded["rate"] / plain["rate"] for plain, guarded in pairs)
    ratio = statistics.median(ratios)
    plain, guarded = (statistics.median(pair[i]["rate"] for pair in pairs) for i in (0, 1))
    table.add(
        f"{what}: guarded against not",
        f"{ratio:.3g} × ({ratios[0]:.3g} to {ratios[-1]:.3g}; "
        f"{guarded:,.0f} : {plain:,.0f} {unit})",
        f">= {wanted} ×",
        ratio >= wanted,
    )


def within(table, what, pairs, line):
    rss = max(guarded["rss"] for _, guarded in pairs)
    cache = max(guarded["cache"] for _, guarded in pairs)
    alone = max(plain["cache"] for plain, _ in pairs)
    table.add(
        f"{what}: growth of RSS, page cache of the file",
        f"{rss / MIB:.0f} MiB, {cache / MIB:.0f} MiB (unguarded {alone / MIB:,.0f} MiB)",
        f"<= {line / MIB:.0f} MiB",
        rss <= line and cache <= line,
    )


def crops_cold(table, args, small_readahead):
    path = data.make(args.dir / "tokens.bin", args.size)
    count = args.crops * (4 if small_readahead else 1)
    pairs = both(path, args.repeats, cold=True, how="crops", count=count, budget=BUDGET)
    what = f"{count:,} crops of 2 KiB from {args.size // GIB} GiB, cold"
    compare(table, what, pairs, 1.3 if small_readahead else 2, "crops/s")
    within(table, what, pairs, LINE)


def rows_limited(table, args, small_readahead):
    path = data.make_rows(args.dir / "rows.npy", args.rows)
    count = args.crops * (4 if small_readahead else 1)
    budget = 128 * MIB
    pairs = both(path, args.repeats, cold=True, how="rows", count=count, budget=budget, limit=LIMIT)
    if pairs is None:
        return
    what = f"{count:,} shuffled rows of {args.rows:,} × 162, 400 MB cgroup"
    compare(table, what, pairs, 2 if small_readahead else 20, "rows/s")
    within(table, what, pairs, budget + 32 * MIB)


def cached(table, args, small_readahead):
    path = data.make(args.dir / "cached.bin", args.size // 4)
    pairs = both(
        path, args.repeats + 2, cold=False, how="crops", count=args.crops * 100, budget=args.size
    )
    compare(table, "crops, all cached, budget larger than the file", pairs, 0.97, "crops/s")


def scan_cold(table, args, small_readahead):
    path = data.make(args.dir / "tokens.bin", args.size)
    pairs = both(
        path, args.repeats, cold=True, how="scan", count=args.size // (8 * MIB), budget=BUDGET
    )
    what = f"scan of {args.size // GIB} GiB in chunks of 8 MiB, cold"
    compare(table, what, pairs, 0.9, "chunks/s")
    within(table, what, pairs, LINE)


def cost(table, args, small_readahead):
    path = data.make(args.dir / "tokens.bin", args.size)
    data.make_cold(path)
    pieces = min(args.size, 8 * GIB) // (8 * MIB)
    figures = run(path, "scan", pieces, budget=BUDGET, pace=1e9)
    rate = figures["rate"] * 8 * MIB / 1e9
    share = figures["guard_cpu"]
    table.add(
        "cost at 1 GB/s of touching: the tool, and its thread in the program",
        f"{share:.1%} of a core (at {rate:.2f} GB/s)",
        "< 5 %",
        share < 0.05,
    )


SCENARIOS = {
    "crops-cold": crops_cold,
    "rows-limited": rows_limited,
    "cached": cached,
    "scan-cold": scan_cold,
    "cost": cost,
}


@contextlib.contextmanager
def readahead(path, kib):
    """Sets the readahead of the device of `path` while the context is active. None leaves it."""
    file = data.readahead_file(path)
    before = data.readahead_kib(path)
    if kib:
        file.write_text(str(kib))
    try:
        yield
    finally:
        if kib:
            file.write_text(str(before))


def options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", nargs="*", choices=[[], *SCENARIOS], help="default: all")
    parser.add_argument("--dir", type=pathlib.Path, default=ROOT / ".cache/bench")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--crops", type=int, default=3000)
    parser.add_argument(
        "--readahead", type=int, metavar="KIB", help="set the readahead during the run"
    )
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--keep", action="store_true", help="keep the files for the next run")
    parser.add_argument("--small", action="store_true", help="little data, to see that it works")
    args = parser.parse_args()
    args.size = GIB if args.small else 10 * GIB
    args.rows = 300_000 if args.small else 3_000_000
    return args


def main():
    args = options()
    args.dir.mkdir(parents=True, exist_ok=True)
    table = Table()
    try:
        with readahead(args.dir, args.readahead):
            kib = data.readahead_kib(args.dir)
            print(f"readahead {kib} KiB, budget {BUDGET // MIB} MiB, {args.repeats} repeats")
            print("| what | measured | wanted | |\n|---|---|---|---|", flush=True)
            for name in args.scenario or SCENARIOS:
                SCENARIOS[name](table, args, kib is not None and kib <= 512)
    finally:
        if not args.keep:
            for name in ("tokens.bin", "rows.npy", "cached.bin"):
                (args.dir / name).unlink(missing_ok=True)
    if args.json:
        args.json.write_text(
            json.dumps({"readahead_kib": kib, "rows": table.rows}, indent=1) + "\n"
        )
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
