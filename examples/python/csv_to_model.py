"""CSV to a shuffled matrix to a fitted model, in one script, with memory within a budget.

    python csv_to_model.py [FILE]           a CSV with a header, labels last; default: one is made
    python csv_to_model.py --rows 1000000   a larger one

Needs scikit-learn. The CSV is read a few lines at a time, and written as .npy by `evenkeel.create`.
A model must not see rows sorted by label, one class after the other. So `evenkeel shuffle` puts
them into random order on the disk, and the model is fitted on batches in the order of the file.
"""

import argparse
import subprocess
import sys
import tempfile
from itertools import islice

import evenkeel
import numpy as np
from sklearn.linear_model import SGDClassifier

BUDGET = "16MiB"


def make_csv(path, rows, columns=20, classes=4):
    """Clouds of points, sorted by class, as data on disk often is."""
    draws = np.random.default_rng(0)
    centers = draws.normal(size=(classes, columns))
    with open(path, "w") as file:
        file.write(",".join([*(f"x{i}" for i in range(columns)), "label"]) + "\n")
        for label, center in enumerate(centers):
            for _ in range(rows // classes // 1000):
                points = draws.normal(center, size=(1000, columns))
                labels = np.full((1000, 1), label)
                np.savetxt(file, np.hstack([points, labels]), "%.4f", ",")


def to_matrix(csv, npy):
    """Rows of float32, the label last."""
    with open(csv) as file:
        columns = file.readline().count(",") + 1
        with evenkeel.create(npy, "float32", (None, columns), budget=BUDGET) as matrix:
            while lines := list(islice(file, 10_000)):
                matrix.append(np.loadtxt(lines, np.float32, delimiter=",", ndmin=2))
            return matrix.shape


def fit(npy, test_rows):
    """One pass; the last rows are for testing. After shuffling, any rows are a fair sample."""
    model = SGDClassifier(loss="log_loss", random_state=0)
    with evenkeel.open(npy, budget=BUDGET) as matrix:
        train = len(matrix) - test_rows
        classes = np.unique(matrix[train:, -1])
        for begin in range(0, train, 1000):
            rows = matrix[begin : min(begin + 1000, train)]
            model.partial_fit(rows[:, :-1], rows[:, -1], classes)
        test = matrix[train:]
    return model.score(test[:, :-1], test[:, -1])


def main():
    options = argparse.ArgumentParser(description="CSV to a fitted model.")
    options.add_argument("csv", nargs="?")
    options.add_argument("--rows", type=int, default=40_000)
    args = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        csv, npy, shuffled = (f"{folder}/{name}" for name in ("a.csv", "a.npy", "shuffled.npy"))
        if not args.csv:
            make_csv(csv, args.rows)
        shape = to_matrix(args.csv or csv, npy)
        shuffle = ["shuffle", npy, "-o", shuffled, "--seed", "1", "--budget", BUDGET]
        subprocess.run([sys.executable, "-m", "evenkeel", *shuffle], check=True)
        accuracy = fit(shuffled, test_rows=shape[0] // 10)
    print(f"{shape[0]:,} rows of {shape[1] - 1} features, accuracy {accuracy:.3f}")
    return 0 if accuracy > 0.8 else 1


if __name__ == "__main__":
    sys.exit(main())
