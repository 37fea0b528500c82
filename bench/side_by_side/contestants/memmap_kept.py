"""np.memmap, created once and kept."""

from . import _memmap

TITLE = "np.memmap, kept"
PACKAGES = ("numpy", "torch")
crops, rows, scan, epoch, train = _memmap.ways(_memmap.kept)

_mapped = {}


def crop(path, start, length):
    import numpy as np
    import torch

    if path not in _mapped:
        _mapped[path] = np.memmap(path, dtype=np.uint16, mode="r")
    return torch.from_numpy(_mapped[path][start : start + length].astype(np.int64))


def workers(work):
    from . import _torch_workers

    return _torch_workers.batches(work, crop)
