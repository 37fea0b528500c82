"""Rows with labels: x.npy and y.npy, for peers that convert the data or use torch batches."""

import numpy as np


def arrays(work):
    return (np.load(f"{work.path}/{name}.npy", mmap_mode="r") for name in ("x", "y"))


def samples(work):
    """One row and its label at a time."""
    x, y = arrays(work)
    for at in range(0, len(x), 8192):
        yield from zip(np.array(x[at : at + 8192]), y[at : at + 8192].tolist(), strict=True)


def collated(batches):
    """Tensors of the batches of a DataLoader."""
    for batch in batches:
        yield batch["x"], batch["y"]
