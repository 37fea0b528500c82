"""np.memmap, kept, with MADV_DONTNEED after each batch."""

import mmap

from . import _memmap

TITLE = "np.memmap, MADV_DONTNEED"
PACKAGES = ("numpy",)
CANNOT = {"workers": "like np.memmap, kept: a worker has no point after a batch to call madvise"}


def _release(array):
    _memmap.mapping(array).madvise(mmap.MADV_DONTNEED)


crops, rows, scan, epoch, train = _memmap.ways(_memmap.kept, _release)
