"""os.pread, one call for each crop or row."""

import os

import numpy as np

from . import _cut

TITLE = "os.pread"
PACKAGES = ("numpy",)
COLUMNS = 162


def _opened(path):
    return os.open(path, os.O_RDONLY)


def crops(work, starts=None):
    file = _opened(work.path)
    size = 2 * (work.block + 1)
    for some in starts or work.starts():
        both = np.empty((len(some), work.block + 1), np.uint16)
        for row, start in zip(both, some, strict=True):
            row[:] = np.frombuffer(os.pread(file, size, 2 * int(start)), np.uint16)
        yield _cut.halves(both)


def rows(work):
    file, size = _opened(work.path), 4 * COLUMNS
    for some in work.indices():
        out = np.empty((len(some), COLUMNS), np.float32)
        for row, number in zip(out, some, strict=True):
            row[:] = np.frombuffer(os.pread(file, size, int(number) * size), np.float32)
        yield out


def scan(work):
    file = _opened(work.path)
    for begin, end in _cut.chunks(work.tokens * 2, work.chunk):
        yield np.frombuffer(os.pread(file, end - begin, begin), np.uint8)


def epoch(work):
    return crops(work, _cut.starts_of(work))


def train(work):
    from . import _training

    return _training.steps(crops(work), work)


_files = {}


def crop(path, start, length):
    import torch

    if path not in _files:
        _files[path] = _opened(path)
    read = np.frombuffer(os.pread(_files[path], 2 * length, 2 * start), np.uint16)
    return torch.from_numpy(read.astype(np.int64))


def workers(work):
    from . import _torch_workers

    return _torch_workers.batches(work, crop)
