"""For the tests of token streams and their loaders."""

import numpy as np

COUNT = 300_000  # token i has the value i mod 65,536


def sliced(path, starts, block_size):
    """What nanoGPT's get_batch does."""
    data = np.memmap(path, np.uint16, "r")
    x = np.stack([data[i : i + block_size].astype(np.int64) for i in starts])
    y = np.stack([data[i + 1 : i + 1 + block_size].astype(np.int64) for i in starts])
    return x, y


def batches(loader, count):
    return [tuple(np.array(part) for part in next(loader)) for _ in range(count)]


def same(one, other):
    return len(one) == len(other) and all(
        np.array_equal(a, b) for p, q in zip(one, other) for a, b in zip(p, q)
    )
