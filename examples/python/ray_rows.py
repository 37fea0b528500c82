"""A Ray dataset of the rows of a file, each task within a budget: python ray_rows.py"""

import tempfile

import evenkeel.ray
import numpy as np

with tempfile.TemporaryDirectory() as folder:
    np.save(f"{folder}/rows.npy", np.arange(40_000, dtype="int32").reshape(10_000, 4))
    data = evenkeel.ray.read(f"{folder}/rows.npy", budget="64MiB")
    doubled = data.map_batches(lambda batch: {"sum": batch["data"].sum(axis=1)})
    print(data.count(), "rows, sum", doubled.sum("sum"))
