"""The blocks of a token file, each with the one more token that y needs, for peers that convert."""

import numpy as np


def samples(work, count):
    """Arrays of up to `count` samples of block + 1 tokens."""
    tokens = np.memmap(work.path, np.uint16, "r")
    for first in range(0, work.blocks, count):
        starts = np.arange(first, min(work.blocks, first + count)) * work.block
        yield tokens[starts[:, None] + np.arange(work.block + 1)]
