"""The files that are read, and whether the page cache holds them."""

import ctypes
import os
import pathlib
import shutil
import sys

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
COLUMNS = 162  # of the rows


def say(text):
    print(text, file=sys.stderr, flush=True)


def make(path, size, header=b"", block=None):
    """A file of `size` bytes behind the header, made if it is not there yet. `block(at)` gives the
    bytes from `at` on, 16 MiB at a time; without it they are noise, no two blocks alike."""
    path = pathlib.Path(path)
    if path.exists() and path.stat().st_size == len(header) + size:
        return path
    free = shutil.disk_usage(path.parent).free
    if free < size + GIB:
        sys.exit(
            f"bench: {path.name} takes {size // MIB} MiB, {path.parent} has {free // MIB} MiB free"
        )
    say(f"making {path.name}, {size // MIB} MiB")
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
    """An NPY file of `count` rows of 162 float32. The bytes are noise: some are NaN."""
    shape = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({count}, {COLUMNS}), }}"
    header = b"\x93NUMPY\x01\x00\x76\x00" + shape.ljust(117).encode() + b"\n"
    return make(path, count * COLUMNS * 4, header)


def make_blocks(path, count, size=2048):
    """Tokens in `count` blocks of `size` bytes that begin with their number, in 64 bits; one token
    more at the end. So a block says which it is, whatever order it comes in."""
    block = bytearray(os.urandom(16 * MIB))

    def numbered(at):
        for place in range(0, len(block), size):
            block[place : place + 8] = ((at + place) // size).to_bytes(8, "little")
        return block

    return make(path, count * size + 2, block=numbered)


def make_sparse(path, size):
    """A file that is `size` bytes long and takes no room: all of it reads as zero."""
    with open(path, "ab") as out:
        out.truncate(size)
    return pathlib.Path(path)


# --- the page cache


def files_in(path):
    """The file, or all files of a folder."""
    path = pathlib.Path(path)
    return [p for p in sorted(path.rglob("*")) if p.is_file()] if path.is_dir() else [path]


def make_cold(path):
    """Out of the page cache; returns how many bytes stayed in spite of that (None: not known).
    What was written and is not on the disk yet would stay, so it is brought there first."""
    for file in files_in(path):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    return cached_bytes(path)


def make_warm(path):
    """All of it into the page cache."""
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
    """Bytes of the file, or of a folder's files, in the page cache, by cachestat(2); None where
    the kernel does not tell: before Linux 6.5, or of a file that is neither yours nor writable."""
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
    """Where the kernel keeps the readahead of the device that `path` lies on."""
    device = os.stat(path).st_dev
    return pathlib.Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")


def readahead_kib(path):
    try:
        return int(readahead_file(path).read_text())
    except (OSError, ValueError):
        return None
