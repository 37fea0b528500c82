"""np.memmap, recreated for every batch, as nanoGPT does."""

from . import _memmap

TITLE = "np.memmap, recreated"
PACKAGES = ("numpy", "torch")
crops, rows, scan, epoch, train = _memmap.ways(_memmap.anew)


def crop(path, start, length):
    import numpy as np
    import torch

    tokens = np.memmap(path, dtype=np.uint16, mode="r")
    return torch.from_numpy(tokens[start : start + length].astype(np.int64))


def workers(work):
    from . import _torch_workers

    return _torch_workers.batches(work, crop)
