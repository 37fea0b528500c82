"""Zarr, uncompressed (the data is noise), in chunks of 1,024 rows: 648 KiB."""

import numpy as np
import zarr

TITLE = "Zarr"
PACKAGES = ("zarr", "numpy")
CONVERTS = ("rows",)
CONVERTED = "zarr"  # shared with TensorStore
COLUMNS = 162
CANNOT = {
    "crops": "measured only with rows, because 10 GiB of tokens would have to be converted",
    "epoch": "measured only with rows",
    "workers": "measured only with rows",
    "train": "measured only with rows",
    "scan": "measured only with rows, because 10 GiB would have to be converted",
}


def convert(work):
    rows = np.memmap(work.path, np.float32, "r", shape=(work.rows, COLUMNS))
    made = zarr.create_array(
        store=work.converted,
        shape=rows.shape,
        chunks=(1024, COLUMNS),
        dtype=rows.dtype,
        compressors=None,
        overwrite=True,
    )
    for at in range(0, len(rows), 65536):
        made[at : at + 65536] = rows[at : at + 65536]


def rows(work):
    stored = zarr.open_array(work.converted, mode="r")
    for some in work.indices():
        yield stored.oindex[some]
