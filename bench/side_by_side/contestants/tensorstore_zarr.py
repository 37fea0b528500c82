"""TensorStore over the same store as Zarr, without a chunk cache, which is its default."""

import numpy as np
import tensorstore as ts

from . import zarr_array

TITLE = "TensorStore"
PACKAGES = ("tensorstore", "numpy")
CONVERTS = ("rows",)
CONVERTED = "zarr"  # shared with Zarr
CANNOT = {
    "crops": "measured only with rows, because 10 GiB of tokens would have to be converted",
    "epoch": "measured only with rows",
    "workers": "measured only with rows",
    "train": "measured only with rows",
    "scan": "measured only with rows, because 10 GiB would have to be converted",
}
convert = zarr_array.convert


def rows(work):
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": work.converted}}
    stored = ts.open(spec, open=True, read=True).result()
    for some in work.indices():
        yield np.asarray(stored.oindex[some].read().result())
