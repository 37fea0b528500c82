"""Cuts batches from anything that can be sliced like an ndarray."""

import numpy as np

MIB = 1 << 20


def xy(tokens, starts, length):
    """Like nanoGPT's get_batch, in NumPy."""
    x = np.stack([tokens[i : i + length].astype(np.int64) for i in starts])
    y = np.stack([tokens[i + 1 : i + 1 + length].astype(np.int64) for i in starts])
    return x, y


def xy_torch(tokens, starts, length):
    import torch

    x = torch.stack([tokens[i : i + length].to(torch.int64) for i in starts])
    y = torch.stack([tokens[i + 1 : i + 1 + length].to(torch.int64) for i in starts])
    return x, y


def halves(samples):
    """x and y from samples that have one more token. Both are copied, as a model needs them and as
    Megatron and LitGPT do."""
    if isinstance(samples, np.ndarray):
        return samples[:, :-1].astype(np.int64), samples[:, 1:].astype(np.int64)
    return samples[:, :-1].contiguous().long(), samples[:, 1:].contiguous().long()


def starts_of(work):
    """Starts of the blocks of a shuffled epoch, from an array of all of them."""
    for blocks in work.shuffled_blocks():
        yield blocks * work.block


def chunks(size, step):
    """Bounds of the steps of a scan, without end."""
    while True:
        for at in range(0, size, step):
            yield at, min(size, at + step)
