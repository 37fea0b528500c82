"""The same batch in every step: the cost of training without any loading."""

import numpy as np

TITLE = "no loader, one fixed batch"
PACKAGES = ("torch",)
ONLY = ("train",)


def train(work):
    from . import _training

    random = np.random.default_rng(work.seed)
    x, y = random.integers(0, 1 << 16, (2, work.batch, work.block))

    def batches():
        while True:
            yield x, y

    return _training.steps(batches(), work)
