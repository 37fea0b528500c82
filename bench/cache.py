#!/usr/bin/env python3
"""Checks what the cache inside the budget and several threads are worth, against np.memmap.

    .venv/bin/python bench/cache.py                      all scenarios
    .venv/bin/python bench/cache.py hot-set --seconds 20

hot-set: 90 % of the accesses go to 5 % of the rows of 1 KiB of a file of four times the budget, in
a memory cgroup of one and a half times the budget where one can be created. uniform: random rows of
a file of twice the budget. cached-threads: the whole file is in the page cache; `take(out=)` from
several threads. Each contestant has its own process. Only the time in `take` counts; row
numbers are drawn before, and rows are checked afterwards. Memory is the growth of the process by
the kernel's figures.
"""

import argparse
import json
import mmap
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

from side_by_side import data, goals
from side_by_side.cgroup import memory_cgroup
from side_by_side.data import GIB, MIB, say

ROOT = pathlib.Path(__file__).resolve().parent.parent
BATCH = 1024
DRAWN = 32  # batches at a time


# --- contestants, each in its own process


def opened(name, options):
    """A function that reads rows, and the array."""
    import numpy as np

    shape = (-1, options.row // 4)
    if name in ("evenkeel", "evenkeel_fill"):
        import evenkeel

        array = evenkeel.open(
            options.file,
            dtype="uint32",
            shape=shape,
            budget=options.budget,
            cache=None if options.cache else False,
            page_cache="fill" if name == "evenkeel_fill" else "spare",
        )
        return array.take, array
    array = np.memmap(options.file, "uint32", "r").reshape(shape)
    if name == "memmap_random":
        array.base._mmap.madvise(mmap.MADV_RANDOM)
    return (lambda rows, out: np.take(array, rows, axis=0, out=out, mode="clip")), array


def draw(random, pattern, rows, batch):
    """Row numbers of some batches. Hot rows are scattered, as in most tables."""
    import numpy as np

    shape = (DRAWN, batch)
    anywhere = random.integers(0, rows, shape)
    if pattern != "hot-set":
        return anywhere
    hot = random.integers(0, rows // 20, shape) * 20
    return np.where(random.random(shape) < 0.9, hot, anywhere)


def grown(before):
    """RSS now, in addition to `before`."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE - before


def contestant(options):
    import numpy as np

    rows = os.path.getsize(options.file) // options.row
    # The buffers of the threads, and what NumPy needs, are allocated before the count begins.
    outs = [np.ones((options.batch, options.row // 4), "uint32") for _ in range(options.threads)]
    drawn = [
        draw(np.random.default_rng(number), options.pattern, rows, options.batch)
        for number in range(options.threads)
    ]
    if options.contestant == "evenkeel":
        import evenkeel  # noqa: F401
    before = grown(0)
    take, array = opened(options.contestant, options)
    marks, wrong = [], []
    counts, clocks = [0] * options.threads, [0.0] * options.threads
    began = time.perf_counter()

    def work(number):
        random, out, batches = np.random.default_rng((1, number)), outs[number], drawn[number]
        # With many threads, drawing and checking would become the bottleneck, so one thread at a
        # time does it.
        many = options.threads > 2
        calls = 0
        while time.perf_counter() - began < options.seconds and not wrong:
            wanted = batches[calls % DRAWN]
            start = time.perf_counter()
            take(wanted, out=out)
            clocks[number] += time.perf_counter() - start
            counts[number] += options.batch
            if not (many and calls % 16) and not (out[:, 0] == wanted).all():
                wrong.append(number)
            calls += 1
            if calls % DRAWN == 0 and not many:
                batches = draw(random, options.pattern, rows, options.batch)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(options.threads)]
    for thread in threads:
        thread.start()
    peak = 0
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.02)
        peak = max(peak, grown(before))
        stats = array.stats() if options.contestant == "evenkeel" else {}
        marks.append((time.perf_counter() - began, list(counts), list(clocks), stats))
    if wrong:
        sys.exit("bench: wrong rows")
    late = next(mark for mark in marks if mark[0] >= options.seconds * 0.75)
    end = next((mark for mark in marks if mark[0] >= options.seconds), marks[-1])
    items = [end[1][i] - late[1][i] for i in range(options.threads)]
    inside = [max(end[2][i] - late[2][i], 1e-9) for i in range(options.threads)]
    result = {"speed": sum(n / s for n, s in zip(items, inside, strict=True)), "rss": peak}
    if late[3]:
        done = {key: end[3][key] - late[3][key] for key in late[3]}
        looked = done["cache_hits"] + done["cache_misses"]
        result["misses"] = done["cache_misses"] / looked if looked else 1.0
        result["requests"] = done["requests"] / sum(inside) * options.threads
    print(json.dumps(result))


# --- the bench


class Bench:
    def __init__(self, options):
        self.options, self.results = options, []

    def file(self, size, row):
        """Rows that begin with their number."""
        import numpy as np

        path = self.options.dir / f"numbered-{row}-{size}.bin"
        if path.exists() and path.stat().st_size == size:
            return path
        say(f"creating {path.name}")
        part = np.random.default_rng(1).integers(0, 1 << 32, (16 * MIB // row, row // 4), "uint32")
        with open(path, "wb") as file:
            for first in range(0, size // row, len(part)):
                part[:, 0] = np.arange(first, first + len(part))
                file.write(part[: size // row - first].data)
            file.flush()
            os.fsync(file.fileno())
        return path

    def run(
        self,
        name,
        file,
        pattern,
        *,
        row=1024,
        inside=(),
        threads=1,
        cache=True,
        cold=True,
        batch=BATCH,
        seconds=None,
    ):
        (data.make_cold if cold else data.make_warm)(file)
        command = [*inside, sys.executable, __file__, "--contestant", name, "--file", str(file)]
        command += ["--pattern", pattern, "--seconds", str(seconds or self.options.seconds)]
        command += ["--batch", str(batch)]
        command += ["--budget", str(self.options.budget), "--row", str(row)]
        command += ["--threads", str(threads), *([] if cache else ["--no-cache"])]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        result = json.loads(done.stdout)
        say(
            f"  {pattern}, {name}{'' if cache else ' without its cache'}, {threads} threads, "
            f"batches of {batch:,}: "
            f"{result['speed']:,.0f} rows/s in the last quarter, RSS +{result['rss'] // MIB} MiB"
        )
        return result

    def disk(self, file, reads, threads=1):
        """Random reads of 4 KiB per second, for callers that start this many and wait for all of
        them: by fio, or if it is not installed, by Evenkeel without its cache."""
        if not shutil.which("fio"):
            small = self.run(
                "evenkeel", file, "uniform", cache=False, batch=reads, seconds=4, threads=threads
            )
            return small["requests"], "Evenkeel"
        data.make_cold(file)
        command = [
            "fio",
            "--name=disk",
            f"--filename={file}",
            "--readonly",
            "--direct=1",
            "--bs=4k",
            "--output-format=json",
        ]
        command += ["--ioengine=io_uring", "--rw=randread", "--time_based", "--runtime=3"]
        command += [f"--iodepth={reads}", f"--iodepth_batch_submit={reads}", "--norandommap"]
        command += [f"--iodepth_batch_complete_min={reads}", "--registerfiles", "--fixedbufs"]
        command += [f"--numjobs={threads}", "--group_reporting"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        report = json.loads(done.stdout[done.stdout.index("{") :])
        return report["jobs"][0]["read"]["iops"], "fio"

    def note(self, what, figure, wanted="", met=None):
        self.results.append({"what": what, "figure": figure, "wanted": wanted, "met": met})

    def ratio(self, what, ours, theirs, least):
        times = ours["speed"] / theirs["speed"]
        figure = f"{times:.3g} × ({ours['speed']:,.0f} : {theirs['speed']:,.0f} rows/s)"
        self.note(what, figure, f">= {least:g} ×", times >= least)

    def share(self, what, ours, limit, least=None):
        share = ours["speed"] / limit
        met = None if least is None else share >= least
        wanted = "" if least is None else f">= {least:g}"
        figure = f"{share:.3g} ({ours['speed']:,.0f} of {limit:,.0f} rows/s)"
        self.note(what, figure, wanted, met)

    def bounded(self, what, ours):
        figure = f"+{ours['rss'] / MIB:,.0f} MiB"
        budget = self.options.budget
        self.note(f"{what}: RSS", figure, f"<= {budget // MIB} MiB", ours["rss"] <= budget)


def hot_set(bench):
    file = bench.file(4 * bench.options.budget, 1024)
    with memory_cgroup(bench.options.budget * 3 // 2) as group:
        inside = group.inside if group else ()
        ours = bench.run("evenkeel", file, "hot-set", inside=inside)
        both = bench.run("evenkeel", file, "hot-set", inside=inside, threads=2)
        without = bench.run("evenkeel", file, "hot-set", inside=inside, cache=False)
        theirs = bench.run("memmap_random", file, "hot-set", inside=inside)
    what = "hot set"
    for result, threads in ((ours, 1), (both, 2)):
        misses = max(result["misses"], 1e-9)
        name = what if threads == 1 else f"{what}, 2 threads"
        bench.note(f"{name}: share of misses", f"{misses:.3f}")
        bench.share(f"{name}, of what the misses leave", result, without["requests"] / misses, 0.8)
        # A call waits for all its reads; the disk then has nothing to do until the next call.
        reads = max(round(BATCH * misses), 1)
        batches, by = bench.disk(file, reads, threads)
        bench.share(
            f"{name}, of the disk's speed for batches of {reads} ({by})",
            result,
            batches / misses,
        )
    bench.ratio(f"{what}, against np.memmap with MADV_RANDOM", ours, theirs, 5)
    bench.ratio(f"{what}, against itself without the cache", ours, without, 5)
    bench.bounded(what, ours)


def uniform(bench):
    file = bench.file(2 * bench.options.budget, 1024)
    ours = bench.run("evenkeel", file, "uniform")
    without = bench.run("evenkeel", file, "uniform", cache=False)
    what = "uniform over twice the budget"
    bench.ratio(f"{what}, against itself without the cache", ours, without, 1.7)
    bench.bounded(what, ours)


def cached_threads(bench):
    file = bench.file(16 * bench.options.budget // 4, 2048)
    cores = os.cpu_count() or 1
    ours, theirs, filled = {}, {}, {}
    for threads in (n for n in (1, 2, 4, 8, 16) if n <= cores):
        how = {"row": 2048, "threads": threads, "cold": False}
        ours[threads] = bench.run("evenkeel", file, "uniform", **how)
        theirs[threads] = bench.run("memmap", file, "uniform", **how)
        filled[threads] = bench.run("evenkeel_fill", file, "uniform", **how, cache=False)
        bench.ratio(
            f"all in the page cache, {threads} threads, against np.memmap",
            ours[threads],
            theirs[threads],
            0.5 if threads == 1 else 0,
        )
        bench.ratio(
            f"the same with page_cache='fill', {threads} threads, against np.memmap",
            filled[threads],
            theirs[threads],
            0.5 if threads == 1 else 0,
        )
    if 8 in ours:
        bench.ratio("all in the page cache, 8 threads against one", ours[8], ours[1], 5)
        bench.ratio("with page_cache='fill', 8 threads against one", filled[8], filled[1], 5)
    bench.bounded("all in the page cache", ours[1])


SCENARIOS = {"hot-set": hot_set, "uniform": uniform, "cached-threads": cached_threads}


def main():
    parser = goals.arguments(__doc__, SCENARIOS)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--budget", type=int, default=GIB, metavar="BYTES")
    parser.add_argument("--pattern", help=argparse.SUPPRESS)
    parser.add_argument("--row", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--no-cache", dest="cache", action="store_false", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contestant:
        contestant(options)
        return 0
    return goals.run(parser, options, SCENARIOS, Bench)


if __name__ == "__main__":
    sys.exit(main())
