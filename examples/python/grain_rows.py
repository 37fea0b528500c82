"""Shuffled batches with Grain, the rows read within a budget: python grain_rows.py"""

import tempfile

import evenkeel
import grain
import numpy as np

with tempfile.TemporaryDirectory() as folder:
    np.save(f"{folder}/rows.npy", np.arange(40_000, dtype="int32").reshape(10_000, 4))
    source = evenkeel.open(f"{folder}/rows.npy", budget="8MiB")
    data = grain.MapDataset.source(source).shuffle(seed=1).batch(100)
    print(len(data), "batches, all rows once:", len({int(row[0]) for b in data for row in b}))
