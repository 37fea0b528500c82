"""dask over a file larger than the budget: python dask_mean.py"""

import tempfile

import dask.array
import evenkeel
import numpy as np

with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/measurements.npy"
    np.save(path, np.random.default_rng(0).random((20_000, 64)))
    rows = evenkeel.open(path, budget="16MiB")
    data = dask.array.from_array(rows, chunks=rows.chunks)  # blocks of 1 MiB
    print(data.shape, "in", data.npartitions, "blocks, mean", data.mean(axis=0).compute().mean())
