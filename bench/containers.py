#!/usr/bin/env python3
"""Shuffled rows of Arrow, HDF5 and Zarr files, cold: evenkeel beside the formats' own libraries.

usage: bench/containers.py [--gib 1] [--rows 20000] [--rounds 3] [--folder .]

A file of float32 rows of 2 KiB is written in each format, in batches or chunks of 1,000 rows,
without compression. Random rows are then taken in batches of 512, each library in turn, with the
page cache of the file dropped before. What counts is rows a second; the page cache that is left is
shown, too.
"""

import argparse
import os
import pathlib
import shutil
import tempfile
import time

import evenkeel
import h5py
import numpy as np
import pyarrow as pa
import zarr
from evenkeel import _core

COLUMNS, IN_BATCH, TAKEN = 512, 1000, 512


def write(folder, rows):
    """The same rows in three formats."""
    paths = {kind: folder / f"rows.{kind}" for kind in ("arrow", "h5", "zarr")}
    kind = pa.list_(pa.float32(), COLUMNS)
    table = zarr.create_array(
        paths["zarr"],
        shape=(rows, COLUMNS),
        chunks=(IN_BATCH, COLUMNS),
        dtype="float32",
        compressors=None,
    )
    with h5py.File(paths["h5"], "w") as file, pa.OSFile(str(paths["arrow"]), "wb") as sink:
        data = file.create_dataset("x", (rows, COLUMNS), "f4", chunks=(IN_BATCH, COLUMNS))
        with pa.ipc.new_file(sink, pa.schema([("x", kind)])) as arrow:
            for first in range(0, rows, IN_BATCH):
                part = np.arange(first, first + IN_BATCH, dtype="float32")[:, None]
                part = np.broadcast_to(part, (IN_BATCH, COLUMNS)).copy()
                values = pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), COLUMNS)
                arrow.write_batch(pa.record_batch([values], ["x"]))
                data[first : first + IN_BATCH] = part
                table[first : first + IN_BATCH] = part
    return paths


def files_of(path):
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]


def drop(path):
    for file in files_of(path):
        with open(file, "rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached(path):
    return sum(_core.cached_bytes(os.fsencode(file)) or 0 for file in files_of(path))


def evenkeel_rows(path, batches):
    with evenkeel.open(path, budget="64MiB") as array:
        for batch in batches:
            yield array.take(batch)


def arrow_rows(path, batches):
    """As Hugging Face datasets does it: a mapped table, rows of it taken."""
    table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    column = table.column("x")
    for batch in batches:
        parts = [column.chunk(row // IN_BATCH).slice(row % IN_BATCH, 1) for row in batch]
        yield np.stack([part.flatten().to_numpy() for part in parts])


def h5py_rows(path, batches):
    with h5py.File(path) as file:
        for batch in batches:
            order = np.argsort(batch)
            yield file["x"][batch[order]][np.argsort(order)]


def zarr_rows(path, batches):
    array = zarr.open_array(path, mode="r")
    for batch in batches:
        yield array.oindex[batch]


OWN = {"arrow": ("pyarrow", arrow_rows), "h5": ("h5py", h5py_rows), "zarr": ("zarr", zarr_rows)}


def measure(path, rows_of, batches, seconds):
    """Rows a second, until the batches or the time are over."""
    drop(path)
    begin, done = time.perf_counter(), 0
    for batch, rows in zip(batches, rows_of(path, batches), strict=True):
        assert np.array_equal(rows[:, 0], batch.astype("float32"))
        done += len(batch)
        if time.perf_counter() - begin > seconds:
            break
    return done / (time.perf_counter() - begin), cached(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gib", type=float, default=1)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="of one measurement, at most")
    parser.add_argument("--folder", default=".")
    options = parser.parse_args()
    rows = int(options.gib * 2**30 / (4 * COLUMNS)) // IN_BATCH * IN_BATCH
    folder = pathlib.Path(tempfile.mkdtemp(dir=options.folder))
    try:
        paths = write(folder, rows)
        os.sync()
        chosen = np.random.default_rng(0).permutation(rows)[: options.rows]
        batches = [np.sort(chosen[i : i + TAKEN]) for i in range(0, len(chosen), TAKEN)]
        found = {}
        for _ in range(options.rounds):
            for kind, path in paths.items():
                name, own = OWN[kind]
                for who, how in (("evenkeel", evenkeel_rows), (name, own)):
                    result = measure(path, how, batches, options.seconds)
                    found.setdefault((kind, who), []).append(result)
        print(f"{rows:,} rows of 2 KiB, {len(chosen):,} at random, cold, {options.rounds} rounds")
        print(f"{'file':8}{'reader':10}{'rows/s':>12}{'times':>8}{'page cache':>14}")
        for kind in paths:
            for who in ("evenkeel", OWN[kind][0]):
                rates, kept = zip(*found[kind, who], strict=True)
                own_rate = np.median([rate for rate, _ in found[kind, OWN[kind][0]]])
                rate = np.median(rates)
                kept_text = _core.format_size(int(np.median(kept)))
                print(f"{kind:8}{who:10}{rate:12,.0f}{rate / own_rate:8.1f}{kept_text:>14}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
