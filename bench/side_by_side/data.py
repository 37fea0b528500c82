"""Creates the files that are read, and controls what the page cache holds of them."""

import ctypes
import os
import pathlib
import shutil
import sys

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
COLUMNS = 162  # of a row


def say(text):
    print(text, file=sys.stderr, flush=True)


def make(path, size, header=b"", block=None):
    """A file of `size` bytes after the header, created if it does not exist. `block(at)` returns
    the bytes from `at` on, 16 MiB at a time. Without it they are noise, no two blocks alike."""
    path = pathlib.Path(path)
    if path.exists() and path.stat().st_size == len(header) + size:
        return path
    free = shutil.disk_usage(path.parent).free
    if free < size + GIB:
        sys.exit(
            f"bench: {path.name} needs {size // MIB} MiB, {path.parent} has {free // MIB} MiB free"
        )
    say(f"creating {path.name}, {size // MIB} MiB")
    block = block or noise()
    unfinished = path.with_name(path.name + ".part")
    with open(unfinished, "wb") as out:
        out.write(header)
        for at in range(0, size, 16 * MIB):
            out.write(memoryview(block(at))[: size - at])
        out.flush()
        os.fsync(out.fileno())
    unfinished.rename(path)
    return path


def noise():
    block = bytearray(os.urandom(16 * MIB))

    def numbered(at):
        block[:8] = at.to_bytes(8, "little")
        return block

    return numbered


def make_rows(path, count):
    """An NPY file of `count` rows of 162 float32. The bytes are noise, so some values are NaN."""
    shape = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({count}, {COLUMNS}), }}"
    header = b"\x93NUMPY\x01\x00\x76\x00" + shape.ljust(117).encode() + b"\n"
    return make(path, count * COLUMNS * 4, header)


def make_blocks(path, count, size=2048):
    """Tokens in `count` blocks of `size` bytes, with one more token at the end. Each block begins
    with its number in 64 bits, so that it can be recognized in any order."""
    block = bytearray(os.urandom(16 * MIB))

    def numbered(at):
        for place in range(0, len(block), size):
            block[place : place + 8] = ((at + place) // size).to_bytes(8, "little")
        return block

    return make(path, count * size + 2, block=numbered)


def make_cells(path, count):
    """A folder with the data, indices and indptr of a sparse matrix of `count` rows and 20,000
    columns: 500 to 1,500 values in a row, 1,000 on average. Column 0 holds the row's number."""
    import numpy as np

    def write(part, create):
        random = np.random.default_rng(0)
        counts = random.integers(500, 1501, count)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        np.save(part / "indptr.npy", indptr)
        data, indices = (
            create(part / f"{name}.npy", "w+", kind, (int(indptr[-1]),))
            for name, kind in (("data", np.float32), ("indices", np.int32))
        )
        for row in range(0, count, 4096):
            bounds = indptr[row : row + 4097]
            starts, size = bounds[:-1] - bounds[0], bounds[-1] - bounds[0]
            values = random.integers(1, 9, size).astype(np.float32)
            values[starts] = np.arange(row, row + len(starts))
            columns = np.cumsum(random.integers(1, 14, size))
            columns -= np.repeat(columns[starts], np.diff(bounds))
            data[bounds[0] : bounds[-1]], indices[bounds[0] : bounds[-1]] = values, columns

    return _make_folder(path, count * 8000, write)


def make_labelled(path, count):
    """A folder with x.npy, `count` rows of 162 float32, and y.npy, their numbers as labels."""
    import numpy as np

    def write(part, create):
        random = np.random.default_rng(0)
        np.save(part / "y.npy", np.arange(count))
        x = create(part / "x.npy", "w+", np.float32, (count, COLUMNS))
        for row in range(0, count, 8192):
            x[row : row + 8192] = random.random(x[row : row + 8192].shape, np.float32)

    return _make_folder(path, count * COLUMNS * 4, write)


def _make_folder(path, size, write):
    from numpy.lib.format import open_memmap

    path = pathlib.Path(path)
    if path.exists():
        return path
    free = shutil.disk_usage(path.parent).free
    if free < size + GIB:
        sys.exit(f"bench: {path.name} needs {size // MIB} MiB; {free // MIB} MiB are free")
    say(f"creating {path.name}, {size // MIB} MiB")
    part = path.with_name(path.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    write(part, open_memmap)
    part.rename(path)
    return path


def make_sparse(path, size):
    """A sparse file of `size` bytes: it takes no disk space and reads as zeros."""
    with open(path, "ab") as out:
        out.truncate(size)
    return pathlib.Path(path)


# --- the page cache


def files_in(path):
    """The file, or all files of a folder."""
    path = pathlib.Path(path)
    return [p for p in sorted(path.rglob("*")) if p.is_file()] if path.is_dir() else [path]


def make_cold(path):
    """Drops a file from the page cache. Returns how many bytes are still cached (None: unknown).
    Dirty pages cannot be dropped, so they are written to the disk first."""
    for file in files_in(path):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    return cached_bytes(path)


def make_warm(path):
    """Reads the whole file into the page cache."""
    for file in files_in(path):
        with open(file, "rb", buffering=0) as data:
            buffer = bytearray(16 * MIB)
            while data.readinto(buffer):
                pass


class _Range(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class _Cachestat(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    ]


_SYS_CACHESTAT = 451  # on every architecture but alpha
_libc = ctypes.CDLL(None, use_errno=True)


def cached_bytes(path):
    """Bytes of a file, or of all files in a folder, in the page cache, from cachestat(2). None if
    the kernel does not say: before Linux 6.5, or if the file is neither yours nor writable."""
    pages = 0
    for file in files_in(path):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            span, stat = _Range(0, 0), _Cachestat()
            if _libc.syscall(
                ctypes.c_long(_SYS_CACHESTAT),
                ctypes.c_uint(descriptor),
                ctypes.byref(span),
                ctypes.byref(stat),
                ctypes.c_uint(0),
            ):
                return None
            pages += stat.cached
        finally:
            os.close(descriptor)
    return pages * os.sysconf("SC_PAGE_SIZE")


# --- readahead


def readahead_file(path):
    """The sysfs file with the readahead of the device that holds `path`."""
    device = os.stat(path).st_dev
    return pathlib.Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")


def readahead_kib(path):
    try:
        return int(readahead_file(path).read_text())
    except (OSError, ValueError):
        return None
