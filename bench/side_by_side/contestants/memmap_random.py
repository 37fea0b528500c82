"""np.memmap, kept, with MADV_RANDOM: no readahead."""

import mmap

from . import _memmap

TITLE = "np.memmap, MADV_RANDOM"
PACKAGES = ("numpy",)
CANNOT = {"scan": "a sequential scan needs readahead"}


def _opened(path, dtype, shape, state):
    fresh = "array" not in state
    array = _memmap.kept(path, dtype, shape, state)
    if fresh:
        _memmap.mapping(array).madvise(mmap.MADV_RANDOM)
    return array


crops, rows, _, epoch, train = _memmap.ways(_opened)
del _
