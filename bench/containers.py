#!/usr/bin/env python3
"""Arrow, HDF5 and Zarr files, cold: evenkeel compared with the formats' own libraries.

usage: bench/containers.py [--gib 0.25] [--rows 20000] [--rounds 1] [--seconds 2] [--limit-mib 0]
                           [--folder .]

A file of float32 rows of 2 KiB is written in each format, in batches or chunks of 1,000 rows:
Arrow, HDF5 and Zarr without compression, and Zarr with zstd; the last also in chunks of 32 rows.
Two kinds of work:

rows     random rows, in batches of 512, from each file
chunks   all chunks of the Zarr files with zstd, each once, in a shuffled order: 8,000 rows at once,
         but one chunk at a time with zarr

Each reader has its own process, in turn, with the page cache of the files dropped before. With
--limit-mib that process runs in a memory cgroup, so that a file larger than that cannot be cached
whole. A measurement ends with the work, or after --seconds. The result is rows per second, and the
page cache that is left. TensorStore is measured if it is installed. With these options all of it
took 2:15 minutes on two busy cores.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
from side_by_side.cgroup import memory_cgroup

COLUMNS, IN_BATCH, TAKEN = 512, 1000, 512
KINDS = ("arrow", "h5", "zarr", "zstd", "zstd-32")
TOGETHER = 8000  # rows of chunks that are requested at once


def write(folder, rows):
    """The same rows in all formats: the number of the row, then small whole numbers."""
    import h5py
    import pyarrow as pa
    import zarr

    paths = {kind: folder / f"rows.{kind}" for kind in KINDS}
    how = {"shape": (rows, COLUMNS), "chunks": (IN_BATCH, COLUMNS), "dtype": "float32"}
    plain = zarr.create_array(paths["zarr"], **how, compressors=None)
    how["compressors"] = zarr.codecs.ZstdCodec(level=1)
    packed = zarr.create_array(paths["zstd"], **how)
    small = zarr.create_array(
        paths["zstd-32"], **{**how, "chunks": (rows_of_chunk("zstd-32"), COLUMNS)}
    )
    held = []  # chunks of 32 rows are written some at a time
    rng = np.random.default_rng(1)
    with h5py.File(paths["h5"], "w") as file, pa.OSFile(str(paths["arrow"]), "wb") as sink:
        data = file.create_dataset("x", (rows, COLUMNS), "f4", chunks=(IN_BATCH, COLUMNS))
        kind = pa.list_(pa.float32(), COLUMNS)
        with pa.ipc.new_file(sink, pa.schema([("x", kind)])) as arrow:
            for first in range(0, rows, IN_BATCH):
                part = rng.integers(0, 100, (IN_BATCH, COLUMNS)).astype("float32")
                part[:, 0] = np.arange(first, first + IN_BATCH)
                values = pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), COLUMNS)
                arrow.write_batch(pa.record_batch([values], ["x"]))
                for table in (data, plain, packed):
                    table[first : first + IN_BATCH] = part
                held.append(part)
                if len(held) == rows_of_chunk("zstd-32") or first + IN_BATCH == rows:
                    small[first + IN_BATCH - len(held) * IN_BATCH : first + IN_BATCH] = (
                        np.concatenate(held)
                    )
                    held.clear()
    return paths


def rows_of_chunk(kind):
    return 32 if kind == "zstd-32" else IN_BATCH


def files_of(path):
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]


def drop(path):
    """The data is already on the disk: flushing each of thousands of chunks would take longer than
    reading all of them."""
    for file in files_of(path):
        with open(file, "rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


# ---- readers: each yields the rows of a batch of row numbers, or of a chunk's number


def evenkeel_rows(path, batches):
    import evenkeel

    with evenkeel.open(path, budget="64MiB") as array:
        yield None
        for batch in batches:
            yield array.take(batch)


def pyarrow_rows(path, batches):
    """Like Hugging Face datasets: takes rows of a mapped table."""
    import pyarrow as pa

    column = pa.ipc.open_file(pa.memory_map(str(path))).read_all().column("x")
    yield None
    for batch in batches:
        parts = [column.chunk(row // IN_BATCH).slice(row % IN_BATCH, 1) for row in batch]
        yield np.stack([part.flatten().to_numpy() for part in parts])


def h5py_rows(path, batches):
    import h5py

    with h5py.File(path) as file:
        yield None
        for batch in batches:
            yield file["x"][batch]


def zarr_rows(path, batches):
    import zarr

    array = zarr.open_array(path, mode="r")
    yield None
    for batch in batches:
        yield array.oindex[batch]


def tensorstore_of(path):
    import tensorstore as ts

    store = {"driver": "file", "path": str(path)}
    context = {"cache_pool": {"total_bytes_limit": 64 << 20}}
    spec = {"driver": "zarr3", "kvstore": store, "context": context}
    return ts.open(spec, read=True).result()


def tensorstore_rows(path, batches):
    array = tensorstore_of(path)
    yield None
    for batch in batches:
        yield array[batch].read().result()


def evenkeel_chunks(path, numbers, rows):
    import evenkeel

    with evenkeel.open(path, budget="128MiB") as array:
        yield None
        some = TOGETHER // rows
        for i in range(0, len(numbers), some):
            first = np.asarray(numbers[i : i + some])[:, None] * rows
            yield from array.take(first + np.arange(rows))


def zarr_chunks(path, numbers, rows):
    import zarr

    array = zarr.open_array(path, mode="r")
    yield None
    for number in numbers:
        yield array[number * rows : (number + 1) * rows]


def tensorstore_chunks(path, numbers, rows):
    array = tensorstore_of(path)
    yield None
    pending = []
    for number in numbers:
        pending.append(array[number * rows : (number + 1) * rows].read())
        if len(pending) * rows >= TOGETHER:
            yield pending.pop(0).result()
    for left in pending:
        yield left.result()


CHUNK_READERS = {
    "evenkeel": evenkeel_chunks,
    "zarr": zarr_chunks,
    "tensorstore": tensorstore_chunks,
}
READERS = {
    ("rows", "arrow"): {"evenkeel": evenkeel_rows, "pyarrow": pyarrow_rows},
    ("rows", "h5"): {"evenkeel": evenkeel_rows, "h5py": h5py_rows},
    ("rows", "zarr"): {"evenkeel": evenkeel_rows, "zarr": zarr_rows},
    ("rows", "zstd"): {
        "evenkeel": evenkeel_rows,
        "zarr": zarr_rows,
        "tensorstore": tensorstore_rows,
    },
    ("chunks", "zstd"): CHUNK_READERS,
    ("chunks", "zstd-32"): CHUNK_READERS,
}


def measure(work, kind, who, path, options):
    """Runs in its own process: rows per second until the work or the time ends."""
    rng = np.random.default_rng(0)
    reader = READERS[work, kind][who]
    if work == "rows":
        chosen = rng.permutation(options.total)[: options.rows]
        wanted = [np.sort(chosen[i : i + TAKEN]) for i in range(0, len(chosen), TAKEN)]
        reader = reader(path, wanted)
        expected = wanted
    else:
        size = rows_of_chunk(kind)
        wanted = rng.permutation(options.total // size).tolist()
        reader = reader(path, wanted, size)
        expected = (np.arange(number * size, (number + 1) * size) for number in wanted)
    next(reader)  # opened
    begin, used, done = time.perf_counter(), time.process_time(), 0
    for numbers, rows in zip(expected, reader, strict=True):
        assert np.array_equal(rows[:, 0], numbers.astype("float32"))
        done += len(rows)
        if time.perf_counter() - begin > options.seconds:
            break
    took = time.perf_counter() - begin
    print(json.dumps([done / took, done / (time.process_time() - used)]))


def in_a_process(arguments, limit):
    command = [sys.executable, __file__, *map(str, arguments)]
    if not limit:
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    with memory_cgroup(limit) as group:
        if group is None:
            sys.exit("bench: --limit-mib needs a memory cgroup")
        command = [*group.inside, *command]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gib", type=float, default=0.25)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2, help="of one measurement, at most")
    parser.add_argument("--limit-mib", type=int, default=0, help="of a memory cgroup; 0: none")
    parser.add_argument("--folder", default=".")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--total", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        work, kind, who, path = options.measure
        return measure(work, kind, who, pathlib.Path(path), options)
    from evenkeel import _core

    total = int(options.gib * 2**30 / (4 * COLUMNS)) // IN_BATCH * IN_BATCH
    folder = pathlib.Path(tempfile.mkdtemp(dir=options.folder))
    try:
        paths = write(folder, total)
        os.sync()
        found = {}
        limits = ["--rows", options.rows, "--seconds", options.seconds, "--total", total]
        for _ in range(options.rounds):
            for (work, kind), readers in READERS.items():
                for who in readers:
                    if importlib.util.find_spec(who.replace("evenkeel", "numpy")) is None:
                        continue
                    drop(paths[kind])
                    rate, cpu = in_a_process(
                        ["--measure", work, kind, who, paths[kind], *limits],
                        options.limit_mib << 20,
                    )
                    kept = sum(
                        _core.cached_bytes(os.fsencode(file)) or 0 for file in files_of(paths[kind])
                    )
                    found.setdefault((work, kind), {}).setdefault(who, []).append((rate, kept, cpu))
        limit = (
            f"in a cgroup of {options.limit_mib} MiB" if options.limit_mib else "without a limit"
        )
        print(f"{total:,} rows of 2 KiB, cold, {limit}, {options.rounds} rounds; medians")
        print(f"{'work':8}{'file':8}{'reader':13}{'rows/s':>10}{'evenkeel':>10}", end="")
        print(f"{'rows/CPU s':>12}{'page cache':>12}")
        for (work, kind), readers in found.items():
            own = np.median([rate for rate, *_ in readers["evenkeel"]])
            for who, results in readers.items():
                rate, kept, cpu = (np.median(figures) for figures in zip(*results, strict=True))
                times = "" if who == "evenkeel" else f"{own / rate:.1f} x"
                kept_text = _core.format_size(int(kept))
                print(
                    f"{work:8}{kind:8}{who:13}{rate:10,.0f}{times:>10}{cpu:12,.0f}{kept_text:>12}"
                )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
