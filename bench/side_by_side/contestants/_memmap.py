"""Shared by the four ways to use np.memmap. `opened(path, dtype, shape, state)` returns the array
for the next batch."""

import numpy as np

from . import _cut

COLUMNS = 162


def ways(opened, behind=None):
    """crops, rows, scan, epoch and train. `behind(array)` is called after each batch."""
    behind = behind or (lambda array: None)

    def crops(work, starts=None):
        state = {}
        for some in starts or work.starts():
            tokens = opened(work.path, np.uint16, None, state)
            yield _cut.xy(tokens, some, work.block)
            behind(tokens)

    def rows(work):
        state = {}
        for some in work.indices():
            array = opened(work.path, np.float32, (work.rows, COLUMNS), state)
            yield array[some]
            behind(array)

    def scan(work):
        state = {}
        for begin, end in _cut.chunks(work.tokens * 2, work.chunk):
            array = opened(work.path, np.uint8, None, state)
            yield np.array(array[begin:end])
            behind(array)

    def epoch(work):
        return crops(work, _cut.starts_of(work))

    def train(work):
        from . import _training

        return _training.steps(crops(work), work)

    return crops, rows, scan, epoch, train


def kept(path, dtype, shape, state):
    if "array" not in state:
        state["array"] = np.memmap(path, dtype=dtype, mode="r", shape=shape)
    return state["array"]


def anew(path, dtype, shape, state):
    return np.memmap(path, dtype=dtype, mode="r", shape=shape)


def mapping(array):
    """The mmap object behind an array."""
    return array._mmap
