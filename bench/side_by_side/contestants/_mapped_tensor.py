"""Cuts batches from a torch tensor over a file, which `opened(path, dtype, shape)` returns."""

import torch

from . import _cut

COLUMNS = 162


def ways(opened):
    def crops(work, starts=None):
        tokens = opened(work.path, torch.uint16, (work.tokens,))
        for some in starts or work.starts():
            yield _cut.xy_torch(tokens, some.tolist(), work.block)

    def rows(work):
        array = opened(work.path, torch.float32, (work.rows, COLUMNS))
        for some in work.indices():
            yield array[torch.from_numpy(some)]

    def scan(work):
        array = opened(work.path, torch.uint8, (work.tokens * 2,))
        for begin, end in _cut.chunks(work.tokens * 2, work.chunk):
            yield array[begin:end].clone()

    def epoch(work):
        return crops(work, _cut.starts_of(work))

    def train(work):
        from . import _training

        return _training.steps(crops(work), work)

    return crops, rows, scan, epoch, train
