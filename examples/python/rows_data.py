"""The data of the row examples, made in a temporary folder."""

import argparse
import contextlib
import tempfile
from pathlib import Path

import evenkeel
import numpy as np

COLUMNS, CLASSES = 64, 4
GENES = 2000


@contextlib.contextmanager
def opened(description, make, rows=100_000):
    """The arrays that `make(rows)` returns by name, saved as .npy files and opened with one budget,
    and the options of the command line."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--rows", type=int, default=rows)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--budget", default="16MiB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        budget, arrays = evenkeel.Budget(options.budget), {}
        for name, array in make(options.rows).items():
            path = Path(folder) / f"{name}.npy"
            np.save(path, array)
            arrays[name] = stack.enter_context(evenkeel.open(path, budget=budget))
        yield arrays, options


def clouds(rows):
    """Four clouds of points, one after the other."""
    random = np.random.default_rng(0)
    labels = np.sort(random.integers(0, CLASSES, rows))
    centers = random.normal(size=(CLASSES, COLUMNS))
    features = centers[labels] + random.normal(scale=3, size=(rows, COLUMNS))
    return {"x": features.astype(np.float32), "y": labels}


def line(rows):
    """y is a linear function of x, plus some noise."""
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, COLUMNS)).astype(np.float32)
    y = x @ random.normal(size=COLUMNS) + random.normal(scale=0.1, size=rows)
    return {"x": x, "y": y.astype(np.float32)}


def cells(rows):
    """Counts of genes in cells of four types, one type after the other: a sparse matrix by rows, as
    .h5ad files store it, and the types. Each type has genes that are counted more often."""
    random = np.random.default_rng(0)
    types = np.sort(random.integers(0, CLASSES, rows))
    lengths = random.integers(50, 150, rows)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    # Columns that increase within a row.
    indices = np.cumsum(random.integers(1, GENES // 150, indptr[-1]))
    indices -= np.repeat(indices[indptr[:-1]], lengths)
    marked = indices % CLASSES == np.repeat(types, lengths)
    data = random.poisson(np.where(marked, 8, 1)) + 1
    return {
        "data": data.astype(np.float32),
        "indices": indices.astype(np.int32),
        "indptr": indptr,
        "types": types,
    }
