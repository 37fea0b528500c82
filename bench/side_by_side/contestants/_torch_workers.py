"""A map-style dataset of blocks, read by a DataLoader with workers, as most programs do."""

import torch
from torch.utils.data import DataLoader, Dataset


class Blocks(Dataset):
    """`crop(path, start, length)` returns `length` tokens as an int64 tensor."""

    def __init__(self, work, crop):
        self._path, self._count, self._length = work.path, work.blocks, work.block
        self._crop = crop

    def __len__(self):
        return self._count

    def __getitem__(self, block):
        tokens = self._crop(self._path, block * self._length, self._length + 1)
        return tokens[:-1], tokens[1:]


def batches(work, crop):
    torch.manual_seed(work.seed)
    loader = DataLoader(
        Blocks(work, crop), batch_size=work.batch, shuffle=True, num_workers=work.workers
    )
    while True:
        yield from loader
