#!/usr/bin/env python3
"""The mean of a file much larger than memory, by dask and xarray: evenkeel compared with np.memmap.

usage: bench/out_of_core.py [--gib 10] [--limit-mib 1024] [--rounds 1] [--folder .]

A float32 file of rows of 4 KiB is written. Each way has its own process in a memory cgroup,
with the page cache of the file dropped before, and takes the mean of every column: dask over blocks
of 16 MiB, in two threads, and xarray over the same. The peak is that of the cgroup, with the page
cache that is charged to it.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
from side_by_side.cgroup import memory_cgroup

COLUMNS, BLOCK = 1024, 4096  # rows of a block
WAYS = ("dask, evenkeel", "dask, np.memmap", "xarray, evenkeel", "xarray, np.memmap")


class Mapped:
    """A memmap that dask treats as any array with a shape and slices, not as a NumPy array;
    its token is the name of the file."""

    def __init__(self, path):
        self.rows = np.load(path, mmap_mode="r")
        self.shape, self.dtype, self.ndim = self.rows.shape, self.rows.dtype, self.rows.ndim

    def __getitem__(self, index):
        return np.asarray(self.rows[index])

    def __dask_tokenize__(self):
        return "mapped", self.rows.filename


def measure(way, path, limit):
    library, source = way.split(", ")
    import dask
    import dask.array

    dask.config.set(scheduler="threads", num_workers=2)
    if source == "evenkeel":
        import evenkeel

        rows = evenkeel.open(path, budget=limit // 4)
    else:
        rows = Mapped(path)
    begin = time.perf_counter()
    if library == "dask":
        mean = dask.array.from_array(rows, chunks=(BLOCK, COLUMNS)).mean(axis=0).compute()
    else:
        import xarray

        if source == "evenkeel":
            data = xarray.open_dataset(
                path, engine="evenkeel", budget=limit // 4, chunks={"data_0": BLOCK}
            )["data"]
        else:
            blocks = dask.array.from_array(rows, chunks=(BLOCK, COLUMNS))
            data = xarray.DataArray(blocks, dims=("data_0", "data_1"))
        mean = data.mean("data_0").compute().values
    took = time.perf_counter() - begin
    print(json.dumps([took, time.process_time(), float(mean[:8].sum())]))


def write(path, rows):
    out = np.lib.format.open_memmap(path, "w+", dtype="float32", shape=(rows, COLUMNS))
    header = out.offset
    del out
    rng = np.random.default_rng(0)
    part = rng.random((BLOCK, COLUMNS), dtype="float32")
    with open(path, "r+b") as file:
        file.seek(header)
        for _ in range(rows // BLOCK):
            file.write(part)
        os.fsync(file.fileno())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gib", type=float, default=10)
    parser.add_argument("--limit-mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", default=".")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    limit = options.limit_mib << 20
    if options.measure:
        return measure(*options.measure, limit)
    rows = int(options.gib * 2**30 / (4 * COLUMNS)) // BLOCK * BLOCK
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = pathlib.Path(folder) / "rows.npy"
        write(path, rows)
        size = path.stat().st_size
        print(f"mean of {size / 2**30:.1f} GiB in a cgroup of {options.limit_mib} MiB")
        print(f"{'way':20}{'MiB/s':>10}{'CPU s':>8}{'peak':>12}", flush=True)
        for _ in range(options.rounds):
            for way in WAYS:
                with open(path, "rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                with memory_cgroup(limit) as group:
                    if group is None:
                        sys.exit("bench: it needs a memory cgroup")
                    command = [sys.executable, __file__, "--measure", way, str(path)]
                    command += ["--limit-mib", str(options.limit_mib)]
                    done = subprocess.run([*group.inside, *command], stdout=subprocess.PIPE)
                    peak = f"{(group.peak or 0) / 2**20:,.0f} MiB"
                    why = "OOM kill" if group.kills else f"exit {done.returncode}"
                if done.returncode:
                    print(f"{way:20}{why:>10}{'':8}{peak:>12}", flush=True)
                    continue
                took, cpu, _ = json.loads(done.stdout)
                print(f"{way:20}{size / 2**20 / took:10,.0f}{cpu:8.1f}{peak:>12}", flush=True)


if __name__ == "__main__":
    main()
