"""Shuffled rows of a Hugging Face dataset, within a budget: python datasets_rows.py"""

import tempfile

import datasets
import evenkeel
import numpy as np

with tempfile.TemporaryDirectory() as folder:
    ids = [np.arange(n % 50).tolist() for n in range(10_000)]
    datasets.Dataset.from_dict({"input_ids": ids}).save_to_disk(folder)
    rows = evenkeel.open(folder, column="input_ids", budget="64MiB")
    tokens = 0
    for values, offsets in evenkeel.Loader(rows, batch_size=256, order="shuffled", seed=1):
        assert offsets[-1] == len(values)  # row i is values[offsets[i] : offsets[i + 1]]
        tokens += len(values)
    print(f"{len(rows):,} rows, {tokens:,} tokens")
