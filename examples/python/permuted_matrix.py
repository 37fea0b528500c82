"""Every row of a large matrix once, in permuted order: Stack Overflow question 45132940.

    python permuted_matrix.py                      124 MiB, with a budget of 16 MiB
    python permuted_matrix.py --rows 3000000       the size in the question: 1.8 GiB
    python permuted_matrix.py --report mem.html    the pictures side by side
    python permuted_matrix.py --memmap             also evenkeel.memmap, one word from np.memmap

In the question, memory climbs during the loop. Nothing leaks: the mapping keeps every page that was
touched, and around each page the kernel reads ahead rows that nobody has asked for yet.

If the whole file fits into memory that nothing else needs, the loop "before" is faster: everything
that was read ahead is used in the end. The loops "after" stay within a budget. evenkeel.memmap
waits for one page fault after another, while evenkeel.open has many reads in flight. For rows in
random order, use evenkeel.open.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import evenkeel
import numpy as np

COLUMNS = 162
AT_ONCE = 4096  # rows


class Work:
    """Work on the rows. The total is the same for every order, but differs if a single row is
    wrong, missing, or at the wrong index."""

    def __init__(self):
        self.total = 0

    def do(self, index, rows):
        of_rows = rows.view(np.uint32).sum(axis=1, dtype=np.uint64)
        self.total += int((of_rows * (index.astype(np.uint64) + np.uint64(1))).sum())


def before(path, shape, permutation, budget, work):
    a = np.memmap(path, dtype="float32", mode="r", shape=shape)
    for start in range(0, len(a), AT_ONCE):
        index = permutation[start : start + AT_ONCE]
        work.do(index, np.asarray(a[index, :]))


def after(path, shape, permutation, budget, work):
    a = evenkeel.open(path, dtype="float32", shape=shape, budget=budget)
    for start in range(0, len(a), AT_ONCE):
        index = permutation[start : start + AT_ONCE]
        work.do(index, a[index, :])


def by_batches(path, shape, permutation, budget, work):
    """Without an array of the permutation, which takes 8 bytes per row: the seed is enough."""
    a = evenkeel.open(path, dtype="float32", shape=shape, budget=budget)
    for index, rows in a.batches(AT_ONCE, shuffle=True, seed=1, with_index=True):
        work.do(index, rows)


def by_memmap(path, shape, permutation, budget, work):
    a = evenkeel.memmap(path, dtype="float32", mode="r", shape=shape, budget=budget)
    for start in range(0, len(a), AT_ONCE):
        index = permutation[start : start + AT_ONCE]
        work.do(index, np.asarray(a[index, :]))


def nothing(path, shape, permutation, budget, work):
    """The baseline: the memory of Python and NumPy themselves."""


def write_matrix(path, rows):
    random = np.random.default_rng(0)
    with open(path, "wb") as file:
        for start in range(0, rows, AT_ONCE):
            count = min(AT_ONCE, rows - start)
            file.write(random.random((count, COLUMNS), dtype=np.float32).tobytes())
        os.fsync(file.fileno())  # only pages that are on the disk can be dropped


def measured(way, path, shape, permutation, budget):
    """Runs one way, with nothing of the file in the page cache."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    work = Work()
    with evenkeel.profile(files=[str(path)]) as profile:
        way(path, shape, permutation, budget, work)
    return profile, work.total


def line(name, profile):
    mib = [f"{(profile.peaks[kind] or 0) / (1 << 20):8.1f}" for kind in ("memory", "rss", "cache")]
    read = f"{profile.counters['disk_read'] / (1 << 20):8.1f}"
    return f"{name:32} {' '.join(mib)} {read} {profile.seconds:8.2f}"


def main():
    options = argparse.ArgumentParser(description="Permuted rows of a matrix, before and after.")
    options.add_argument("--rows", type=int, default=200_000)
    options.add_argument("--budget", default="16MiB")
    options.add_argument("--memmap", action="store_true", help="also use evenkeel.memmap")
    options.add_argument("--report", type=Path, metavar="FILE.html", help="pictures side by side")
    options.add_argument("--folder", help="where to create the matrix; default: a temporary folder")
    args = options.parse_args()
    if args.rows < 1:
        options.error(f"--rows must be at least 1, not {args.rows}")
    ways = {
        "nothing, for comparison": nothing,
        "before: np.memmap": before,
        "after: evenkeel.open": after,
        "after: batches(shuffle=True)": by_batches,
    }
    if args.memmap:
        ways["after: evenkeel.memmap"] = by_memmap

    permutation = np.random.default_rng(1).permutation(args.rows)
    totals, pictures = {}, []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = Path(folder) / "matrix.f32"
        write_matrix(path, args.rows)
        size = f"{path.stat().st_size / (1 << 20):.0f} MiB"
        print(f"{args.rows:,} x {COLUMNS} float32, {size}; budget {args.budget}; peaks in MiB")
        print(f"{'':32} {'memory':>8} {'RSS':>8} {'cache':>8} {'read':>8} {'seconds':>8}")
        for name, way in ways.items():
            shape = (args.rows, COLUMNS)
            profile, totals[name] = measured(way, path, shape, permutation, args.budget)
            print(line(name, profile), flush=True)
            pictures.append(f"<div><h3>{name}</h3>{profile._repr_html_()}</div>")
    if args.report:
        style = "display:grid;grid-template-columns:1fr 1fr;gap:2em;font-family:sans-serif"
        grid = f'<div style="{style}">{"".join(pictures[1:])}</div>'
        args.report.write_text(f'<!doctype html><meta charset="utf-8">{grid}')
    del totals["nothing, for comparison"]
    equal = len(set(totals.values())) == 1
    print("all loops read the same rows" if equal else f"the rows differ: {totals}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
