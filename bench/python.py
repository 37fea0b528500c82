#!/usr/bin/env python3
"""Checks the performance goals of the Python package: the same work with np.memmap and evenkeel.

They alternate, each in its own process. Results must be equal; memory is the kernel's figure.

Run it with an interpreter that has evenkeel installed: .venv/bin/python bench/python.py
"""

import argparse
import hashlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from side_by_side import data, goals
from side_by_side.cgroup import memory_cgroup
from side_by_side.data import GIB, KIB, MIB

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK, BATCH, CHECKED = 1024, 64, 20
RANKS = 4


# --- contestants: generators of (number of items, array)


def timed(results, seconds):
    """Consumes results (items, array) for `seconds`. Returns items per second, and a digest of the
    first CHECKED arrays."""
    digest, items, number, checking = hashlib.sha256(), 0, 0, 0.0
    began = time.perf_counter()
    for count, array in results:
        if number < CHECKED:  # not timed
            paused = time.perf_counter()
            digest.update(memoryview(array).cast("B"))
            checking += time.perf_counter() - paused
        number += 1
        items += count
        if number >= CHECKED and time.perf_counter() - began - checking > seconds:
            break
    return items / (time.perf_counter() - began - checking), digest.hexdigest()


def draws(count):
    import numpy as np

    random = np.random.default_rng(7)
    while True:
        yield random.integers(0, count - BLOCK - 1, BATCH)


def xy_memmap_anew(file, options):
    import numpy as np

    for ix in draws(os.path.getsize(file) // 2):
        data = np.memmap(file, dtype=np.uint16, mode="r")
        x = np.stack([data[i : i + BLOCK].astype(np.int64) for i in ix])
        y = np.stack([data[i + 1 : i + 1 + BLOCK].astype(np.int64) for i in ix])
        yield BATCH, y
        del x


def xy_evenkeel(file, options):
    import evenkeel

    train = evenkeel.tokens(file, budget=options.budget)
    for ix in draws(len(train)):
        yield BATCH, train.xy(ix, BLOCK)[1]


def crops_of(data):
    import numpy as np

    for ix in draws(len(data)):
        yield BATCH, np.stack([data[i : i + BLOCK] for i in ix])


def crops_np(file, options):
    import numpy as np

    yield from crops_of(np.memmap(file, dtype=np.uint16, mode="r"))


def crops_evenkeel_memmap(file, options):
    import evenkeel
    import numpy as np

    yield from crops_of(evenkeel.memmap(file, np.uint16, "r", budget=options.budget))


def rows_np(file, options):
    import numpy as np

    data = np.load(file, mmap_mode="r")
    order = np.random.default_rng(7).permutation(len(data))
    small = max(1, min(options.chunk, len(order)))
    for at in range(0, len(order), small):
        yield small, data[order[at : at + small]]


def rows_evenkeel(file, options):
    import evenkeel
    import numpy as np

    data = evenkeel.open(file, budget=options.budget)
    order = np.random.default_rng(7).permutation(len(data))
    for at in range(0, len(order), options.chunk):
        yield options.chunk, data.take(order[at : at + options.chunk])


def rows_evenkeel_chunks(file, options):
    import evenkeel

    data = evenkeel.open(file, budget=options.budget)
    while True:
        for chunk in data.batches(options.chunk, shuffle=True, seed=7):
            yield len(chunk), chunk


def rows_scan(file, options):
    import evenkeel

    data = evenkeel.open(file, budget=options.budget)
    while True:
        for chunk in data.batches(options.chunk):
            yield len(chunk), chunk


def rows_blocks(file, options):
    import evenkeel

    loop = evenkeel.open(file, budget=options.budget).batches(
        options.chunk, shuffle="blocks", seed=7
    )
    while True:
        for chunk in loop:
            yield len(chunk), chunk


def rows_blocks_rank(file, options):
    """One epoch of one of RANKS, which start together."""
    import evenkeel

    loop = evenkeel.open(file, budget=options.budget).batches(
        options.chunk, shuffle="blocks", seed=7, rank=options.rank, world=RANKS
    )
    time.sleep(max(0.0, options.at - time.time()))
    for chunk in loop:
        yield len(chunk), chunk


def scan_np(file, options):
    import numpy as np

    data = np.memmap(file, np.uint8, "r")
    while True:
        for at in range(0, len(data), 16 * MIB):
            yield 16, np.array(data[at : at + 16 * MIB])


def scan_evenkeel(file, options):
    import evenkeel

    data = evenkeel.open(file, dtype="uint8", budget=options.budget)
    while True:
        for chunk in data.batches(16 * MIB):
            yield len(chunk) // MIB, chunk


def bytes_read():
    """The bytes that this process has read from disks, counted by the kernel."""
    fields = pathlib.Path("/proc/self/io").read_text().split()
    return int(fields[fields.index("read_bytes:") + 1])


def contestant(options):
    """Runs in its own process. Prints the speed, and the growth of memory since before opening."""
    import evenkeel
    import numpy as np

    np.stack([np.zeros(4)])
    read_before = bytes_read()
    with evenkeel.profile(files=[options.file], interval=0.005) as recording:
        time.sleep(0.05)
        speed, digest = timed(globals()[options.contestant](options.file, options), options.seconds)
        ended = time.time()
    with tempfile.TemporaryDirectory() as folder:
        recording.report(f"{folder}/run.json")
        samples = json.loads(pathlib.Path(folder, "run.json").read_text())["runs"][0]["samples"]
    base = {kind: samples[kind][0] for kind in ("anon", "file", "shmem")}
    rss = [sum(samples[kind][i] for kind in base) for i in range(len(samples["seconds"]))]
    own = [
        samples["anon"][i] + samples["shmem"][i] + (samples["cache"][i] or 0)
        for i in range(len(rss))
    ]
    print(
        json.dumps(
            {
                "speed": speed,
                "digest": digest,
                "memory": max(own) - base["anon"] - base["shmem"],
                "rss": max(rss) - sum(base.values()),
                "cache": max(c or 0 for c in samples["cache"]),
                "read": bytes_read() - read_before,
                "ended": ended,
            }
        )
    )


def take_epoch(order, batch, take):
    """Takes the rows of one epoch. Returns a sum that is the same in any order."""
    import numpy as np

    total = 0
    for at in range(0, len(order), batch):
        block = take(order[at : at + batch])
        total += int(block.view(np.uint32)[:, :2].sum(dtype=np.uint64))
    return total


def epochs(options):
    """Three exactly shuffled epochs from a cold file, in its own process. Prints rows per second
    and the sum of each."""
    import numpy as np

    name = options.contestant.removeprefix("epochs_")
    if name == "np":
        rows = np.load(options.file, mmap_mode="r")
        take = rows.__getitem__
    else:
        import evenkeel

        rows = evenkeel.open(options.file, budget=options.budget, page_cache="fill")
        take = rows.take
    random = np.random.default_rng(7)
    result = {"rates": [], "sums": []}
    for epoch in range(3):
        order = random.permutation(len(rows))
        began = time.perf_counter()
        if name == "batches":
            total = 0
            for block in rows.batches(options.chunk, shuffle=True, seed=7, epoch=epoch):
                total += int(block.view(np.uint32)[:, :2].sum(dtype=np.uint64))
        else:
            total = take_epoch(order, options.chunk, take)
        result["rates"].append(len(rows) / (time.perf_counter() - began))
        result["sums"].append(total)
    print(json.dumps(result))


# --- the bench


class Bench:
    def __init__(self, options):
        self.options, self.results = options, []

    def file(self, name, size):
        return data.make(self.options.dir / name, size)

    def command(self, name, file, budget, chunk, inside, *more):
        return [
            *inside,
            sys.executable,
            __file__,
            "--contestant",
            name,
            "--file",
            str(file),
            "--seconds",
            str(self.options.seconds),
            "--budget",
            str(budget),
            "--chunk",
            str(chunk),
            *more,
        ]

    def run(self, name, file, *, budget="64MiB", cold=True, chunk=0, inside=()):
        (data.make_cold if cold else data.make_warm)(file)
        command = self.command(name, file, budget, chunk, inside)
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        result = json.loads(done.stdout)
        print(
            f"  {name}{'' if cold else ', cached'}: {result['speed']:,.0f}/s, "
            f"memory +{result['memory'] // KIB:,} KiB, RSS +{result['rss'] // KIB:,} KiB",
            file=sys.stderr,
        )
        return result

    def ratio(
        self,
        what,
        ours,
        theirs,
        file,
        least,
        *,
        equal=True,
        slack=0,
        bounded=True,
        their_chunk=None,
        **how,
    ):
        """Compares medians of several runs, taken in turn."""
        pairs = []
        other = {**how, "chunk": their_chunk or how.get("chunk", 0)}
        budget = how.get("budget", "64MiB")
        for _ in range(self.options.repeats):
            pairs.append((self.run(ours, file, **how), self.run(theirs, file, **other)))
        if equal and any(a["digest"] != b["digest"] for a, b in pairs):
            sys.exit(f"bench: {ours} and {theirs} returned different data")
        ratios = [a["speed"] / b["speed"] for a, b in pairs]
        middle = statistics.median(ratios)
        self.note(
            what,
            f"{middle:.3g} × ({min(ratios):.3g} to {max(ratios):.3g}; last "
            f"{pairs[-1][0]['speed']:,.0f} : {pairs[-1][1]['speed']:,.0f})",
            f">= {least:g} ×",
            middle >= least,
        )
        if bounded:
            most = max(max(a["memory"], a["rss"]) for a, _ in pairs)
            allowed = int(budget.removesuffix("MiB")) * MIB + slack
            self.note(
                f"{what}: memory and RSS growth",
                f"{most // KIB:,} KiB",
                f"<= {allowed // KIB:,} KiB",
                most <= allowed,
            )

    def note(self, what, figure, wanted, met):
        print(f"{what}: {figure}, wanted {wanted}", file=sys.stderr)
        self.results.append({"what": what, "figure": figure, "wanted": wanted, "met": met})


def batches_cold(bench):
    bench.ratio(
        "xy of 64 x 1,024 from 10 GiB, cold, against a recreated memmap",
        "xy_evenkeel",
        "xy_memmap_anew",
        bench.file("tokens.bin", bench.options.size),
        20,
    )


def batches_cached(bench):
    bench.ratio(
        "xy, all cached, against a recreated memmap",
        "xy_evenkeel",
        "xy_memmap_anew",
        bench.file("tokens-4GiB.bin", min(4 * GIB, bench.options.size)),
        5,
        cold=False,
    )


def rows_in_cgroup(bench):
    count = 3_000_000
    file = data.make_rows(bench.options.dir / f"rows-{count}.npy", count)
    with memory_cgroup(400_000_000) as group:
        if group is None:
            bench.note("shuffled rows in a 400 MB cgroup", "skipped: no cgroup", "", None)
            return
        bench.ratio(
            "shuffled rows in a 400 MB cgroup, take(), against np.memmap",
            "rows_evenkeel",
            "rows_np",
            file,
            12,
            chunk=50,
            inside=group.inside,
        )
        bench.ratio(
            "shuffled rows in a 400 MB cgroup, chunks(), against np.memmap",
            "rows_evenkeel_chunks",
            "rows_np",
            file,
            12,
            chunk=4096,
            their_chunk=50,
            inside=group.inside,
            equal=False,
        )


def blocks(bench):
    """The order blocks compared with a scan and the exact order, and four ranks of it at once."""
    row_bytes, chunk = 648, 8192
    count = bench.options.size // row_bytes
    file = data.make_rows(bench.options.dir / f"rows-{count}.npy", count)
    how = {"chunk": chunk, "budget": "512MiB", "equal": False}
    what = f"order blocks, {bench.options.size / GIB:.3g} GiB of 648-byte rows, cold"
    bench.ratio(f"{what}, against a scan", "rows_blocks", "rows_scan", file, 0.8, **how)
    bench.ratio(
        f"{what}, against the exact order", "rows_blocks", "rows_evenkeel_chunks", file, 10, **how
    )
    with memory_cgroup(GIB) as group:
        if group is None:
            bench.note("order blocks, 4 ranks in a 1 GiB cgroup", "skipped: no cgroup", "", None)
            return
        scan = bench.run("rows_scan", file, budget="512MiB", chunk=chunk, inside=group.inside)
        data.make_cold(file)
        at = time.time() + 4
        ranks = [
            subprocess.Popen(
                [
                    *bench.command("rows_blocks_rank", file, "128MiB", chunk, group.inside),
                    *("--rank", str(rank), "--at", str(at), "--seconds", "1e9"),
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(RANKS)
        ]
        results = [json.loads(rank.communicate()[0]) for rank in ranks]
        together = count / (max(result["ended"] for result in results) - at)
        bench.note(
            "order blocks, 4 ranks in a 1 GiB cgroup, against one scan",
            f"{together / scan['speed']:.3g} × ({together:,.0f} : {scan['speed']:,.0f} rows/s)",
            ">= 0.8 ×",
            together >= 0.8 * scan["speed"],
        )
        share = max(result["read"] for result in results) / (count * row_bytes / RANKS)
        bench.note(
            "  the most that a rank read", f"{share:.3f} of its share", "<= 1.1", share <= 1.1
        )
        most = max(result["memory"] for result in results)
        bench.note(
            "  memory growth of a rank", f"{most // KIB:,} KiB", "<= 131,072 KiB", most <= 128 * MIB
        )
        bench.note("  killed for memory", f"{group.kills}", "0", group.kills == 0)


def scan_cold(bench):
    bench.ratio(
        "scan, cold, chunks(), against np.memmap",
        "scan_evenkeel",
        "scan_np",
        bench.file("tokens.bin", bench.options.size),
        5,
    )


def memmap_cold(bench):
    bench.ratio(
        "evenkeel.memmap, random crops, cold, against np.memmap",
        "crops_evenkeel_memmap",
        "crops_np",
        bench.file("tokens.bin", bench.options.size),
        2,
        budget="256MiB",
        slack=32 * MIB,
    )


def memmap_cached(bench):
    bench.ratio(
        "evenkeel.memmap, all cached and fitting, against np.memmap",
        "crops_evenkeel_memmap",
        "crops_np",
        bench.file("tokens-1GiB.bin", GIB),
        0.9,
        budget="2048MiB",
        cold=False,
        bounded=False,
    )


class Readahead:
    """Changes the readahead of a file's disk temporarily. Needs root."""

    def __init__(self, file, kib):
        device = os.stat(file).st_dev
        self.setting = pathlib.Path(
            f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb"
        )
        self.kib = kib

    def __enter__(self):
        self.before = self.setting.read_text()
        self.setting.write_text(str(self.kib))

    def __exit__(self, *_):
        self.setting.write_text(self.before)


def epochs_fit(bench):
    """Data that fits free memory, read several times: page_cache="fill" compared with np.memmap."""
    count = 2_900_000  # 1.8 GiB
    file = data.make_rows(bench.options.dir / f"rows-{count}.npy", count)
    for kib in (8192, 128):
        runs = {"np": [], "take": [], "batches": []}
        try:
            with Readahead(file, kib):
                for _ in range(bench.options.repeats):
                    for name, results in runs.items():
                        data.make_cold(file)
                        command = [sys.executable, __file__, "--contestant", f"epochs_{name}"]
                        command += ["--file", str(file), "--budget", "512MiB", "--chunk", "1024"]
                        done = subprocess.run(
                            command, stdout=subprocess.PIPE, text=True, check=True
                        )
                        results.append(json.loads(done.stdout))
                        rates = ", ".join(f"{rate:,.0f}" for rate in results[-1]["rates"])
                        print(f"  {name}, readahead {kib} KiB: {rates} rows/s", file=sys.stderr)
        except OSError as error:
            bench.note(f"epochs that fit, readahead {kib} KiB", f"skipped: {error}", "", None)
            continue
        if any(r["sums"] != runs["np"][0]["sums"] for results in runs.values() for r in results):
            sys.exit("bench: epochs returned different data")
        for name in ("take", "batches"):
            for epoch, least in ((0, 1), (1, 0.9)):
                ratios = [
                    ours["rates"][epoch] / theirs["rates"][epoch]
                    for ours, theirs in zip(runs[name], runs["np"], strict=True)
                ]
                middle = statistics.median(ratios)
                bench.note(
                    f"epoch {epoch + 1} of data that fits, {name}(), readahead {kib} KiB",
                    f"{middle:.3g} × ({min(ratios):.3g} to {max(ratios):.3g}; last "
                    f"{runs[name][-1]['rates'][epoch]:,.0f} : "
                    f"{runs['np'][-1]['rates'][epoch]:,.0f})",
                    f">= {least:g} ×",
                    middle >= least,
                )


def import_time(bench):
    def best(program):
        times = []
        for _ in range(15):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True)
            times.append(time.perf_counter() - began)
        return min(times) * 1e3

    over = best("import numpy, evenkeel; evenkeel.open, evenkeel.tokens") - best("import numpy")
    bench.note("import time, in addition to NumPy's", f"{over:.1f} ms", "< 30 ms", over < 30)


SCENARIOS = {
    "batches-cold": batches_cold,
    "batches-cached": batches_cached,
    "rows-cgroup": rows_in_cgroup,
    "blocks": blocks,
    "scan-cold": scan_cold,
    "memmap-cold": memmap_cold,
    "memmap-cached": memmap_cached,
    "epochs-fit": epochs_fit,
    "import": import_time,
}


def main():
    parser = goals.arguments(__doc__, SCENARIOS)
    parser.add_argument(
        "--size", type=lambda gib: int(float(gib) * GIB), default=10 * GIB, metavar="GIB"
    )
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--budget", help=argparse.SUPPRESS)
    parser.add_argument("--chunk", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--at", type=float, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contestant and options.contestant.startswith("epochs_"):
        epochs(options)
        return 0
    if options.contestant:
        contestant(options)
        return 0
    return goals.run(parser, options, SCENARIOS, Bench)


if __name__ == "__main__":
    sys.exit(main())
