"""h5py: one contiguous dataset, its default layout."""

import h5py
import numpy as np

TITLE = "h5py"
PACKAGES = ("h5py", "numpy")
CONVERTS = ("rows",)
CANNOT = {
    "crops": "measured only with rows, because 10 GiB of tokens would have to be converted",
    "epoch": "measured only with rows",
    "workers": "measured only with rows",
    "train": "measured only with rows",
    "scan": "measured only with rows, because 10 GiB would have to be converted",
}
COLUMNS = 162


def convert(work):
    rows = np.memmap(work.path, np.float32, "r", shape=(work.rows, COLUMNS))
    with h5py.File(f"{work.converted}/rows.h5", "w") as file:
        made = file.create_dataset("rows", rows.shape, rows.dtype)
        for at in range(0, len(rows), 65536):
            made[at : at + 65536] = rows[at : at + 65536]


def rows(work):
    """h5py takes row numbers only in increasing order, so they are sorted and the rows put back."""
    with h5py.File(f"{work.converted}/rows.h5", "r") as file:
        stored = file["rows"]
        for some in work.indices():
            order = np.argsort(some)
            out = np.empty((len(some), COLUMNS), np.float32)
            out[order] = stored[some[order]]
            yield out
