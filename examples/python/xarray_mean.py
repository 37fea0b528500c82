"""xarray over a file larger than the budget: python xarray_mean.py"""

import tempfile

import numpy as np
import xarray

with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/measurements.npy"
    np.save(path, np.random.default_rng(0).random((20_000, 64)))
    data = xarray.open_dataset(path, engine="evenkeel", budget="8MiB", chunks={})
    print(dict(data["data"].sizes), "mean", float(data["data"].mean()))
